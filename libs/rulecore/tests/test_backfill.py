"""Backfills: an aggregate that is filled from history equals one that counted from the start."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import orjson
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rulecore.backfill import BackfillCollector, backfill_records
from rulecore.compile.rule import RuleLimits, compile_rule
from rulecore.documents.control_keys import BACKFILL_KEY, STAGED_KEY
from rulecore.documents.releases import digest_part
from rulecore.documents.rule import Rule
from rulecore.factory import RulesFactory
from rulecore.settings import DispatchSettings
from rulecore.streams import RuleStream
from streamcore.app import App, Source
from streamcore.decode.json.decoder import JsonDecoder
from streamcore.decode.types import RawBatch
from streamcore.engine.in_process import InProcessApp, RawRecord, control_record
from streamcore.engine.shard import Shard
from streamcore.watermark import WatermarkStrategy
from streamcore.wire.lanes import ALERTS, STATUS, Record
from tests.harness.apps.control_records import SCHEMA, STREAMS, document

MINUTE = 60_000
T0 = 1_700_000_000_000 - 1_700_000_000_000 % (60 * MINUTE)
CLOCK = T0 + 1000 * 60 * MINUTE
WINDOW = {"group_by": ["user"], "within": {"sliding": "1h", "every": "10m"}, "emit": "final"}
HAVING = (
    "count(*) >= 1 or sum(amount) > 1 or min(amount) < 0 or max(amount) > 9 or avg(amount) > 5 "
    "or stddev(amount) > 2 or count_distinct(card) > 1"
)


def app() -> InProcessApp:
    kernel = RulesFactory((RuleStream(SCHEMA, "pay"),), dispatch=DispatchSettings(compare_every_ms=10**12))
    watermark = WatermarkStrategy(max_out_of_orderness_ms=30 * MINUTE)
    return InProcessApp(App("t", (Source(SCHEMA, "pay"),), "control", {}, (kernel,), shards=3, watermark=watermark))


def rule(version: int = 1, /, **fields: object) -> dict[str, object]:
    return document("w", version, **({"where": "amount <> 3", "having": HAVING} | WINDOW | fields))


def rule_record(version: int = 1, /, **fields: object) -> RawRecord:
    return control_record(version, "w", orjson.dumps(rule(version, **fields)))


def pay(offset: int, minute: float, user: str | None, amount: float | None, card: str | None) -> RawRecord:
    event = {"ts": T0 + int(minute * MINUTE), "user": user, "card": card, "amount": amount}
    return RawRecord(0, 0, offset, orjson.dumps(event))


def decoded_frame(records: Sequence[RawRecord]) -> pl.DataFrame:
    batch = RawBatch(
        values=pa.array([r.value for r in records], pa.binary()),
        partition=pa.array([r.partition for r in records], pa.int32()),
        offset=pa.array([r.offset for r in records], pa.int64()),
        clock_ms=CLOCK,
    )
    return pl.DataFrame(JsonDecoder(SCHEMA).decode(batch).events)


def lane(records: Sequence[Record], name: str) -> list[dict[str, object]]:
    return [orjson.loads(r.value or b"null") for r in records if r.lane == name]


def build_backfill(
    version: int, since: dict[str, int], history: Sequence[RawRecord], /, **fields: object
) -> list[RawRecord]:
    compiled = compile_rule(Rule.model_validate(rule(version, **fields)), STREAMS, RuleLimits())
    collector = BackfillCollector(compiled, SCHEMA)
    if history:
        collector.add(decoded_frame(history))
    records = backfill_records(collector, T0 - 120 * MINUTE, since, STAGED_KEY)
    return [control_record(100 + n, key, value) for n, (key, value) in enumerate(records)]


EVENTS = st.lists(
    st.tuples(
        st.integers(0, 20),
        st.sampled_from(["a", "b", "c", None]),
        st.none() | st.integers(-3, 9),
        st.sampled_from(["x", "y", None]),
    ),
    min_size=4,
    max_size=30,
)


def end(offset: int) -> RawRecord:
    return pay(offset, 600, "end", 1, None)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(EVENTS, st.integers(1, 20), st.integers(0, 5), st.booleans())
def test_a_backfilled_aggregate_equals_one_that_counted_from_the_start(
    found: list[tuple[int, str | None, int | None, str | None]], cut: int, gap: int, again: bool
) -> None:
    events = [pay(i, minute, user, amount, card) for i, (minute, user, amount, card) in enumerate(found)]
    whole = app()
    wanted = whole.cut([rule_record(), *events], CLOCK) + whole.cut([end(len(events))], CLOCK)

    running = app()
    workers: list[dict[tuple[int, int], Shard]] = [{}, {}]
    running.shards = workers[0]
    running.cut(events[:cut], CLOCK)
    running.shards = workers[1]
    out = running.cut([rule_record(), *events[cut : cut + gap]], CLOCK)
    running.shards = workers[0]
    running.cut([], CLOCK)
    (status,) = lane(out, STATUS)
    incomplete = status["incomplete"]
    assert isinstance(incomplete, dict)
    assert incomplete["counts_from"] == {"pay": {"0": len(events[:cut])}}
    records = build_backfill(1, incomplete["since_ms"], events[:cut])
    out += running.cut(records[:-1], CLOCK)
    running.shards = workers[1]
    out += running.cut([*records[-1:], *events[cut + gap :]], CLOCK)
    running.shards = workers[0]
    if again:
        out += running.cut(records, CLOCK)
    out += running.cut([end(len(events))], CLOCK)
    assert {s["status"] for s in lane(out, STATUS)} <= {"accepted", "staged"}
    assert sorted(map(repr, lane(out, ALERTS))) == sorted(map(repr, lane(wanted, ALERTS)))
    assert not [a for a in lane(out, ALERTS) if a["incomplete"]]


def test_without_the_backfill_the_windows_are_incomplete_and_smaller() -> None:
    running = app()
    running.cut([pay(0, 1, "a", 5, "x")], CLOCK)
    out = running.cut([rule_record(), pay(1, 2, "a", 5, "y")], CLOCK) + running.cut([end(2)], CLOCK)
    first = lane(out, ALERTS)[0]
    assert first["incomplete"] is True
    assert first["values"]["count(*)"] == 1  # type: ignore[index]


def test_a_new_threshold_needs_no_backfill_and_its_status_omits_incomplete() -> None:
    running = app()
    running.cut([pay(0, 1, "a", 5, "x")], CLOCK)
    running.cut([rule_record()], CLOCK)
    (status,) = lane(running.cut([rule_record(2, having="count(*) >= 7")], CLOCK), STATUS)
    assert "incomplete" not in status


def test_an_early_rule_fires_at_the_next_event_of_a_backfilled_window() -> None:
    running = app()
    history = [pay(i, i, "a", 5, "x") for i in range(4)]
    running.cut(history, CLOCK)
    early = {"having": "count(*) >= 5", "emit": "early", "where": "amount > 0"}
    (status,) = lane(running.cut([rule_record(**early)], CLOCK), STATUS)
    since = status["incomplete"]["since_ms"]  # type: ignore[index]
    running.cut(build_backfill(1, since, history, **early), CLOCK)
    alerts = lane(running.cut([pay(4, 5, "a", 5, "x")], CLOCK), ALERTS)
    assert {a["values"]["count(*)"] for a in alerts} == {5}  # type: ignore[index]
    assert {a["incomplete"] for a in alerts} == {False}


def backfill_head(rule_id: str, version: int, parts: Sequence[str] = ()) -> bytes:
    body = {"rule": rule_id, "version": version, "from": "2026-01-01T00:00:00Z", "since": {"a": 1}, "parts": [*parts]}
    return orjson.dumps(body)


BROKEN = {
    "no JSON": b"{",
    "no object": b"[]",
    "another rule": backfill_head("x", 1),
    "another version": backfill_head("w", 9),
    "an unknown aggregate": backfill_head("w", 1),
    "a part that is not there": backfill_head("w", 1, ["0" * 32]),
}


@pytest.mark.parametrize("what", BROKEN)
@pytest.mark.quick_cases(2)
def test_a_backfill_that_does_not_fit_is_rejected_and_changes_nothing(what: str) -> None:
    running = app()
    running.cut([pay(0, 1, "a", 5, "x")], CLOCK)
    running.cut([rule_record()], CLOCK)
    (status,) = lane(running.cut([control_record(5, BACKFILL_KEY + "w", BROKEN[what])], CLOCK), STATUS)
    assert (status["status"], status["subject"]) == ("rejected", "backfill")
    assert not str(status["reason"]).startswith("internal error")


@settings(max_examples=50, deadline=None)
@given(
    st.fixed_dictionaries(
        {
            "table": st.sampled_from(["panes", "x"]),
            "keys": st.dictionaries(st.sampled_from(["user", "x"]), st.lists(st.text(max_size=3), max_size=3)),
            "panes": st.lists(st.integers(-(2**70), 2**70) | st.text(max_size=2), max_size=3),
            "values": st.dictionaries(st.text(max_size=5), st.lists(st.none() | st.floats() | st.text(), max_size=3)),
        }
    )
    | st.binary(max_size=60)
)
def test_no_part_of_a_backfill_makes_the_kernel_raise(part: dict[str, object] | bytes) -> None:
    running = app()
    running.cut([pay(0, 1, "a", 5, "x")], CLOCK)
    (status,) = lane(running.cut([rule_record()], CLOCK), STATUS)
    since = status["incomplete"]["since_ms"]  # type: ignore[index]
    try:
        body = part if isinstance(part, bytes) else zlib.compress(orjson.dumps(part))
    except TypeError:  # more than 64 bits
        return
    digest = digest_part(body)
    fill = {"rule": "w", "version": 1, "from": "2026-01-01T00:00:00Z", "since": since, "parts": [digest]}
    records = [control_record(5, STAGED_KEY + digest, body), control_record(6, BACKFILL_KEY + "w", orjson.dumps(fill))]
    answers = lane(running.cut(records, CLOCK), STATUS)
    assert not [a for a in answers if str(a["reason"]).startswith("internal error")]
    assert answers[-1]["status"] == "rejected"


@pytest.mark.slow
def test_a_part_that_decompresses_beyond_the_limit_is_rejected() -> None:
    bomb = zlib.compress(b" " * (80 << 20), 9)
    running = app()
    (status,) = lane(running.cut([control_record(5, STAGED_KEY + digest_part(bomb), bomb)], CLOCK), STATUS)
    assert status["status"] == "rejected"
    assert "when decompressed" in str(status["reason"])
