"""The questions that rules ask of lists, as columns: ``x in list('name')`` and ``lookup('name', x)`` become columns.

Columns are filled once per batch, each distinct one once for all rules, from the contents of the lists at that moment
(``columns``). Whatever evaluates conditions (the matcher, windows, sequences) sees columns like any other, and a list
may change without a rule being compiled again. A column's name names the list and the question: equal questions
of different rules are one column, and the name stays when the list changes, so state kept under it does too.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass

from rulecore import language as lang
from rulecore.language import ColumnRef, Expr, ListType
from streamcore.schema import BOOLEAN, Type


class ListColumnKind(enum.StrEnum):
    """The question asked of the list."""

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
    def expr(self) -> ColumnRef:
        """The column as an expression."""
        return ColumnRef(name=self.name, type=self.type)


def extract_list_columns(expr: Expr) -> tuple[Expr, tuple[ListColumn, ...]]:
    """Return the expression over columns only, and the columns that it needs besides the stream's, in order of need."""
    found: dict[str, ListColumn] = {}
    lifted = _extract(expr, found)
    return lifted, tuple(found.values())


def _extract(expr: Expr, found: dict[str, ListColumn]) -> Expr:
    inner = lang.rebuild(expr, lambda child: _extract(child, found))
    match inner:
        case lang.InList():
            return _column(ListColumnKind.IN, ListType(inner.list, inner.of), inner.operand, found)
        case lang.Lookup():
            return _column(ListColumnKind.LOOKUP, ListType(inner.list, inner.of, inner.type), inner.key, found)
    return inner


def _column(kind: ListColumnKind, asked: ListType, operand: Expr, found: dict[str, ListColumn]) -> ColumnRef:
    name = f"{kind}:{asked.name}:{lang.fingerprint(operand)}"
    return found.setdefault(name, ListColumn(name, kind, asked, lang.normalize(operand))).expr


def distinct(columns: Iterable[ListColumn]) -> tuple[ListColumn, ...]:
    """Return the columns of several conditions, each once; a column still comes after those that it needs."""
    return tuple({column.name: column for column in columns}.values())
