"""The specification of a mapping stage, and the first error of each row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from rulecore.language import ColumnRef, Expr
from rulecore.lists.list_columns import ListColumn
from streamcore.schema import Type

#: Columns with the code and the reason of a failed row; null for the others.
CODE, REASON = "@code", "@reason"

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class ComputedField:
    """A field of the model and the expression that computes it.

    ``expr`` has the type of the field; ``text`` is the expression as the settings have it. ``lookups``: the list
    columns that ``expr`` reads; ``needed``: the lookups for which a key that is not in the list fails the row.
    """

    name: str
    expr: Expr
    type: Type
    nullable: bool
    text: str
    lookups: tuple[ListColumn, ...] = ()
    needed: tuple[ListColumn, ...] = ()

    @property
    def same_as(self) -> str | None:
        """Return the column that the field is a plain copy of, or None."""
        return self.expr.name if isinstance(self.expr, ColumnRef) and not self.lookups else None


@dataclass(frozen=True)
class RowRule:
    """A condition that a row must not violate. As with CHECK of SQL, false violates it and null does not.

    ``text`` is the condition as the settings have it; ``lookups``: the list columns that ``expr`` reads.
    """

    name: str
    expr: Expr
    text: str
    lookups: tuple[ListColumn, ...] = ()


@dataclass(frozen=True)
class MappingSpec:
    """The fields that a stage computes and the rules that it checks.

    ``given``: the types of the input columns; ``keeps``: the input columns that the output has too. ``private``:
    columns whose values no reason shows.
    """

    given: Mapping[str, Type]
    fields: tuple[ComputedField, ...]
    rules: tuple[RowRule, ...] = ()
    keeps: tuple[str, ...] = ()
    private: frozenset[str] = field(default_factory=frozenset)


class FirstError:
    """The first error of each row: ``number`` of the failed field, or, after all fields, of the failed rule; -1: no
    error.
    """

    def __init__(self, height: int) -> None:
        self.number = np.full(height, -1, np.int32)
        self.code: dict[int, list[tuple[Mask, str]]] = {}

    def mark(self, number: int, wrong: Mask, code: str) -> None:
        """Set the error of the rows in ``wrong``, except those that have one already."""
        first = wrong & (self.number < 0)
        if first.any():
            self.number[first] = number
            self.code.setdefault(number, []).append((first, code))

    def codes(self) -> Sequence[str | None]:
        """Return the code of each row's error; None for a row without one."""
        result: list[str | None] = [None] * len(self.number)
        for marked in self.code.values():
            for mask, code in marked:
                for row in np.flatnonzero(mask):
                    result[row] = code
        return result
