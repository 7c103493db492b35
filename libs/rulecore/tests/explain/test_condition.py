"""Explanations of conditions agree with the evaluator."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rulecore import language as lang
from rulecore.explain.condition import Clause, Truth, explain_condition, explain_with
from rulecore.language import Expr
from rulecore.language.types import Value
from streamcore.schema import BOOLEAN
from tests.harness.oracles.expressions import SCOPE, any_expressions, frames

SLOW = (HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much)
CONDITIONS = any_expressions().filter(lambda e: e.type == BOOLEAN)
WORDS = {True: Truth.TRUE, False: Truth.FALSE, None: Truth.NULL}


def where(text: str) -> Expr:
    return lang.parse(text, SCOPE, field="where")


def list_clauses(clause: Clause) -> list[Clause]:
    return [clause, *(inner for part in clause.parts for inner in list_clauses(part))]


@settings(max_examples=200, deadline=None, suppress_health_check=SLOW)
@given(CONDITIONS, frames(2))
def test_each_clause_has_the_truth_value_that_the_evaluator_gives(expr: Expr, rows: list[dict[str, Value]]) -> None:
    for row in rows:
        clause = explain_condition(expr, row)
        assert clause.truth is WORDS[lang.evaluate(expr, row)]
        for one in list_clauses(clause):
            replay = lang.parse(one.text, SCOPE, expect=None)
            assert one.truth is WORDS[lang.evaluate(replay, row)], one.text


@settings(max_examples=200, deadline=None, suppress_health_check=SLOW)
@given(CONDITIONS, frames(1))
def test_every_leaf_shows_the_value_of_the_row(expr: Expr, rows: list[dict[str, Value]]) -> None:
    row = rows[0]
    clause = explain_condition(expr, row)
    shown = [seen for leaf in clause.leaves() for seen in leaf.seen if _column(seen.text) in SCOPE.columns]
    for seen in shown:
        column = lang.parse(seen.text, SCOPE, expect=None)
        assert repr(seen.value) == repr(lang.evaluate(column, row))
    assert {_column(s.text) for s in shown} == set(lang.columns(expr))


def _column(text: str) -> str:
    """Return the column of ``column`` or ``column.member``."""
    return text.partition(".")[0].strip("`")


@settings(max_examples=200, deadline=None, suppress_health_check=SLOW)
@given(CONDITIONS, frames(1), st.randoms(use_true_random=False))
def test_changing_the_undecisive_clauses_does_not_change_the_result(
    expr: Expr, rows: list[dict[str, Value]], random: Random
) -> None:
    """Replace every other leaf by a random truth value: the result stays the same."""
    clause = explain_condition(expr, rows[0])

    def replay(one: Clause) -> bool | None:
        if not one.parts:
            known: dict[Truth, bool | None] = {Truth.TRUE: True, Truth.FALSE: False, Truth.NULL: None}
            return known[one.truth] if one.decided else random.choice([True, False])
        values = [replay(part) for part in one.parts]
        if one.joint == "not":
            return None if values[0] is None else not values[0]
        decisive = one.joint == "or"
        if any(value is decisive for value in values):
            return decisive
        return None if None in values else not decisive

    if clause.truth is not Truth.NULL:  # NULL is the result only while no other part is decisive
        assert WORDS[replay(clause)] is clause.truth


@pytest.mark.parametrize(
    ("text", "row", "deciding"),
    [
        ("amount > 100 and status = 'ok'", {"amount": 99, "status": "ok"}, ["amount > 100"]),
        ("amount > 100 or status = 'ok'", {"amount": 99, "status": "ok"}, ["status = 'ok'"]),
        ("amount > 100 and status = 'ok'", {"amount": 99, "status": "no"}, ["amount > 100", "status = 'ok'"]),
        ("amount > 100 and status = 'ok'", {"amount": None, "status": "ok"}, ["amount > 100"]),
        ("not (amount > 100 or status = 'ok')", {"amount": 1, "status": "ok"}, ["status = 'ok'"]),
    ],
)
def test_the_explanation_marks_the_decisive_clauses(text: str, row: Mapping[str, object], deciding: list[str]) -> None:
    scope = lang.Scope({"amount": SCOPE_LONG, "status": SCOPE_TEXT})
    clause = explain_condition(lang.parse(text, scope, field="where"), row)
    assert [leaf.text for leaf in clause.deciding()] == deciding


SCOPE_LONG, SCOPE_TEXT = lang.Literal.of(1).type, lang.Literal.of("a").type


def test_the_note_of_a_null_names_its_operand() -> None:
    scope = lang.Scope({"a": SCOPE_LONG, "b": SCOPE_LONG})
    condition = lang.parse("a % b > 1", scope, field="where")
    assert explain_condition(condition, {"a": 1, "b": None}).note == "b is NULL"
    zero = explain_condition(condition, {"a": 1, "b": 0})
    assert zero.note == "a % b is NULL: it divides by zero or leaves the range of its type"
    assert [str(seen) for seen in zero.seen] == ["a % b = NULL", "a = 1", "b = 0"]


def test_the_explanation_shows_an_aggregate_as_its_text() -> None:
    scope = lang.Scope({}, aggregates=True, arguments={"a": SCOPE_LONG})
    having = lang.parse("count(*) >= 5 and sum(a) > 10", scope, field="having")
    names = {a: a.function for a in lang.aggregates(having)}
    row = {"count": 5, "sum": 10}
    clause = explain_with(having, lambda part: lang.evaluate(lang.replace_aggregates(part, names), row))
    assert [(leaf.truth.value, str(leaf.seen[0])) for leaf in clause.leaves()] == [
        ("TRUE", "count(*) = 5"),
        ("FALSE", "sum(a) = 10"),
    ]
