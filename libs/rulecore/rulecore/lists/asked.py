"""What rules ask of lists, as columns: every ``x in list('name')`` and ``lookup('name', x)`` becomes a column.

Columns are filled once per batch, each distinct one once for all rules, from what the lists hold at that moment
(``columns``). Whatever evaluates conditions (the matcher, windows, sequences) sees columns like any other, and a list
may change without a rule being compiled again. A column's name says which list is asked and what for: equal questions
of different rules are one column, and the name stays when the list changes, so state kept under it does too.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass

from rulecore import lang
from rulecore.lang import Column, Expr, ListType
from streamcore.schema import BOOLEAN, Type


class ListColumnKind(enum.StrEnum):
    """What is asked of the list."""

    IN = "in"
    LOOKUP = "lookup"


@dataclass(frozen=True, slots=True)
class ListColumn:
    """A question to a list. ``operand`` is over the stream's columns and the list columns that come before this one.

    ``name`` has a colon, which no stream's column has.
    """

    name: str
    kind: ListColumnKind
    list: ListType
    operand: Expr

    @property
    def type(self) -> Type:
        """Type of the answers."""
        if self.kind is ListColumnKind.IN:
            return BOOLEAN
        assert self.list.value is not None
        return self.list.value

    @property
    def expr(self) -> Column:
        """The column as an expression."""
        return Column(name=self.name, type=self.type)


def lift(expr: Expr) -> tuple[Expr, tuple[ListColumn, ...]]:
    """The expression over columns only, and the columns that it needs besides the stream's, in order of need."""
    found: dict[str, ListColumn] = {}
    lifted = _lifted(expr, found)
    return lifted, tuple(found.values())


def _lifted(expr: Expr, found: dict[str, ListColumn]) -> Expr:
    inner = lang.rebuild(expr, lambda child: _lifted(child, found))
    match inner:
        case lang.InList():
            return _column(ListColumnKind.IN, ListType(inner.list, inner.of), inner.operand, found)
        case lang.Lookup():
            return _column(ListColumnKind.LOOKUP, ListType(inner.list, inner.of, inner.type), inner.key, found)
    return inner


def _column(kind: ListColumnKind, asked: ListType, operand: Expr, found: dict[str, ListColumn]) -> Column:
    name = f"{kind}:{asked.name}:{lang.fingerprint(operand)}"
    return found.setdefault(name, ListColumn(name, kind, asked, lang.normalise(operand))).expr


def distinct(columns: Iterable[ListColumn]) -> tuple[ListColumn, ...]:
    """Columns of several conditions, each once; a column still comes after those that it needs."""
    return tuple({column.name: column for column in columns}.values())
