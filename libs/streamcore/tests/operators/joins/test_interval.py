"""The interval join equals a nested loop over the whole input, in any cuts with any restarts."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from itertools import count

import duckdb
import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamcore.durations import Milliseconds
from streamcore.errors import ConfigError
from streamcore.operators.base import LATE, MAIN
from streamcore.operators.joins.interval import IntervalJoin, IntervalJoinSpec, JoinInterval
from streamcore.operators.joins.join_input import REJECTED
from streamcore.operators.joins.output_columns import JoinKeys, JoinKind
from streamcore.schema import EVENT_MS
from streamcore.state.sorted_run import SortedRun
from streamcore.windowing.model import END_OF_TIME_MS
from tests.harness.apps.two_inputs import Arrival, CutPlan, Driver, Plan, Row, by_value, plans, split_late

LEFT = pl.Schema({"k": pl.String(), "n": pl.Int32(), "v": pl.Int64()})
RIGHT = pl.Schema({"key": pl.String(), "n": pl.Int32(), "v": pl.Int64(), "w": pl.Boolean()})
KEYS = JoinKeys(("k", "n"), ("key", "n"))

texts = st.sampled_from(["a", "a", "a", "", None])
wholes = st.sampled_from([1, 1, 1, 2, None])
left_rows = st.tuples(st.just(0), st.tuples(texts, wholes, st.integers(0, 3)))
right_rows = st.tuples(st.just(1), st.tuples(texts, wholes, st.integers(0, 3), st.booleans()))
rows = st.one_of(left_rows, right_rows)
intervals = st.builds(
    lambda low, length: JoinInterval(Milliseconds(low), Milliseconds(low + length)),
    st.integers(-8, 8),
    st.sampled_from([0, 1, 4, 12]),
)
kinds = st.sampled_from(list(JoinKind))


def driver(interval: JoinInterval, kind: JoinKind, max_rows: int = 1000) -> Driver:
    spec = IntervalJoinSpec(KEYS, interval, kind, max_rows=max_rows)
    return Driver(lambda: IntervalJoin(spec, LEFT, RIGHT), (LEFT, RIGHT))


def join_naively(arrivals: list[Arrival], interval: JoinInterval, kind: JoinKind) -> list[Row]:
    """Join as plainly as possible. Columns: k, n, v, v_right, w, event time."""
    lefts = [a for a in arrivals if a.side == 0]
    rights = [a for a in arrivals if a.side == 1]
    pairs = [(left, right) for left in lefts for right in rights if matches(left, right, interval)]
    result: list[Row] = [(*a.values, *b.values[2:], max(a.event_ms, b.event_ms)) for a, b in pairs]
    if kind in (JoinKind.LEFT, JoinKind.FULL):
        matched = {id(a) for a, _ in pairs}
        result += [(*a.values, None, None, a.event_ms) for a in lefts if id(a) not in matched]
    if kind in (JoinKind.RIGHT, JoinKind.FULL):
        matched = {id(b) for _, b in pairs}
        result += [(*b.values[:2], None, *b.values[2:], b.event_ms) for b in rights if id(b) not in matched]
    return by_value(result)


def matches(left: Arrival, right: Arrival, interval: JoinInterval) -> bool:
    near = interval.lower_ms <= right.event_ms - left.event_ms <= interval.upper_ms
    return near and None not in left.values[:2] and left.values[:2] == right.values[:2]


@settings(max_examples=100, deadline=None)
@given(plans(rows), intervals, kinds)
def test_each_pair_and_each_outer_row_is_emitted_once_in_any_cuts_with_any_restarts(
    plan: Plan, interval: JoinInterval, kind: JoinKind
) -> None:
    run = driver(interval, kind).run(plan)
    arrivals = [a for cut in plan for a in cut.arrivals]
    assert by_value(run.ports[MAIN]) == join_naively(arrivals, interval, kind)
    assert run.ports[LATE] == []
    assert run.columns[MAIN] == ["k", "n", "v", "v_right", "w", EVENT_MS]


@settings(max_examples=100, deadline=None)
@given(plans(rows, late=True), intervals, kinds)
def test_rows_behind_the_watermark_are_late_and_the_others_are_joined_exactly(
    plan: Plan, interval: JoinInterval, kind: JoinKind
) -> None:
    run = driver(interval, kind).run(plan)
    good, late = split_late(plan)
    assert by_value(run.ports[MAIN]) == join_naively(good, interval, kind)
    assert len(run.ports[LATE]) == len(late)
    assert run.counts["left_late"] + run.counts["right_late"] == len(late)
    assert all(row[-1] > 0 for row in run.ports[LATE])  # type: ignore[operator]


@settings(max_examples=60, deadline=None)
@given(plans(rows, late=True), intervals, kinds)
def test_a_restart_changes_neither_the_output_nor_its_order(plan: Plan, interval: JoinInterval, kind: JoinKind) -> None:
    straight = [CutPlan(c.arrivals, c.next_watermark_ms, restart=False) for c in plan]
    assert driver(interval, kind).run(plan).ports == driver(interval, kind).run(straight).ports


@settings(max_examples=60, deadline=None)
@given(plans(rows), intervals, kinds)
def test_output_is_never_further_behind_the_watermark_than_the_declared_delay(
    plan: Plan, interval: JoinInterval, kind: JoinKind
) -> None:
    run = driver(interval, kind)
    for cut in plan:
        before, seen = run.watermark_ms, len(run.ports.get(MAIN, []))
        run.cut(cut)
        delay = run.operator.output_delay_ms
        assert all(int(str(row[-1])) >= before - delay for row in run.ports[MAIN][seen:])


@settings(max_examples=60, deadline=None)
@given(plans(rows), intervals, kinds)
def test_no_state_is_kept_after_the_end_of_time(plan: Plan, interval: JoinInterval, kind: JoinKind) -> None:
    run = driver(interval, kind).run(plan)
    assert run.counts["left_kept"] == run.counts["right_kept"] == 0
    run.restart()
    run.cut(CutPlan((), END_OF_TIME_MS, restart=False))
    assert run.counts["left_kept"] == run.counts["right_kept"] == 0


@settings(max_examples=60, deadline=None)
@given(plans(rows), intervals, kinds, st.integers(1, 4))
def test_rows_beyond_the_limit_are_rejected_and_the_others_are_joined_exactly(
    plan: Plan, interval: JoinInterval, kind: JoinKind, max_rows: int
) -> None:
    names = count()
    plan = [CutPlan(tuple(_named(a, next(names)) for a in c.arrivals), c.next_watermark_ms, c.restart) for c in plan]
    run = driver(interval, kind, max_rows)
    for cut in plan:
        run.cut(cut)
        assert max(run.counts["left_kept"], run.counts["right_kept"]) <= max_rows
    rejected = {row[3] if row[-1] == "right" else row[2] for row in run.ports[REJECTED]}
    assert len(rejected) == run.counts["left_rejected"] + run.counts["right_rejected"]
    taken = [a for cut in plan for a in cut.arrivals if a.values[2] not in rejected]
    assert by_value(run.ports[MAIN]) == join_naively(taken, interval, kind)


def _named(arrival: Arrival, name: int) -> Arrival:
    return Arrival(arrival.side, arrival.event_ms, (*arrival.values[:2], name, *arrival.values[3:]))


@pytest.mark.parametrize("kind", [JoinKind.LEFT, JoinKind.FULL])
def test_a_row_that_was_matched_before_a_restart_is_not_emitted_as_unmatched_after_it(kind: JoinKind) -> None:
    run = driver(JoinInterval(0, "10ms"), kind)
    run.cut(CutPlan((Arrival(0, 5, ("a", 1, 1)),), 0, restart=False))
    run.cut(CutPlan((Arrival(1, 6, ("a", 1, 2, True)),), 0, restart=True))
    run.cut(CutPlan((), END_OF_TIME_MS, restart=True))
    assert run.ports[MAIN] == [("a", 1, 1, 2, True, 6)]


@pytest.mark.parametrize(
    ("first", "second"), [((0, 0), (1, 10)), ((1, 10), (0, 0)), ((1, 0), (0, 5)), ((0, 5), (1, 0))]
)
def test_a_row_is_kept_until_the_last_moment_at_which_a_partner_may_arrive(
    first: tuple[int, int], second: tuple[int, int]
) -> None:
    rows = [Arrival(side, at, ("a", 1, 1) if side == 0 else ("a", 1, 2, True)) for side, at in (first, second)]
    run = driver(JoinInterval("-5ms", "10ms"), JoinKind.FULL)
    run.cut(CutPlan((rows[0],), second[1], restart=False))
    run.cut(CutPlan((rows[1],), END_OF_TIME_MS, restart=True))
    assert run.ports[MAIN] == [("a", 1, 1, 2, True, max(first[1], second[1]))]


def test_keys_with_equal_hashes_are_distinguished(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "streamcore.state.row_table.hash_columns", lambda columns, height: np.full(height, 7, np.uint64)
    )
    arrivals = (Arrival(0, 5, ("a", 1, 1)), Arrival(1, 5, ("a", 1, 2, True)), Arrival(1, 5, ("b", 1, 3, True)))
    run = driver(JoinInterval(0, 0), JoinKind.FULL).run([CutPlan(arrivals, END_OF_TIME_MS, restart=False)])
    assert by_value(run.ports[MAIN]) == join_naively(list(arrivals), JoinInterval(0, 0), JoinKind.FULL)


@pytest.mark.parametrize(
    ("dtype", "one", "other"),
    [
        (pl.Boolean(), True, False),
        (pl.UInt32(), 1, 2**32 - 1),
        (pl.Decimal(12, 2), Decimal("1.25"), Decimal("1.50")),
        (pl.Date(), date(1969, 1, 1), date(2026, 1, 1)),
        (pl.Datetime("ms", "UTC"), datetime(1969, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, tzinfo=UTC)),
        (pl.String(), "x" * 200, "x" * 199 + "y"),
    ],
)
def test_keys_of_every_type_are_equal_by_value_also_after_a_restart(
    dtype: pl.DataType, one: object, other: object
) -> None:
    schema, spec = pl.Schema({"k": dtype}), IntervalJoinSpec(JoinKeys.on("k"), JoinInterval(0, 0))
    run = Driver(lambda: IntervalJoin(spec, schema, schema), (schema, schema))
    run.cut(CutPlan((Arrival(0, 0, (one,)), Arrival(0, 0, (other,))), 0, restart=False))
    run.cut(CutPlan((Arrival(1, 0, (other,)), Arrival(1, 0, (None,))), END_OF_TIME_MS, restart=True))
    assert run.ports[MAIN] == [(other, 0)]


def test_bounds_can_be_omitted() -> None:
    run = driver(JoinInterval(0, "10ms", lower_inclusive=False, upper_inclusive=False), JoinKind.INNER)
    rights = tuple(Arrival(1, at, ("a", 1, at, True)) for at in range(-2, 13))
    run.run([CutPlan((Arrival(0, 0, ("a", 1, 0)), *rights), END_OF_TIME_MS, restart=False)])
    assert [row[3] for row in run.ports[MAIN]] == list(range(1, 10))


@pytest.mark.slow
@pytest.mark.parametrize("kind", list(JoinKind))
def test_a_long_stream_joins_as_in_duckdb_and_state_stays_as_small_as_the_interval(kind: JoinKind) -> None:
    random = np.random.default_rng(5)
    n, span, interval = 6_000, 60_000, JoinInterval("-300ms", "500ms")
    times = np.sort(random.integers(0, span, n))
    left, right = (
        {"k": [f"k{x}" for x in random.integers(0, 40, n).tolist()], "n": random.integers(0, 3, n).tolist()}
        for _ in range(2)
    )
    arrivals = []
    for i, at in enumerate(times.tolist()):
        arrivals.append(Arrival(0, at, (left["k"][i], left["n"][i], i)))
        arrivals.append(Arrival(1, at, (right["k"][i], right["n"][i], i, True)))
    run, held = driver(interval, kind, 100_000), 0
    for start in range(0, len(arrivals), 200):
        part = tuple(arrivals[start : start + 200])
        run.cut(CutPlan(part, part[-1].event_ms, restart=start % 4000 == 0))
        join = run.operator
        assert isinstance(join, IntervalJoin)
        held = max(held, *(table.rows_in_memory for table in (join._left.table, join._right.table)))
    run.cut(CutPlan((), END_OF_TIME_MS, restart=False))
    assert by_value(run.ports[MAIN]) == by_value(_duckdb(arrivals, interval, kind))
    assert held < 4 * n * (interval.upper_ms - interval.lower_ms + 1000) / span


def _duckdb(arrivals: list[Arrival], interval: JoinInterval, kind: JoinKind) -> list[Row]:
    sides = [[(*a.values, a.event_ms) for a in arrivals if a.side == side] for side in (0, 1)]
    frames = [
        pl.DataFrame(rows, schema={**schema, "t": pl.Int64()}, orient="row")
        for rows, schema in zip(sides, (LEFT, RIGHT), strict=True)
    ]
    with duckdb.connect() as database:
        database.register("l", frames[0].to_arrow())
        database.register("r", frames[1].to_arrow())
        return database.execute(
            f"select coalesce(l.k, r.key), coalesce(l.n, r.n), l.v, r.v, r.w, greatest(l.t, r.t) from l {kind} join r "
            f"on l.k = r.key and l.n = r.n and r.t between l.t + {interval.lower_ms} and l.t + {interval.upper_ms}"
        ).fetchall()


def test_a_cut_reads_only_rows_of_its_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows copied and pairs compared in small cuts stay the same when a hundred times as many rows are kept."""
    looked = []
    original = SortedRun.matches

    def matches(self: SortedRun, of: SortedRun, low_ms: int, high_ms: int) -> object:
        found = original(self, of, low_ms, high_ms)
        looked.append(len(found[0]))
        return found

    monkeypatch.setattr(SortedRun, "matches", matches)
    run = driver(JoinInterval(0, "10ms"), JoinKind.INNER, 10_000)
    kept = tuple(Arrival(1, at, ("busy", 1, at, True)) for at in range(5_000))
    run.cut(CutPlan(kept, 0, restart=False))
    looked.clear()
    run.cut(CutPlan((Arrival(0, 2_000, ("busy", 1, 0)),), 0, restart=False))
    assert sum(looked) == 11


@pytest.mark.parametrize(
    ("spec", "left", "right", "message"),
    [
        (JoinKeys((), ()), LEFT, RIGHT, "as many key columns"),
        (JoinKeys(("k",), ("nope",)), LEFT, RIGHT, "no column of the right input"),
        (JoinKeys(("k",), ("n",)), LEFT, RIGHT, "convert one before the join"),
        (JoinKeys.on("v"), {"v": pl.Float64()}, {"v": pl.Float64()}, "a key is text"),
        (KEYS, LEFT, {**RIGHT, "v_right": pl.Int64()}, "distinct names"),
        (KEYS, {**LEFT, "v_right": pl.Int64()}, RIGHT, "distinct names"),
        (KEYS, {**LEFT, "__number": pl.Int64()}, RIGHT, "belong to the engine"),
    ],
)
def test_an_invalid_join_is_rejected_when_it_is_built(
    spec: JoinKeys, left: pl.Schema, right: pl.Schema, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        IntervalJoin(IntervalJoinSpec(spec, JoinInterval(0, "1ms")), left, right)


def test_an_empty_interval_is_rejected() -> None:
    with pytest.raises(ConfigError, match="no time is within"):
        JoinInterval("3ms", "4ms", lower_inclusive=False, upper_inclusive=False)
