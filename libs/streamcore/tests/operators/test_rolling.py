"""Rolling totals equal a sum over all rows after every cut, with any cuts, restarts and late rows."""

from __future__ import annotations

from decimal import Decimal

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamcore.aggregates import Count, Max, Sum
from streamcore.errors import ConfigError
from streamcore.operators.base import LATE, MAIN
from streamcore.operators.rolling.operator import Rolling, RollingSpec
from streamcore.operators.rolling.totals import RollingSpan
from streamcore.watermark import END_OF_TIME_MS, NO_WATERMARK
from tests.harness.apps.two_inputs import Arrival, CutPlan, Driver, Plan, plans

SCHEMA = pl.Schema({"key": pl.String(), "amount": pl.Decimal(12, 2)})
SPANS = (RollingSpan("short", "6ms", "2ms"), RollingSpan("long", "25ms", "5ms"))
SPEC = RollingSpec(("key",), SPANS, {"rows": Count(), "paid": Sum("amount")})

amounts = st.one_of(st.none(), st.integers(-(10**12) + 1, 10**12 - 1).map(lambda cents: Decimal(cents).scaleb(-2)))
rows = st.tuples(st.just(0), st.tuples(st.sampled_from(["a", "b", "c", None]), amounts))

Totals = dict[str | None, tuple[object, ...]]


def driver(spec: RollingSpec = SPEC) -> Driver:
    return Driver(lambda: Rolling(spec, SCHEMA), (SCHEMA,))


def has_expired(event_ms: int, span: RollingSpan, watermark_ms: int) -> bool:
    """Return whether a row no longer counts: the watermark is at the end of the span that starts with its step."""
    return watermark_ms >= event_ms // span.step_ms * span.step_ms + span.span_ms


def totals(arrived: list[Arrival], watermark_ms: int) -> Totals:
    """Return the totals of every key, by plain addition."""
    found: Totals = {}
    for key in {a.values[0] for a in arrived}:
        values: list[object] = []
        for span in SPANS:
            mine = [a for a in arrived if a.values[0] == key and not has_expired(a.event_ms, span, watermark_ms)]
            amounts = [amount for a in mine if isinstance(amount := a.values[1], Decimal)]
            values += [len(mine), sum(amounts) if amounts else None]
        assert key is None or isinstance(key, str)
        found[key] = tuple(values)
    return found


NOTHING = (0, None, 0, None)


@settings(max_examples=40, deadline=None)
@given(plans(rows, late=True))
def test_every_cut_emits_exactly_the_totals_that_changed(plan: Plan) -> None:
    at_work, arrived, before, watermark_ms = driver(), list[Arrival](), Totals(), NO_WATERMARK
    for cut in plan:
        at_work.ports = {}
        at_work.cut(cut)
        arrived += [a for a in cut.arrivals if not all(has_expired(a.event_ms, span, watermark_ms) for span in SPANS)]
        watermark_ms = cut.next_watermark_ms
        now = totals(arrived, watermark_ms)
        emitted = {row[0]: row[1:-1] for row in at_work.ports[MAIN]}
        assert emitted == {key: new for key, new in now.items() if new != before.get(key, NOTHING)}
        before = now


@settings(max_examples=50, deadline=None)
@given(plans(rows, late=True))
def test_no_total_is_emitted_behind_the_watermark_and_rows_too_old_for_all_spans_are_late(plan: Plan) -> None:
    at_work, watermark_ms, late = driver(), NO_WATERMARK, 0
    for cut in plan:
        at_work.ports = {}
        at_work.cut(cut)
        late += sum(all(has_expired(a.event_ms, span, watermark_ms) for span in SPANS) for a in cut.arrivals)
        assert all(isinstance(at_ms := row[-1], int) and at_ms >= watermark_ms for row in at_work.ports[MAIN])
        watermark_ms = cut.next_watermark_ms
    assert at_work.counts["late"] == late


def test_the_total_of_a_silent_key_falls_to_zero_step_by_step_and_the_key_is_dropped() -> None:
    at_work = driver()
    at_work.cut(CutPlan((Arrival(0, 1, ("a", Decimal("1.00"))),), 0, restart=False))
    for watermark_ms in (5, 6, 24, 25):
        at_work.cut(CutPlan((), watermark_ms, restart=False))
    one = Decimal("1.00")
    assert at_work.ports[MAIN] == [("a", 1, one, 1, one, 1), ("a", 0, None, 1, one, 6), ("a", 0, None, 0, None, 25)]
    assert at_work.ports[LATE] == []
    assert at_work.operator.metrics()["entries"] == 0


def test_rows_of_new_steps_beyond_the_limit_are_rejected_and_counted() -> None:
    at_work = driver(RollingSpec(("key",), SPANS, {"rows": Count()}, max_entries=3))
    arrivals = tuple(Arrival(0, 1, (key, None)) for key in "abc")
    at_work.cut(CutPlan(arrivals, 0, restart=False))
    assert at_work.counts["rejected"] == 3  # of six assignments, the steps of three spans fit
    at_work.cut(CutPlan((), END_OF_TIME_MS, restart=False))
    assert {row[0]: row[1:-1] for row in at_work.ports[MAIN]} == dict.fromkeys("abc", (0, 0)) | {"a": (0, 0)}


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: RollingSpan("1h", 3_600_000, 7_000_000), "whole number of steps"),
        (lambda: Rolling(RollingSpec(("key",), (), {"n": Count()}), SCHEMA), "need spans"),
        (lambda: Rolling(RollingSpec(("key",), SPANS, {"n": Max("amount")}), SCHEMA), "cannot be undone"),
    ],
)
def test_an_invalid_rolling_aggregate_is_rejected(make: object, message: str) -> None:
    assert callable(make)
    with pytest.raises(ConfigError, match=message):
        make()
