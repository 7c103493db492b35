"""Look-ups in a changing table, compared with a dictionary and with all versions at once."""

from __future__ import annotations

from dataclasses import replace

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamcore.errors import ConfigError
from streamcore.operators.base import LATE, MAIN
from streamcore.operators.joins.join_input import REJECTED
from streamcore.operators.joins.lookup import LookupJoin, LookupSpec
from streamcore.operators.joins.output_columns import JoinKeys, JoinKind
from streamcore.operators.joins.temporal import TemporalJoin
from streamcore.watermark import NO_WATERMARK
from streamcore.windowing.model import END_OF_TIME_MS
from tests.harness.apps.two_inputs import Arrival, CutPlan, Driver, Plan, Row, by_value, plans, split_late

STREAM = pl.Schema({"currency": pl.String(), "amount": pl.Int64()})
TABLE = pl.Schema({"currency": pl.String(), "rate": pl.Int64(), "gone": pl.Boolean()})
KEYS = JoinKeys.on("currency")
BY_FLAG = LookupSpec(KEYS, JoinKind.LEFT, "gone")
BY_NULL = LookupSpec(KEYS, JoinKind.LEFT, "rate")

currencies = st.sampled_from(["eur", "usd", "gbp", None])
asks = st.tuples(st.just(0), st.tuples(currencies, st.integers(0, 9)))
rates = st.one_of(st.none(), st.integers(0, 9))
changes = st.tuples(st.just(1), st.tuples(currencies, rates, st.sampled_from([None, False, False, True])))
rows = st.one_of(asks, changes)
specs = st.builds(
    lambda spec, kind: replace(spec, kind=kind),
    st.sampled_from([BY_FLAG, BY_NULL, replace(BY_FLAG, deleted=None)]),
    st.sampled_from([JoinKind.INNER, JoinKind.LEFT]),
)


def temporal_join(spec: LookupSpec) -> Driver:
    return Driver(lambda: TemporalJoin(spec, STREAM, TABLE), (STREAM, TABLE))


def look_up(spec: LookupSpec) -> Driver:
    return Driver(lambda: LookupJoin(spec, STREAM, TABLE), (STREAM, TABLE))


def answer(spec: LookupSpec, row: Arrival, change: Arrival | None) -> list[Row]:
    """Columns: currency, amount, rate, gone, event time."""
    if row.values[0] is None or change is None or is_deletion(spec, change):
        return [(*row.values, None, None, row.event_ms)] if spec.kind is JoinKind.LEFT else []
    return [(*row.values, *change.values[1:], row.event_ms)]


def is_deletion(spec: LookupSpec, change: Arrival) -> bool:
    _, rate, gone = change.values
    return {"gone": gone is True, "rate": rate is None, None: False}[spec.deleted]


def look_up_by_event_time(spec: LookupSpec, arrivals: list[Arrival]) -> list[Row]:
    result: list[Row] = []
    for row in (a for a in arrivals if a.side == 0):
        known = [c for c in arrivals if c.side and c.values[0] == row.values[0] and c.event_ms <= row.event_ms]
        result += answer(spec, row, max(reversed(known), key=lambda c: c.event_ms, default=None))
    return by_value(result)


def look_up_by_arrival(spec: LookupSpec, plan: Plan) -> list[Row]:
    table: dict[object, Arrival] = {}
    result: list[Row] = []
    for cut in plan:
        table.update({a.values[0]: a for a in cut.arrivals if a.side == 1})
        for row in (a for a in cut.arrivals if a.side == 0):
            result += answer(spec, row, table.get(row.values[0]))
    return by_value(result)


@settings(max_examples=100, deadline=None)
@given(plans(rows), specs)
def test_each_row_is_joined_with_the_version_of_its_event_time_in_any_order_of_arrival(
    plan: Plan, spec: LookupSpec
) -> None:
    run = temporal_join(spec).run(plan)
    assert by_value(run.ports[MAIN]) == look_up_by_event_time(spec, [a for cut in plan for a in cut.arrivals])
    assert run.ports[LATE] == run.ports[REJECTED] == []


@settings(max_examples=100, deadline=None)
@given(plans(rows, late=True), specs)
def test_rows_and_changes_behind_the_watermark_are_late_and_change_nothing(plan: Plan, spec: LookupSpec) -> None:
    run = temporal_join(spec).run(plan)
    good, late = split_late(plan)
    assert by_value(run.ports[MAIN]) == look_up_by_event_time(spec, good)
    assert len(run.ports[LATE]) == len(late) == run.counts["waiting_late"] + run.counts["versions_late"]


@settings(max_examples=100, deadline=None)
@given(plans(rows, late=True), specs)
def test_each_row_is_joined_with_the_last_change_that_arrived_by_the_end_of_its_cut(
    plan: Plan, spec: LookupSpec
) -> None:
    assert by_value(look_up(spec).run(plan).ports[MAIN]) == look_up_by_arrival(spec, plan)


@settings(max_examples=60, deadline=None)
@given(plans(rows, late=True), specs, st.sampled_from([temporal_join, look_up]))
def test_a_restart_changes_neither_the_output_nor_its_order_nor_the_state(
    plan: Plan, spec: LookupSpec, make: object
) -> None:
    assert callable(make)
    straight = make(spec)
    broken = make(spec)
    for cut in plan[:-1]:
        straight.cut(replace(cut, restart=False))
        broken.cut(cut)
        assert straight.ports == broken.ports
        assert straight.counts == broken.counts


@settings(max_examples=60, deadline=None)
@given(plans(rows), specs)
def test_only_versions_that_a_future_row_may_need_are_kept(plan: Plan, spec: LookupSpec) -> None:
    run = temporal_join(spec)
    seen: list[Arrival] = []
    for cut in plan:
        run.cut(cut)
        seen += [a for a in cut.arrivals if a.side == 1 and a.values[0] is not None]
        expected = 0
        for key in {a.values[0] for a in seen}:
            mine = [a for a in seen if a.values[0] == key]
            passed = [a for a in mine if a.event_ms < cut.next_watermark_ms]
            current = max(reversed(passed), key=lambda a: a.event_ms, default=None)
            expected += len(mine) - len(passed) + (current is not None and not is_deletion(spec, current))
        assert run.counts["versions_kept"] == expected
    assert run.counts["waiting_kept"] == 0


def test_a_full_table_rejects_new_keys_and_accepts_changes_of_existing_ones() -> None:
    run = look_up(replace(BY_FLAG, max_rows=2))
    changes = [("eur", 1), ("usd", 2), ("gbp", 3), ("eur", 4)]
    arrivals = tuple(Arrival(1, 0, (*change, False)) for change in changes)
    run.cut(CutPlan(arrivals, NO_WATERMARK, restart=False))
    assert [row[:3] for row in run.ports[REJECTED]] == [("eur", None, 4)]
    run.cut(CutPlan((Arrival(1, 0, ("usd", 5, False)), Arrival(0, 0, ("usd", 7))), NO_WATERMARK, restart=True))
    assert run.ports[MAIN] == [("usd", 7, 5, False, 0)]
    assert run.counts["table_rejected"] == 1


def test_a_row_waits_until_no_change_of_its_event_time_can_come() -> None:
    run = temporal_join(BY_FLAG)
    run.cut(CutPlan((Arrival(0, 10, ("eur", 1)), Arrival(1, 5, ("eur", 1, False))), 10, restart=False))
    assert run.ports[MAIN] == []
    run.cut(CutPlan((Arrival(1, 10, ("eur", 2, False)),), 11, restart=True))
    assert run.ports[MAIN] == [("eur", 1, 2, False, 10)]


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (replace(BY_FLAG, kind=JoinKind.FULL), "inner or left"),
        (replace(BY_FLAG, deleted="nope"), "must be a column"),
        (replace(BY_FLAG, deleted="currency"), "not part of its key"),
        (replace(BY_FLAG, max_rows=0), "must be positive"),
    ],
)
def test_an_invalid_look_up_is_rejected_when_it_is_built(spec: LookupSpec, message: str) -> None:
    for make in (TemporalJoin, LookupJoin):
        with pytest.raises(ConfigError, match=message):
            make(spec, STREAM, TABLE)


def test_the_end_of_time_emits_every_row() -> None:
    run = temporal_join(BY_FLAG).run([CutPlan((Arrival(0, 10, ("eur", 1)),), END_OF_TIME_MS, restart=False)])
    assert run.ports[MAIN] == [("eur", 1, None, None, 10)]
