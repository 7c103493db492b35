"""Expressions that mean the same share one form and one fingerprint; those that differ do not."""

from __future__ import annotations

import pytest

from rulecore.language import Scope, fingerprint, normalize, parse, render
from streamcore.schema import STRING
from tests.harness.oracles.expressions import COLUMNS, SCOPE

NORMAL = [
    ("100 < amount", "amount > 100.00"),
    ("amount > 100", "amount > 100.00"),
    ("amount > 10.555", "amount > 10.55"),
    ("amount >= 10.555", "amount > 10.55"),
    ("amount < 10.555", "amount <= 10.55"),
    ("amount <= -10.555", "amount <= -10.56"),
    ("fine >= 755549552710027128.", "fine >= 755549552710027128."),
    ("amount = 10.555", "amount = 10.555"),
    ("a > 10.5", "a > 10"),
    ("a >= 10.0", "a >= 10"),
    ("x > 10", "x > 10.0e0"),
    ("a > 2 * 50", "a > 100"),
    ("a > 1 / 0", "1 / 0 < a"),
    ("a between 1 and 2", "a <= 2 and a >= 1"),
    ("a not between 1 and 2", "a < 1 or a > 2"),
    ("a + 1 between 1 and 2", "a + 1 between 1 and 2"),
    ("not (a > 1 and ok)", "a <= 1 or not ok"),
    ("not (a = 1 or not ok)", "a <> 1 and ok"),
    ("not not ok", "ok"),
    ("not (a <=> 1)", "not a <=> 1"),
    ("ok and true and ok", "ok"),
    ("ok and 1 = 2", "false"),
    ("ok or 1 = 1", "true"),
    ("b > 1 and a > 1", "a > 1 and b > 1"),
    ("b * a > 1", "a * b > 1"),
    ("b > a", "a < b"),
    ("s in ('y', 'x', 'y')", "s in ('x', 'y')"),
    ("s in ('x')", "s = 'x'"),
    ("s not in ('x')", "s <> 'x'"),
    ("s like 'abc'", "s = 'abc'"),
    ("s like 'abc%'", "starts_with(s, 'abc')"),
    ("s like '%abc'", "ends_with(s, 'abc')"),
    ("s like 'a!_b_' escape '!'", r"s like 'a\\_b_'"),
    ("interval 1 hour < ts - seen", "ts - seen > 3600000"),
    ("interval 1 hour + ts > seen", "ts + interval 1 hour > seen"),
    ("case when 1 = 2 then a when ok then b end > 1", "case when ok then b end > 1"),
]

DIFFERENT = [
    ("a > 1", "a >= 1"),
    ("a > 1", "b > 1"),
    ("a - b > 0", "b - a > 0"),
    ("(a + b) + 1 > 0", "a + (b + 1) > 0"),
    ("s = '1'", "a = 1"),
    ("not (a <=> 1)", "a <> 1"),
    ("s like 'a%'", "s like 'a_'"),
    ("x = 0.1", "amount = 0.1"),
]


@pytest.mark.parametrize(("text", "normal"), NORMAL)
def test_an_expression_has_the_expected_normal_form(text: str, normal: str) -> None:
    found = normalize(parse(text, SCOPE))
    assert render(found) == normal
    assert parse(normal, SCOPE) == found
    assert fingerprint(parse(text, SCOPE)) == fingerprint(found)


@pytest.mark.parametrize(("left", "right"), DIFFERENT)
def test_expressions_that_differ_have_different_fingerprints(left: str, right: str) -> None:
    assert fingerprint(parse(left, SCOPE)) != fingerprint(parse(right, SCOPE))


def test_a_fingerprint_never_changes_between_versions() -> None:
    """State is stored under the fingerprint: if this fails, running rules lose their windows at the next upgrade."""
    having = Scope({"s": STRING}, aggregates=True, arguments=COLUMNS)
    assert fingerprint(parse("amount > 100 and s = 'x'", SCOPE)) == "0c150e6481400c603d253942dc2f014f"
    assert fingerprint(parse("sum(amount * a) > 10", having)) == "14a894fcaac1152747a47a55aecfad21"
    assert fingerprint(None) == "941dffce4e4308ceb33e87326003257d"
