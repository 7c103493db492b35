"""The rules kernel in this process: the code of production, with cuts that the test chooses."""

from __future__ import annotations

from collections.abc import Sequence

import orjson
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rulecore import language as lang
from rulecore.factory import RulesFactory
from rulecore.language.columnar.compiler import to_polars
from rulecore.streams import RuleStream
from streamcore.app import App, Source
from streamcore.durations import Milliseconds
from streamcore.engine.in_process import InProcessApp, RawRecord, control_record
from streamcore.schema import StreamSchema
from streamcore.watermark import WatermarkStrategy
from streamcore.wire.lanes import ALERTS, DEAD_LETTERS, LATE, SHADOW, STATUS, Record
from tests.harness.apps.compile_failures import compile_with

MINUTE = 60_000
T0 = 1_700_000_000_000 - 1_700_000_000_000 % (60 * MINUTE)
CLOCK = T0 + 1000 * 60 * MINUTE

SCHEMA = StreamSchema.parse(
    {
        "name": "pay",
        "event_time": "ts",
        "keys": [["user"], ["ip"]],
        "fields": {
            "ts": "timestamp not null",
            "user": "string",
            "ip": "string",
            "amount": "decimal(12,2)",
            "card": "string",
        },
    }
)


def new_app(shards: int = 2, max_out_of_orderness_ms: int = 0) -> App:
    kernel = RulesFactory((RuleStream(SCHEMA, "pay"),))
    watermark = WatermarkStrategy(max_out_of_orderness_ms=Milliseconds(max_out_of_orderness_ms))
    return App("t", (Source(SCHEMA, "pay"),), "control", {}, (kernel,), shards=shards, watermark=watermark)


def rule(rule_id: str, version: int = 1, **fields: object) -> RawRecord:
    document = {
        "id": rule_id,
        "version": version,
        "owner": "o",
        "on": "pay",
        "then": {"severity": "high", "message": "m"},
    } | fields
    return control_record(version, rule_id, orjson.dumps(document))


def windowed(rule_id: str = "w", version: int = 1, **fields: object) -> RawRecord:
    base = {"group_by": ["user"], "within": {"tumbling": "1h"}, "having": "count(*) >= 3"}
    return rule(rule_id, version, **(base | fields))


def pay(offset: int, minute: float, user: str | None = "a", **fields: object) -> RawRecord:
    event = {"ts": T0 + int(minute * MINUTE), "user": user, "ip": "1", "amount": 1, "card": "c"} | fields
    return RawRecord(0, 0, offset, orjson.dumps(event))


def lane(records: Sequence[Record], name: str) -> list[dict[str, object]]:
    return [orjson.loads(r.value or b"null") for r in records if r.lane == name]


def identity(alert: dict[str, object]) -> object:
    return {k: v for k, v in alert.items() if k not in ("rules_epoch",)}


def test_an_event_rule_fires_for_each_event_that_matches() -> None:
    app = InProcessApp(new_app())
    out = app.cut([rule("big", where="amount > 100"), pay(0, 1, amount=100.01), pay(1, 1, amount=100)], CLOCK)
    (alert,) = lane(out, ALERTS)
    assert alert["rule"] == "big"
    assert alert["source"] == {"topic": "pay", "partition": 0, "offset": 0}
    assert alert["key"] == {"user": "a"}


def test_an_early_rule_fires_once_per_window_at_the_event_that_crosses_the_threshold() -> None:
    app = InProcessApp(new_app())
    out = app.cut([windowed(), *(pay(i, i) for i in range(6))], CLOCK)
    (alert,) = lane(out, ALERTS)
    assert alert["source"] == {"topic": "pay", "partition": 0, "offset": 2}
    assert alert["values"] == {"count(*)": 3}
    assert lane(app.cut([pay(6, 6)], CLOCK), ALERTS) == []
    assert len(lane(app.cut([pay(i, 60 + i) for i in range(7, 10)], CLOCK), ALERTS)) == 1


def test_a_transient_crossing_inside_one_cut_fires() -> None:
    app = InProcessApp(new_app())
    rules = [windowed(having="sum(amount) > 10")]
    out = app.cut([*rules, pay(0, 0, amount=11), pay(1, 1, amount=-5)], CLOCK)
    (alert,) = lane(out, ALERTS)
    assert alert["values"] == {"sum(amount)": "11.00"}


def test_a_final_rule_fires_when_the_watermark_passes_the_end_with_the_final_value() -> None:
    app = InProcessApp(new_app())
    out = app.cut([windowed(emit="final"), *(pay(i, i) for i in range(5))], CLOCK)
    assert lane(out, ALERTS) == []
    (alert,) = lane(app.cut([pay(5, 61, user="z")], CLOCK), ALERTS)
    assert (alert["timing"], alert["values"], alert["source"]) == ("final", {"count(*)": 5}, None)
    assert alert["window"] == {"start_ms": T0, "end_ms": T0 + 60 * MINUTE}


def test_a_threshold_change_keeps_the_counts() -> None:
    app = InProcessApp(new_app())
    app.cut([windowed(having="count(*) >= 100"), *(pay(i, i) for i in range(5))], CLOCK)
    (alert,) = lane(app.cut([windowed(version=2, having="count(*) >= 6"), pay(5, 6)], CLOCK), ALERTS)
    assert alert["values"] == {"count(*)": 6}
    assert (alert["version"], alert["incomplete"]) == (2, False)


def test_a_new_minimum_does_not_take_the_missing_values_of_loaded_panes_for_zeros() -> None:
    app = InProcessApp(new_app(shards=1))
    within = {"sliding": "1h", "every": "10m"}
    app.cut([windowed(within=within, having="count(*) >= 100"), pay(0, 1)], CLOCK)
    app.cut([windowed(version=2, within=within, having="min(amount) > 3"), pay(1, 11, user="b", amount=2)], CLOCK)
    again = InProcessApp(new_app(shards=1), app.blobs)
    (alert,) = lane(again.cut([pay(2, 21, amount=5)], CLOCK), ALERTS)
    assert (alert["values"], alert["incomplete"]) == ({"min(amount)": "5.00"}, True)


def test_a_new_aggregate_is_incomplete_until_a_window_starts_after_it() -> None:
    app = InProcessApp(new_app())
    app.cut([pay(0, 10)], CLOCK)
    out = app.cut([windowed(having="count(*) >= 1"), pay(1, 11)], CLOCK)
    assert [a["incomplete"] for a in lane(out, ALERTS)] == [True]
    assert [a["incomplete"] for a in lane(app.cut([pay(2, 70)], CLOCK), ALERTS)] == [False]


def test_distinct_values_are_counted_across_panes_and_cuts() -> None:
    app = InProcessApp(new_app())
    rules = [windowed(within={"sliding": "1h", "every": "10m"}, having="count_distinct(card) >= 3")]
    out = app.cut([*rules, pay(0, 1, card="x"), pay(1, 2, card="x"), pay(2, 12, card="y")], CLOCK)
    assert lane(out, ALERTS) == []
    (alert,) = lane(app.cut([pay(3, 25, card="z"), pay(4, 26, card="q")], CLOCK), ALERTS)
    assert alert["source"] == {"topic": "pay", "partition": 0, "offset": 3}
    assert alert["values"] == {"count_distinct(card)": 3}


def test_windows_of_several_lengths_process_the_events_of_a_cut_one_by_one() -> None:
    rules = [
        windowed("short", within={"tumbling": "10m"}, having="count(*) >= 100"),
        windowed("long", within={"sliding": "1h", "every": "10m"}, having="count(*) >= 2"),
    ]
    out = InProcessApp(new_app()).cut([*rules, pay(0, 1), pay(1, 2), pay(2, 31)], CLOCK)
    assert [(a["window"], a["source"]) for a in lane(out, ALERTS)] == [
        ({"start_ms": T0 - 50 * MINUTE, "end_ms": T0 + 10 * MINUTE}, {"topic": "pay", "partition": 0, "offset": 1}),
        ({"start_ms": T0 - 20 * MINUTE, "end_ms": T0 + 40 * MINUTE}, {"topic": "pay", "partition": 0, "offset": 2}),
    ]


def test_the_windows_that_a_rule_evaluates_do_not_depend_on_other_rules() -> None:
    small = windowed("small", where="amount < 5", within={"sliding": "1h", "every": "10m"}, having="count(*) >= 2")
    other = windowed("other", where="amount >= 5", within={"sliding": "1h", "every": "10m"}, having="count(*) >= 9")
    events = [pay(0, 1), pay(1, 31, amount=9), pay(2, 2)]
    for cuts in ([events], [events[:2], events[2:]]):
        for rules in ([small], [small, other]):
            app = InProcessApp(new_app(max_out_of_orderness_ms=60 * MINUTE))
            app.cut(rules, CLOCK)
            alerts = [a for cut in cuts for a in lane(app.cut(cut, CLOCK), ALERTS)]
            assert [a["window"] for a in alerts] == [{"start_ms": T0 - 50 * MINUTE, "end_ms": T0 + 10 * MINUTE}]


def test_a_null_key_is_a_group_of_its_own() -> None:
    app = InProcessApp(new_app())
    out = app.cut([windowed(), *(pay(i, i, user=None) for i in range(3))], CLOCK)
    (alert,) = lane(out, ALERTS)
    assert alert["key"] == {"user": None}


def test_a_late_event_goes_to_the_late_lane_and_into_no_window() -> None:
    app = InProcessApp(new_app())
    rules = [windowed(), rule("every", where="amount > 0")]
    app.cut([*rules, pay(0, 1), pay(1, 2), pay(2, 30, user="z")], CLOCK)
    out = app.cut([pay(3, 3)], CLOCK)
    (late,) = lane(out, LATE)
    assert late["lateness_ms"] == 27 * MINUTE
    assert [a["rule"] for a in lane(out, ALERTS)] == ["every"]


def test_a_bad_rule_is_rejected_with_a_reason_and_the_previous_version_stays_live() -> None:
    app = InProcessApp(new_app())
    app.cut([rule("r", where="amount > 1")], CLOCK)
    out = app.cut([rule("r", 2, where="amuont > 1"), pay(0, 1, amount=2)], CLOCK)
    (status,) = lane(out, STATUS)
    assert status["status"] == "rejected"
    assert "amount" in str(status["reason"])
    assert [a["version"] for a in lane(out, ALERTS)] == [1]


def test_shadow_rules_alert_on_their_own_lane_and_paused_rules_do_not_alert() -> None:
    app = InProcessApp(new_app())
    rules = [rule("s", where="amount > 0", mode="shadow"), rule("p", where="amount > 0", mode="paused")]
    out = app.cut([*rules, pay(0, 1)], CLOCK)
    assert [a["rule"] for a in lane(out, SHADOW)] == ["s"]
    assert lane(out, ALERTS) == []


def test_a_paused_rule_keeps_counting() -> None:
    app = InProcessApp(new_app())
    app.cut([windowed(mode="paused"), pay(0, 1), pay(1, 2)], CLOCK)
    assert len(lane(app.cut([windowed(version=2), pay(2, 3)], CLOCK), ALERTS)) == 1


def test_a_deleted_rule_stops() -> None:
    app = InProcessApp(new_app())
    app.cut([rule("r", where="amount > 0")], CLOCK)
    out = app.cut([control_record(9, "r", None), pay(0, 1)], CLOCK)
    assert lane(out, ALERTS) == []
    assert [s["status"] for s in lane(out, STATUS)] == ["deleted"]


def test_a_window_rule_that_raises_goes_into_quarantine_and_the_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def compile_or_break(expr: lang.Expr) -> pl.Expr:
        return pl.col("no such column") if "99" in lang.render(expr) else to_polars(expr)

    compile_with(monkeypatch, compile_or_break)
    app = InProcessApp(new_app(shards=1))
    rules = [windowed("bad", having="count(*) + 99 > 99"), windowed("worse", having="sum(amount + 99) > 1"), windowed()]
    out = app.cut([*rules, *(pay(i, i) for i in range(3))], CLOCK)
    statuses = {(s["rule"], s["status"]) for s in lane(out, STATUS)}
    assert {("bad", "quarantined"), ("worse", "quarantined")} <= statuses
    assert ("w", "quarantined") not in statuses
    assert [a["rule"] for a in lane(out, ALERTS)] == ["w"]
    again = InProcessApp(new_app(shards=1), app.blobs)
    assert [s["rule"] for s in lane(again.cut([pay(3, 4)], CLOCK), STATUS)] == []


def test_every_record_becomes_an_event_or_a_dead_letter() -> None:
    app = InProcessApp(new_app())
    bad = RawRecord(0, 0, 1, b"{no json")
    out = app.cut([pay(0, 1), bad], CLOCK)
    (letter,) = [r for r in out if r.lane == DEAD_LETTERS]
    assert letter.value == b"{no json"
    assert app.outputs[0].events == 1


RULES = [
    rule("big", where="amount >= 4"),
    windowed("n"),
    windowed("s", within={"sliding": "30m", "every": "10m"}, having="sum(amount) >= 5 and min(amount) >= 0"),
    windowed("d", group_by=["ip"], within={"sliding": "30m", "every": "10m"}, having="count_distinct(user) >= 2"),
    windowed("f", within={"sliding": "30m", "every": "10m"}, having="count(*) >= 2", emit="final"),
    windowed("x", where="amount > 2", having="max(amount) > 3 or avg(amount) < 2.5 or stddev(amount) > 1"),
]
payments = st.lists(
    st.tuples(
        st.integers(0, 90),
        st.sampled_from(["a", "b", None]),
        st.sampled_from(["1", "2"]),
        st.integers(-1, 6),
    ),
    min_size=1,
    max_size=25,
)


def run(events: Sequence[RawRecord], sizes: Sequence[int], *, restart: bool, shards: int = 2) -> list[object]:
    """Return the alerts of these events, in cuts of ``sizes``; with ``restart`` every cut starts from stored state."""
    spec = new_app(shards, max_out_of_orderness_ms=200 * MINUTE)
    app = InProcessApp(spec)
    alerts = lane(app.cut(RULES, CLOCK), ALERTS)
    start, n = 0, 0
    while start < len(events):
        if restart:
            app = InProcessApp(spec, app.blobs)
        size = sizes[n % len(sizes)]
        alerts += lane(app.cut(events[start : start + size], CLOCK, tasks=1 + n % 2), ALERTS)
        start, n = start + size, n + 1
    alerts += lane(app.cut([pay(10_000, 24 * 60, user="end")], CLOCK), ALERTS)
    return sorted((identity(a) for a in alerts), key=str)


def run_in_turns(events: Sequence[RawRecord], sizes: Sequence[int]) -> list[object]:
    """Return the alerts of two processes that take turns, each catching up on the cuts of the other."""
    spec = new_app(2, max_out_of_orderness_ms=200 * MINUTE)
    first = InProcessApp(spec)
    second = InProcessApp(spec, first.blobs)
    alerts = lane(first.cut(RULES, CLOCK), ALERTS)
    start, n = 0, 0
    while start < len(events):
        size = sizes[n % len(sizes)]
        out = (second if n % 3 else first).cut(events[start : start + size], CLOCK)
        alerts += lane(out, ALERTS)
        start, n = start + size, n + 1
    alerts += lane(second.cut([pay(10_000, 24 * 60, user="end")], CLOCK), ALERTS)
    return sorted((identity(a) for a in alerts), key=str)


def to_events(rows: Sequence[tuple[int, str | None, str, int]]) -> list[RawRecord]:
    return [pay(i, m, user=u, ip=p, amount=a) for i, (m, u, p, a) in enumerate(rows)]


@pytest.mark.slow
@settings(max_examples=settings().max_examples // 4)
@given(payments, st.lists(st.integers(1, 7), min_size=1, max_size=6))
def test_the_alerts_do_not_depend_on_cuts_and_restarts(
    rows: list[tuple[int, str | None, str, int]], sizes: list[int]
) -> None:
    events = to_events(rows)
    whole = run(events, [len(events)], restart=False)
    assert run(events, sizes, restart=False) == whole
    assert run(events, sizes, restart=True, shards=3) == whole
    assert run_in_turns(events, sizes) == whole


def test_a_process_that_falls_behind_catches_up_on_rules_and_counts() -> None:
    first = InProcessApp(new_app())
    second = InProcessApp(new_app(), first.blobs)
    first.cut([windowed(having="count(*) >= 100")], CLOCK)
    second.cut([pay(0, 1)], CLOCK)
    first.cut([windowed(version=2), pay(1, 2)], CLOCK)
    (alert,) = lane(second.cut([pay(2, 3)], CLOCK), ALERTS)
    assert (alert["version"], alert["values"]) == (2, {"count(*)": 3})
    assert all(output.metrics.loaded for output in second.outputs)


@pytest.mark.parametrize("cuts_between", [0, 1, 3])
def test_a_new_rule_does_not_inherit_the_counts_of_a_deleted_one(cuts_between: int) -> None:
    """The state log holds deleted rows for a while; a restart must not find them under the new rule."""
    app = InProcessApp(new_app(shards=1))
    app.cut([windowed(having="count(*) >= 9"), *(pay(n, n, "b") for n in range(5))], CLOCK)
    app.cut([control_record(2, "w", None)], CLOCK)
    for _ in range(cuts_between):
        app.cut([], CLOCK)
    app.cut([windowed(having="count(*) >= 2"), pay(5, 6)], CLOCK)
    app.shards.clear()
    (alert,) = lane(app.cut([pay(6, 7, "b"), pay(7, 7)], CLOCK), ALERTS)
    assert (alert["key"], alert["values"]) == ({"user": "a"}, {"count(*)": 2})
    assert alert["incomplete"] is True
