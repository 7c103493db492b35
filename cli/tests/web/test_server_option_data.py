"""Streams, dead letters and releases through a console give what the commands give beside the broker."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from headgate.main import run
from headgate.rules.publish import AppTopics, ChangeNote, publish, release_changes
from streamcore.kafka import data_clients as clients
from streamcore.kafka.control_topic import control_topic
from streamcore.kafka.readers import read_topic
from streamcore.kafka.settings import KafkaSettings
from streamcore.kafka.topics import TopicSpec, ensure_topics
from tests.harness.apps.console_scene import Shown, answering, rule
from tests.harness.servers.console import program, serve

pytestmark = pytest.mark.kafka
Say = Callable[..., tuple[int, str]]
PLAIN = {"tags": [], "owner": "me", "description": "", "tests": []}


@pytest.fixture
def say(capsys: pytest.CaptureFixture[str]) -> Say:
    def run_command(*words: str) -> tuple[int, str]:
        capsys.readouterr()
        code = run([*words])
        return code, re.sub(r'"offset": -?\d+|"batch": \w+', "", capsys.readouterr().out)

    return run_command


def test_streams_and_dead_letters_are_the_same_through_a_console(
    kafka: KafkaSettings, shown: Shown, tmp_path: Path, say: Say
) -> None:
    name, token = shown.app.name, tmp_path / "token"
    token.write_text(shown.program.headers["Authorization"].removeprefix("Bearer "))
    beside = ["--app", name, "--bootstrap", kafka.bootstrap]
    far = ["--app", name, "--server", shown.server.address, "--token-file", str(token)]
    for words in (
        ["streams", "list"],
        ["deadletters", "list"],
        ["deadletters", "list", "--by", "code"],
        ["deadletters", "list", "--reason", "no such text"],
        ["deadletters", "show"],
    ):
        for form in ("text", "json"):
            found = say(*words, *far, "-o", form)
            assert found == say(*words, *beside, "-o", form), words
            assert found[0] == 0
    assert run(["deadletters", "list", "--topic", "other.deadletters", *far]) == 1


def test_dead_letters_are_sent_once_whichever_way_they_are_asked_for(
    kafka: KafkaSettings, tmp_path: Path, say: Say, capsys: pytest.CaptureFixture[str]
) -> None:
    name = f"letters-{uuid.uuid4().hex[:8]}"
    source, topic = f"{name}.in", f"{name}.deadletters"
    ensure_topics(kafka, [TopicSpec(source, 1), TopicSpec(topic, 1)])
    producer = clients.producer(kafka)
    for number, extra in enumerate(([], [], [("source_topic", b"")])):
        known = [("source_topic", source.encode()), ("source_partition", b"0"), ("source_offset", b"%d" % number)]
        headers = [*(extra or known), ("reason_code", b"mistyped_field"), ("reason", b"field amount: is no number")]
        producer.produce(topic, b'{"amount":"%d"}' % number, b"k", headers=headers)
    producer.flush(10)
    with serve(kafka, name) as server:
        token = tmp_path / "token"
        token.write_text(program(server).headers["Authorization"].removeprefix("Bearer "))
        beside = ["deadletters", "replay", "--app", name, "--bootstrap", kafka.bootstrap]
        far = ["deadletters", "replay", "--app", name, "--server", server.address, "--token-file", str(token)]
        for words in (["--dry-run"], ["0/1", "--dry-run"], ["--code", "other", "--dry-run"]):
            assert say(*far, *words) == say(*beside, *words)
        edits = tmp_path / "edits"
        edits.write_text('{"at": "0/1", "value": null}\n')
        assert run([*far, "--edit", str(edits)]) == 1
        assert "dead letter 0/1: a console cannot send null, a tombstone" in capsys.readouterr().err
        first = "1 dead letters sent, 0 were sent before, 0 cannot be sent again\n"
        assert say(*far, "0/1", "--set", "amount=7") == (0, first)
        rest = "1 dead letters sent, 1 were sent before, 1 cannot be sent again\n"
        assert say(*far) == (0, rest)
        none = "0 dead letters sent, 2 were sent before, 1 cannot be sent again\n"
        assert say(*far) == say(*beside) == (0, none)
    values = [record.value for record in read_topic(kafka, source)]
    assert values == [b'{"amount":7}', b'{"amount":"0"}']


def test_a_release_is_rolled_back_through_a_console(kafka: KafkaSettings, tmp_path: Path, say: Say) -> None:
    name = f"far-{uuid.uuid4().hex[:8]}"
    topics = AppTopics(name)
    ensure_topics(kafka, [control_topic(topics.control), TopicSpec(topics.status, 2)])
    with answering(kafka, name), serve(kafka, name) as server:
        for version, release in ((1, "first"), (2, "second")):
            changes = release_changes(release, [rule("r", version, where=f"amount > {version}", **PLAIN)], ())
            publish(kafka, topics, changes, ChangeNote("ada"), 30_000)
        token = tmp_path / "token"
        token.write_text(program(server).headers["Authorization"].removeprefix("Bearer "))
        far = ["--app", name, "--server", server.address, "--token-file", str(token)]
        done = say("rules", "rollback", "--release", "second", *far)
        assert done == (0, "accepted   release undo-second\n")
        again = run(["rules", "rollback", "--release", "none", *far])
        assert again == 1
        listed = say("rules", "list", *far)[1]
        assert re.search(r"r +3 +live", listed), listed
