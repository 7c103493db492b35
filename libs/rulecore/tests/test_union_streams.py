"""Rules that read several streams: the union of logins and payments, on the key that both have."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson
import pytest

from rulecore.compile.rule import RuleLimits, compile_rule
from rulecore.compile.score_compatibility import incompatibility
from rulecore.documents.loading import decode_record
from rulecore.errors import RuleError
from rulecore.factory import RulesFactory
from rulecore.streams import RuleStream, find_stream
from rulecore.testing.in_process import run_in_process
from rulecore.testing.rule_tests import run_tests
from streamcore.app import App, Source
from streamcore.engine.in_process import InProcessApp, RawRecord, control_record
from streamcore.schema import StreamSchema
from streamcore.watermark import WatermarkStrategy
from streamcore.wire.lanes import ALERTS, LATE, STATUS
from tests.harness.apps.versioned_shop import moment, restore, save
from tests.harness.oracles.union_rules import (
    BOTH,
    LOGINS,
    MINUTE,
    PAYMENTS,
    RULES,
    STREAMS,
    T0,
    events,
    expected,
    found,
    rule,
    stream,
)


def app(shards: int) -> App:
    kernel = RulesFactory((RuleStream(LOGINS, "login-topic"), RuleStream(PAYMENTS, "payment-topic")))
    sources = (Source(LOGINS, "login-topic"), Source(PAYMENTS, "payment-topic"))
    watermark = WatermarkStrategy(max_out_of_orderness_ms=0)
    return App("t", sources, "control", {}, (kernel,), shards=shards, watermark=watermark)


def run(
    history: Sequence[tuple[str, dict[str, Any]]],
    cuts: int,
    *,
    restart: bool = False,
    rescale: Callable[[InProcessApp], InProcessApp] | None = None,
) -> list[Any]:
    """Return the records of all lanes; both topics have one partition, and equal offsets. ``rescale``: after half."""
    running = InProcessApp(app(3))
    output = [*running.cut([control_record(n, name, orjson.dumps(rule(name))) for n, name in enumerate(RULES)], T0)]
    offsets = {"logins": 0, "payments": 0}
    size = -(-len(history) // cuts)
    for first in range(0, len(history), size):
        records = []
        for name, event in history[first : first + size]:
            records.append(RawRecord([*STREAMS].index(name), 0, offsets[name], orjson.dumps(event)))
            offsets[name] += 1
        if rescale is not None and first >= len(history) // 2:
            running, rescale = rescale(running), None
        if restart:
            running = InProcessApp(running.app, running.blobs, next_offsets=running.next_offsets)
        output += running.cut(records, T0 + 100 * MINUTE)
    end = [{"at": T0 + 90 * MINUTE, "user": "z", "ok": True}, {"paid_at": T0 + 90 * MINUTE, "user": "z"}]
    last = [RawRecord(n, 0, 10_000, orjson.dumps(event)) for n, event in enumerate(end)]
    output += running.cut(last, T0 + 100 * MINUTE)
    return [*output, *running.cut([], T0 + 100 * MINUTE)]


def alerts(output: Sequence[Any]) -> list[dict[str, Any]]:
    return [orjson.loads(record.value) for record in output if record.lane == ALERTS]


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(n, marks=pytest.mark.slow) for n in (2, 3))])
def test_rules_over_two_streams_find_what_loops_find(seed: int) -> None:
    history = events(random.Random(seed), 200)
    output = run(history, cuts=1 + 3 * seed, restart=seed % 2 == 1)
    assert {orjson.loads(r.value)["status"] for r in output if r.lane == STATUS} == {"accepted"}
    assert found(alerts(output)) == expected(history)
    assert all(expected(history).values()), "each rule fires"
    assert not [record for record in output if record.lane == LATE]


@pytest.mark.slow
def test_alerts_do_not_depend_on_cuts_and_have_ids_of_their_own() -> None:
    history = events(random.Random(9), 200)
    whole, split = (sorted(alerts(run(history, cuts)), key=lambda one: str(one["alert_id"])) for cuts in (1, 40))
    for one in (*whole, *split):
        del one["rules_epoch"]
    assert whole == split
    assert len({one["alert_id"] for one in whole}) == len(whole)


@pytest.mark.slow
def test_the_state_of_a_rule_over_two_streams_moves_to_other_shards(tmp_path: Path) -> None:
    def rescale(running: InProcessApp) -> InProcessApp:
        saved = save(running.app, running.blobs, tmp_path / "savepoints", moment())
        return InProcessApp(more := app(5), restore(saved, more, tmp_path / "checkpoint"))

    history = events(random.Random(3), 200)
    assert found(alerts(run(history, cuts=9, rescale=rescale))) == expected(history)


@pytest.mark.slow
def test_an_alert_names_the_topics_and_has_the_fields_of_its_stream() -> None:
    output = run(events(random.Random(1), 200), cuts=3)
    odd = [one for one in alerts(output) if one["rule"] == "odd"]
    fields = {one["source"]["topic"]: {*one["event"]} for one in odd}
    assert fields == {
        "login-topic": {"_stream", "at", "user", "ok", "device"},
        "payment-topic": {"_stream", "paid_at", "user", "amount", "device"},
    }
    stolen = [one for one in alerts(output) if one["rule"] == "stolen"]
    assert {tuple(e["topic"] for e in one["events"]) for one in stolen} == {("login-topic", "payment-topic")}
    assert {one["stream"] for one in [*odd, *stolen]} == {"logins+payments"}


def test_equal_places_in_two_topics_are_two_firings() -> None:
    """Both begin at offset 0 of partition 0: the ids of alerts have the topics in them."""
    twice = rule(
        "stolen", sequence=[{"step": "one", "where": "device = 'd1'"}, {"step": "two", "where": "device = 'd2'"}]
    )
    history: list[tuple[str, dict[str, Any]]] = []
    for n in range(2):
        for device in ("d1", "d2"):
            at = T0 + len(history) * 1000
            time = {"at": at, "ok": True} if n == 0 else {"paid_at": at}
            history.append((("logins", "payments")[n], {"user": "ann", "device": device, **time}))
    running = InProcessApp(app(1))
    records = [RawRecord(n // 2, 0, n % 2, orjson.dumps(event)) for n, (_, event) in enumerate(history)]
    output = running.cut([control_record(0, "stolen", orjson.dumps(twice)), *records], T0 + MINUTE)
    output += running.cut([RawRecord(n, 0, 9, orjson.dumps(e)) for n, e in enumerate(_later())], T0 + 100 * MINUTE)
    output += running.cut([], T0 + 100 * MINUTE)
    ids = [one["alert_id"] for one in alerts(output)]
    assert len(ids) == len({*ids}) == 2


def _later() -> list[dict[str, Any]]:
    return [{"at": T0 + 60 * MINUTE, "user": "z", "ok": True}, {"paid_at": T0 + 60 * MINUTE, "user": "z"}]


# --- documents --------------------------------------------------------------------------------------------------------


def compiled(document: Mapping[str, object], streams: Mapping[str, StreamSchema] = STREAMS) -> Any:
    value = orjson.dumps(document)
    return compile_rule(decode_record(value, len(value)), streams, RuleLimits())


def test_the_order_of_the_streams_is_no_part_of_a_rule() -> None:
    one, other = compiled(rule("odd")), compiled(rule("odd", on=["logins", "payments", "logins"]))
    assert one == other == compiled(rule("odd", on="logins+payments"))
    assert one.rule.on == "logins+payments"


def test_a_union_has_the_fields_that_mean_one_thing() -> None:
    union = find_stream(STREAMS, "logins+payments")
    assert union.event_time == "_event_time"
    assert {field.name: (str(field.type), field.nullable) for field in union.fields} == {
        "_stream": ("string", False),
        "_event_time": ("timestamp", False),
        "at": ("timestamp", True),
        "paid_at": ("timestamp", True),
        "user": ("string", False),
        "ok": ("boolean", True),
        "device": ("string", True),
        "amount": ("decimal(9,2)", True),
    }
    assert union.keys == (("user",), ())


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"on": ["logins", "refunds"]}, "on: there is no stream 'refunds'; there are"),
        ({"where": "code = 1"}, "code"),
        ({"on": ["logins", "other"]}, "on: logins, other have no key in common"),
        ({"on": ["logins", "marked"]}, "on: the stream marked has a field _stream"),
        ({"on": []}, "on"),
        ({"on": ["logins", 5]}, "on"),
    ],
)
def test_streams_that_do_not_fit_are_refused(change: dict[str, object], error: str) -> None:
    other = StreamSchema.parse(
        {
            "name": "other",
            "event_time": "at",
            "keys": [["user"]],
            "fields": {"at": "timestamp not null", "user": "long"},
        }
    )
    streams = {**STREAMS, "other": other, "marked": stream("marked", "at", _stream="string")}
    with pytest.raises(RuleError, match=error):
        compiled(rule("odd", **change), streams)


def test_a_test_of_a_rule_names_the_stream_of_each_event() -> None:
    tested = {
        "name": "two streams",
        "events": [
            {"_stream": "logins", "user": "ann", "ok": False},
            {"_stream": "payments", "user": "ann", "amount": 60},
            {"_stream": "payments", "user": "bob", "amount": 60, "paid_at": "+30s"},
        ],
        "expect": [{"user": "ann"}],
    }
    (result,) = run_tests(compiled(rule("stolen", tests=[tested])).rule, STREAMS, run_in_process)
    assert result.diff == ()
    wrong = {**tested, "events": [{"user": "ann"}]}
    (result,) = run_tests(compiled(rule("stolen", tests=[wrong])).rule, STREAMS, run_in_process)
    assert "events[0]: _stream: name the stream of the event, logins or payments" in result.diff[0]


def test_a_test_of_a_score_over_two_streams_runs_the_rules_of_each() -> None:
    logins = [{"_stream": "logins", "user": "ann", "ok": False, "code": 1} for _ in range(2)]
    paid = [{"_stream": "payments", "user": "ann", "amount": 80, "code": "1"} for _ in range(2)]
    tested = {"name": "both", "events": [*logins, *paid], "expect": [{"user": "ann", "values": {"sum": 70}}]}
    others = [compiled(rule(name)).rule for name in ("failed", "dear")]
    (result,) = run_tests(compiled(rule("risk", tests=[tested])).rule, STREAMS, run_in_process, others)
    assert result.diff == ()


@pytest.mark.parametrize(
    ("on", "other", "reason"),
    [
        (BOTH, "failed", None),
        (BOTH, "odd", None),
        ("logins", "failed", None),
        ("logins", "odd", "odd is on streams logins, payments, this rule on stream logins; name all streams"),
        ("logins", "dear", "dear is on stream payments, this rule on stream logins; name all streams"),
    ],
)
def test_a_score_adds_up_rules_on_its_streams(on: object, other: str, reason: str | None) -> None:
    score = rule("risk", on=on, score={"of": {other: 5}, "within": "1h", "limit": 10})
    found = incompatibility(compiled(score), compiled(rule(other)), STREAMS)
    assert found is None if reason is None else reason in str(found)


def test_a_score_needs_its_key_in_the_streams_of_its_rules() -> None:
    """``device`` is a field of two streams; a rule on a third gives no signals to a score by it."""
    third = stream("third", "at")
    streams = {**STREAMS, "third": third}
    score = {"of": {"failed": 5}, "within": "1h", "limit": 10}
    by_device = compiled(rule("risk", on=[*BOTH, "third"], group_by=["user", "device"], score=score), streams)
    assert incompatibility(by_device, compiled(rule("failed")), streams) is None
    other = compiled(rule("failed", on="third", where="user = 'ann'"), streams)
    assert "is on stream third, which has no device to group by" in str(incompatibility(by_device, other, streams))
