"""A mapping stage: computes the fields of rows and checks the rules on them; a row passes or fails.

The app has two kinds of stages. The stage of an input maps the input's fields to those of the model, before any
shuffle. The derive stage computes the derived fields, with the current content of the lists. Each row is in the output
once. A failed row has the code and reason of its first error, in the order of the model's fields and then of the rules.

Promises: the result of a row does not depend on other rows, and no data raises an exception. Does not know where rows
come from and where they go.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property

import numpy as np
import polars as pl

from rulecore.language import columns
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
        frame = frame.with_columns(compiled.value for compiled in self._compiled_fields)
        errors = FirstError(rows.height)
        for number, (field, compiled) in enumerate(zip(self.fields, self._compiled_fields, strict=True)):
            _check(number, field, compiled, frame, errors)
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

    @cached_property
    def _compiled_fields(self) -> Sequence[_CompiledField]:
        return [_CompiledField.compile(field) for field in self.fields]

    @cached_property
    def _compiled_rules(self) -> Sequence[pl.Expr]:
        return [to_polars(rule.expr).alias(_RULE + rule.name) for rule in self.rules]

    def __getstate__(self) -> Mapping[str, object]:
        """Return the specification alone: each process compiles it once."""
        return {one.name: getattr(self, one.name) for one in fields(self)}

    def _evaluate_rules(
        self, rows: pl.DataFrame, frame: pl.DataFrame, contents: Mapping[str, ListContent]
    ) -> pl.DataFrame:
        """Return the columns that rules may read, as physical columns, and a column with each rule's results."""
        model = {f.name: _FIELD + f.name for f in self.fields}
        kept = to_physical(rows, {name: self.given[name] for name in self.keeps})
        named = kept.with_columns(frame[computed].alias(name) for name, computed in model.items())
        named = with_list_columns(named, [lookup for r in self.rules for lookup in r.lookups], contents)
        return named.with_columns(self._compiled_rules)

    def _column(self, rows: pl.DataFrame, frame: pl.DataFrame, field: ComputedField) -> pl.Series:
        """Return the output column of a field. A plain copy is taken from ``rows``, without conversion."""
        if field.same_as is not None:
            return rows[field.same_as].alias(field.name)
        return to_logical_column(frame[_FIELD + field.name].alias(field.name), field.type)


@dataclass(frozen=True)
class _CompiledField:
    """The column of a field, and the conditions that it failed: None if it cannot. To compile them takes far longer
    than a cut of few rows. ``strict``: only rows with null can have failed.
    """

    value: pl.Expr
    strict: bool
    not_in_list: pl.Expr | None
    failed: pl.Expr | None

    @classmethod
    def compile(cls, field: ComputedField) -> _CompiledField:
        expr, needed = field.expr, expression_errors.not_in_list(field.needed)
        return cls(
            to_polars(expr).alias(_FIELD + field.name),
            expression_errors.is_strict(expr),
            expression_errors.evaluation_error(expr, needed) if field.needed else None,
            expression_errors.evaluation_error(expr) if expression_errors.can_fail(expr) else None,
        )


def _check(
    number: int, field: ComputedField, compiled: _CompiledField, frame: pl.DataFrame, errors: FirstError
) -> None:
    """Mark the errors of a field: a needed lookup without a result, an expression that failed, null in a field that
    is not nullable."""
    column = frame[_FIELD + field.name]
    null: Mask | None = column.is_null().to_numpy() if column.null_count() else None
    if field.type == DOUBLE and not (finite := column.is_finite().fill_null(value=True)).all():
        errors.mark(number, ~finite.to_numpy(), RowCode.BAD_VALUE)
    if null is not None or not compiled.strict:
        checked = null if compiled.strict else None
        if compiled.not_in_list is not None:
            errors.mark(number, _failed_rows(frame, compiled.not_in_list, checked), RowCode.NOT_IN_LIST)
        if compiled.failed is not None:
            errors.mark(number, _failed_rows(frame, compiled.failed, checked), RowCode.BAD_VALUE)
    if null is not None and not field.nullable:
        errors.mark(number, null, RowCode.NULL_FIELD)


def _failed_rows(frame: pl.DataFrame, failed: pl.Expr, checked: Mask | None) -> Mask:
    """Return the rows for which the condition holds, of all rows or of those in ``checked``."""
    if checked is None:
        return _true_rows(frame, failed)
    found = np.zeros(frame.height, dtype=bool)
    found[checked] = _true_rows(frame.filter(pl.Series(checked)), failed)
    return found


def _true_rows(frame: pl.DataFrame, condition: pl.Expr) -> Mask:
    # Selected with ROW, because a condition without columns would give a single row.
    results = frame.select(pl.col(ROW), condition.fill_null(value=False).alias("result"))["result"]
    mask: Mask = results.to_numpy()
    return mask
