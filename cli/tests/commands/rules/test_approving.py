"""Four eyes by the commands, on a real broker: a thread with a rule set answers as the app does."""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from headgate.main import run
from headgate.rules.bundle import load_streams
from headgate.rules.publish import AppTopics
from rulecore.documents.status import status_record
from rulecore.ruleset.ruleset import RuleSet
from streamcore.kafka import data_clients as clients
from streamcore.kafka.control_topic import control_topic
from streamcore.kafka.readers import Follower
from streamcore.kafka.settings import KafkaSettings
from streamcore.kafka.topics import TopicSpec, ensure_topics
from streamcore.kernel import ControlRecord

RULE = """\
id: {id}
version: {version}
owner: me
tags: [payments]
on: shop
where: amount > {amount}
then: {{severity: high, message: found}}
"""
DECISION_POLICY = """\
decision_policy: shop
version: 1
owner: me
on: shop
decide: {order: [block, allow], default: allow}
"""
POLICY = "policy: payments\nversion: 1\ntags: [payments]\napprovals: 1\nemergency_hours: 24\nrequire: signed\n"


@pytest.fixture
def target(kafka: KafkaSettings) -> Iterator[list[str]]:
    """Run an app; return the options that name it."""
    app, stop = f"four-{uuid.uuid4().hex[:8]}", threading.Event()
    topics = AppTopics(app)
    ensure_topics(kafka, [control_topic(topics.control), TopicSpec(topics.status, 2)])

    def answer() -> None:
        rules, producer = RuleSet.empty(load_streams()), clients.producer(kafka)
        with Follower(kafka, [topics.control]) as follower:
            while not stop.is_set():
                for r in follower.poll(20):
                    control = ControlRecord(r.partition, r.offset, r.key, r.value)
                    rules, statuses = rules.apply([control], r.timestamp_ms)
                    for status in statuses:
                        producer.produce(topics.status, status_record(status).value, status.name.encode())
                producer.flush(10)

    thread = threading.Thread(target=answer)
    thread.start()
    yield ["--app", app, "--bootstrap", kafka.bootstrap]
    stop.set()
    thread.join()


@pytest.mark.kafka
def test_a_second_person_approves_and_the_author_cannot(
    target: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def headgate(*words: str, code: int = 0) -> str:
        assert run(["rules", *words]) == code, capsys.readouterr()
        return capsys.readouterr().out

    def rule(version: int, amount: int) -> str:
        path = tmp_path / "r.yaml"
        path.write_text(RULE.format(id="r", version=version, amount=amount))
        return str(path)

    keys = {name: str(tmp_path / f"{name}.key") for name in ("ada", "alice", "carol")}
    public = {name: headgate("new-key", name, file).strip() for name, file in keys.items()}
    admin = [*target, "--key", keys["ada"]]
    headgate("signer", "ada", "--role", "admin", *admin)
    headgate("signer", "alice", "--role", "publisher", "--public", public["alice"], *admin)
    headgate("signer", "carol", "--role", "approver", "--public", public["carol"], *admin)
    (tmp_path / "policy.yaml").write_text(POLICY)
    headgate("policy", str(tmp_path / "policy.yaml"), *admin)

    assert "an approval by another subject" in headgate("publish", rule(1, 1), *target, code=1)
    proposed = headgate("propose", rule(1, 1), *target, "--key", keys["alice"], "--why", "fraud", "-o", "json")
    proposal = json.loads(proposed)["published"][0]["proposal"]
    assert proposal in headgate("proposals", *target)
    refused = headgate("approve", proposal, *target, "--key", keys["alice"], code=1)
    assert "needs the role approver" in refused
    headgate("approve", proposal, *target, "--key", keys["carol"])
    history = headgate("list", "--history", *target, "--rule", "r")
    assert "alice, approved by carol (signed)" in history

    headgate("propose", rule(2, 2), *target, "--key", keys["alice"], "--emergency")
    assert "emergency until" in headgate("proposals", *target)
    rules = json.loads(headgate("list", *target, "-o", "json"))
    assert [(one["rule"], one["version"], one["slot"]) for one in rules] == [("r", 2, "live")]
    again = headgate("propose", rule(3, 3), *target, "--key", keys["ada"], "--mode", "shadow")
    assert "accepted" in again, "shadow needs a signature alone"

    (tmp_path / "all.yaml").write_text(POLICY.replace("policy: payments", "policy: all").replace("[payments]", "[]"))
    headgate("policy", str(tmp_path / "all.yaml"), *admin)
    (decides := tmp_path / "decides.yaml").write_text(DECISION_POLICY)
    refused = headgate("publish", str(decides), *target, code=1)
    assert "decision policy shop needs an approval by another subject (policy all)" in refused
    signed = [*target, "--key", keys["alice"]]
    proposal = json.loads(headgate("propose", str(decides), *signed, "-o", "json"))["published"][0]["proposal"]
    assert "shop@1" in headgate("proposals", *target)
    headgate("approve", proposal, *target, "--key", keys["carol"])
    assert "alice, approved by carol (signed)" in headgate("list", "--history", *target, "--rule", "shop")
    assert "have to be signed" in headgate("publish", "--delete-policy", "shop", str(decides), *target, code=1)
    assert "accepted" in headgate("propose", "--delete-policy", "shop", *signed)


def test_a_key_file_is_private_and_never_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "a.key"
    assert run(["rules", "new-key", "a", str(file)]) == 0
    assert file.stat().st_mode & 0o077 == 0
    assert run(["rules", "new-key", "a", str(file)]) == 1
    assert "never overwritten" in capsys.readouterr().err
    for broken, message in (("{}", "no key file"), ('{"signer": "a", "key": "AA=="}', "no key file")):
        file.write_text(broken)
        assert run(["rules", "approve", "0" * 32, "--key", str(file)]) == 1
        assert message in capsys.readouterr().err
    file.chmod(0o644)
    assert run(["rules", "approve", "0" * 32, "--key", str(file)]) == 1
    assert "chmod 600" in capsys.readouterr().err
