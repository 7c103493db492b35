"""Commands on rules over two streams and a real broker; the app runs in-process on the records of the same topics."""

from __future__ import annotations

import json
import random
import threading
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import polars as pl
import pytest
import yaml

from headgate.main import run
from headgate.rules.publish import AppTopics
from rulecore.factory import RulesFactory
from rulecore.streams import RuleStream
from streamcore.app import CONTROL, App, Source
from streamcore.engine.in_process import InProcessApp, RawRecord
from streamcore.kafka import data_clients as clients
from streamcore.kafka.control_topic import ControlLog, control_topic
from streamcore.kafka.readers import read_topic
from streamcore.kafka.settings import KafkaSettings
from streamcore.kafka.topics import TopicSpec, ensure_topics
from streamcore.schema import StreamSchema
from streamcore.watermark import WatermarkStrategy
from streamcore.wire.lanes import ALERTS, DEAD_LETTERS, LATE, SHADOW, STATUS, Record
from tests.harness.oracles.union_rules import (
    BOTH,
    MINUTE,
    RULES,
    STREAM_DOCUMENTS,
    STREAMS,
    T0,
    events,
    expected,
    found,
    rule,
    time_of,
)

pytestmark = [pytest.mark.kafka, pytest.mark.slow]
#: In the order of the settings file, which is not that of the names.
TOPICS = {"payments": "payment-topic", "logins": "login-topic"}
#: The rules over both streams.
ACROSS = [name for name in RULES if rule(name)["on"] == BOTH]
END = {"at": T0 + 90 * MINUTE, "paid_at": T0 + 90 * MINUTE, "user": "z", "ok": True}


#: Of one time, in the order of the streams in the settings: no payment after a failed login.
TIE: list[tuple[str, dict[str, Any]]] = [
    ("logins", {"at": T0 + 80 * MINUTE, "user": "dan", "ok": False}),
    ("payments", {"paid_at": T0 + 80 * MINUTE, "user": "dan", "amount": 99}),
]


@dataclass
class UnionApp:
    """An app with two streams. ``next``: of each source and of the control topic, the next record that it reads."""

    kafka: KafkaSettings
    name: str
    folder: Path
    local: InProcessApp
    output: list[Record]
    read: dict[str, int]

    def __call__(self, *arguments: str) -> int:
        more = ["--streams", str(self.folder / "streams"), "--settings", str(self.folder / "app.yaml")]
        return run([*arguments, "--bootstrap", self.kafka.bootstrap, "--app", self.name, *more])

    def publish(self, *documents: Mapping[str, Any]) -> None:
        with ControlLog(self.kafka, AppTopics(self.name).control) as log:
            for one in documents:
                log.publish(one["id"], orjson.dumps(one))

    def send(self, history: Sequence[tuple[str, Mapping[str, Any]]]) -> None:
        producer = clients.producer(self.kafka)
        for name, event in history:
            producer.produce(f"{self.name}-{TOPICS[name]}", orjson.dumps(event), str(event["user"]).encode())
        assert producer.flush(30) == 0

    def cut(self, *, events: bool = True) -> list[Record]:
        """Take the new records of all topics into one cut, and write its output."""
        topics = {AppTopics(self.name).control: CONTROL}
        if events:
            topics |= {f"{self.name}-{topic}": number for number, topic in enumerate(TOPICS.values())}
        records = []
        for topic, source in topics.items():
            known = read_topic(self.kafka, topic)
            new = known[self.read[topic] :] if len(known) > self.read[topic] else []
            records += [RawRecord(source, r.partition, r.offset, r.value, r.key) for r in new]
            self.read[topic] = len(known)
        output = [*self.local.cut(records, T0 + 100 * MINUTE)]
        producer = clients.producer(self.kafka)
        for one in output:
            producer.produce(f"{self.name}.{one.lane}", one.value, one.key, headers=list(one.headers))
        assert producer.flush(30) == 0
        self.output += output
        return output

    def alerts(self) -> list[dict[str, Any]]:
        return [orjson.loads(one.value or b"") for one in self.output if one.lane in (ALERTS, SHADOW)]


def start(kafka: KafkaSettings, name: str, folder: Path) -> UnionApp:
    (folder / "streams").mkdir()
    streams = []
    for stream, topic in TOPICS.items():
        file = folder / "streams" / f"{stream}.yaml"
        file.write_text(yaml.safe_dump(STREAM_DOCUMENTS[stream], sort_keys=False))
        streams.append({"schema_file": str(file), "topic": f"{name}-{topic}"})
    (folder / "app.yaml").write_text(yaml.safe_dump({"app": name, "streams": streams}, sort_keys=False))
    lanes = [TopicSpec(f"{name}.{lane}", 1) for lane in (ALERTS, SHADOW, STATUS, LATE, DEAD_LETTERS)]
    inputs = [TopicSpec(f"{name}-{topic}", 1) for topic in TOPICS.values()]
    ensure_topics(kafka, [control_topic(AppTopics(name).control), *lanes, *inputs])
    schemas: list[tuple[StreamSchema, str]] = [(STREAMS[stream], f"{name}-{topic}") for stream, topic in TOPICS.items()]
    kernel = RulesFactory(tuple(RuleStream(*one) for one in schemas))
    sources = tuple(Source(*one) for one in schemas)
    watermark = WatermarkStrategy(max_out_of_orderness_ms="1ms")
    app = App(name, sources, AppTopics(name).control, {}, (kernel,), shards=3, watermark=watermark)
    return UnionApp(kafka, name, folder, InProcessApp(app), [], defaultdict(int))


def tied_events() -> list[tuple[str, dict[str, Any]]]:
    """Return events of which every tenth has the time of the one before, mostly of the other stream."""
    history = events(random.Random(5), 160)
    for number in range(10, len(history), 10):
        before, (name, event) = time_of(*history[number - 1]), history[number]
        event["at" if name == "logins" else "paid_at"] = before
    return history


@pytest.fixture(scope="module")
def past(kafka: KafkaSettings, tmp_path_factory: pytest.TempPathFactory) -> UnionApp:
    """An app that has had all rules and then all events, in five cuts."""
    app, history = start(kafka, "union-past", tmp_path_factory.mktemp("past")), tied_events()
    app.publish(*(rule(name) for name in RULES))
    app.cut()
    for first in range(0, len(history), 40):
        app.send(history[first : first + 40])
        app.cut()
    app.send([*TIE, ("logins", END), ("payments", END)])
    app.cut()
    app.cut()
    (app.folder / "rules").mkdir()
    for name in RULES:
        (app.folder / "rules" / f"{name}.yaml").write_text(yaml.safe_dump(rule(name), sort_keys=False))
    return app


def printed(capsys: pytest.CaptureFixture[str]) -> Any:
    return json.loads(capsys.readouterr().out)


def content(alert: Mapping[str, Any]) -> str:
    """Return an alert as text, without the parts that differ: a back-test knows no event before the first one."""
    return orjson.dumps({**alert, "rules_epoch": 0, "incomplete": None}, option=orjson.OPT_SORT_KEYS).decode()


def test_a_back_test_raises_the_alerts_of_the_app(
    past: UnionApp, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "alerts.jsonl"
    rules = str(past.folder / "rules")
    more = ["--from", "0", "--disorder", "1ms", "--stream", "payments+logins", "--alerts", str(file), "-o", "json"]
    assert past("rules", "backtest", rules, *more) == 0
    shown = printed(capsys)
    assert (shown["stream"], shown["events"], shown["late"]) == ("logins+payments", 164, 0)
    for one in shown["rules"]:
        assert one["only_new"] == one["only_live"] == 0, one
        assert one["both"] > 0, one
    tested = [json.loads(line) for line in file.read_text().splitlines()]
    live = [one for one in past.alerts() if one["rule"] in ACROSS]
    assert sorted(map(content, tested)) == sorted(map(content, live))
    assert {one["rule"] for one in tested} == {*ACROSS}
    assert {one["rule"] for one in tested if one["key"]["user"] == "dan"} == {"quiet"}


def test_a_back_test_of_files_needs_one_for_each_stream(
    past: UnionApp, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    history = tied_events()
    for name in TOPICS:
        times = "at" if name == "logins" else "paid_at"
        frame = pl.DataFrame([event for of, event in [*history, ("logins", END), ("payments", END)] if of == name])
        own = [column for column in STREAMS[name].names if column in frame.columns]
        frame.select(own).with_columns(pl.from_epoch(times, time_unit="ms")).write_parquet(tmp_path / f"{name}.parquet")
    command = ["rules", "backtest", str(past.folder / "rules"), "--stream", "logins+payments", "--compare", "none"]
    files = [f"--parquet={name}={tmp_path / name}.parquet" for name in TOPICS]
    assert past(*command, *files, "--disorder", "1ms", "-o", "json") == 0
    counts = {one["rule"]: one["new"]["alerts"] for one in printed(capsys)["rules"]}
    alone = expected(history)
    assert counts == {name: len(alone[name]) for name in counts}
    assert past(*command, files[0]) == 1
    assert "--parquet logins=...: name the file or folder" in capsys.readouterr().err
    assert past(*command, "--parquet", str(tmp_path)) == 1
    assert "write --parquet logins=... and --parquet payments=..." in capsys.readouterr().err


@pytest.mark.parametrize("name", ACROSS)
def test_an_explanation_computes_an_alert_again_with_the_same_result(
    past: UnionApp, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    own = [one for one in past.alerts() if one["rule"] == name]
    for alert in (own[0], own[-1]):
        assert past("rules", "explain", str(alert["alert_id"]), "-o", "json") == 0
        shown = printed(capsys)
        assert (shown["rule"], shown["same"], shown["differences"]) == (name, True, [])


def test_an_explanation_of_an_event_has_the_fields_of_its_stream(
    past: UnionApp, capsys: pytest.CaptureFixture[str]
) -> None:
    place = f"{past.name}-{TOPICS['payments']}:0:3"
    assert past("rules", "explain", "odd", "--event", place, "-o", "json") == 0
    shown = printed(capsys)
    assert shown["fired"] is ("odd" in {one["rule"] for one in past.alerts() if one["source"] == _place(place)})
    assert {"amount", "paid_at", "_stream"} <= shown["event"]["values"].keys()
    assert "ok" not in shown["event"]["values"]
    assert past("rules", "explain", "odd", "--event", "elsewhere:0:3") == 1
    assert "name the topic of each stream with --topic STREAM=TOPIC" in capsys.readouterr().err


def _place(text: str) -> dict[str, object]:
    topic, partition, offset = text.split(":")
    return {"topic": topic, "partition": int(partition), "offset": int(offset)}


def test_an_explanation_of_a_key_and_a_time_reads_both_topics(
    past: UnionApp, capsys: pytest.CaptureFixture[str]
) -> None:
    user, begin, _ = found(past.alerts())["busy"][0]
    assert past("rules", "explain", "busy", "--key", f"user={user}", "--at", str(begin + MINUTE), "-o", "json") == 0
    shown = printed(capsys)
    assert shown["fired"] is True
    assert shown["windows"][0]["start_ms"] == begin
    assert {one["source"]["topic"] for one in shown["events"]} == {f"{past.name}-{topic}" for topic in TOPICS.values()}


def test_an_explanation_of_lines_names_their_streams(
    past: UnionApp, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    failed = {"_stream": "logins", "user": "ann", "at": T0, "ok": False, "device": "d3"}
    paid = {"_stream": "payments", "user": "ann", "paid_at": T0 + 1000, "amount": 60}
    file, rules = tmp_path / "events.jsonl", ["--rules", str(past.folder / "rules")]
    file.write_text("\n".join(map(json.dumps, [failed, paid])))
    answers = {}
    for name in ("odd", "stolen"):
        assert past("rules", "explain", name, "--event-json", str(file), *rules, "-o", "json") == 0
        answers[name] = printed(capsys)["fired"]
    assert answers == {"odd": False, "stolen": True}
    file.write_text(json.dumps({**failed, "_stream": "orders"}))
    assert past("rules", "explain", "odd", "--event-json", str(file), *rules) == 1
    assert "event 1: name its stream, logins or payments, as _stream" in capsys.readouterr().err


def test_a_backfilled_rule_over_two_streams_counts_as_if_it_had_always_been_live(
    kafka: KafkaSettings, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    app, history = start(kafka, "union-backfill", tmp_path), events(random.Random(8), 120)
    app.send(history[:70])
    app.cut()
    sliding = rule("busy", within={"sliding": "40m", "every": "5m"})
    app.publish(sliding)
    app.cut()

    stop = threading.Event()

    def answer() -> None:
        while not stop.is_set():
            app.cut(events=False)
            time.sleep(0.1)

    thread = threading.Thread(target=answer)
    thread.start()
    try:
        assert app("rules", "backfill", "busy", "--from", str(T0 - 60 * MINUTE)) == 0, capsys.readouterr()
    finally:
        stop.set()
        thread.join()
    app.send([*history[70:], ("logins", END), ("payments", END)])
    app.cut()
    app.cut()
    wanted = []
    for user in ("ann", "bob", "cy"):
        own = [(time_of(name, e), name, e) for name, e in history if e["user"] == user]
        for end in range(T0, T0 + 85 * MINUTE, 5 * MINUTE):
            inside = [(name, e) for t, name, e in own if end - 40 * MINUTE <= t < end]
            paid = sum(e["amount"] or 0 for name, e in inside if name == "payments")
            if len(inside) >= 3 and paid > 60 and any(name == "logins" for name, _ in inside):
                wanted.append((user, end - 40 * MINUTE, end, len(inside)))
    shown = [one for one in app.alerts() if one["window"]["end_ms"] > T0 + 70 * 20_000]
    assert shown
    assert not [one for one in shown if one["incomplete"]]
    late = [one for one in wanted if one[2] > T0 + 70 * 20_000]
    rows = [(one["key"]["user"], *one["window"].values(), one["values"]["count(*)"]) for one in shown]
    assert sorted(rows) == sorted(late)
    assert app("rules", "backfill", "busy", "--from", "1h", "--topic", "logins=elsewhere") == 1
    assert "correct --topic" in capsys.readouterr().err
