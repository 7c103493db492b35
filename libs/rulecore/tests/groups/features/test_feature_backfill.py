"""Backfills of features: one that is filled from history has the values of one that counted from the start."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence

import orjson
import polars as pl
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from rulecore.backfill import BackfillCollector, backfill_records
from rulecore.compile.rule import CompiledRule, RuleLimits, compile_rule
from rulecore.documents.control_keys import BACKFILL_KEY, STAGED_KEY
from rulecore.documents.loading import decode_record
from rulecore.documents.releases import digest_part
from streamcore.decode.json.decoder import JsonDecoder
from streamcore.decode.types import RawBatch
from streamcore.engine.in_process import InProcessApp, RawRecord, control_record
from streamcore.wire.lanes import ALERTS, STATUS, Record
from tests.harness.apps.feature_app import draw_pays, draw_specs, feature_app
from tests.harness.oracles.features import (
    AGGREGATES,
    CLOCK,
    MINUTE,
    SCHEMA,
    T0,
    Pay,
    Spec,
    rule,
    values_over,
)

ALL = [Spec(of, None, (), '{"sliding": "12m", "every": "4m"}', including_this=False) for of in AGGREGATES]
EVENTS = [Pay(n * 7 % 19, "ab"[n % 2], n % 5 or None, f"c{n % 3}", n) for n in range(24)]


def lane(records: Sequence[Record], name: str) -> list[dict[str, object]]:
    return [orjson.loads(r.value or b"null") for r in records if r.lane == name]


def decoded(events: Sequence[Pay]) -> pl.DataFrame:
    records = [event.record() for event in events]
    batch = RawBatch(
        values=pa.array([r.value for r in records], pa.binary()),
        partition=pa.array([r.partition for r in records], pa.int32()),
        offset=pa.array([r.offset for r in records], pa.int64()),
        clock_ms=CLOCK,
    )
    return pl.DataFrame(JsonDecoder(SCHEMA).decode(batch).events)


def compiled(specs: Sequence[Spec], order: str) -> CompiledRule:
    value = rule(specs, order=order).value
    assert value is not None
    return compile_rule(decode_record(value, len(value)), {"pay": SCHEMA}, RuleLimits())


def backfill(specs: Sequence[Spec], order: str, since: Mapping[str, int], past: Sequence[Pay]) -> list[RawRecord]:
    collector = BackfillCollector(compiled(specs, order), SCHEMA)
    if past:
        collector.add(decoded(past))
    records = backfill_records(collector, T0 - 120 * MINUTE, since, STAGED_KEY)
    return [control_record(100 + n, key, value) for n, (key, value) in enumerate(records)]


def run(
    specs: Sequence[Spec], events: Sequence[Pay], cut: int, gap: int, *, again: bool, restart: bool
) -> tuple[dict[object, object], list[object]]:
    """Return the values of the features at the events after the backfill, and whether these are incomplete. The rule
    comes with the events from ``cut`` on, and the backfill of those before ``gap`` events later."""
    app = InProcessApp(feature_app(100, 3))
    app.cut([event.record() for event in events[:cut]], CLOCK)
    first = lane(app.cut([rule(specs), *(e.record() for e in events[cut : cut + gap])], CLOCK), STATUS)
    since = first[0]["incomplete"]["since_ms"]  # type: ignore[index]
    records = backfill(specs, "on_arrival", since, events[:cut])
    for _ in range(1 + again):
        answers = lane(app.cut(records, CLOCK), STATUS)
        assert [a["status"] for a in answers if a["subject"] == "backfill"] == ["accepted"], answers
    if restart:
        app = InProcessApp(app.app, app.blobs)
    alerts = lane(app.cut([event.record() for event in events[cut + gap :]], CLOCK), ALERTS)
    values = {one["source"]["offset"]: one["values"] for one in alerts}  # type: ignore[index]
    return values, [one["incomplete"] for one in alerts]


specs = draw_specs(least=1, most=5)
pays = draw_pays(least=3, most=30, minutes=30, cards=["x", "y", None])


@settings(max_examples=80, deadline=None)
@given(specs, pays, st.integers(1, 20), st.integers(0, 5), st.booleans(), st.booleans())
def test_a_backfilled_feature_has_the_values_of_one_that_counted_from_the_start(
    specs: list[Spec], events: list[Pay], cut: int, gap: int, again: bool, restart: bool
) -> None:
    cut = min(cut, len(events) - 1)
    found, incomplete = run(specs, events, cut, gap, again=again, restart=restart)
    right = values_over(events, specs)
    assert found == {event.offset: right[event.offset] for event in events[cut + gap :]}
    assert not any(incomplete)


def test_every_function_is_filled_from_history() -> None:
    found, _ = run(ALL, EVENTS, 12, 2, again=True, restart=True)
    right = values_over(EVENTS, ALL)
    assert found == {event.offset: right[event.offset] for event in EVENTS[14:]}


def test_a_part_that_does_not_fit_its_feature_is_rejected() -> None:
    (seen,) = (spec for spec in ALL if spec.of == "last(card)")
    app = InProcessApp(feature_app(100, 3))
    app.cut([EVENTS[0].record()], CLOCK)
    (first,) = lane(app.cut([rule([seen])], CLOCK), STATUS)
    since = first["incomplete"]["since_ms"]  # type: ignore[index]
    for harm in (
        {"panes": [1]},
        {"table": "f" * 32},
        {"values": {"__time": [None], "__value": ["x"]}},
        {"values": {"__time": [T0], "__value": [7]}},
        {"keys": {"card": ["a"]}},
    ):
        part = {"table": next(iter(since)), "keys": {"user": ["a"]}, "panes": [T0 // (4 * MINUTE)]}
        records = harmed(part | {"values": {"__time": [T0], "__value": ["x"]}} | harm, since)
        answers = lane(app.cut(records, CLOCK), STATUS)
        assert [a["status"] for a in answers if a["subject"] == "backfill"] == ["rejected"], harm


def harmed(part: Mapping[str, object], since: Mapping[str, int]) -> list[RawRecord]:
    value = zlib.compress(orjson.dumps(part))
    body = {"rule": "r", "version": 1, "from": T0 - MINUTE, "since": since, "parts": [digest_part(value)]}
    items = [(STAGED_KEY + digest_part(value), value), (BACKFILL_KEY + "r", orjson.dumps(body))]
    return [control_record(100 + n, *item) for n, item in enumerate(items)]
