"""Errors of expressions: message, underlined text and hint."""

from __future__ import annotations

import pytest

from rulecore.errors import ExpressionError
from rulecore.language import ExpressionLimits, Scope, parse
from streamcore.schema import STRING
from tests.harness.oracles.expressions import COLUMNS, SCOPE

HAVING = Scope({"s": STRING}, aggregates=True, arguments=COLUMNS)

#: text, the part of it that is underlined (its last occurrence), words of the message, words of the hint
REJECTED_IN_WHERE = [
    ("amount > '100'", "'100'", "decimal(12,2) cannot be compared with string", "a number, such as 100"),
    ("'100' < amount", "'100'", "decimal(12,2) cannot be compared with string", "a number"),
    ("ts > '2011-01-01'", "'2011-01-01'", "timestamp cannot be compared", "timestamp '2011"),
    ("amuont > 1", "amuont", "unknown column amuont", "did you mean amount?"),
    ("a > 1 and\n  amuont > 1", "amuont", "unknown column amuont", "did you mean amount?"),
    ("lenght(s) = 1", "lenght", "unknown function lenght", "did you mean length?"),
    ("reflect('java.lang.Runtime', 'exec') = s", "reflect", "unknown function reflect", "accepted here: lower"),
    ("ts > now()", "now", "unknown function now", "no rule has a clock"),
    ("ok & a > 1", "&", "& is not accepted", "write: and"),
    ("s ~ 'x'", "~", "~ is not accepted", "regexp_like(text, 'pattern')"),
    ("s ilike 'x'", "ilike", "ilike is not accepted", "lower(text) like"),
    ("s startswith 'x'", "startswith", "startswith is not accepted", "starts_with(text, 'start')"),
    ("s in ['x']", "[", "something is missing before [", "x in ('a', 'b')"),
    ("a > 90d", "90d", "90d is no number", "interval 90 days"),
    ("amount", "amount", "a condition is needed, this is decimal(12,2)", "a comparison"),
    ("ok and a", "a", "and takes a condition, not long", "a condition"),
    ("not a", "a", "not takes a condition, not long", "a condition"),
    ("s = null", "null", "never true", "is null"),
    ("s <> null", "null", "never true", "is not null"),
    ("a between 1 and null", "null", "never true", ""),
    ("s in ('x', null)", "null", "never false", "or ... is null"),
    ("a in (1, 'x')", "'x'", "does not take this string", "a number"),
    ("a in (1.5)", "1.5", "does not take this decimal", ""),
    ("a in (b)", "b", "in takes constants", ""),
    ("a in b", "a", "in takes a list in brackets, or list('name')", ""),
    ("a = 1 = ok", "a = 1", "needs brackets", "(a = b) = c"),
    ("a = b is null", "a = b", "needs brackets", ""),
    ("ok = (not ok) = ok", "ok = (not ok)", "needs brackets", ""),
    ("a > not ok", "not", "not is not accepted here", "write it in brackets"),
    ("a not > 1", "not", "not is not accepted here", "not in"),
    ("ok < end", "end", "end without case", ""),
    ("ok < (a = 1)", "ok < (a = 1)", "< does not take boolean", "="),
    ("a + s > 1", "s", "+ takes numbers, not string", "a number"),
    ("x % 2 = 1", "x", "% takes long and decimal", ""),
    ("-s = 'x'", "s", "- takes a number, not string", ""),
    ("ts + 5 > seen", "5", "long cannot be added to or taken from a timestamp", "interval 5 minutes"),
    ("ts + seen > 1", "seen", "two timestamps cannot be added", "interval"),
    ("fine * (fine * rate) > 1", "fine * (fine * rate)", "needs 23 digits after the point", "round"),
    ("ts > timestamp '2011-02-30'", "timestamp '2011-02-30'", "no timestamp", "2011-01-31"),
    ("ts > seen - interval 1 month", "interval 1 month", "no interval", "weeks"),
    ("s like t", "t", "like takes a constant pattern", "quotes"),
    ("s like r'a\\b'", "r'a\\b'", "is the escape character", "can be escaped"),
    ("s like 'a' escape 'xy'", "escape 'xy'", "escape takes one character", ""),
    ("regexp_like(s, t)", "t", "regexp_like takes a constant pattern", ""),
    ("regexp_like(s, '(?=a)b')", "'(?=a)b'", "look-around", "Rust"),
    ("regexp_like(s, r'(a)\\1')", "r'(a)\\1'", "backreferences", "Rust"),
    ("regexp_like(s, '(a{40}){40}')", "'(a{40}){40}'", "counted repetition", "smaller"),
    ("regexp_like(s, '[')", "'['", "unclosed character class", ""),
    (r"regexp_like(s, '\d+')", r"'\d+'", r"unknown escape \d", "r'...'"),
    ("substr(s, a) = 'x'", "a", "argument 2 must be a constant long", "start from 1"),
    ("date_trunc('fortnight', ts) = ts", "'fortnight'", "unknown unit", "second, minute, hour"),
    ("replace(s, '', 'x') = s", "''", "empty", ""),
    ("round(x, 99) = 1", "99", "between 0 and 15 places", ""),
    ("length(s, t) = 1", "length(s, t)", "does not take 2 arguments", "length(text)"),
    ("length(a) = 1", "a", "length takes string, not long", "text in quotes"),
    ("hour(a) = 1", "a", "hour takes a timestamp, not long", ""),
    ("if(ok, 1) = 1", "if(ok, 1)", "if does not take 2 arguments", "if(a, b, c)"),
    ("case when a then 1 end = 1", "a", "when takes a condition, not long", ""),
    ("case when ok then 1 else 'x' end = 1", "'x'", "case of long and string", ""),
    ("case b when 1 then ok end", "b", "case takes conditions", ""),
    ("case when ok then null end = 1", "case when ok then null end", "all results are null", ""),
    ("coalesce(s, null) = 'x'", "null", "null is accepted only as a result", "is null"),
    ("greatest(ok, ok)", "ok", "greatest does not take boolean", ""),
    ("count(*) > 5", "count(*)", "count is an aggregate", "only in having"),
    ("a = 99999999999999999999", "99999999999999999999", "does not fit 64 bits", "1e20"),
    ("a = 1234567890.1234567890", "1234567890.1234567890", "at most 18 digits", ""),
    ("a = 5L", "5L", "5L is no number", "100, 10.5"),
    ("a = 1e999", "1e999", "1e999 is no number", ""),
    ("a = 1_000", "1_000", "1_000 is not accepted", ""),
    ("s = 'abc", "'abc", "the quote ' is never closed", ""),
    ("(a > 1", "(", "( is never closed", "a matching )"),
    ("a > 1)", ")", ") without (", ""),
    ("case when ok then 1", "case", "case is never closed", "a matching end"),
    ("a > 1 and", "and", "something is missing after and", "a column"),
    ("a >", ">", "something is missing after >", ""),
    ("> 1", ">", "something is missing before >", ""),
    ("a b", "b", "an operator is missing before b", "and, or"),
    ("'x' 'y' = s", "'y'", "an operator is missing before 'y'", ""),
    ("a = 1 -- x", "-- x", "comments are not accepted", ""),
    ("a /*+ hint */ = 1", "/*+ hint */", "comments are not accepted", ""),
    ("a = 1; drop table x", ";", "; is not accepted", ""),
    ("event.a = 1", "event.a", "unknown column event.a", ""),
    ("a[0] = 1", "a", "[ ] takes an array or a map, not long", ""),
    ("[1] = 1", "[", "something is missing before [", "a column"),
    ("longs[0 = 1", "[", "[ is never closed", "a matching ]"),
    ("longs[x] = 1", "x", "get takes a whole number, not double", "array[number]"),
    ("longs = longs", "longs", "array<long> cannot be compared", "cardinality(items)"),
    ("who.age = 1", "who.age", "the struct has no member age", "name, n, home"),
    ("tags.env = 1", "tags.env", "map<string,long> has no members", "x['env']"),
    ("a.b = 1", "a.b", ".b takes a struct, not long", ""),
    ("any(longs, 1)", "any(longs, 1)", "any takes an array and a lambda", "any(items, x -> ...)"),
    ("any(a, e -> e > 1)", "a", "any takes an array, not long", ""),
    ("any(tags, e -> e > 1)", "tags", "any takes an array, not map<string,long>", "map_values"),
    ("any(longs, e -> e)", "e -> e", "exists takes a condition on an element, not long", "x > 100"),
    (
        "any(longs, e -> any(longs, f -> any(longs, e -> f > 1)))",
        "e",
        "e is the parameter of a lambda around this one",
        "",
    ),
    ("length(e -> e) = 1", "e -> e", "a lambda is accepted only in exists", ""),
    ("e -> e = 1", "->", "-> is not accepted here", ""),
    ("element_at(longs, 0) = 1", "0", "the first element is number 1", "number from 1"),
    ("map('a', 1, 'a', 2)['a'] = 1", "map('a', 1, 'a', 2)", "a key is there twice", "map('key'"),
    ("a::string = 'x'", "::", ":: is not accepted", ""),
    ("select 1", "select", "select is not accepted", "no queries"),
    ("a > (select max(a) from x)", "select", "select is not accepted", "no queries"),
    ("exists(select 1)", "select", "select is not accepted", ""),
    ("cast(a as int) = 1", "int", "there is no type int", "write long"),
    ("cast(a as) = 1", "as", "a type is missing after as", "such as long"),
    ("hmac_sha256('x', 'key') = 'a'", "'key'", "the key is a secret", "secret('name')"),
    ("hmac_sha256('x', secret('key')) = 'a'", "secret('key')", "there is no secret 'key'", "there are none here"),
    ("secret('key') = 'a'", "secret('key')", "a secret is no value", "hmac_sha256(text, secret('name'))"),
    ("regexp_extract('x', 'a+') = 'a'", "'a+'", "there is no group 1", "regexp_extract(text, 'pattern', 0)"),
    ("regexp_replace('x', '(a+)+$', 'b$2') = 'a'", "'b$2'", "there is no group 2", "$0 is the whole match"),
    ("split('x', 'a*')[0] = 'a'", "'a*'", "the pattern matches the empty text", ""),
    ("date_format(timestamp '2026-01-01', 'qq') = ''", "'qq'", "qq is no symbol of a pattern", "yyyy"),
    ("to_timestamp('x', 'yyyy-MM[-dd]') is null", "'yyyy-MM[-dd]'", "no day, or only in brackets", "yyyy"),
    ("to_timestamp('x', 'yyyy-MM-dd[ HH') is null", "'yyyy-MM-dd[ HH'", "square brackets", "quotes"),
    ("to_timestamp('x', 'yyyy-MM-dd hh[ a]') is null", "'yyyy-MM-dd hh[ a]'", "hh (or h) and a", "HH"),
    ("from_json('1', 'long') is null", "'long'", "an array, a map or a struct", "get_json_object("),
    ("to_timestamp('x', 'yyyy-MM-dd hh:mm') is null", "'yyyy-MM-dd hh:mm'", "hh (or h) and a", "HH"),
    ("repeat('x', 65) = ''", "65", "65 is not between 0 and 64", "repeat(text, times)"),
    ("max(a) over (partition by b) > 1", "partition by", "partition by is not accepted", ""),
    ("max(a) over () > 1", "over", "an operator is missing before over", ""),
    ("(a, b) = (1, 2)", "a", "a list is accepted only after in", ""),
    ("ok is true", "ok", "is takes null or not null", ""),
    ("*", "*", "something is missing", ""),
]

REJECTED_IN_HAVING = [
    ("amount > 1", "amount", "amount is not in group_by", "or an aggregate, such as max(amount)"),
    ("sum(sum(amount)) > 1", "sum(amount)", "sum inside sum", "do not nest"),
    ("sum(s) > 1", "s", "sum takes a number, not string", ""),
    ("max(s) > 'x'", "s", "max takes a number or a timestamp, not string", ""),
    ("sum(amuont) > 1", "amuont", "unknown column amuont", "did you mean amount?"),
    ("count() > 1", "count()", "count does not take 0 arguments", "count(*)"),
    ("sum(*) > 1", "*", "something is missing before *", "a column"),
    ("count(amount > 1) > 1", "count(amount > 1)", "counts all events for which it is true or false", "count_if(...)"),
    ("count_if(amount) > 1", "amount", "count_if takes a condition, not decimal(12,2)", ""),
    ("count_if() > 1", "count_if()", "count_if does not take 0 arguments", "count_if(x)"),
    ("sum(amount) filter (where s = 'x') > 1", "filter", "an operator is missing before filter", "count_if(condition)"),
    ("lag(amount) > 1", "lag", "unknown function lag", "last(x)"),
    ("sum(distinct amount) > 1", "distinct", "distinct is not accepted here", "count(distinct x)"),
]


def _rejected(text: str, scope: Scope, field: str) -> ExpressionError:
    with pytest.raises(ExpressionError) as caught:
        parse(text, scope, field=field)
    return caught.value


def _check(error: ExpressionError, text: str, underlined: str, message: str, hint: str) -> None:
    assert message in error.message
    assert hint in error.hint
    start = text.index(underlined) if message in _AT_FIRST_OCCURRENCE else text.rindex(underlined)
    before = text[:start]
    place = (before.count("\n") + 1, start - (before.rfind("\n") + 1) + 1, len(underlined))
    assert (error.line, error.column, error.length) == place


#: Messages whose location is the first occurrence of the underlined text, not the last.
_AT_FIRST_OCCURRENCE = {
    "array<long> cannot be compared",
    "+ takes numbers, not string",
    "in takes a list in brackets, or list('name')",
    "argument 2 must be a constant long",
    "a list is accepted only after in",
    "greatest does not take boolean",
    "is takes null or not null",
}


@pytest.mark.parametrize(("text", "underlined", "message", "hint"), REJECTED_IN_WHERE)
@pytest.mark.quick_cases(30)
def test_an_error_in_where_has_a_location_and_a_hint(text: str, underlined: str, message: str, hint: str) -> None:
    _check(_rejected(text, SCOPE, "where"), text, underlined, message, hint)


@pytest.mark.parametrize(("text", "underlined", "message", "hint"), REJECTED_IN_HAVING)
def test_an_error_in_having_has_a_location_and_a_hint(text: str, underlined: str, message: str, hint: str) -> None:
    _check(_rejected(text, HAVING, "having"), text, underlined, message, hint)


def test_an_error_renders_as_location_source_underline_and_hint() -> None:
    error = _rejected("a > 1\n  and amuont > 100", SCOPE, "where")
    assert error.render().splitlines()[:3] == [
        "where:2:7: unknown column amuont",
        "    and amuont > 100",
        "        ^^^^^^",
    ]
    assert error.render().splitlines()[3].startswith("  hint: did you mean amount? accepted here: a, b, amount")
    assert str(error).startswith("where:2:7: unknown column amuont; did you mean amount?")


def test_a_long_line_is_shown_around_the_location() -> None:
    text = " and ".join(["a > 1"] * 60) + " and amuont > 1"
    shown = _rejected(text, SCOPE, "where").render().splitlines()
    assert len(shown[1]) < 130
    assert shown[1][shown[2].index("^") : shown[2].rindex("^") + 1] == "amuont"


@pytest.mark.parametrize(
    ("text", "limits", "message"),
    [
        ("a = 1 or a = 2", ExpressionLimits(text_bytes=10), "at most 10 are accepted"),
        ("a = 1 or a = 2", ExpressionLimits(nodes=6), "more than 6 nodes"),
        ("a + a + a + a + a > 1", ExpressionLimits(depth=4), "nested more than 4 deep"),
        ("((((a = 1))))", ExpressionLimits(depth=3), "nested more than 3 deep"),
        ("not not not not ok", ExpressionLimits(depth=3), "nested more than 3 deep"),
        ("a in (1, 2, 3)", ExpressionLimits(list_length=2), "more than 2 values"),
        ("s like 'abcd'", ExpressionLimits(like_bytes=3), "more than 3 bytes"),
        ("regexp_like(s, 'abcd')", ExpressionLimits(regex_bytes=3), "more than 3 bytes"),
        ("greatest(a, a, a) = 1", ExpressionLimits(arguments=2), "more than 2 arguments"),
        ("concat(s, s, s) = 'x'", ExpressionLimits(text_growth=2), "grow more than 2 times"),
        (
            "replace(replace(s, 'a', 'aaaa'), 'a', 'aaaa') = 'x'",
            ExpressionLimits(text_growth=15),
            "grow more than 15 times",
        ),
    ],
)
def test_every_limit_is_enforced(text: str, limits: ExpressionLimits, message: str) -> None:
    with pytest.raises(ExpressionError, match=message):
        parse(text, SCOPE, limits=limits)
    assert parse(text, SCOPE).type.kind.value == "boolean"


def test_terms_of_one_and_are_one_level_deep() -> None:
    expr = parse(" and ".join(f"a <> {n}" for n in range(100)), SCOPE)
    assert len(expr.children) == 100
