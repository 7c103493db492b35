"""The laws of every aggregate: partials of any pieces of the rows, merged in any order, give the value of the whole."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from functools import reduce

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamcore.aggregates import (
    Aggregate,
    Collect,
    Count,
    CountDistinct,
    First,
    Funnel,
    Last,
    Max,
    Mean,
    Min,
    Partials,
    StdDev,
    Sum,
    Ties,
    TopN,
    Variance,
    concat_rows,
    take_rows,
)
from streamcore.schema import EVENT_MS
from tests.harness.oracles.aggregates import (
    COLUMNS,
    GROUPS,
    NUMBERS,
    SCHEMA,
    elements,
    frames,
    group_partials,
    same,
    store_and_load,
)

KINDS: dict[str, Sequence[Aggregate]] = {
    "Count": [Count(), *(Count(column) for column in COLUMNS)],
    "Sum": [Sum(column) for column in NUMBERS],
    "Mean": [Mean(column) for column in NUMBERS],
    "Variance": [Variance(column, population) for column in NUMBERS for population in (True, False)],
    "StdDev": [StdDev(column, population) for column in NUMBERS for population in (True, False)],
    "Min": [Min(column) for column in COLUMNS],
    "Max": [Max(column) for column in COLUMNS],
    "First": [First(column) for column in COLUMNS],
    "Last": [Last(column) for column in COLUMNS],
    "First, by value": [First(column, Ties.VALUE) for column in COLUMNS if not SCHEMA[column].is_float()],
    "Last, by value": [Last(column, Ties.VALUE) for column in COLUMNS if not SCHEMA[column].is_float()],
    "Funnel": [Funnel("text", steps) for steps in [("a",), ("a", ""), ("", "é", "a")]],
    "Collect": [Collect(column, limit) for column in COLUMNS for limit in (2, 100)],
    "CountDistinct": [CountDistinct(column, limit) for column in COLUMNS for limit in (2, 100)],
    "TopN": [TopN("text" if by != "text" else "at", by=by, n=n) for by in COLUMNS for n in (1, 3)],
}
EMPTY = pl.DataFrame(schema={**SCHEMA, EVENT_MS: pl.Int64()})
INVERTIBLE = [
    one for kind in ("Count", "Sum", "Mean", "Variance", "StdDev") for one in KINDS[kind] if one.can_subtract(SCHEMA)
]
every_kind = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)


def rounding(aggregate: Aggregate, rows: pl.DataFrame) -> float:
    """Return how far float64 may be from the exact value: the rounding of the inputs."""
    floats = [rows[column] for column in aggregate.inputs if rows[column].dtype.is_float()]
    wide = [rows[column] for column in aggregate.inputs if rows[column].dtype == SCHEMA["wide"]]
    if isinstance(aggregate, Sum | Mean):
        return sum(1e-14 * float(column.fill_nan(0.0).abs().sum()) for column in floats)
    if isinstance(aggregate, Variance):
        columns = [*(column.fill_nan(0.0) for column in floats), *wide]
        most = max((abs(float(value)) for column in columns for value in column.drop_nulls()), default=0.0)
        return 1e-14 * most if isinstance(aggregate, StdDev) else (1e-14 * most) ** 2
    return 0.0


def assert_values(aggregate: Aggregate, partials: Partials, rows: pl.DataFrame) -> None:
    result = aggregate.result(partials, SCHEMA)
    assert result.dtype == aggregate.check(SCHEMA)
    for group, seen in enumerate(result.to_list()):
        wanted = aggregate.reference(elements(rows, group))
        assert same(seen, wanted, rounding(aggregate, rows)), f"{aggregate} gave {seen!r}, not {wanted!r}"


def aggregate_pieces(data: st.DataObject, aggregate: Aggregate, rows: pl.DataFrame) -> list[Partials]:
    """Return stored and loaded partials of the rows in random pieces; inside a piece the rows keep their order."""
    count = data.draw(st.integers(1, 4), label="pieces")
    which = data.draw(st.lists(st.integers(0, count - 1), min_size=rows.height, max_size=rows.height))
    places = [np.flatnonzero(np.array(which, dtype=np.int64) == i) for i in range(count)]
    return [store_and_load(aggregate, group_partials(aggregate, rows[place], place)) for place in places]


def sort_by_group(parts: Sequence[Partials]) -> Partials:
    """Return all partials, those of a group together."""
    return take_rows(concat_rows(parts), np.arange(len(parts) * GROUPS).reshape(-1, GROUPS).T.ravel())


@pytest.mark.slow
@every_kind
@settings(max_examples=100)
@given(data=st.data())
def test_partials_merged_in_any_order_give_the_value_of_the_whole(
    kind: Sequence[Aggregate], data: st.DataObject
) -> None:
    aggregate = data.draw(st.sampled_from(kind))
    rows = data.draw(frames(aggregate.inputs))
    assert_values(aggregate, group_partials(aggregate, rows), rows)
    parts = data.draw(st.permutations(aggregate_pieces(data, aggregate, rows)))
    assert_values(aggregate, reduce(aggregate.merge, parts), rows)
    assert_values(aggregate, reduce(lambda right, left: aggregate.merge(left, right), parts), rows)
    reduced = aggregate.reduce(sort_by_group(parts), np.arange(GROUPS) * len(parts))
    assert_values(aggregate, store_and_load(aggregate, reduced), rows)


@settings(max_examples=100)
@given(data=st.data())
def test_subtracting_a_part_from_the_total_gives_the_rest(data: st.DataObject) -> None:
    aggregate = data.draw(st.sampled_from(INVERTIBLE))
    part, rest = data.draw(frames(aggregate.inputs)), data.draw(frames(aggregate.inputs))
    total = aggregate.merge(group_partials(aggregate, part), group_partials(aggregate, rest))
    seen = aggregate.subtract(total, group_partials(aggregate, part))
    for name, column in group_partials(aggregate, rest).items():
        assert seen[name].tolist() == column.tolist()


@every_kind
@pytest.mark.quick_cases(3)
def test_an_aggregate_that_cannot_subtract_raises(kind: Sequence[Aggregate]) -> None:
    for aggregate in kind:
        if not aggregate.can_subtract(SCHEMA):
            nothing = group_partials(aggregate, EMPTY.with_columns(group=pl.Series([], dtype=pl.Int64)))
            with pytest.raises(NotImplementedError, match="cannot be undone"):
                aggregate.subtract(nothing, nothing)


@pytest.mark.quick_cases(4)
@every_kind
@settings(max_examples=30)
@given(data=st.data())
def test_operations_do_not_change_the_partials_that_they_are_given(
    kind: Sequence[Aggregate], data: st.DataObject
) -> None:
    aggregate = data.draw(st.sampled_from(kind))
    parts = aggregate_pieces(data, aggregate, data.draw(frames(aggregate.inputs)))
    before = [pickle.dumps([column.tolist() for column in part.values()]) for part in parts]
    reduce(aggregate.merge, parts)
    aggregate.reduce(sort_by_group(parts), np.arange(GROUPS) * len(parts))
    aggregate.result(parts[0], SCHEMA)
    assert [pickle.dumps([column.tolist() for column in part.values()]) for part in parts] == before


@pytest.mark.quick_cases(5)
@every_kind
def test_empty_partials_can_be_reduced_stored_and_read(kind: Sequence[Aggregate]) -> None:
    none = np.empty(0, dtype=np.int64)
    for aggregate in kind:
        partials = store_and_load(aggregate, aggregate.aggregate_groups(EMPTY, none, none, 0))
        assert aggregate.result(aggregate.reduce(partials, none), SCHEMA).to_list() == []


@every_kind
def test_equal_aggregates_compare_equal(kind: Sequence[Aggregate]) -> None:
    for aggregate in kind:
        assert pickle.loads(pickle.dumps(aggregate)) == aggregate
        assert hash(aggregate) == hash(pickle.loads(pickle.dumps(aggregate)))


def test_an_aggregate_reports_the_groups_that_its_limit_truncated() -> None:
    rows = pl.DataFrame({"group": [0, 0, 1, 1, 1], EVENT_MS: [0] * 5, "small": [1, 1, 1, 2, 3]})
    for aggregate in (Collect("small", 2), CountDistinct("small", 2)):
        assert aggregate.find_truncated(group_partials(aggregate, rows)).tolist() == [False, True, False]
        halves = [group_partials(aggregate, rows[:4]), group_partials(aggregate, rows[4:])]
        assert aggregate.find_truncated(aggregate.merge(*halves)).tolist() == [False, True, False]
    taken = pl.DataFrame({"group": [0, 1, 1, 1], EVENT_MS: [0, 2, 1, 3], "text": ["b"] * 4})
    funnel = Funnel("text", ("a", "b"), limit=2)
    assert funnel.find_truncated(group_partials(funnel, taken)).tolist() == [False, True, False]
    assert (
        not TopN("small", by=EVENT_MS, n=1).find_truncated(group_partials(TopN("small", by=EVENT_MS, n=1), rows)).any()
    )
