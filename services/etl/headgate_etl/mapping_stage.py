"""One phase of the way to the clean model: columns are computed, conditions are asked, and a row fails or goes on.

The first phase maps the fields of an input to those of the model, before anything needs a key; the second computes the
derived fields, with the content of the lists at that moment. Each row comes out once. A failed row has a code and a
reason: its first problem, in the order of the model and then of the rules, so that the reason does not depend on the
rows beside it.

Promises: row by row; nothing raises on data. Does not know where rows come from and where they go.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

import numpy as np
import polars as pl

from headgate_etl import expression_errors
from headgate_etl.columns import ROW, to_logical, to_physical
from headgate_etl.error_messages import ErrorMessages
from headgate_etl.mapping_types import ComputedField, FirstError, MappingSpec, Mask
from headgate_etl.row_codes import RowCode
from rulecore.language import Expr, columns
from rulecore.language.columnar.compiler import to_polars
from rulecore.lists.content import ListContent
from rulecore.lists.fill_columns import with_list_columns
from streamcore.schema import DOUBLE, Type
from streamcore.wire.raw import ORIGIN

#: Prefixes under which a field is computed, and a rule asked, beside columns of the same name.
_NEW, _ASKED = "=", "?"
_ENGINE = "^__.*$"


class MappingStage(MappingSpec):
    """The phase of a specification, as a step of a topology or of an operator."""

    def __call__(self, rows: pl.DataFrame) -> pl.DataFrame:
        """As a step of a topology, without lists."""
        return self.run(rows, {})

    def run(self, rows: pl.DataFrame, contents: Mapping[str, ListContent]) -> pl.DataFrame:
        """Return the rows with the kept columns, the new ones, and ``CODE`` and ``REASON``."""
        frame = to_physical(rows, self._reads)
        frame = with_list_columns(frame, [one for f in self.fields for one in f.lookups], contents)
        frame = frame.with_columns(to_polars(f.expr).alias(_NEW + f.name) for f in self.fields)
        found = FirstError(rows.height)
        for number, one in enumerate(self.fields):
            self._check(number, one, frame, found)
        checked = self._evaluate_rules(rows, frame, contents) if self.rules else frame
        for number, rule in enumerate(self.rules, len(self.fields)):
            found.mark(
                number, (~checked[_ASKED + rule.name].fill_null(value=True)).to_numpy(), RowCode.RULE + rule.name
            )
        made = [self._column(rows, frame, one) for one in self.fields]
        why = ErrorMessages(self, frame, checked).of(found)
        kept = rows.select(*self.keeps, *(name for name in ORIGIN if name in rows.columns))
        return kept.with_columns(*made, *why).hstack(rows.select(_ENGINE))

    @cached_property
    def _reads(self) -> Mapping[str, Type]:
        used = [c for f in self.fields for c in (f.expr, *(one.operand for one in f.lookups))]
        used += [c for r in self.rules for c in (r.expr, *(one.operand for one in r.lookups))]
        names = frozenset().union(*(columns(expr) for expr in used))
        return {name: type_ for name, type_ in self.given.items() if name in names}

    def _check(self, number: int, one: ComputedField, frame: pl.DataFrame, found: FirstError) -> None:
        """Mark the errors of a field: a look-up without a result, an expression that failed, null in a field that is
        not nullable."""
        column = frame[_NEW + one.name]
        null: Mask | None = column.is_null().to_numpy() if column.null_count() else None
        if one.type == DOUBLE and not (finite := column.is_finite().fill_null(value=True)).all():
            found.mark(number, ~finite.to_numpy(), RowCode.BAD_VALUE)
        if null is not None or not expression_errors.is_strict(one.expr):
            if one.needed:
                found.mark(
                    number,
                    _failed_rows(frame, one.expr, null, expression_errors.not_in_list(one.needed)),
                    RowCode.NOT_IN_LIST,
                )
            if expression_errors.can_fail(one.expr):
                found.mark(number, _failed_rows(frame, one.expr, null, expression_errors.is_failed), RowCode.BAD_VALUE)
        if null is not None and not one.nullable:
            found.mark(number, null, RowCode.NULL_FIELD)

    def _evaluate_rules(
        self, rows: pl.DataFrame, frame: pl.DataFrame, contents: Mapping[str, ListContent]
    ) -> pl.DataFrame:
        """Return the model's columns as rules see them, and a column of each rule's results."""
        model = {f.name: _NEW + f.name for f in self.fields}
        kept = to_physical(rows, {name: self.given[name] for name in self.keeps})
        named = kept.with_columns(frame[computed].alias(name) for name, computed in model.items())
        named = with_list_columns(named, [one for r in self.rules for one in r.lookups], contents)
        return named.with_columns(to_polars(r.expr).alias(_ASKED + r.name) for r in self.rules)

    def _column(self, rows: pl.DataFrame, frame: pl.DataFrame, one: ComputedField) -> pl.Series:
        source = one.same_as
        if source is not None:
            return rows[source].alias(one.name)
        return to_logical(frame[_NEW + one.name].alias(one.name), one.type)


def _failed_rows(
    frame: pl.DataFrame, expr: Expr, null: Mask | None, self_failure: expression_errors.SelfFailure
) -> Mask:
    """Rows on which it failed; where it is strict only those on which it is null are looked at."""
    if null is None or not expression_errors.is_strict(expr):
        return _true_rows(frame, expression_errors.evaluation_error(expr, self_failure))
    failed = np.zeros(frame.height, dtype=bool)
    failed[null] = _true_rows(frame.filter(pl.Series(null)), expression_errors.evaluation_error(expr, self_failure))
    return failed


def _true_rows(frame: pl.DataFrame, condition: pl.Expr) -> Mask:
    answers = frame.select(pl.col(ROW), condition.fill_null(value=False).alias("answer"))["answer"]
    mask: Mask = answers.to_numpy()
    return mask
