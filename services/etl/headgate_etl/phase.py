"""One phase of the way to the clean model: columns are computed, conditions are asked, and a row fails or goes on.

The first phase makes the model's fields of an input's, before anything needs a key; the second computes what is derived
of them, with what lists hold at that moment. Each row comes out once. One that failed has a code and a reason: the
first thing that is wrong with it, in the order of the model and then of the rules, so that it does not depend on the
rows beside it.

Promises: row by row; nothing raises on data. Refuses to know where rows come from and where they go.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt
import polars as pl

from headgate_etl import faults
from headgate_etl.columns import ROW, logical, physical
from headgate_etl.reasons import Reasons
from rulecore.lang import Column, Expr, columns
from rulecore.lang.compile import to_polars
from rulecore.lists.asked import ListColumn
from rulecore.lists.columns import with_list_columns
from rulecore.lists.content import ListContent
from streamcore.raw import ORIGIN
from streamcore.schema import DOUBLE, Type

#: Why a row failed, in two columns; null where it did not.
CODE, REASON = "@code", "@reason"
#: Prefixes under which a field is computed, and a rule asked, beside columns of the same name.
_NEW, _ASKED = "=", "?"
_ENGINE = "^__.*$"

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Computed:
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
        return self.expr.name if isinstance(self.expr, Column) and not self.lookups else None


@dataclass(frozen=True)
class Condition:
    """A rule: violated where it is false. Where it is unknown, it is not, as for SQL's CHECK."""

    name: str
    expr: Expr
    text: str
    lookups: tuple[ListColumn, ...] = ()


@dataclass(frozen=True)
class Phase:
    """``given``: the columns that come in; ``keeps``: those of them that stay. ``private``: columns whose values no
    reason shows."""

    given: Mapping[str, Type]
    fields: tuple[Computed, ...]
    rules: tuple[Condition, ...] = ()
    keeps: tuple[str, ...] = ()
    private: frozenset[str] = field(default_factory=frozenset)

    def __call__(self, rows: pl.DataFrame) -> pl.DataFrame:
        """As a step of a topology, without lists."""
        return self.run(rows, {})

    def run(self, rows: pl.DataFrame, contents: Mapping[str, ListContent]) -> pl.DataFrame:
        """The rows with the columns that stay, those that are new, and ``CODE`` and ``REASON``."""
        frame = physical(rows, self._reads)
        frame = with_list_columns(frame, [one for f in self.fields for one in f.lookups], contents)
        frame = frame.with_columns(to_polars(f.expr).alias(_NEW + f.name) for f in self.fields)
        found = First(rows.height)
        for number, one in enumerate(self.fields):
            self._check(number, one, frame, found)
        checked = self._checked(rows, frame, contents) if self.rules else frame
        for number, rule in enumerate(self.rules, len(self.fields)):
            found.mark(number, (~checked[_ASKED + rule.name].fill_null(value=True)).to_numpy(), f"rule:{rule.name}")
        made = [self._column(rows, frame, one) for one in self.fields]
        why = Reasons(self, frame, checked).of(found)
        kept = rows.select(*self.keeps, *(name for name in ORIGIN if name in rows.columns))
        return kept.with_columns(*made, *why).hstack(rows.select(_ENGINE))

    @cached_property
    def _reads(self) -> Mapping[str, Type]:
        used = [c for f in self.fields for c in (f.expr, *(one.operand for one in f.lookups))]
        used += [c for r in self.rules for c in (r.expr, *(one.operand for one in r.lookups))]
        names = frozenset().union(*(columns(expr) for expr in used))
        return {name: type_ for name, type_ in self.given.items() if name in names}

    def _check(self, number: int, one: Computed, frame: pl.DataFrame, found: First) -> None:
        """What is wrong with a field: a look-up without an answer, an expression that failed, null where that may not
        be."""
        column = frame[_NEW + one.name]
        null: Mask | None = column.is_null().to_numpy() if column.null_count() else None
        if one.type == DOUBLE and not (finite := column.is_finite().fill_null(value=True)).all():
            found.mark(number, ~finite.to_numpy(), "bad_value")
        if null is not None or not faults.is_strict(one.expr):
            if one.needed:
                found.mark(number, _failed(frame, one.expr, null, faults.not_in_list(one.needed)), "not_in_list")
            if faults.can_fail(one.expr):
                found.mark(number, _failed(frame, one.expr, null, faults.bad_value), "bad_value")
        if null is not None and not one.nullable:
            found.mark(number, null, "null_field")

    def _checked(self, rows: pl.DataFrame, frame: pl.DataFrame, contents: Mapping[str, ListContent]) -> pl.DataFrame:
        """The model's columns as rules ask them, and a column of each rule's answers."""
        model = {f.name: _NEW + f.name for f in self.fields}
        kept = physical(rows, {name: self.given[name] for name in self.keeps})
        named = kept.with_columns(frame[computed].alias(name) for name, computed in model.items())
        named = with_list_columns(named, [one for r in self.rules for one in r.lookups], contents)
        return named.with_columns(to_polars(r.expr).alias(_ASKED + r.name) for r in self.rules)

    def _column(self, rows: pl.DataFrame, frame: pl.DataFrame, one: Computed) -> pl.Series:
        source = one.same_as
        if source is not None:
            return rows[source].alias(one.name)
        return logical(frame[_NEW + one.name].alias(one.name), one.type)


class First:
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


def _failed(frame: pl.DataFrame, expr: Expr, null: Mask | None, own: faults.Own) -> Mask:
    """Rows on which it failed; where it is strict only those on which it is null are looked at."""
    if null is None or not faults.is_strict(expr):
        return _true(frame, faults.fault(expr, own))
    failed = np.zeros(frame.height, dtype=bool)
    failed[null] = _true(frame.filter(pl.Series(null)), faults.fault(expr, own))
    return failed


def _true(frame: pl.DataFrame, condition: pl.Expr) -> Mask:
    answers = frame.select(pl.col(ROW), condition.fill_null(value=False).alias("answer"))["answer"]
    mask: Mask = answers.to_numpy()
    return mask
