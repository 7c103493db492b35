"""Templates of messages: placeholders and braces, and the errors of all other syntax."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rulecore.documents.message_template import format_value, parse_template
from rulecore.errors import ExpressionError
from rulecore.language.types import Value

VALUES: dict[str, Value] = {"a": "x", "n": 3, "m": Decimal("1E+3"), "none": None, "b": True, "d": 192.62666666666667}
VALUES["big"] = 2**53 + 1  # no double has this value


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("plain", "plain"),
        ("{a} and {a}", "x and x"),
        ("{n}{m}", "31000"),
        ("{none}, {b}", "null, true"),
        ("{{a}} {{{a}}}", "{a} {x}"),
        ("", ""),
        ("{d:.2f} of {n:.1f}, {m:.0f}", "192.63 of 3.0, 1000"),
        ("{big:.1f}, {none:.2f}, {d}", "9007199254740993.0, null, 192.62666666666667"),
    ],
)
def test_a_template_replaces_names_with_their_values(template: str, text: str) -> None:
    assert parse_template(template, VALUES).format(VALUES.__getitem__) == text


@pytest.mark.parametrize(
    ("template", "start", "words"),
    [
        ("hello {who}", 6, "unknown name {who}"),
        ("{a.__class__}", 0, "unknown name"),
        ("{a[0]}", 0, "unknown name"),
        ("{a!r}", 0, "unknown name"),
        ("{n:>1000000000}", 0, "unknown name"),
        ("{n:.10f}", 0, "unknown name"),
        ("{n:,.2f}", 0, "unknown name"),
        ("{n:.{n}f}", 0, "a stray {"),
        ("{n:.2f:.2f}", 0, "unknown name"),
        ("{}", 0, "unknown name {}"),
        ("x { y", 2, "a stray {"),
        ("x } y", 2, "a stray }"),
    ],
)
def test_a_brace_without_a_known_name_is_rejected_at_its_location(template: str, start: int, words: str) -> None:
    with pytest.raises(ExpressionError, match=r".") as caught:
        parse_template(template, VALUES)
    assert words in caught.value.message
    assert caught.value.start == start
    assert caught.value.field == "then.message"


@given(st.text(alphabet="{}ab.[]!:", max_size=20))
def test_any_template_is_rejected_or_formats(template: str) -> None:
    try:
        message = parse_template(template, VALUES)
    except ExpressionError:
        return
    assert message.format(lambda name: name) == "".join(message.parts)


def test_places_of_what_is_no_number_are_rejected() -> None:
    with pytest.raises(ExpressionError, match=r"\{a:\.2f\}: a is no number; write \{a\}"):
        parse_template("x {a:.2f}", VALUES, numbers={"n"})


def test_a_template_truncates_long_values() -> None:
    assert len(format_value("x" * 1_000)) == 200
