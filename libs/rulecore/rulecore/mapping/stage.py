"""A mapping stage: computes the fields of rows and checks the rules on them; a row passes or fails.

The app has two kinds of stages. The stage of an input maps the input's fields to those of the model, before any
shuffle. The derive stage computes the derived fields, with the current content of the lists. Each row is in the output
once. A failed row has the code and reason of its first error, in the order of the model's fields and then of the rules.

Promises: the result of a row does not depend on other rows, and no data raises an exception. Does not know where rows
come from and where they go.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

import numpy as np
import polars as pl

from rulecore.language import Expr, columns
from rulecore.language.columnar.compiler import to_polars
from rulecore.lists.content import ListContent
from rulecore.lists.fill_columns import with_list_columns
from rulecore.mapping import expression_errors
from rulecore.mapping.error_messages import ErrorMessages
from rulecore.mapping.physical_rows import ROW, to_physical
from rulecore.mapping.row_codes import RowCode
from rulecore.mapping.types import ComputedField, FirstError, MappingSpec, Mask
from streamcore.schema import DOUBLE, Type
from streamcore.topology.logical_types import to_logical_column
from streamcore.wire.raw import ORIGIN

#: Prefixes of the columns of computed fields and of rule results, which differ so from the input columns.
_FIELD, _RULE = "=", "?"
#: The engine's own columns, such as the event time.
_ENGINE_COLUMNS = "^__.*$"


class MappingStage(MappingSpec):
    """Runs a specification on frames, as a step of a topology or inside an operator."""

    def __call__(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Run the stage without lists, as a step of a topology."""
        return self.run(rows, {})

    def run(self, rows: pl.DataFrame, contents: Mapping[str, ListContent]) -> pl.DataFrame:
        """Return the rows with the kept columns, the new ones, and ``CODE`` and ``REASON``."""
        frame = to_physical(rows, self._reads)
        frame = with_list_columns(frame, [lookup for f in self.fields for lookup in f.lookups], contents)
        frame = frame.with_columns(to_polars(f.expr).alias(_FIELD + f.name) for f in self.fields)
        errors = FirstError(rows.height)
        for number, field in enumerate(self.fields):
            self._check(number, field, frame, errors)
        checked = self._evaluate_rules(rows, frame, contents) if self.rules else frame
        for number, rule in enumerate(self.rules, len(self.fields)):
            errors.mark(
                number, (~checked[_RULE + rule.name].fill_null(value=True)).to_numpy(), RowCode.RULE + rule.name
            )
        computed = [self._column(rows, frame, field) for field in self.fields]
        error_columns = ErrorMessages(self, frame, checked).write(errors)
        kept = rows.select(*self.keeps, *(name for name in ORIGIN if name in rows.columns))
        return kept.with_columns(*computed, *error_columns).hstack(rows.select(_ENGINE_COLUMNS))

    @cached_property
    def _reads(self) -> Mapping[str, Type]:
        """The types of the input columns that the expressions read."""
        exprs = [expr for f in self.fields for expr in (f.expr, *(lookup.operand for lookup in f.lookups))]
        exprs += [expr for r in self.rules for expr in (r.expr, *(lookup.operand for lookup in r.lookups))]
        names = frozenset().union(*(columns(expr) for expr in exprs))
        return {name: type_ for name, type_ in self.given.items() if name in names}

    def _check(self, number: int, field: ComputedField, frame: pl.DataFrame, errors: FirstError) -> None:
        """Mark the errors of a field: a needed lookup without a result, an expression that failed, null in a field that
        is not nullable."""
        column = frame[_FIELD + field.name]
        null: Mask | None = column.is_null().to_numpy() if column.null_count() else None
        if field.type == DOUBLE and not (finite := column.is_finite().fill_null(value=True)).all():
            errors.mark(number, ~finite.to_numpy(), RowCode.BAD_VALUE)
        if null is not None or not expression_errors.is_strict(field.expr):
            if field.needed:
                errors.mark(
                    number,
                    _failed_rows(frame, field.expr, null, expression_errors.not_in_list(field.needed)),
                    RowCode.NOT_IN_LIST,
                )
            if expression_errors.can_fail(field.expr):
                failed = _failed_rows(frame, field.expr, null, expression_errors.is_failed)
                errors.mark(number, failed, RowCode.BAD_VALUE)
        if null is not None and not field.nullable:
            errors.mark(number, null, RowCode.NULL_FIELD)

    def _evaluate_rules(
        self, rows: pl.DataFrame, frame: pl.DataFrame, contents: Mapping[str, ListContent]
    ) -> pl.DataFrame:
        """Return the columns that rules may read, as physical columns, and a column with each rule's results."""
        model = {f.name: _FIELD + f.name for f in self.fields}
        kept = to_physical(rows, {name: self.given[name] for name in self.keeps})
        named = kept.with_columns(frame[computed].alias(name) for name, computed in model.items())
        named = with_list_columns(named, [lookup for r in self.rules for lookup in r.lookups], contents)
        return named.with_columns(to_polars(r.expr).alias(_RULE + r.name) for r in self.rules)

    def _column(self, rows: pl.DataFrame, frame: pl.DataFrame, field: ComputedField) -> pl.Series:
        """Return the output column of a field. A plain copy is taken from ``rows``, without conversion."""
        if field.same_as is not None:
            return rows[field.same_as].alias(field.name)
        return to_logical_column(frame[_FIELD + field.name].alias(field.name), field.type)


def _failed_rows(
    frame: pl.DataFrame, expr: Expr, null: Mask | None, self_failure: expression_errors.SelfFailure
) -> Mask:
    """Return the rows on which the expression failed. For a strict expression only its null rows (``null``) are
    checked.
    """
    if null is None or not expression_errors.is_strict(expr):
        return _true_rows(frame, expression_errors.evaluation_error(expr, self_failure))
    failed = np.zeros(frame.height, dtype=bool)
    failed[null] = _true_rows(frame.filter(pl.Series(null)), expression_errors.evaluation_error(expr, self_failure))
    return failed


def _true_rows(frame: pl.DataFrame, condition: pl.Expr) -> Mask:
    # Selected with ROW, because a condition without columns would give a single row.
    results = frame.select(pl.col(ROW), condition.fill_null(value=False).alias("result"))["result"]
    mask: Mask = results.to_numpy()
    return mask
