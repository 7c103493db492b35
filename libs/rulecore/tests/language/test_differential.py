"""Every way of running an expression gives what the naive evaluator gives."""

from __future__ import annotations

import math
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rulecore.language import Expr, adapter, evaluate, normalize, parse, render
from tests.harness.oracles.expressions import SCOPE, any_expressions, frames, run

ANY = any_expressions()
SLOW = (HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much)
Rows = list[dict[str, Any]]


def same(left: Any, right: Any) -> bool:
    """Return whether both are equal and of one type; NaN equals itself."""
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, dict) and isinstance(right, dict):
        return [*left] == [*right] and all(same(left[name], right[name]) for name in left)
    if isinstance(left, float) and isinstance(right, float) and math.isnan(left):
        return math.isnan(right)
    return type(left) is type(right) and left == right


@settings(max_examples=1500, deadline=None, suppress_health_check=SLOW)
@given(ANY, st.sampled_from([1, 8, 16]).flatmap(frames))
def test_polars_gives_what_the_naive_evaluator_gives(expr: Expr, rows: Rows) -> None:
    expected = [evaluate(expr, row) for row in rows]
    found = run(expr, rows)
    assert all(map(same, found, expected)), f"{render(expr)}: {found} is not {expected}"


@settings(max_examples=200, deadline=None, suppress_health_check=SLOW)
@given(ANY, frames(4))
def test_the_normal_form_has_the_same_value_for_every_row(expr: Expr, rows: Rows) -> None:
    normal = normalize(expr)
    expected = [evaluate(expr, row) for row in rows]
    found = [evaluate(normal, row) for row in rows]
    assert all(map(same, found, expected)), f"{render(expr)} -> {render(normal)}: {found} is not {expected}"
    assert normalize(normal) == normal


@settings(max_examples=300, deadline=None, suppress_health_check=SLOW)
@given(ANY)
def test_the_canonical_text_reads_back_as_the_same_tree(expr: Expr) -> None:
    for tree in (expr, normalize(expr)):
        assert parse(render(tree), SCOPE, expect=None) == tree


@settings(max_examples=200, deadline=None, suppress_health_check=SLOW)
@given(ANY)
def test_a_tree_has_one_json_form(expr: Expr) -> None:
    assert adapter.validate_json(adapter.dump_json(expr)) == expr
    assert adapter.validate_python(adapter.dump_python(expr)) == expr
