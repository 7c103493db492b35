"""Explains why a condition is TRUE, FALSE or NULL: its clauses, each with its truth and its values.

Promises: ``lang.evaluate`` computes the truth of every clause; the clauses have the structure of the author's ``and``,
``or`` and ``not``. If the condition is TRUE or FALSE, the clauses marked ``decided`` determine it, whatever the truth
of the others. If it is NULL, the clauses that make it so are marked.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rulecore import language as lang
from rulecore.documents.message_template import format_value, shorten
from rulecore.language import Expr
from rulecore.language.parsing.literals import timestamp_text
from rulecore.language.types import Value
from streamcore.schema import STRING, TIMESTAMP, Kind, Type

#: The logical value of a part of the condition.
ValueOf = Callable[[Expr], Value]


class Truth(enum.StrEnum):
    """A truth value of SQL."""

    TRUE = "TRUE"
    FALSE = "FALSE"
    NULL = "NULL"

    @classmethod
    def of(cls, value: Value) -> Truth:
        """Return the truth of a boolean or None."""
        if value is None:
            return cls.NULL
        return cls.TRUE if value else cls.FALSE


@dataclass(frozen=True, slots=True)
class ObservedValue:
    """The value of an operand, column or aggregate in a clause. ``text``: its canonical text."""

    text: str
    value: Value
    type: Type

    def __str__(self) -> str:
        """Return text such as ``amount = 99.50``."""
        return f"{self.text} = {show_value(self.value, self.type)}"


@dataclass(frozen=True, slots=True)
class Clause:
    """A condition and its truth. ``joint``: ``and``, ``or`` or ``not`` of ``parts``; None for a leaf.

    ``seen``: the values in a leaf. ``note``: which operands make a leaf NULL.
    """

    text: str
    truth: Truth
    decided: bool
    joint: str | None = None
    parts: tuple[Clause, ...] = ()
    seen: tuple[ObservedValue, ...] = ()
    note: str = ""

    def leaves(self) -> Iterator[Clause]:
        """Yield the clauses without parts, in the order of the text."""
        if not self.parts:
            yield self
        for part in self.parts:
            yield from part.leaves()

    def deciding(self) -> Iterator[Clause]:
        """Yield the leaves that are marked ``decided``."""
        return (leaf for leaf in self.leaves() if leaf.decided)


def explain_condition(
    expr: Expr, row: Mapping[str, object], lists: Mapping[str, Mapping[Value, Value]] | None = None
) -> Clause:
    """Explain a condition for one event (column name to logical value); ``lists`` as in ``lang.evaluate``."""
    return explain_with(expr, lambda part: lang.evaluate(part, row, lists or {}))


def explain_with(expr: Expr, value_of: ValueOf, *, decided: bool = True) -> Clause:
    """Explain a condition. ``value_of`` evaluates its parts, such as aggregates."""
    truth = Truth.of(value_of(expr))
    if isinstance(expr, lang.And | lang.Or | lang.Not) and not _is_leaf(expr):
        decisive = _deciding(expr, truth)
        parts = [(part, Truth.of(value_of(part))) for part in expr.children]
        clauses = (explain_with(p, value_of, decided=decided and t in decisive) for p, t in parts)
        return Clause(lang.render(expr), truth, decided, expr.node, tuple(clauses))
    seen = tuple(ObservedValue(lang.render(part), value_of(part), part.type) for part in _operands(expr))
    note = "; ".join(dict.fromkeys(_reasons(expr, value_of))) if truth is Truth.NULL else ""
    return Clause(lang.render(expr), truth, decided, seen=seen, note=note)


def _is_leaf(expr: Expr) -> bool:
    """Return whether it is one clause with ``not`` in it, such as ``not in`` or ``is not null``."""
    return isinstance(expr, lang.Not) and not isinstance(expr.operand, lang.And | lang.Or | lang.Not)


def _deciding(expr: Expr, truth: Truth) -> frozenset[Truth]:
    """Return the truths of the parts that decide: those with the truth of the whole; the only part of ``not``."""
    if isinstance(expr, lang.Not):
        return frozenset(Truth)
    if truth is Truth.NULL:
        return frozenset({Truth.NULL})
    return frozenset({truth})


def _operands(expr: Expr) -> tuple[Expr, ...]:
    """Return the computed operands, then the columns and aggregates, each once."""
    operands = _parts(expr.operand if isinstance(expr, lang.Not) else expr)
    plain = lang.ColumnRef | lang.Literal | lang.IntervalLiteral | lang.AggregateCall
    computed = [o for o in operands if not isinstance(o, plain)]
    return tuple(dict.fromkeys([*computed, *_atoms(expr)]))


def _parts(expr: Expr) -> tuple[Expr, ...]:
    """Return the parts that have a value: not the body of a lambda."""
    return (expr.array,) if isinstance(expr, lang.HigherOrderCall) else expr.children


def _atoms(expr: Expr) -> Iterator[Expr]:
    """Yield the columns outside of aggregates, the aggregates, and the members of structs instead of these."""
    if isinstance(expr, lang.ColumnRef | lang.AggregateCall) or _is_path(expr):
        yield expr
        return
    for child in expr.children:
        yield from _atoms(child)


def _is_path(expr: Expr) -> bool:
    """Return whether it is ``column.member. ...``."""
    while isinstance(expr, lang.MemberOf):
        expr = expr.operand
    return isinstance(expr, lang.ColumnRef)


def _reasons(expr: Expr, value_of: ValueOf) -> Iterator[str]:
    """Yield a text for each innermost part that is NULL."""
    null = [child for child in _parts(expr) if value_of(child) is None]
    if null and not isinstance(expr, lang.Case) and not _is_path(expr):
        for child in null:
            yield from _reasons(child, value_of)
        return
    match expr:
        case lang.ColumnRef() | lang.AggregateCall() | lang.MemberOf():
            yield f"{lang.render(expr)} is NULL"
        case lang.Arithmetic():
            yield f"{lang.render(expr)} is NULL: it divides by zero or leaves the range of its type"
        case _:
            yield f"{lang.render(expr)} gives NULL"


def show_value(value: Any, kind: Type) -> str:
    """Return a logical value as the language writes it: text in quotes, times in UTC, NULL.

    Arrays, structs and maps are JSON-like, and cut if they are long.
    """
    if value is None:
        return "NULL"
    if kind.is_nested:
        return shorten(_show_nested(value, kind))
    if kind == TIMESTAMP and isinstance(value, int):
        return timestamp_text(value) or str(value)
    return f"'{format_value(value)}'" if isinstance(value, str) else format_value(value)


def _show_nested(value: Any, kind: Type) -> str:
    match kind.kind:
        case Kind.ARRAY:
            return f"[{', '.join(show_value(item, kind.items) for item in value)}]"
        case Kind.MAP:
            return f"{{{', '.join(f'{show_value(k, STRING)}: {show_value(v, kind.items)}' for k, v in value.items())}}}"
    return f"{{{', '.join(f'{name}: {show_value(value[name], member)}' for name, member in kind.members)}}}"
