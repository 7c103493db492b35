"""``headgate lists`` on a real broker: lists are published, answered by the kernel and shown; rules look them up."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from headgate.main import run
from headgate.rules.bundle import load_streams
from headgate.rules.publish import AppTopics
from rulecore.factory import RulesFactory
from rulecore.streams import RuleStream
from streamcore.app import App, Source
from streamcore.engine.in_process import InProcessApp, control_record
from streamcore.kafka import data_clients as clients
from streamcore.kafka.control_topic import ControlLog, control_topic
from streamcore.kafka.readers import Follower
from streamcore.kafka.settings import KafkaSettings
from streamcore.kafka.topics import TopicSpec, ensure_topics
from streamcore.wire.lanes import STATUS

pytestmark = pytest.mark.kafka
CLOCK = 1_800_000_000_000
RULE = """\
id: listed
version: 1
owner: me
on: shop
where: user_id in list('denied')
then: {severity: high, message: found}
"""


@contextmanager
def run_app(kafka: KafkaSettings, topics: AppTopics) -> Iterator[None]:
    """Run the rules kernel on the control topic within the context."""
    stop = threading.Event()
    thread = threading.Thread(target=_answer_records, args=(kafka, topics, stop))
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def _answer_records(kafka: KafkaSettings, topics: AppTopics, stop: threading.Event) -> None:
    schema = load_streams()["shop"]
    factory = RulesFactory((RuleStream(schema, "shop"),))
    app = InProcessApp(App(topics.app, (Source(schema, "shop"),), topics.control, {}, (factory,), shards=1))
    producer = clients.producer(kafka)
    with Follower(kafka, [topics.control]) as follower:
        while not stop.is_set():
            for r in follower.poll(50):
                cut = [control_record(r.offset, (r.key or b"").decode(), r.value)]
                for record in app.cut(cut, CLOCK):
                    if record.lane == STATUS:
                        producer.produce(topics.status, record.value, record.key)
            producer.flush(10)


@pytest.fixture
def topics(kafka: KafkaSettings, request: pytest.FixtureRequest) -> AppTopics:
    found = AppTopics(f"lists-{abs(hash(request.node.name)) % 10**8}")
    ensure_topics(kafka, [control_topic(found.control), TopicSpec(found.status, 1)])
    return found


def write(folder: Path, version: int, users: list[str]) -> str:
    (folder / "denied.csv").write_text("\n".join(["value", *users]), encoding="utf-8")
    path = folder / "denied.yaml"
    path.write_text(f"list: denied\nversion: {version}\nowner: me\nof: string\nfile: denied.csv\n", encoding="utf-8")
    return str(path)


def test_a_list_is_published_in_parts_and_only_changed_parts_are_sent_again(
    kafka: KafkaSettings, topics: AppTopics, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = ["--app", topics.app, "--bootstrap", kafka.bootstrap]
    users = [f"user-{n}" for n in range(60_000)]
    with run_app(kafka, topics):
        assert run(["lists", "publish", write(tmp_path, 1, users), *target]) == 0
        assert capsys.readouterr().out == "accepted   denied version 1\n"
        with ControlLog(kafka, topics.control) as log:
            before = len(log.read_log())
        assert before > 2
        assert run(["lists", "publish", write(tmp_path, 2, [*users, "one-more"]), *target]) == 0
        with ControlLog(kafka, topics.control) as log:
            assert len(log.read_log()) == before + 2, "one part and the head"
        capsys.readouterr()
        assert run(["lists", "publish", write(tmp_path, 1, users), *target]) == 1
        assert "rejected" in capsys.readouterr().out
    assert run(["lists", "list", *target, "-o", "json"]) == 0
    (shown,) = json.loads(capsys.readouterr().out)
    assert (shown["list"], shown["version"], shown["owner"], shown["entries"]) == ("denied", 2, "me", 60_001)


def test_a_rule_that_looks_up_a_list_is_checked_and_accepted_with_that_list(
    kafka: KafkaSettings, topics: AppTopics, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = ["--app", topics.app, "--bootstrap", kafka.bootstrap]
    lists, rule = write(tmp_path, 1, ["u1"]), tmp_path / "rule"
    rule.mkdir()
    (rule / "listed.yaml").write_text(RULE, encoding="utf-8")
    assert run(["rules", "check", str(rule)]) == 1
    assert "there is no list 'denied'" in capsys.readouterr().out
    with run_app(kafka, topics):
        assert run(["rules", "publish", str(rule), "--lists", lists, *target]) == 1
        assert "there is no list 'denied'" in capsys.readouterr().out
        assert run(["lists", "publish", lists, *target]) == 0
        assert run(["rules", "publish", str(rule), "--lists", lists, *target]) == 0
    capsys.readouterr()
    assert run(["rules", "list", "--history", *target, "-o", "json"]) == 0
    history = [(h["what"], h["name"], h["status"]) for h in json.loads(capsys.readouterr().out)]
    assert history == [
        ("rule", "listed", "rejected"),
        ("list", "denied", "accepted"),
        ("rule", "listed", "accepted"),
    ]
