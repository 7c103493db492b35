"""`having` of many rules, looked up through the index, equals the naive evaluator on each rule alone."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rulecore import language as lang
from rulecore.compile.rule import CompiledRule, RuleLimits, compile_rule
from rulecore.documents.rule import Rule
from rulecore.errors import RuleError
from rulecore.groups.windows.having import Having
from rulecore.groups.windows.members import to_member
from rulecore.language import evaluate, to_logical
from rulecore.language.columnar.compiler import to_polars
from streamcore.columnar.polars_types import polars_type
from streamcore.schema import Kind, StreamSchema, Type
from tests.harness.apps.compile_failures import compile_with

SCHEMA = StreamSchema.parse(
    {
        "name": "wide",
        "event_time": "t",
        "keys": [["s"]],
        "fields": {
            "t": "timestamp not null",
            "s": "string",
            "b": "boolean",
            "n": "long",
            "d": "double",
            "m": "decimal(8,2)",
            "u": "timestamp",
        },
    }
)
MONEY = ["0", "0.5", "-0.5", "1.005", "2.50", "10", "99999999999", "-3.333"]
DOUBLES = ["0.5", "1e0", "-0.0", "2.5e1", "1e300", "0"]
WHOLE = ["0", "1", "2", "-1", "5", "4611686018427387904"]
TIMES = ["timestamp '2020-01-01 00:00:00'", "timestamp '1969-12-31 00:00:00'"]
TEXTS = ["'a'", "'b'", "''", "'ab'"]
#: Aggregates and group columns, each with constants that occur among its values.
OPERANDS: Mapping[str, Sequence[str]] = {
    "count(*)": WHOLE,
    "count(m)": WHOLE,
    "count_distinct(n)": WHOLE,
    "sum(m)": MONEY,
    "avg(m)": MONEY + DOUBLES,
    "min(m)": MONEY,
    "sum(n)": WHOLE + MONEY,
    "max(n)": WHOLE,
    "sum(d)": DOUBLES + WHOLE,
    "min(d)": DOUBLES,
    "stddev(n)": DOUBLES,
    "max(u)": TIMES,
    "s": TEXTS,
}
NUMBERS = [o for o in OPERANDS if o not in ("s", "max(u)")]


def having_text(rng: random.Random, depth: int = 2) -> str:
    if depth and rng.random() < 0.6:
        parts = [having_text(rng, depth - 1) for _ in range(rng.randint(2, 3))]
        joined = f" {rng.choice(['and', 'and', 'or'])} ".join(parts)
        return f"not ({joined})" if rng.random() < 0.15 else f"({joined})"
    operand = rng.choice([*OPERANDS])
    constants = OPERANDS[operand]
    operator = rng.choice(["=", "<>", "<", "<=", ">", ">=", ">", ">="])
    return rng.choice(
        [
            f"{operand} {operator} {rng.choice(constants)}",
            f"{rng.choice(constants)} {operator} {operand}",
            f"{operand} between {rng.choice(constants)} and {rng.choice(constants)}",
            f"{operand} in ({rng.choice(constants)}, {rng.choice(constants)})",
            f"{operand} is {rng.choice(['', 'not '])}null",
            f"{rng.choice(NUMBERS)} {operator} {rng.choice(NUMBERS)}",
            f"{rng.choice(NUMBERS)} * 2 {operator} {rng.choice(WHOLE[:5])}",
            f"coalesce({operand}, {rng.choice(constants)}) {operator} {rng.choice(constants)}",
        ]
    )


def random_rules(rng: random.Random, count: int) -> list[CompiledRule]:
    rules: list[CompiledRule] = []
    while len(rules) < count:
        having = f"{having_text(rng)} and count(*) >= 0"
        document = {
            "id": f"r{len(rules)}",
            "version": 1,
            "owner": "o",
            "on": "wide",
            "group_by": ["s"],
            "within": {"tumbling": "1h"},
            "having": having,
            "then": {"severity": "low", "message": "m"},
        }
        try:
            rules.append(compile_rule(Rule.model_validate(document), {"wide": SCHEMA}, RuleLimits()))
        except RuleError:
            continue  # constants of a type that the operand cannot be compared with
    return rules


VALUES: Mapping[Kind, Sequence[object]] = {
    Kind.LONG: [None, 0, 1, 2, 3, 5, -1, 2**62],
    Kind.DECIMAL: [None, 0, 50, -50, 100, 101, 250, 1000, -333, 99_999_999],
    Kind.DOUBLE: [None, 0.0, -0.0, 0.5, 1.0, 25.0, 1e300, math.nan, math.inf, -math.inf],
    Kind.TIMESTAMP: [None, 0, 1_577_836_800_000, -86_400_000],
    Kind.STRING: [None, "a", "b", "", "ab", "zz"],
}


def column_types(rules: Sequence[CompiledRule]) -> dict[str, Type]:
    found = {s.column: s.type for rule in rules for s in rule.aggregates}
    field = SCHEMA.get("s")
    assert field is not None
    return found | {"s": field.type}


@given(st.integers(0, 2**32))
def test_the_index_finds_the_rules_that_hold_row_by_row(seed: int) -> None:
    rng = random.Random(seed)
    rules = random_rules(rng, 10)
    kinds = column_types(rules)
    rows = [{name: rng.choice(VALUES[kind.kind]) for name, kind in kinds.items()} for _ in range(10)]
    frame = pl.DataFrame({n: pl.Series([r[n] for r in rows], dtype=polars_type(k)) for n, k in kinds.items()})
    hits, failures = Having([to_member(rule, 0) for rule in rules]).evaluate(frame)
    assert failures == []
    wanted = [
        (row, number)
        for row, values in enumerate(rows)
        for number, rule in enumerate(rules)
        if holds(rule, {n: to_logical(v, kinds[n]) for n, v in values.items()})
    ]
    assert list(zip(hits.row.tolist(), hits.member.tolist(), strict=True)) == wanted


def holds(rule: CompiledRule, row: Mapping[str, object]) -> bool:
    assert rule.having_on_columns is not None
    return evaluate(rule.having_on_columns, row) is True


def test_only_the_rule_that_raises_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def compile_or_break(expr: lang.Expr) -> pl.Expr:
        return pl.col("no such column") if "77" in lang.render(expr) else to_polars(expr)

    rules = random_rules(random.Random(1), 3)
    document = rules[0].rule.model_dump(mode="json", by_alias=True) | {"id": "bad", "having": "count(*) + 77 > 1"}
    bad = compile_rule(Rule.model_validate(document), {"wide": SCHEMA}, RuleLimits())
    kinds = column_types([*rules, bad])
    frame = pl.DataFrame({n: pl.Series([VALUES[k.kind][1]], dtype=polars_type(k)) for n, k in kinds.items()})
    whole, _ = Having([to_member(rule, 0) for rule in rules]).evaluate(frame)
    compile_with(monkeypatch, compile_or_break)
    hits, failures = Having([to_member(rule, 0) for rule in [*rules, bad]]).evaluate(frame)
    assert [f.rule.rule.id for f in failures] == ["bad"]
    assert hits.member.tolist() == whole.member.tolist()
