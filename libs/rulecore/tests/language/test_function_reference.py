"""The function reference is complete, and every example in it gives the value that it shows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

from rulecore.errors import ExpressionError
from rulecore.language import Scope, evaluate, parse
from rulecore.language.columnar.compiler import to_polars
from rulecore.language.function_reference import (
    AGGREGATE_REFERENCE,
    FEATURE_AGGREGATE_REFERENCE,
    FUNCTION_REFERENCE,
    HIGHER_ORDER_REFERENCE,
    SESSION_AGGREGATE_REFERENCE,
)
from rulecore.language.functions import AGGREGATES, FEATURE_AGGREGATES, FUNCTIONS, HIGHER_ORDER, SESSION_AGGREGATES
from streamcore.schema import DOUBLE, LONG

ENTRIES = {**FUNCTION_REFERENCE, **HIGHER_ORDER_REFERENCE}
EXAMPLES = [example for entry in ENTRIES.values() for example in entry.examples]


def test_every_function_and_aggregate_has_an_entry_and_no_entry_is_left_over() -> None:
    assert set(FUNCTION_REFERENCE) == set(FUNCTIONS)
    assert set(AGGREGATE_REFERENCE) == set(AGGREGATES)
    assert set(SESSION_AGGREGATE_REFERENCE) == set(SESSION_AGGREGATES)
    assert set(FEATURE_AGGREGATE_REFERENCE) == set(FEATURE_AGGREGATES)
    assert set(HIGHER_ORDER_REFERENCE) == set(HIGHER_ORDER)


@pytest.mark.parametrize("example", EXAMPLES)
@pytest.mark.quick_cases(42)
def test_an_example_is_true_for_the_reference_evaluator_and_in_columns(example: str, tmp_path: Path) -> None:
    (tmp_path / "example").write_text("an example's key, not a secret\n")
    expression = parse(example, Scope({}, secrets={"example": str(tmp_path / "example")}))
    assert evaluate(expression, {}) is True
    assert pl.DataFrame({"row": [1]}).select(to_polars(expression).alias("value"))["value"].to_list() == [True]


@pytest.mark.parametrize("name", sorted(ENTRIES))
def test_an_example_uses_its_function(name: str) -> None:
    assert all(f"{name}(" in example for example in ENTRIES[name].examples)


@pytest.mark.parametrize("example", [example for entry in AGGREGATE_REFERENCE.values() for example in entry.examples])
def test_having_accepts_an_example_of_an_aggregate(example: str) -> None:
    assert parse(example, Scope({}, aggregates=True, arguments={"amount": DOUBLE})) is not None


@pytest.mark.parametrize("example", [one for entry in SESSION_AGGREGATE_REFERENCE.values() for one in entry.examples])
def test_only_a_scope_with_more_aggregates_accepts_their_examples(example: str) -> None:
    scope = Scope({}, aggregates=True, arguments={"amount": LONG})
    assert parse(example, replace(scope, more_aggregates=SESSION_AGGREGATES)) is not None
    with pytest.raises(ExpressionError, match="unknown function"):
        parse(example, scope)


@pytest.mark.parametrize("example", [one for entry in FEATURE_AGGREGATE_REFERENCE.values() for one in entry.examples])
def test_only_a_scope_of_features_accepts_their_examples(example: str) -> None:
    scope = Scope({}, aggregates=True, arguments={"amount": DOUBLE})
    assert parse(example, replace(scope, more_aggregates=FEATURE_AGGREGATES), expect=None) is not None
    with pytest.raises(ExpressionError, match="unknown function"):
        parse(example, scope, expect=None)


def test_the_first_double_of_many_at_the_same_time_is_rejected() -> None:
    scope = Scope({}, aggregates=True, arguments={"amount": DOUBLE}, more_aggregates=SESSION_AGGREGATES)
    with pytest.raises(ExpressionError, match="first takes no double"):
        parse("first(amount) > 1", scope)
