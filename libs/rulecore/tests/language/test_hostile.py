"""Any text gives a tree or an ``ExpressionError``, and no text takes long to be rejected."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rulecore.errors import ExpressionError
from rulecore.language import Expr, Scope, adapter, fingerprint, parse, render
from rulecore.language.columnar.compiler import to_polars
from streamcore.schema import STRING
from tests.harness.oracles.expressions import COLUMNS, LETTERS, SCOPE, expressions, frame

HAVING = Scope({"s": STRING}, aggregates=True, arguments=COLUMNS)

HOSTILE = {
    "python in a function": "__import__('os').system('id') = 0",
    "python in a name": "`__class__`.`__mro__` = 1",
    "reflect": "reflect('java.lang.Runtime', 'getRuntime') = s",
    "java_method": "java_method('java.util.UUID', 'randomUUID') = s",
    "a file": "read_files('/etc/passwd') = s",
    "input_file_name": "input_file_name() = s",
    "a subquery": "a = (select a from events)",
    "exists": "exists (select 1)",
    "a union": "ok union select 1",
    "with": "with x as (select 1) select 1",
    "a window": "max(a) over (order by b) > 1",
    "lateral": "lateral view explode(s) x as y",
    "star": "* = 1",
    "a cast": "cast(s as int) = 1",
    "a try_cast": "try_cast(s as int) = 1",
    "a lambda": "filter(s, x -> x > 1) = 1",
    "a hint": "/*+ broadcast(x) */ ok",
    "a comment": "ok -- and not ok",
    "two statements": "ok; drop table events",
    "a parameter": "a = :x",
    "a variable": "a = @x",
    "a template": "s = {{ env }}",
    "a block": "{% raw %} ok {% endraw %}",
    "session variables": "s = current_user()",
    "a clock": "ts > current_timestamp()",
    "random": "rand() > 0.5",
    "sleep": "pg_sleep(10) = 1",
    "a null byte": "s = '\x00'",
    "a null byte outside": "ok\x00",
    "an escape sequence": "s = '\x1b[2J'",
    "a lone surrogate": "s = '\ud800'",
    "a no-break space": "a\u00a0=\u00a01",
    "full-width letters": "\uff41 = 1",
    "a homoglyph": "\u0430 = 1",
    "a right-to-left override": "ok\u202e and ok",
    "deep brackets": "(" * 2_000,
    "deep matched brackets": "(" * 1_500 + "ok" + ")" * 1_500,
    "deep not": "not " * 1_000 + "ok",
    "deep minus": "- " * 2_000 + "a = 1",
    "deep case": "case when " * 400,
    "deep calls": "lower(" * 600 + "s" + ")" * 600 + " = 'x'",
    "deep function names": "a(" * 2_000,
    "a long sum": "+".join(["a"] * 2_000) + " > 1",
    "a long and": " and ".join(["ok"] * 800),
    "a long list": "a in (" + ",".join(["1"] * 1_900) + ")",
    "alternating not": "ok = not " * 400 + "ok",
    "a long between": "a between " * 300 + "1",
    "a long interval": "ts > " + "interval " * 400,
    "a megabyte": "a" * 1_000_000,
    "a megabyte of brackets": "(" * 1_000_000,
    "a megabyte of quotes": "'" * 1_000_000,
    "a huge number": "a = " + "9" * 4_000,
    "a huge exponent": "x = 1e" + "9" * 3_000,
    "a huge decimal": "x = 0." + "1" * 4_000,
    "a huge interval": "ts - seen > interval 99999999999999999999 weeks",
    "nested counted repetition": "regexp_like(s, '((((a{9}){9}){9}){9}){9}')",
    "a huge character class": r"regexp_like(s, '\\pL{1000}')",
    "look-ahead": "regexp_like(s, '(?=a)')",
    "look-behind": "regexp_like(s, '(?<!a)b')",
    "a back-reference": r"regexp_like(s, '(a)\\1')",
    "a code callout": "regexp_like(s, '(?{ print 1 })')",
    "growing text": "replace(replace(replace(s, 'a', 'aaaaaaaa'), 'a', 'aaaaaaaa'), 'a', 'aaaaaaaa') = 'x'",
    "doubling text": "concat(" * 7 + "concat(s, s)" + ", concat(s, s, s, s, s, s, s, s, s, s))" * 7 + " = 'x'",
    "nothing": "",
    "spaces": " \n\t ",
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
@pytest.mark.parametrize("scope", [SCOPE, HAVING], ids=["where", "having"])
@pytest.mark.quick_cases(32)
def test_a_hostile_text_is_rejected_with_a_location(text: str, scope: Scope) -> None:
    with pytest.raises(ExpressionError) as caught:
        parse(text, scope)
    assert caught.value.line >= 1
    assert caught.value.column >= 1
    assert "^" in caught.value.render()


def test_a_pattern_that_backtracks_in_other_engines_takes_linear_time() -> None:
    expr = parse("regexp_like(s, '^(a+)+$')", SCOPE)
    rows = [{**dict.fromkeys(COLUMNS), "s": "a" * 100_000 + "!"}]
    assert frame(rows).select(to_polars(expr)).to_series().to_list() == [False]


def test_the_compiled_size_of_nested_divisions_is_linear() -> None:
    """The formula of a division names its operand twice: without ``let``, 28 levels would be 268 million copies."""
    expr = parse("1 / (" * 28 + "a" + ")" * 28 + " > 0", SCOPE)
    rows = [{**dict.fromkeys(COLUMNS), "a": 3}]
    assert frame(rows).select(to_polars(expr)).to_series().to_list() == [True]


def _accepted_or_rejected(text: str, scope: Scope) -> Expr | None:
    try:
        expr = parse(text, scope)
    except ExpressionError as error:
        shown = error.render()
        return None if "^" in shown else pytest.fail(f"no place: {shown}")
    assert parse(render(expr), scope) == expr
    assert len(fingerprint(expr)) == 32
    return expr


@given(st.text())
def test_any_text_is_a_tree_or_an_error(text: str) -> None:
    assert _accepted_or_rejected(text, SCOPE) is None or text


WORDS_OF_THE_LANGUAGE = (
    "a b amount x s t ts ok `end` 1 2.5 1e3 'x' 'a%' r'\\d' ( ) , + - * / % = <> < <= <=> || and or not in between "
    "like rlike is null true false case when then else end escape distinct interval 5 minutes timestamp '2011-01-01' "
    "count( sum( lower( if( coalesce( concat( date_trunc( regexp_like( substr( . ; -- /* */ [ ] { } :: -> => @ # $ "
    "\\ ' \" ` select from over cast( exists( \u00a0 \x00 😀 union as"
)
WORDS = WORDS_OF_THE_LANGUAGE.split(" ")


@given(st.lists(st.sampled_from(WORDS), max_size=40).map(" ".join), st.sampled_from([SCOPE, HAVING]))
def test_any_words_of_the_language_are_a_tree_or_an_error(text: str, scope: Scope) -> None:
    assert _accepted_or_rejected(text, scope) is None or text


@settings(max_examples=200)
@given(expressions(), st.data())
def test_a_damaged_expression_is_a_tree_or_an_error(expr: Expr, data: st.DataObject) -> None:
    text = render(expr)
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, min(len(text), start + 5)))
    put = data.draw(st.sampled_from(["", *WORDS]) | st.text(st.sampled_from(LETTERS), max_size=3))
    assert _accepted_or_rejected(text[:start] + put + text[end:], SCOPE) is None or text


@settings(max_examples=100)
@given(
    st.recursive(
        st.none() | st.booleans() | st.text(max_size=5),
        lambda x: st.dictionaries(
            st.sampled_from(["node", "type", "op", "left", "right", "operand", "terms", "name", "value"]), x, max_size=5
        ),
    )
)
def test_json_that_is_no_tree_is_a_value_error(document: object) -> None:
    with pytest.raises(ValueError, match="validation error"):
        adapter.validate_python(document)
