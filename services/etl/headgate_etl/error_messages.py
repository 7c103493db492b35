"""The reason why a row failed, in a sentence: the condition, and the values that it was checked on.

Built only for rows that failed. Values of private columns are not shown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal

import numpy as np
import polars as pl

from headgate_etl.mapping_types import CODE, REASON, FirstError, MappingSpec
from headgate_etl.row_codes import RowCode
from rulecore.documents.scalars import abbreviate
from rulecore.language import Expr, columns, to_logical
from streamcore.schema import TIMESTAMP, Type
from streamcore.timestamps import to_text

_HIDDEN = "***"


class ErrorMessages:
    """``frame``: the inputs of the computed fields; ``checked``: the rows that the rules were checked on."""

    def __init__(self, phase: MappingSpec, frame: pl.DataFrame, checked: pl.DataFrame) -> None:
        self.phase, self.frame, self.checked = phase, frame, checked

    def of(self, found: FirstError) -> tuple[pl.Series, pl.Series]:
        """Build the columns of codes and reasons."""
        height = len(found.number)
        failed = np.flatnonzero(found.number >= 0)
        if not len(failed):
            nothing = pl.repeat(None, height, dtype=pl.String, eager=True)
            return nothing.alias(CODE), nothing.alias(REASON)
        codes = found.codes()
        reasons: list[str | None] = [None] * height
        for row in failed.tolist():
            reasons[row] = self._sentence(int(found.number[row]), codes[row] or "", row)
        return pl.Series(CODE, codes, dtype=pl.String), pl.Series(REASON, reasons, dtype=pl.String)

    def _sentence(self, number: int, code: str, row: int) -> str:
        fields = self.phase.fields
        if number >= len(fields):
            rule = self.phase.rules[number - len(fields)]
            kept = {name: self.phase.given[name] for name in self.phase.keeps}
            types = kept | {f.name: f.type for f in fields}
            asked = [rule.expr, *(one.operand for one in rule.lookups)]
            return f"rule {rule.name}: {rule.text} is false{self._values(asked, self.checked, types, row)}"
        one = fields[number]
        faults: dict[str, str] = {RowCode.NOT_IN_LIST: "is not in its list", RowCode.NULL_FIELD: "is null"}
        fault = faults.get(code, f"is no {one.type}")
        asked = [one.expr, *(look.operand for look in one.lookups)]
        return f"field {one.name}: {one.text} {fault}{self._values(asked, self.frame, self.phase.given, row)}"

    def _values(self, asked: Sequence[Expr], frame: pl.DataFrame, types: Mapping[str, Type], row: int) -> str:
        names = sorted(name for name in frozenset().union(*map(columns, asked)) if name in types)
        shown = [f"{name} = {self._format_value(name, frame[name][row], types[name])}" for name in names]
        return f" for {', '.join(shown)}" if shown else ""

    def _format_value(self, name: str, value: object, type_: Type) -> str:
        if value is None:
            return "null"
        if name in self.phase.private:
            return _HIDDEN
        if type_ == TIMESTAMP and isinstance(value, int):
            return to_text(value)
        assert isinstance(value, bool | int | float | str)
        shown = to_logical(value, type_)
        return str(shown) if isinstance(shown, Decimal) else abbreviate(shown)
