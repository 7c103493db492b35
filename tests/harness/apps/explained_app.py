"""A rules app on Kafka that ran once, with its input and output, for tests of ``explain`` and ``backtest``.

The topics are on a broker. The app runs in this process, on the records of these topics.
"""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any  # alerts and results are JSON of any content

import orjson
import pytest

from headgate.main import run
from headgate.rules.bundle import load_streams
from headgate.rules.publish import AppTopics
from rulecore.alerts.decisions import DECISION_PARTS, merge_decisions
from rulecore.factory import RulesFactory
from rulecore.streams import RuleStream
from streamcore.app import CONTROL, App, Source
from streamcore.engine.in_process import InProcessApp, RawRecord
from streamcore.kafka import data_clients as clients
from streamcore.kafka.control_topic import ControlLog, control_topic
from streamcore.kafka.readers import read_topic
from streamcore.kafka.settings import KafkaSettings
from streamcore.kafka.topics import TopicSpec, ensure_topics
from streamcore.wire.lanes import ALERTS, DEAD_LETTERS, DECISIONS, LATE, SHADOW, STATUS, Record

#: The time of the first event, 2026-01-05 08:00 UTC.
START = 1_767_600_000_000
_LANES = (ALERTS, SHADOW, DECISIONS, STATUS, LATE, DEAD_LETTERS)
#: An event of the stream ``shop``, or a record that is none.
Event = Mapping[str, object] | bytes


@dataclass(frozen=True)
class ExplainedApp:
    """``places``: partition and offset of each event. ``output``: the records of all lanes."""

    bootstrap: str
    name: str
    topic: str
    places: Sequence[tuple[int, int]]
    output: Sequence[Record]

    def __call__(self, *arguments: str) -> int:
        """Run ``headgate rules`` with some arguments on the app; return the exit code."""
        return run(["rules", *arguments, "--bootstrap", self.bootstrap, "--app", self.name])

    def place(self, number: int) -> str:
        """Return the place of an event as the command takes it."""
        return "{}:{}:{}".format(self.topic, *self.places[number])

    @cached_property
    def alerts(self) -> Mapping[str, Sequence[dict[str, Any]]]:
        """Return the alerts and shadow alerts by rule."""
        found: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for one in self.output:
            if one.lane in (ALERTS, SHADOW):
                alert = orjson.loads(one.value or b"")
                found[alert["rule"]].append(alert)
        return dict(found)


def run_app(
    kafka: KafkaSettings,
    name: str,
    controls: Sequence[tuple[str, bytes | None]],
    events: Sequence[Event],
    late: int = 0,
) -> ExplainedApp:
    """Publish control records, then send events to the topic ``<name>-shop``, then run the app and write its lanes.

    The app takes the control records in a first cut and the events in a second one; the last ``late`` events have a cut
    of their own.
    """
    topic = f"{name}-shop"
    lanes = [TopicSpec(f"{name}.{lane}", 2) for lane in _LANES]
    ensure_topics(kafka, [control_topic(AppTopics(name).control), *lanes, TopicSpec(topic, 3)])
    with ControlLog(kafka, AppTopics(name).control) as log:
        control = [
            RawRecord(CONTROL, 0, log.publish(key, value).offset, value, key.encode()) for key, value in controls
        ]
    time.sleep(0.05)  # control records are older than events
    places = _send(kafka, topic, events)
    output = _run_cuts(kafka, name, topic, control, set(places[len(places) - late :]))
    producer = clients.producer(kafka)
    for one in output:
        producer.produce(f"{name}.{one.lane}", one.value, one.key, headers=list(one.headers))
    producer.flush(10)
    return ExplainedApp(kafka.bootstrap, name, topic, places, output)


def _send(kafka: KafkaSettings, topic: str, events: Sequence[Event]) -> list[tuple[int, int]]:
    producer, places = clients.producer(kafka), list[Any]()
    for one in events:
        key, value = ("u1", one) if isinstance(one, bytes) else (str(one["user_id"]), orjson.dumps(one))
        producer.produce(
            topic, value, key.encode(), on_delivery=lambda _, m: places.append((m.partition(), m.offset()))
        )
        producer.flush(10)
    return places


def _run_cuts(
    kafka: KafkaSettings, name: str, topic: str, control: list[RawRecord], late: set[tuple[int, int]]
) -> list[Record]:
    schema = load_streams()["shop"]
    kernel = RulesFactory((RuleStream(schema, topic),))
    merges = {DECISION_PARTS: merge_decisions}
    app = InProcessApp(App(name, (Source(schema, topic),), f"{name}.control", {}, (kernel,), shards=2, merges=merges))
    records = [RawRecord(0, r.partition, r.offset, r.value, r.key) for r in read_topic(kafka, topic)]
    cuts = [control, [], []] if late else [control, []]
    for record in records:
        cuts[2 if (record.partition, record.offset) in late else 1].append(record)
    now_ms = int(time.time() * 1000)
    return [one for cut in cuts for one in app.cut(cut, now_ms)]


def printed(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """Return the JSON object that a command printed."""
    found = json.loads(capsys.readouterr().out)
    assert isinstance(found, dict)
    return found
