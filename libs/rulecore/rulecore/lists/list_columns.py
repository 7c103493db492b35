"""List columns: ``x in list('name')`` and ``lookup('name', x)`` in conditions are replaced by columns.

``fill_columns`` adds the columns to the events of a cut, each once for all rules, from the contents of the lists at
that time. The code that evaluates conditions (matcher, windows, sequences) reads them as any column, and no rule is
compiled again when a list changes. The name of a column is that of the list with a fingerprint of the operand. So equal
expressions of different rules share a column, and state stored under the name survives a change of the list.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeVar

from rulecore import language as lang
from rulecore.key_columns import KeyColumn
from rulecore.language import ColumnRef, Expr, ListType
from streamcore.schema import BOOLEAN, Type


class ListColumnKind(enum.StrEnum):
    """Whether the column is of ``in list`` or of ``lookup``."""

    IN = "in"
    LOOKUP = "lookup"


@dataclass(frozen=True, slots=True)
class ListColumn:
    """A column with the results of ``in list`` or ``lookup`` for ``operand``.

    ``operand`` may use the stream's columns and earlier list columns. ``name`` has a colon, unlike any stream column.
    """

    name: str
    kind: ListColumnKind
    list: ListType
    operand: Expr

    @property
    def type(self) -> Type:
        """The type of the column."""
        if self.kind is ListColumnKind.IN:
            return BOOLEAN
        assert self.list.value is not None
        return self.list.value

    @property
    def expr(self) -> ColumnRef:
        """The column as an expression."""
        return ColumnRef(name=self.name, type=self.type)


def extract_list_columns(expr: Expr) -> tuple[Expr, tuple[ListColumn, ...]]:
    """Return the expression over columns only, and the list columns that it needs, in order of dependency."""
    columns: dict[str, ListColumn] = {}
    lifted = _extract(expr, columns)
    return lifted, tuple(columns.values())


def _extract(expr: Expr, found: dict[str, ListColumn]) -> Expr:
    inner = lang.rebuild(expr, lambda child: _extract(child, found))
    match inner:
        case lang.InList():
            return _column(ListColumnKind.IN, ListType(inner.list, inner.of), inner.operand, found)
        case lang.Lookup():
            return _column(ListColumnKind.LOOKUP, ListType(inner.list, inner.of, inner.type), inner.key, found)
    return inner


def _column(kind: ListColumnKind, list_type: ListType, operand: Expr, found: dict[str, ListColumn]) -> ColumnRef:
    name = f"{kind}:{list_type.name}:{lang.fingerprint(operand)}"
    return found.setdefault(name, ListColumn(name, kind, list_type, lang.normalize(operand))).expr


_Column = TypeVar("_Column", bound=KeyColumn | ListColumn)


def distinct(columns: Iterable[_Column]) -> tuple[_Column, ...]:
    """Return the columns without duplicates; a column still comes after those that its operand uses."""
    return tuple({column.name: column for column in columns}.values())
