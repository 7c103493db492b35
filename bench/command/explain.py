"""Measures the wall and CPU time of `headgate rules explain`: the whole command, from the start of the interpreter.

One user sends an event every 35 s: in turn two failed logins, a small payment and a large one. The expected answer for
each kind of rule is computed from the events, without the product. The command explains events of a file of 500 events.
With Kafka, it explains an event, by partition and offset, and an alert, by its id; it must reproduce the alert.
"""

from __future__ import annotations

import statistics
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import orjson
import yaml

from bench.harness.command import CommandResult, headgate
from bench.harness.environment import Environment, Load, create_topic
from bench.harness.events import SCHEMA, STREAM
from bench.harness.result import Result
from bench.harness.yardstick import Yardstick
from headgate.rules.publish import AppTopics
from rulecore.documents.loading import decode_record
from rulecore.documents.rule import canonical_json
from rulecore.factory import RulesFactory
from rulecore.streams import RuleStream
from streamcore.app import CONTROL, App, Source
from streamcore.engine.in_process import InProcessApp, RawRecord
from streamcore.kafka.control_topic import ControlLog, control_topic
from streamcore.kafka.readers import read_topic
from streamcore.kafka.topics import TopicSpec
from streamcore.schema import StreamSchema
from streamcore.wire.lanes import ALERTS, DEAD_LETTERS, LATE, SHADOW, STATUS

_RUNS = 5
_EVENTS, _STEP_S, _EACH = 500, 7, 5
_START_S = 1_767_600_000
_WINDOW_S, _ABSENT_S = 600, 60
_USER = "u1"
_LARGE = "type = 'payment' and amount >= 100"
ExplainResult = Mapping[str, Any]
Check = Callable[[ExplainResult], bool]


def _rule(name: str, **parts: object) -> dict[str, object]:
    then = {"severity": "low", "outcome": "review", "score": 1, "message": name}
    return {"id": name, "version": 1, "owner": "bench", "on": STREAM, **parts, "then": then}


_FAILED = "type = 'login' and status = 'failed'"
_STEPS: Sequence[Mapping[str, object]] = (
    {"step": "failed", "where": _FAILED, "times": 2, "within": "5m"},
    {"step": "paid", "where": _LARGE, "within": "5m"},
)
_PAYMENT = {"where": "type = 'payment'", "every": f"{_ABSENT_S}s", "again": "once"}
RULES = {
    "event": _rule("event", where=_LARGE),
    "list": _rule("list", where=f"{_LARGE} and user_id in list('denied')"),
    "window": _rule(
        "window",
        where="type = 'payment'",
        group_by=["user_id"],
        within={"tumbling": f"{_WINDOW_S}s"},
        having="count(*) >= 5",
    ),
    "sequence": _rule("sequence", group_by=["user_id"], sequence=_STEPS, within="1h"),
    "absence": _rule("absence", group_by=["user_id"], expect=_PAYMENT),
    "score": _rule(
        "score", group_by=["user_id"], score={"of": {"event": 40}, "within": "5m", "limit": 80, "count": "every"}
    ),
}
_DENIED = {"list": "denied", "version": 1, "owner": "bench", "of": "string", "entries": [_USER, "u2"]}


@dataclass(frozen=True, slots=True)
class Event:
    """One event. ``number``: its position among all events, from 0."""

    number: int
    at_s: int
    user: str
    type: str
    amount: float | None
    status: str

    @property
    def value(self) -> bytes:
        """Return the event as JSON."""
        plain = {"event_id": f"e{self.number}", "ts": self.at_s * 1_000, "type": self.type, "user_id": self.user}
        return orjson.dumps(plain | {"amount": self.amount, "status": self.status})


def events() -> list[Event]:
    """Return all events in order of event time; the last is a large payment of ``_USER``."""
    all_events = []
    for number in range(_EVENTS):
        is_user = number % _EACH == _EACH - 1
        phase = number // _EACH % 4 if is_user else number % 3
        kind, amount, status = (
            ("login", None, "failed"),
            ("login", None, "failed"),
            ("payment", 3.5, "ok"),
            ("payment", 250.0, "ok"),
        )[phase]
        user = _USER if is_user else f"u{2 + number * 7 % 60}"
        all_events.append(Event(number, _START_S + number * _STEP_S, user, kind, amount, status))
    return all_events


def expected_answers(all_events: Sequence[Event]) -> dict[str, Check]:
    """Return a check of the command's answer by rule, computed from the events alone."""
    user_events = [event for event in all_events if event.user == _USER]
    large = [event for event in user_events if event.amount is not None and event.amount >= 100]
    paid = [event.at_s for event in user_events if event.type == "payment"]
    in_last_window = sum(at_s // _WINDOW_S == user_events[-1].at_s // _WINDOW_S for at_s in paid)
    missed = sum(after - before > _ABSENT_S for before, after in pairwise(paid))
    second_ms = large[1].at_s * 1_000
    return {
        "event": lambda answer: answer["fired"] is True,
        "list": lambda answer: answer["fired"] is True,
        "window": lambda answer: answer["windows"][-1]["values"]["count(*)"] == in_last_window,
        "sequence": lambda answer: len(answer["alerts"]) == len(large) and answer["fired"] is True,
        "absence": lambda answer: len(answer["alerts"]) == missed + 1,  # no event follows the last payment
        "score": lambda answer: [event["event_time_ms"] for event in answer["alerts"]] == [second_ms],
    }


def explain(environment: Environment) -> list[Result]:
    """Measure every form of the command: the best and the median of ``_RUNS`` runs."""
    all_events = events()
    folder = environment.run_folder(environment.new_name("explain"))
    streams, lists, rules = folder / "streams", folder / "lists", folder / "rules"
    for path, documents in ((streams, {"bench": SCHEMA}), (lists, {"denied": _DENIED}), (rules, RULES)):
        path.mkdir()
        for name, document in documents.items():
            (path / f"{name}.yaml").write_text(yaml.safe_dump(document, sort_keys=False))
    file = folder / "events.json"
    file.write_bytes(b"\n".join(event.value for event in all_events))

    over_a_file = ["--rules", str(rules), "--lists", str(lists), "--event-json", str(file)]
    checks = expected_answers(all_events)
    questions = {name: ([name, *over_a_file], check) for name, check in checks.items()}
    questions |= _prepare_kafka(environment, all_events, checks)
    with Yardstick() as yardstick:
        forms = {
            name: _measure([*arguments, "--streams", str(streams)], check)
            for name, (arguments, check) in questions.items()
        }
    return [{"workload": "explain", "forms": forms, "runs": _RUNS, "checked": True, **yardstick.figures()}]


def _prepare_kafka(
    environment: Environment, all_events: Sequence[Event], checks: Mapping[str, Check]
) -> dict[str, tuple[list[str], Check]]:
    """Fill a topic with the events, publish the rules, and write the alerts that an app emits for them.

    Return arguments and check of each form of the command, by its name.
    """
    name = environment.new_name("explain")
    topic, lanes = f"{name}.events", {lane: f"{name}.{lane}" for lane in (ALERTS, SHADOW, STATUS, LATE, DEAD_LETTERS)}
    control = AppTopics(name).control
    for spec in (control_topic(control), TopicSpec(topic, 3), *(TopicSpec(one, 2) for one in lanes.values())):
        create_topic(environment.kafka, spec)
    published = []
    with ControlLog(environment.kafka, control) as log:
        for key, document in RULES.items():
            if key != "list":  # the list of this rule is not published
                value = canonical_json(decode_record(orjson.dumps(document), 1_000_000))
                published.append(RawRecord(CONTROL, 0, log.publish(key, value).offset, value, key.encode()))
    with closing(Load(environment.kafka, topic)) as load:
        spread = [zlib.crc32(one.user.encode()) % 3 for one in all_events]
        load.send(spread, [one.user for one in all_events], [one.value.decode() for one in all_events])

    schema = StreamSchema.parse(SCHEMA)
    factory = RulesFactory((RuleStream(schema, topic),))
    app = InProcessApp(App(name, (Source(schema, topic),), control, {}, (factory,), shards=2))
    records = [
        RawRecord(0, one.partition, one.offset, one.value, one.key) for one in read_topic(environment.kafka, topic)
    ]
    now_ms = int(time.time() * 1_000)
    output = app.cut(published, now_ms) + app.cut(records, now_ms)
    alerts = [one for one in output if one.lane == ALERTS]
    with closing(Load(environment.kafka, lanes[ALERTS])) as load:
        load.send([0] * len(alerts), [_to_text(one.key) for one in alerts], [_to_text(one.value) for one in alerts])

    last = max((one for one in records if orjson.loads(one.value or b"")["user_id"] == _USER), key=lambda r: r.offset)
    documents = [orjson.loads(one.value or b"") for one in alerts]
    ids = {
        one["rule"]: one["alert_id"] for one in documents if one["key"] == {"user_id": _USER}
    }  # the last of each rule
    kafka_options = ["--app", name, "--topic", topic, "--bootstrap", environment.kafka.bootstrap]
    by_id = {
        f"alert-{rule}": ([ids[rule], *kafka_options], _check_reproduction(ids[rule]))
        for rule in ("event", "window", "sequence")
    }
    event_option = ["--event", f"{topic}:{last.partition}:{last.offset}"]
    return by_id | {
        f"kafka-{rule}": ([rule, *event_option, *kafka_options], checks[rule]) for rule in ("event", "window")
    }


def _to_text(value: bytes | None) -> str:
    return (value or b"").decode()


def _check_reproduction(alert_id: str) -> Check:
    return lambda answer: answer["same"] is True and answer["alert"]["alert_id"] == alert_id


def _measure(arguments: Sequence[str], check: Check) -> Result:
    _run_once(arguments, check)  # writes the bytecode of all imported modules
    runs = [_run_once(arguments, check) for _ in range(_RUNS)]
    wall, cpu = [run.wall_s for run in runs], [run.cpu_s for run in runs]
    return {
        "wall_s": round(statistics.median(wall), 2),
        "wall_best_s": round(min(wall), 2),
        "cpu_s": round(statistics.median(cpu), 2),
        "cpu_best_s": round(min(cpu), 2),
    }


def _run_once(arguments: Sequence[str], check: Check) -> CommandResult:
    """Run the command once. Raise ``RuntimeError`` if its answer is wrong."""
    result = headgate("rules", "explain", *arguments)
    if result.code or not check(orjson.loads(result.output)):
        raise RuntimeError(f"rules explain {arguments[0]}: the answer is not the expected one: {result.output[:300]!r}")
    return result
