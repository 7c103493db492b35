"""Translates single values of a selection to comparisons with a field: text patterns, and constants of other types.

Text is compared in lower case, unless no character of the pattern has case or the rule has the modifier ``cased``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Final

from rulecore.documents.yaml_reader import Json
from rulecore.language.parsing.literals import quote
from rulecore.language.types import is_numeric
from rulecore.sigma.errors import SigmaImportError
from rulecore.sigma.expression_text import ConditionText
from rulecore.sigma.field_map import FieldTarget
from rulecore.sigma.wildcards import DASHES, Pattern, Wildcard, literal_text, read_pattern
from streamcore.schema import BOOLEAN, TIMESTAMP

COMPARISONS: Final[Mapping[str, str]] = {"lt": "<", "lte": "<=", "gt": ">", "gte": ">="}
_NUMBER: Final = re.compile(r"[-+]?[0-9]{1,19}(\.[0-9]{1,19})?\Z")


def to_pattern(value: Json) -> Pattern:
    """Return a value of a selection as a pattern; numbers and booleans become their text."""
    if isinstance(value, str):
        return read_pattern(value)
    if isinstance(value, bool):
        return tuple(str(value).lower())
    return tuple(str(value))


def fold(target: FieldTarget, pattern: Pattern, *, cased: bool) -> tuple[str, Pattern]:
    """Return the expression and pattern to compare: in lower case, unless ``cased`` or a pattern without case."""
    if cased:
        return target.text, pattern
    folded = tuple(c for t in pattern for c in (t.lower() if isinstance(t, str) else (t,)))
    has_case = any(isinstance(t, str) and (t.lower() != t or t.upper() != t) for t in pattern)
    return (f"lower({target.text})" if has_case and not target.lower else target.text), folded


def like(target: FieldTarget, subject: str, pattern: Pattern) -> ConditionText:
    """Return the condition that ``subject`` matches a pattern with wildcards.

    A prefix, suffix or substring test if possible, else ``like``; a regular expression for a pattern with dashes.
    """
    if set(pattern) == {Wildcard.ANY}:
        return ConditionText.atom(f"{target.text} is not null", nullable=False)
    inner = literal_text(tuple(t for t in pattern if t is not Wildcard.ANY))
    shape = "".join("*" if t is Wildcard.ANY else "x" for t in pattern)
    functions = {(True, True): "contains", (False, True): "starts_with", (True, False): "ends_with"}
    if inner is not None and "*" not in shape.strip("*"):
        function = functions[shape[0] == "*", shape[-1] == "*"]
        return ConditionText.atom(f"{function}({subject}, {quote(inner)})", nullable=target.nullable)
    if Wildcard.DASH in pattern:
        text = f"regexp_like({subject}, {quote(_regex(pattern))})"
    else:
        text = f"{subject} like {quote(_like_pattern(pattern))}"
    return ConditionText.atom(text, nullable=target.nullable)


def _like_pattern(pattern: Pattern) -> str:
    wild = {Wildcard.ANY: "%", Wildcard.ONE: "_"}
    return "".join(wild[t] if isinstance(t, Wildcard) else f"\\{t}" if t in "%_\\" else t for t in pattern)


def _regex(pattern: Pattern) -> str:
    wild = {Wildcard.ANY: ".*", Wildcard.ONE: ".", Wildcard.DASH: f"[{DASHES[1:]}-]"}
    special = set(r"\.+*?()|[]{}^$#&-~")
    first, last = pattern[0] is Wildcard.ANY, pattern[-1] is Wildcard.ANY
    inner = pattern[first : len(pattern) - last]
    body = "".join(wild[t] if isinstance(t, Wildcard) else f"\\{t}" if t in special else t for t in inner)
    flags = "(?s)" if "." in body else ""
    return flags + ("" if first else r"\A") + body + ("" if last else r"\z")


def in_lists(equal: Mapping[str, Sequence[str]], target: FieldTarget, *, each: bool) -> list[ConditionText]:
    """Return ``subject in (...)`` for each subject; with ``each``, an equality for each literal."""
    conditions = []
    for subject, literals in equal.items():
        unique = [*dict.fromkeys(literals)]
        if len(unique) == 1 or each:
            conditions += [ConditionText.atom(f"{subject} = {text}", nullable=target.nullable) for text in unique]
        else:
            conditions.append(ConditionText.atom(f"{subject} in ({', '.join(unique)})", nullable=target.nullable))
    return conditions


def constants(target: FieldTarget, values: Sequence[Json], *, each: bool) -> list[ConditionText]:
    """Return the comparisons of a field that is not text with its values."""
    return in_lists({target.text: [_constant(target, value) for value in values]} if values else {}, target, each=each)


def _constant(target: FieldTarget, value: Json) -> str:
    """Return the value as a constant of the field's type, which is not text."""
    if is_numeric(target.type):
        return _number(target, value)
    if target.type == BOOLEAN and str(value).lower() in ("true", "false"):
        return str(value).lower()
    raise SigmaImportError(f"{str(value)[:60]!r} is no {target.type}, the type of the field in the stream")


def _number(target: FieldTarget, value: Json) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise SigmaImportError(f"{value} is no number; the field is {target.type} in the stream")
    if isinstance(value, float) and "e" in repr(value):
        return repr(value)
    if not _NUMBER.match(str(value)):
        raise SigmaImportError(f"{str(value)[:60]!r} is no number; the field is {target.type} in the stream")
    return format(Decimal(str(value)), "f")


def comparison(target: FieldTarget, modifier: str, value: Json) -> ConditionText:
    """Return the comparison of a numeric field with a number, by the modifier ``lt``, ``lte``, ``gt`` or ``gte``."""
    if not is_numeric(target.type):
        raise SigmaImportError(f"{modifier} is for numbers; the field is {target.type} in the stream")
    return ConditionText.atom(
        f"{target.text} {COMPARISONS[modifier]} {_number(target, value)}", nullable=target.nullable
    )


def part_of_time(target: FieldTarget, unit: str, value: Json) -> ConditionText:
    """Return the condition that the ``minute`` or ``hour`` of a timestamp equals a value."""
    if target.type != TIMESTAMP or isinstance(value, bool) or not isinstance(value, int):
        raise SigmaImportError(f"{unit}: needs a whole number, and a field that is a timestamp in the stream")
    return ConditionText.atom(f"{unit}({target.text}) = {value}", nullable=target.nullable)


def exists(target: FieldTarget, value: Json) -> ConditionText:
    """Return the condition that a field has a value, or has none. In a stream, a missing field is NULL."""
    if not isinstance(value, bool):
        raise SigmaImportError("exists: needs true or false")
    return ConditionText.atom(f"{target.text} is {'not ' if value else ''}null", nullable=False)
