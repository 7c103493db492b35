"""Conditions over earlier events in columns give what they give one by one; so do limits."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamcore.limits import PatternLimits
from streamcore.patterns.automaton import compile_pattern
from streamcore.patterns.condition_arrays import hold_arrays, read_groups
from streamcore.patterns.engine import MatchEngine, PatternEvents
from streamcore.patterns.expressions import Groups, MatchFunction, MatchRead, MatchValues, candidate, matched
from streamcore.patterns.pattern import Pattern

value, a = candidate("v"), matched("a")
CONDITIONS = (
    value > a.last("v"),
    (a.count() == 0) | (value < a.first("v")),
    (a.sum("v") + value * 2 - 1 <= a.max("v")) & ~(value == a.min("v")),
    a.mean("v").fill_null(0) >= -value,
    (value / a.last("v")).is_null() | (value % a.count("v") != 1),
    (a.count() > 1) & (a.last("v") / 0).is_null(),
)
#: Columns of one type each, with nulls.
VALUES = st.sampled_from([st.integers(-3, 3), st.integers(-3, 3).map(float), st.integers(-3, 3).map(Decimal)]).flatmap(
    lambda values: st.lists(st.tuples(st.none() | values, st.lists(st.none() | values, max_size=4)), min_size=1)
)


def groups(lists: list[list[Any]]) -> Groups:
    bounds = np.cumsum([0, *map(len, lists)]).tolist()
    return Groups([value for values in lists for value in values], bounds)


@given(VALUES)
def test_a_condition_on_columns_holds_where_it_holds_for_one_event(rows: list[tuple[Any, list[Any]]]) -> None:
    events, taken = [event for event, _ in rows], [values for _, values in rows]
    for condition in CONDITIONS:
        by_read = [[read.compute(values) for values in taken] for read in condition.reads]
        single = [condition.holds({"v": event}, own) for event, *own in zip(events, *by_read, strict=True)]
        columns = [read.compute_each(groups(taken)) for read in condition.reads]
        assert columns == by_read
        values_of_all = MatchValues({"v": events}, columns)
        assert condition.holds_each(values_of_all) == single
        assert condition.holds_each(values_of_all, range(len(rows))[::-2]) == single[::-2]


#: Conditions that arrays compute if no number is too large, and one that they never do.
IN_ARRAYS = (
    value > a.last("v"),
    (a.count() == 0) | (value < a.first("v")),
    ~(value * 2 - a.first("v") != a.last("v") + 1) & (a.count("v") < 3),
    (a.last("v") - value).is_null() | ~(value >= 0.5),
    (value * a.last("v") <= -value) | ~(a.first("v") == value) & (a.last("v") > 2**53 + 1),
    (value / a.last("v")).is_null() | (value > 0),
)
#: Whole numbers or doubles, some too large for sums or for doubles.
NUMBERS = st.sampled_from(
    [
        st.integers(-3, 3),
        st.integers(-3, 3) | st.sampled_from([2**53 + 1, 2**62, -(2**63), 2**63 - 1]),
        st.integers(-3, 3).map(float) | st.sampled_from([0.5, float("nan"), float("inf"), 1e308, 2.0**53]),
    ]
).flatmap(lambda values: st.lists(st.tuples(values, st.lists(values, max_size=4)), min_size=1))


@given(NUMBERS)
def test_a_condition_on_arrays_holds_where_it_holds_for_one_event(rows: list[tuple[Any, list[Any]]]) -> None:
    taken = groups([values for _, values in rows])
    dtype = np.array([event for event, _ in rows]).dtype
    candidates = {"v": np.array([event for event, _ in rows], dtype)}
    computed = []
    for condition in IN_ARRAYS:
        reads = {r: read_groups(r, np.array(taken.values, dtype), np.array(taken.bounds)) for r in condition.reads}
        found = hold_arrays(condition.tree, candidates, reads)
        computed.append(found is not None)
        if found is not None:
            single = [condition.holds({"v": e}, [r.compute(own) for r in condition.reads]) for e, own in rows]
            assert found.tolist() == single, condition
    is_small = all(abs(number) <= 3 for event, own in rows for number in (event, *own))
    assert computed[:2] == [True, True]
    assert not computed[-1]
    assert not is_small or all(computed[:-1])


@pytest.mark.parametrize("function", [*MatchFunction])
def test_an_aggregate_of_no_group_is_none(function: MatchFunction) -> None:
    assert MatchRead("a", function, "v").compute_each(Groups([], [0])) == []


@pytest.mark.parametrize("columns", [False, True])
def test_a_branch_beyond_the_limit_of_a_key_is_dropped_at_once(columns: bool) -> None:
    """The second ``b`` makes three partial matches of two, and no other one begins with it."""
    a, b, c = (pl.col("kind") == n for n in range(3))
    pattern = Pattern.begin("a").where(a).followed_by_any("b").where(b).followed_by("c").where(c)
    engine = MatchEngine({"key": pl.Int64()}, {"kind": pl.Int64()}, PatternLimits(partials_per_key=2))
    engine.fewest_runs = 0 if columns else engine.fewest_runs
    automaton = compile_pattern(pattern)
    engine.set_patterns({0: automaton})
    engine.store.keys.assign(pl.DataFrame({"key": [1]}))
    kinds = [0, 1, 1]
    rows = pl.DataFrame({"kind": kinds})
    bits = sum(rows.select(leaf).to_series().cast(pl.Int64).to_numpy() << n for n, leaf in enumerate(automaton.leaves))
    zeros = np.zeros(len(kinds), np.int64)
    engine.run(PatternEvents(zeros, np.arange(3), rows, zeros, np.arange(3), np.asarray(bits)), 2)
    assert (len(engine.store), engine.dropped) == (2, 1)
