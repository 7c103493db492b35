"""Accepted expressions: their canonical text, type and value."""

from __future__ import annotations

import pytest

from rulecore.errors import ExpressionTypeError
from rulecore.language import (
    AggregateCall,
    Call,
    ColumnRef,
    Compare,
    Literal,
    Scope,
    aggregates,
    columns,
    conjuncts,
    evaluate,
    parse,
    render,
    replace_aggregates,
    to_logical,
    to_physical,
)
from rulecore.language.columnar.compiler import to_polars
from rulecore.language.types import Value
from streamcore.schema import BOOLEAN, DOUBLE, LONG, STRING, TIMESTAMP, Kind, StreamSchema, Type
from tests.harness.oracles.expressions import COLUMNS, SCOPE

HAVING = Scope({"s": STRING}, aggregates=True, arguments=COLUMNS)

CANONICAL = [
    ("AMOUNT>100", "amount > 100"),
    ("a == 1 and b != 2", "a = 1 and b <> 2"),
    ("a = 1 or b = 2 and ok", "a = 1 or b = 2 and ok"),
    ("(a = 1 or b = 2) and ok", "(a = 1 or b = 2) and ok"),
    ("ok and (ok and (a = 1))", "ok and ok and a = 1"),
    ("not a = 1", "not a = 1"),
    ("not (ok or a = 1)", "not (ok or a = 1)"),
    ("a - b - 1 > 0", "a - b - 1 > 0"),
    ("a - (b - 1) > 0", "a - (b - 1) > 0"),
    ("a + b * 2 % 3 > 0", "a + b * 2 % 3 > 0"),
    ("(a + b) * 2 > 0", "(a + b) * 2 > 0"),
    ("- a < -5", "-a < -5"),
    ("a - -5 = - -5", "a - -5 = 5"),
    ("a = -9223372036854775808", "a = -9223372036854775808"),
    ("s not in ('x', \"y\")", "s not in ('x', 'y')"),
    ("not s in ('x')", "s not in ('x')"),
    ("amount in (1, 2.5)", "amount in (1.00, 2.50)"),
    ("x in (1)", "x in (1.0e0)"),
    ("a not between 1 and 2 and ok", "a not between 1 and 2 and ok"),
    ("s is not null", "s is not null"),
    ("not s is null", "s is not null"),
    ("s not like 'a!%' escape '!'", "s not like 'a!%' escape '!'"),
    (r"s like 'a\%'", r"s like 'a\\%'"),
    ("s rlike r'\\d'", r"regexp_like(s, '\\d')"),
    ("s not rlike 'x'", "not regexp_like(s, 'x')"),
    ("s = 'it''s'", r"s = 'it\'s'"),
    ("s || '-' || t = 'x'", "concat(s, '-', t) = 'x'"),
    ("if(ok, a, 0.5) > 1", "case when ok then a else 0.5 end > 1"),
    ("case when ok then null else a end > 1", "case when ok then null else a end > 1"),
    ("`end` and ((ok))", "`end` and ok"),
    ("(ok) = (a = 1)", "ok = (a = 1)"),
    ("nvl(a, pow(a, 2)) > 1e3", "coalesce(a, power(a, 2)) > 1000.0e0"),
    ("substring(s, 1, 2) = 'x'", "substr(s, 1, 2) = 'x'"),
    ("ts > timestamp '2011-01-31T12:00:00.5+01:00'", "ts > timestamp '2011-01-31 11:00:00.500'"),
    ("ts - seen > interval '90' minutes", "ts - seen > interval 90 minutes"),
    ("ts + interval '2 hours' > seen", "ts + interval 2 hours > seen"),
    ("ts <=> seen", "ts <=> seen"),
]
CANONICAL_HAVING = [
    ("count_if(a > 1) > 2", "count_if(a > 1) > 2"),
    ("count(case when a > 1 then 1 end) > 2", "count_if(a > 1) > 2"),
    ("count(case when a > 1 then 2 end) > 2", "count(case when a > 1 then 2 end) > 2"),
    ("COUNT( * ) >= 5 and sum(a * amount) < -100", "count(*) >= 5 and sum(a * amount) < -100"),
    ("count(distinct t) > 1", "count_distinct(t) > 1"),
    ("max(ts) - min(ts) < interval 1 day and s = 'x'", "max(ts) - min(ts) < interval 1 day and s = 'x'"),
    ("sum(if(ok, amount, 0)) > 1", "sum(case when ok then amount else 0 end) > 1"),
]


@pytest.mark.parametrize(("text", "canonical"), CANONICAL)
def test_a_condition_parses_to_its_canonical_text(text: str, canonical: str) -> None:
    expr = parse(text, SCOPE)
    assert render(expr) == canonical
    assert parse(canonical, SCOPE) == expr


@pytest.mark.parametrize(("text", "canonical"), CANONICAL_HAVING)
def test_a_having_parses_to_its_canonical_text(text: str, canonical: str) -> None:
    expr = parse(text, HAVING)
    assert render(expr) == canonical
    assert parse(canonical, HAVING) == expr


@pytest.mark.parametrize(
    ("text", "type_text"),
    [
        ("a + 1", "long"),
        ("a / 2", "double"),
        ("amount + 1", "decimal(13,2)"),
        ("amount * 2", "decimal(13,2)"),
        ("a * amount", "decimal(18,2)"),
        ("amount * rate", "decimal(17,7)"),
        ("amount % 7", "decimal(3,2)"),
        ("amount + x", "double"),
        ("10.5", "decimal(3,1)"),
        ("0.05", "decimal(2,2)"),
        ("1e3", "double"),
        ("ts - seen", "long"),
        ("ts - interval 1 second", "timestamp"),
        ("round(amount)", "decimal(11,0)"),
        ("round(amount, 5)", "decimal(12,2)"),
        ("floor(amount)", "long"),
        ("coalesce(a, amount)", "decimal(18,2)"),
        ("coalesce(amount, 0)", "decimal(12,2)"),
        ("greatest(amount, fine)", "decimal(18,9)"),
        ("case when ok then a else x end", "double"),
        ("length(s)", "long"),
        ("date_trunc('day', ts)", "timestamp"),
    ],
)
def test_a_value_has_the_type_that_the_typing_rules_give(text: str, type_text: str) -> None:
    assert parse(text, SCOPE, expect=None).type == Type.parse(type_text)


@pytest.mark.parametrize(
    ("text", "type_text"),
    [
        ("count(*)", "long"),
        ("count(s)", "long"),
        ("count_distinct(s)", "long"),
        ("sum(a)", "long"),
        ("sum(amount)", "decimal(18,2)"),
        ("sum(x)", "double"),
        ("avg(amount)", "double"),
        ("stddev(a)", "double"),
        ("min(amount)", "decimal(12,2)"),
        ("max(ts)", "timestamp"),
    ],
)
def test_an_aggregate_has_the_type_that_the_typing_rules_give(text: str, type_text: str) -> None:
    assert parse(text, HAVING, expect=None).type == Type.parse(type_text)


#: Spark's answers, but for what the language decides otherwise (overflow and division by zero are NULL).
VALUES: list[tuple[str, Value]] = [
    ("null_long + 1", None),
    ("7 / 2", 3.5),
    ("1 / 0", None),
    ("-7 % 3", -1),
    ("7 % -3", 1),
    ("7 % 0", None),
    ("9223372036854775807 + 1", None),
    ("-(-9223372036854775808)", None),
    ("abs(-9223372036854775808)", None),
    ("round(2.5)", 3),
    ("round(-2.5)", -3),
    ("round(2.675, 2) = 2.68", True),
    ("round(2.5e0)", 3.0),
    ("floor(-1.5)", -2),
    ("ceil(-1.5)", -1),
    ("floor(1e30)", None),
    ("ln(0)", None),
    ("1.10 = 1.1", True),
    ("9007199254740993 = 9007199254740992.0", False),
    ("9007199254740993 = 9007199254740992e0", True),
    ("null_text = 'x'", None),
    ("null_text <=> 'x'", False),
    ("null_text is null", True),
    ("null_text = 'x' and false", False),
    ("null_text = 'x' or true", True),
    ("not null_text = 'x'", None),
    ("null_text in ('x')", None),
    ("null_text like '%'", None),
    ("coalesce(null_text, 'x')", "x"),
    ("greatest(null_long, 2)", 2),
    ("nullif(2, 2)", None),
    ("case when null_long = 1 then 1 else 2 end", 2),
    ("'a' < 'B'", False),
    ("'z' < 'é'", True),
    ("'\uffff' < '😀'", True),
    ("substr('spark', 0, 2)", "sp"),
    ("substr('spark', -3)", "ark"),
    ("substr('abc', -5, 3)", "a"),
    ("trim(' \t x ')", "\t x"),
    ("length('😀é')", 2),
    ("'a%b' like 'a!%b' escape '!'", True),
    ("'ab' like 'a!%' escape '!'", False),
    ("'a\\nb' like 'a_b'", True),
    ("replace('aaa', 'aa', 'b')", "ba"),
    ("regexp_like('x1', r'\\d$')", True),
    ("hour(timestamp '2011-01-31 23:59:00')", 23),
    ("hour(timestamp '1969-12-31 23:00:00')", 23),
    ("dayofweek(timestamp '2011-01-30')", 1),
    ("date_trunc('week', timestamp '2011-02-02 10:00:00') = timestamp '2011-01-31'", True),
    ("date_trunc('quarter', timestamp '2011-06-02 10:00:00') = timestamp '2011-04-01'", True),
]


@pytest.mark.parametrize(("text", "value"), VALUES)
def test_an_expression_has_the_value_that_spark_gives(text: str, value: Value) -> None:
    expr = parse(text, Scope({"null_text": STRING, "null_long": LONG}), expect=None)
    found = evaluate(expr, {"null_text": None, "null_long": None})
    assert (found, type(found) is bool) == (value, type(value) is bool)


def test_the_aggregates_of_a_having_are_found_and_replaced() -> None:
    expr = parse("count(*) > 1 and sum(amount) > count(*) and s = 'x'", HAVING)
    total, amount = (
        AggregateCall.of("count", None),
        AggregateCall.of("sum", ColumnRef(name="amount", type=COLUMNS["amount"])),
    )
    assert aggregates(expr) == (total, amount)
    assert columns(expr) == {"amount", "s"}
    assert len(conjuncts(expr)) == 3
    replaced = replace_aggregates(expr, {total: "n", amount: "total"})
    assert render(replaced) == "n > 1 and total > n and s = 'x'"
    assert columns(replaced) == {"n", "total", "s"}


def test_an_aggregate_has_no_value_for_one_row_and_no_column() -> None:
    expr = parse("count(*) > 1", HAVING)
    with pytest.raises(ValueError, match="replace_aggregates"):
        evaluate(expr, {})
    with pytest.raises(ValueError, match="replace_aggregates"):
        to_polars(expr)


def test_a_decimal_is_stored_as_a_whole_number() -> None:
    kind = Type.parse("decimal(12,2)")
    literal = parse("1.5", SCOPE, expect=None)
    assert isinstance(literal, Literal)
    assert to_physical(literal.value, kind) == 150
    assert to_logical(150, kind) == literal.value
    assert to_logical(None, kind) is None
    with pytest.raises(ValueError, match="more than 2 digits"):
        to_physical(to_logical(1234, Type(Kind.DECIMAL, 12, 3)), kind)


def test_an_ill_typed_tree_cannot_be_made() -> None:
    yes = Literal.of(True)
    with pytest.raises(ExpressionTypeError, match="length takes string, not long"):
        Call.of("length", (Literal.of(1),))
    with pytest.raises(ExpressionTypeError, match="< does not take boolean"):
        Compare.of("<", yes, yes)
    with pytest.raises(ValueError, match="< does not take boolean"):
        Compare(op="<", left=yes, right=yes)


def test_where_and_having_accept_the_names_of_their_scopes() -> None:
    schema = StreamSchema.parse(
        {
            "name": "shop",
            "event_time": "ts",
            "keys": [["user_id"]],
            "fields": {"ts": "timestamp not null", "user_id": "string", "score": "double", "ok": "boolean"},
        }
    )
    event, group = Scope.of_event(schema), Scope.of_group(schema, ("user_id",))
    assert event.columns == {"ts": TIMESTAMP, "user_id": STRING, "score": DOUBLE, "ok": BOOLEAN}
    assert not event.aggregates
    assert render(parse("max(score) > 1 and user_id = 'u'", group)) == "max(score) > 1 and user_id = 'u'"
