"""Conditions that read earlier steps hold in columns where they hold for one event."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rulecore.compile import sequence_conditions
from rulecore.compile.conditions import NameScope
from rulecore.compile.sequence_conditions import StepCondition, split_condition
from streamcore.patterns.expressions import MatchValues
from streamcore.schema import Type

COLUMNS = {"amount": Type.parse("decimal(6,2)"), "n": Type.parse("long"), "x": Type.parse("double")}
COLUMNS |= {"city": Type.parse("string")}
CONDITIONS = (
    "amount > a.amount",
    "amount * 2 > sum(a.amount) or count(a) > 2",
    "avg(a.amount) < amount",
    "x / avg(a.n) > 0.5",
    "n % max(a.n) = 1 or min(a.n) is null",
    "upper(city) = upper(a.city) or first(a.city) like 'r%'",
    "n between first(a.n) and last(a.n)",
)
ROW = {
    "amount": st.none() | st.integers(-999_999, 999_999),
    "n": st.none() | st.integers(-3, 3),
    "x": st.none() | st.sampled_from([-1.5, 0.0, 0.1, 2.0]),
    "city": st.none() | st.sampled_from(["rome", "Rome", "", "ROMA"]),
}


def compiled(text: str) -> StepCondition:
    _, condition, _ = split_condition(text, "where", NameScope(COLUMNS), ("a",))
    assert condition is not None
    return condition


@given(st.lists(st.tuples(st.fixed_dictionaries(ROW), st.lists(st.fixed_dictionaries(ROW), max_size=4)), min_size=1))
def test_a_condition_on_columns_holds_where_it_holds_for_one_event(
    rows: list[tuple[dict[str, Any], list[dict[str, Any]]]],
) -> None:
    for text in CONDITIONS:
        condition = compiled(text)
        candidates = {name: [event[name] for event, _ in rows] for name in condition.columns}
        matched = [
            [read.compute([event[read.column] for event in taken] if read.column else taken) for _, taken in rows]
            for read in condition.reads
        ]
        single = [condition.holds(event, own) for (event, _), *own in zip(rows, *matched, strict=True)]
        with patch.object(sequence_conditions, "_FEWEST_ROWS", 0):
            values = MatchValues(candidates, matched)
            assert [*condition.holds_each(values)] == single, text
            assert [*condition.holds_each(values, range(len(rows))[::-2])] == single[::-2], text


def test_a_sum_with_more_digits_than_its_type_is_null() -> None:
    condition = compiled("amount < sum(a.amount) or sum(a.amount) is null and amount = 2")
    amounts, sums = [1, 200] * 20, [[10**18, -(10**18), 10**18 - 1, 0] * 10]
    single = [condition.holds({"amount": amount}, [own]) for amount, own in zip(amounts, sums[0], strict=True)]
    assert [*condition.holds_each(MatchValues({"amount": amounts}, sums))] == single == [False, True, True, False] * 10


def test_a_value_with_more_digits_than_its_type_is_left_to_the_row_by_row_evaluation() -> None:
    condition = compiled("amount < sum(a.amount)")
    with pytest.raises(OverflowError, match=r"amount: more than \d+ digits"):
        condition.holds_each(MatchValues({"amount": [10**6] * 40}, [[1] * 40]))
