"""The parts of a phase of the way to the clean model, and the first problem of each row, as values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from rulecore.language import ColumnRef, Expr
from rulecore.lists.list_columns import ListColumn
from streamcore.schema import Type

#: Why a row failed, in two columns; null where it did not.
CODE, REASON = "@code", "@reason"

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class ComputedField:
    """A field to be: ``expr`` has its type, and asks ``lookups`` (``needed``: those that must have an answer)."""

    name: str
    expr: Expr
    type: Type
    nullable: bool
    text: str
    lookups: tuple[ListColumn, ...] = ()
    needed: tuple[ListColumn, ...] = ()

    @property
    def same_as(self) -> str | None:
        """The column that it is, where it is no more than that."""
        return self.expr.name if isinstance(self.expr, ColumnRef) and not self.lookups else None


@dataclass(frozen=True)
class RowRule:
    """A rule: violated where it is false. Where it is unknown, it is not, as for SQL's CHECK."""

    name: str
    expr: Expr
    text: str
    lookups: tuple[ListColumn, ...] = ()


@dataclass(frozen=True)
class MappingSpec:
    """``given``: the columns that come in; ``keeps``: those of them that stay. ``private``: columns whose values no
    reason shows."""

    given: Mapping[str, Type]
    fields: tuple[ComputedField, ...]
    rules: tuple[RowRule, ...] = ()
    keeps: tuple[str, ...] = ()
    private: frozenset[str] = field(default_factory=frozenset)


class FirstError:
    """Of each row the first thing that is wrong: its number among fields and rules (-1: nothing), and its code."""

    def __init__(self, height: int) -> None:
        self.number = np.full(height, -1, np.int32)
        self.code: dict[int, list[tuple[Mask, str]]] = {}

    def mark(self, number: int, wrong: Mask, code: str) -> None:
        """Rows on which this is wrong; those with something before it keep that."""
        mine = wrong & (self.number < 0)
        if mine.any():
            self.number[mine] = number
            self.code.setdefault(number, []).append((mine, code))

    def codes(self) -> Sequence[str | None]:
        """By row."""
        result: list[str | None] = [None] * len(self.number)
        for marked in self.code.values():
            for mask, code in marked:
                for row in np.flatnonzero(mask):
                    result[row] = code
        return result
