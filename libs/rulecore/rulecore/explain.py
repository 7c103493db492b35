"""Why a condition is true, false or NULL for some values: its clauses, each with what it saw.

Promises: the truth of every clause is what ``lang.evaluate`` gives for it, for it is what gives it; the structure of
``and``, ``or`` and ``not`` is the author's; where the whole is true or false the clauses marked ``decided`` suffice:
had the others been anything else, it would have come out the same. Where it is NULL they are those that made it so.
Refuses to know rules, events and terminals.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from rulecore import lang
from rulecore.lang import Expr
from rulecore.lang.literals import timestamp_text
from rulecore.lang.types import Value
from rulecore.message import show
from streamcore.schema import TIMESTAMP, Type

#: The logical value of a part of the condition.
ValueOf = Callable[[Expr], Value]


class Truth(enum.StrEnum):
    """SQL's three."""

    TRUE = "TRUE"
    FALSE = "FALSE"
    NULL = "NULL"

    @classmethod
    def of(cls, value: Value) -> Truth:
        """Of a boolean or None."""
        if value is None:
            return cls.NULL
        return cls.TRUE if value else cls.FALSE


@dataclass(frozen=True, slots=True)
class Seen:
    """A value that a clause looked at: an operand or a column in it, as the language writes it."""

    text: str
    value: Value
    type: Type

    def __str__(self) -> str:
        """``amount = 99.50``."""
        return f"{self.text} = {show_value(self.value, self.type)}"


@dataclass(frozen=True, slots=True)
class Clause:
    """A condition and what became of it. ``joint``: ``and``, ``or`` or ``not`` over ``parts``; None for a leaf.

    ``note`` says of a leaf that is NULL which of its operands is the reason.
    """

    text: str
    truth: Truth
    decided: bool
    joint: str | None = None
    parts: tuple[Clause, ...] = ()
    seen: tuple[Seen, ...] = ()
    note: str = ""

    def leaves(self) -> Iterator[Clause]:
        """The clauses without parts, in the order of the text."""
        if not self.parts:
            yield self
        for part in self.parts:
            yield from part.leaves()

    def deciding(self) -> Iterator[Clause]:
        """The leaves that decided."""
        return (leaf for leaf in self.leaves() if leaf.decided)


def explain_condition(
    expr: Expr, row: Mapping[str, object], lists: Mapping[str, Mapping[Value, Value]] | None = None
) -> Clause:
    """The clauses of a condition for one event (column name to logical value); ``lists`` as ``lang.evaluate`` has."""
    return explain_with(expr, lambda part: lang.evaluate(part, row, lists or {}))


def explain_with(expr: Expr, value_of: ValueOf, *, decided: bool = True) -> Clause:
    """The same, where ``value_of`` evaluates: a condition on aggregates, or one that looks into lists."""
    truth = Truth.of(value_of(expr))
    if isinstance(expr, lang.And | lang.Or | lang.Not) and not _is_leaf(expr):
        decisive = _deciding(expr, truth)
        parts = [(part, Truth.of(value_of(part))) for part in expr.children]
        clauses = (explain_with(p, value_of, decided=decided and t in decisive) for p, t in parts)
        return Clause(lang.render(expr), truth, decided, expr.node, tuple(clauses))
    seen = tuple(Seen(lang.render(part), value_of(part), part.type) for part in _looked_at(expr))
    note = "; ".join(dict.fromkeys(_reasons(expr, value_of))) if truth is Truth.NULL else ""
    return Clause(lang.render(expr), truth, decided, seen=seen, note=note)


def _is_leaf(expr: Expr) -> bool:
    """``not in``, ``is not null`` and the like are one clause for a reader."""
    return isinstance(expr, lang.Not) and not isinstance(expr.operand, lang.And | lang.Or | lang.Not)


def _deciding(expr: Expr, truth: Truth) -> frozenset[Truth]:
    """Which parts decided: those that are false made an ``and`` false; all that are true made it true."""
    if isinstance(expr, lang.Not):
        return frozenset(Truth)
    if truth is Truth.NULL:
        return frozenset({Truth.NULL})
    return frozenset({truth})


def _looked_at(expr: Expr) -> tuple[Expr, ...]:
    """Operands that are computed, then the columns and aggregates; each once."""
    operands = expr.operand.children if isinstance(expr, lang.Not) else expr.children
    plain = lang.Column | lang.Literal | lang.Interval | lang.Aggregate
    computed = [o for o in operands if not isinstance(o, plain)]
    return tuple(dict.fromkeys([*computed, *_atoms(expr)]))


def _atoms(expr: Expr) -> Iterator[Expr]:
    """What has a value of its own: columns outside of aggregates, and aggregates."""
    if isinstance(expr, lang.Column | lang.Aggregate):
        yield expr
        return
    for child in expr.children:
        yield from _atoms(child)


def _reasons(expr: Expr, value_of: ValueOf) -> Iterator[str]:
    """The parts that are NULL without a part that is: that is where it began."""
    null = [child for child in expr.children if value_of(child) is None]
    if null and not isinstance(expr, lang.Case):
        for child in null:
            yield from _reasons(child, value_of)
        return
    match expr:
        case lang.Column() | lang.Aggregate():
            yield f"{lang.render(expr)} is NULL"
        case lang.Arithmetic():
            yield f"{lang.render(expr)} is NULL: it divides by zero or leaves the range of its type"
        case _:
            yield f"{lang.render(expr)} gives NULL"


def show_value(value: Value, kind: Type) -> str:
    """A logical value as the language writes it: text in quotes, times in UTC, NULL."""
    if value is None:
        return "NULL"
    if kind == TIMESTAMP and isinstance(value, int):
        return timestamp_text(value) or str(value)
    return f"'{show(value)}'" if isinstance(value, str) else show(value)
