"""`headgate rules publish` and `list` on a real broker; a thread with a rule set answers as the app does."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from headgate.main import run
from headgate.rules.bundle import load_streams
from headgate.rules.publish import AppTopics, await_responses
from rulecore.documents.status import RuleStatus, StatusKind, Subject, status_record
from rulecore.ruleset.ruleset import RuleSet
from streamcore.kafka import data_clients as clients
from streamcore.kafka.control_topic import ControlLog, RecordOffset, control_topic
from streamcore.kafka.readers import Follower, Record
from streamcore.kafka.settings import KafkaSettings
from streamcore.kafka.topics import TopicSpec, ensure_topics
from streamcore.kernel import ControlRecord

pytestmark = pytest.mark.kafka

RULE = """\
id: {id}
version: {version}
owner: me
on: shop
where: {where}
then: {{severity: high, outcome: review, score: 40, message: found}}
"""


def write(folder: Path, name: str = "a", version: int = 1, where: str = "amount > 1") -> str:
    path = folder / f"{name}.yaml"
    path.write_text(RULE.format(id=name, version=version, where=where), encoding="utf-8")
    return str(path)


@pytest.fixture
def app(kafka: KafkaSettings, request: pytest.FixtureRequest) -> str:
    """Create the topics of an app, as its first start does."""
    name = "pub-" + str(abs(hash(request.node.name)) % 10**8)
    topics = AppTopics(name)
    ensure_topics(kafka, [control_topic(topics.control), TopicSpec(topics.status, 2)])
    return name


@contextmanager
def run_app(kafka: KafkaSettings, app: str) -> Iterator[None]:
    """Answer control records within the context, as the kernel does."""
    stop = threading.Event()
    thread = threading.Thread(target=_answer_records, args=(kafka, AppTopics(app), stop))
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def _answer_records(kafka: KafkaSettings, topics: AppTopics, stop: threading.Event) -> None:
    rules, producer = RuleSet.empty(load_streams()), clients.producer(kafka)
    with Follower(kafka, [topics.control]) as follower:
        while not stop.is_set():
            for r in follower.poll(50):
                rules, answers = rules.apply([ControlRecord(r.partition, r.offset, r.key, r.value)], 0)
                for response in answers:
                    producer.produce(topics.status, _bytes(response), response.name.encode())
            producer.flush(10)


def _bytes(response: RuleStatus) -> bytes:
    return status_record(response).value or b""


def test_the_command_shows_the_answer_to_each_published_rule(
    kafka: KafkaSettings, app: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = [write(tmp_path, "a"), write(tmp_path, "b")]
    with run_app(kafka, app):
        assert run(["rules", "publish", *paths, "--app", app, "--bootstrap", kafka.bootstrap]) == 0
    assert capsys.readouterr().out == "accepted   a version 1\naccepted   b version 1\n"


def test_the_command_shows_why_a_version_is_rejected_and_the_live_one_stays(
    kafka: KafkaSettings, app: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = ["--app", app, "--bootstrap", kafka.bootstrap]
    with run_app(kafka, app):
        assert run(["rules", "publish", write(tmp_path, "a", 3), *target]) == 0
        assert run(["rules", "publish", write(tmp_path, "a", 2, "amount > 2"), *target]) == 1
        capsys.readouterr()
        assert run(["rules", "list", *target, "-o", "json"]) == 0
        (listed,) = json.loads(capsys.readouterr().out)
        assert run(["rules", "list", "--history", *target, "-o", "json"]) == 0
    assert (listed["rule"], listed["version"], listed["status"]) == ("a", 3, "accepted")
    _, rejected = json.loads(capsys.readouterr().out)
    assert (rejected["name"], rejected["version"], rejected["status"]) == ("a", 2, "rejected")
    assert "version 2 is not above version 3, the newest" in rejected["reason"]


def test_one_invalid_rule_prevents_the_publication_of_all(
    kafka: KafkaSettings, app: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = [write(tmp_path, "a"), write(tmp_path, "b", where="amuont > 1")]
    assert run(["rules", "publish", *paths, "--app", app, "--bootstrap", kafka.bootstrap]) == 1
    assert capsys.readouterr().out.endswith("nothing was published\n")
    with ControlLog(kafka, AppTopics(app).control) as log:
        assert log.read_log() == []


def test_a_missing_answer_is_an_error_and_the_rule_stays_published(
    kafka: KafkaSettings, app: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = ["--app", app, "--bootstrap", kafka.bootstrap]
    assert run(["rules", "publish", write(tmp_path), *target, "--wait", "0.5"]) == 1
    assert "is the app running?" in capsys.readouterr().out
    capsys.readouterr()
    assert run(["rules", "list", *target, "-o", "json"]) == 0
    (listed,) = json.loads(capsys.readouterr().out)
    assert (listed["rule"], listed["status"]) == ("a", None)


def test_no_wait_returns_without_an_answer(
    kafka: KafkaSettings, app: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = ["--app", app, "--bootstrap", kafka.bootstrap]
    assert run(["rules", "publish", write(tmp_path), *target, "--no-wait"]) == 0
    assert capsys.readouterr().out == "published  a version 1\n"


def test_list_prints_a_table(
    kafka: KafkaSettings, app: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = ["--app", app, "--bootstrap", kafka.bootstrap]
    with run_app(kafka, app):
        run(["rules", "publish", write(tmp_path, "a"), *target])
    with ControlLog(kafka, AppTopics(app).control) as log:
        log.publish("broken", b"{}")
    capsys.readouterr()
    assert run(["rules", "list", *target]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "RULE  VERSION  SLOT  MODE  KIND   STREAM  SEVERITY  POLICY  STATUS    REASON",
        "a     1        live  live  event  shop    high      -       accepted",
    ]


def test_list_names_an_app_that_never_ran_and_says_what_to_do(
    kafka: KafkaSettings, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["rules", "list", "--app", "nobody", "--bootstrap", kafka.bootstrap]) == 1
    shown = capsys.readouterr().err
    assert "no topic nobody.control" in shown
    assert "--app" in shown


def test_a_release_is_accepted_and_rolled_back_as_a_whole(
    kafka: KafkaSettings, app: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = ["--app", app, "--bootstrap", kafka.bootstrap]
    with run_app(kafka, app):
        assert run(["rules", "publish", write(tmp_path, "a"), write(tmp_path, "c"), *target]) == 0
        changed = [write(tmp_path, "a", 2, "amount > 2"), write(tmp_path, "b")]
        capsys.readouterr()
        assert run(["rules", "release", "q3", *changed, "--delete", "c", "--why", "third quarter", *target]) == 0
        assert capsys.readouterr().out == "accepted   release q3\n"
        assert run(["rules", "list", *target, "-o", "json"]) == 0
        assert [(r["rule"], r["version"]) for r in json.loads(capsys.readouterr().out)] == [("a", 2), ("b", 1)]
        assert run(["rules", "rollback", "--release", "q3", *target]) == 0
        assert capsys.readouterr().out == "accepted   release undo-q3\n"
    assert run(["rules", "list", *target, "-o", "json"]) == 0
    assert [(r["rule"], r["version"]) for r in json.loads(capsys.readouterr().out)] == [("a", 3), ("c", 2)]
    assert run(["rules", "list", "--history", "--rule", "a", *target, "-o", "json"]) == 0
    history = [(h["version"], h["release"], h["why"]) for h in json.loads(capsys.readouterr().out)]
    assert history == [(1, None, None), (2, "q3", "third quarter"), (3, "undo-q3", "undo release q3")]


def test_a_large_release_is_published_in_several_records(
    kafka: KafkaSettings, app: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = ["--app", app, "--bootstrap", kafka.bootstrap]
    paths = [write(tmp_path, f"r{i}", 1, f"amount > {i}") for i in range(300)]
    with run_app(kafka, app):
        assert run(["rules", "release", "large", *paths, *target]) == 0
    assert capsys.readouterr().out == "accepted   release large\n"
    with ControlLog(kafka, AppTopics(app).control) as log:
        assert len(log.read_log()) > 2
    assert run(["rules", "list", *target, "-o", "json"]) == 0
    assert len(json.loads(capsys.readouterr().out)) == 300


def test_a_rejected_release_names_the_rules_and_changes_nothing(
    kafka: KafkaSettings, app: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = ["--app", app, "--bootstrap", kafka.bootstrap]
    with run_app(kafka, app):
        assert run(["rules", "publish", write(tmp_path, "a", 2), *target]) == 0
        capsys.readouterr()
        assert run(["rules", "release", "q3", write(tmp_path, "b"), write(tmp_path, "a", 1), *target]) == 1
        shown = capsys.readouterr().out
        assert "1 of 2 changes are rejected" in shown
        assert "a: version 1 is not above version 2" in shown
    assert run(["rules", "list", *target, "-o", "json"]) == 0
    assert [(r["rule"], r["version"]) for r in json.loads(capsys.readouterr().out)] == [("a", 2)]


def test_one_command_rolls_back_to_the_previous_version(
    kafka: KafkaSettings, app: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = ["--app", app, "--bootstrap", kafka.bootstrap]
    with run_app(kafka, app):
        for version, where in ((1, "amount > 1"), (2, "amount > 2"), (3, "amount > 3")):
            assert run(["rules", "publish", write(tmp_path, "a", version, where), *target]) == 0
        capsys.readouterr()
        assert run(["rules", "rollback", "a", *target]) == 0
        assert capsys.readouterr().out == "accepted   a version 4\n"
        assert run(["rules", "rollback", "a", "--to", "1", *target]) == 0
        assert run(["rules", "rollback", "b", *target]) == 1
        assert "no version of 'b' was ever accepted" in capsys.readouterr().err
    assert run(["rules", "list", *target, "-o", "json"]) == 0
    (listed,) = json.loads(capsys.readouterr().out)
    assert listed["version"] == 5


def test_an_option_overrides_the_mode_in_the_file_of_a_rule(
    kafka: KafkaSettings, app: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = ["--app", app, "--bootstrap", kafka.bootstrap]
    with run_app(kafka, app):
        assert run(["rules", "publish", write(tmp_path, "a"), *target]) == 0
        assert run(["rules", "publish", write(tmp_path, "a", 2), "--mode", "canary=10%", *target]) == 0
        assert run(["rules", "publish", write(tmp_path, "a", 3), "--mode", "on", *target]) == 1
        assert "is no mode" in capsys.readouterr().err
        assert run(["rules", "list", *target]) == 0
    assert capsys.readouterr().out.splitlines()[1:] == [
        "a     2        candidate  canary 10%  event  shop    high      -       accepted",
        "a     1        live       live        event  shop    high      -       accepted",
    ]


def _response(offset: int) -> Record:
    status = RuleStatus(f"r{offset}", 1, StatusKind.ACCEPTED, None, 1, 0, offset)
    return Record("status", 0, offset, 0, None, _bytes(status))


@pytest.mark.parametrize(
    ("offsets", "found"),
    [
        pytest.param(range(60), {58, 59}, id="the app is busy with the records before"),
        pytest.param([-1] * 600, set(), id="changes by the clock are no responses"),
        pytest.param([58, *range(100, 700)], {58}, id="responses to later records do not prolong the wait"),
    ],
)
def test_each_response_restarts_the_time_out(offsets: Iterable[int], found: set[int]) -> None:
    now_s, coming = 0.0, iter(offsets)

    def poll() -> list[Record]:
        nonlocal now_s
        now_s += 1
        return [_response(offset) for offset in [next(coming, None)] if offset is not None]

    wanted = dict.fromkeys([RecordOffset(0, 58), RecordOffset(0, 59)], Subject.RULE)
    responses = await_responses(poll, wanted, 2_000, lambda: now_s)
    assert {position.offset for position in responses} == found
    assert now_s <= 60
