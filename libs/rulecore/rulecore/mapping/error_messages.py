"""Writes the reason of a failed row as a sentence: the field or rule that failed, and the values that it depends on.

Sentences are written for failed rows only. Values of private columns are replaced by ``***``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal

import numpy as np
import polars as pl

from rulecore.documents.message_template import format_value
from rulecore.documents.scalars import abbreviate
from rulecore.language import Expr, columns, to_logical
from rulecore.mapping.row_codes import RowCode
from rulecore.mapping.types import CODE, REASON, FirstError, MappingSpec
from streamcore.schema import TIMESTAMP, Type
from streamcore.timestamps import to_text

_HIDDEN = "***"


class ErrorMessages:
    """Writes the codes and reasons of failed rows.

    ``inputs``: the columns that the fields are computed from; ``checked``: the columns that the rules are evaluated on.
    Both have one row for each row of the stage.
    """

    def __init__(self, spec: MappingSpec, inputs: pl.DataFrame, checked: pl.DataFrame) -> None:
        self.spec, self.inputs, self.checked = spec, inputs, checked

    def write(self, errors: FirstError) -> tuple[pl.Series, pl.Series]:
        """Return the columns ``CODE`` and ``REASON``, null for rows without an error."""
        height = len(errors.number)
        failed = np.flatnonzero(errors.number >= 0)
        if not len(failed):
            nothing = pl.repeat(None, height, dtype=pl.String, eager=True)
            return nothing.alias(CODE), nothing.alias(REASON)
        codes = errors.codes()
        reasons: list[str | None] = [None] * height
        for row in failed.tolist():
            reasons[row] = self._sentence(int(errors.number[row]), codes[row] or "", row)
        return pl.Series(CODE, codes, dtype=pl.String), pl.Series(REASON, reasons, dtype=pl.String)

    def _sentence(self, number: int, code: str, row: int) -> str:
        """Return the reason of a row. ``number``: of the failed field, or, after all fields, of the failed rule."""
        fields = self.spec.fields
        if number >= len(fields):
            rule = self.spec.rules[number - len(fields)]
            kept = {name: self.spec.given[name] for name in self.spec.keeps}
            types = kept | {f.name: f.type for f in fields}
            exprs = [rule.expr, *(lookup.operand for lookup in rule.lookups)]
            return f"rule {rule.name}: {rule.text} is false{self._values(exprs, self.checked, types, row)}"
        field = fields[number]
        faults: dict[str, str] = {RowCode.NOT_IN_LIST: "is not in its list", RowCode.NULL_FIELD: "is null"}
        fault = faults.get(code, f"is no {field.type}")
        exprs = [field.expr, *(lookup.operand for lookup in field.lookups)]
        return f"field {field.name}: {field.text} {fault}{self._values(exprs, self.inputs, self.spec.given, row)}"

    def _values(self, exprs: Sequence[Expr], frame: pl.DataFrame, types: Mapping[str, Type], row: int) -> str:
        """Return `` for x = 1, y = null``: the row's values of the columns that the expressions read."""
        names = sorted(name for name in frozenset().union(*map(columns, exprs)) if name in types)
        values = frame.select(names)[row : row + 1].to_dicts()[0] if names else {}
        shown = [f"{name} = {self._format_value(name, value, types[name])}" for name, value in values.items()]
        return f" for {', '.join(shown)}" if shown else ""

    def _format_value(self, name: str, value: object, type_: Type) -> str:
        if value is None:
            return "null"
        if name in self.spec.private:
            return _HIDDEN
        if type_ == TIMESTAMP and isinstance(value, int):
            return to_text(value)
        shown = to_logical(value, type_)
        if type_.is_nested:
            return format_value(shown)
        return str(shown) if isinstance(shown, Decimal) else abbreviate(shown)
