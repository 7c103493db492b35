"""Explodes an array: a record becomes one row for each element, which the mapping stage maps as it does records.

A record is all or nothing: if a row fails, the record is one dead letter with the first failure, and none of its rows
goes on, so that the record can be corrected and sent again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import polars as pl

from rulecore.mapping.row_codes import RowCode
from rulecore.mapping.stage import MappingStage
from rulecore.mapping.types import CODE, REASON
from streamcore.schema import LONG, Type

#: The number of the record that a row is from. No field can have this name.
_RECORD = "__record"


@dataclass(frozen=True)
class Explode:
    """How records become rows.

    ``field``: the array; ``element`` and ``position``: the columns of the element and of its number, from 0.
    ``keeps_empty``: whether an array without elements, or NULL, gives a row with NULL for both. ``max_elements``: of a
    record.
    """

    field: str
    element: str
    position: str
    keeps_empty: bool
    max_elements: int

    def add_types(self, given: Mapping[str, Type]) -> dict[str, Type]:
        """Return the types of the columns with those of element and position."""
        return {**given, self.element: given[self.field].items, self.position: LONG}


@dataclass(frozen=True)
class ExplodingStage:
    """Explodes records and maps their rows, as a step of a topology."""

    explode: Explode
    mapping: MappingStage

    def __call__(self, records: pl.DataFrame) -> pl.DataFrame:
        """Return the mapped rows of the records, in their order; one row, the failed one, of a record that failed."""
        counts = records[self.explode.field].list.len().fill_null(0)
        numbered = records.with_columns(pl.int_range(pl.len(), dtype=pl.Int64).alias(_RECORD))
        rows = self._rows(numbered.filter(counts <= self.explode.max_elements))
        mapped = self._map(rows)
        large = numbered.filter(counts > self.explode.max_elements)
        if large.height:
            mapped = pl.concat([mapped, self._reject(large, counts.filter(counts > self.explode.max_elements))])
            mapped = mapped.sort(_RECORD, maintain_order=True)
        return mapped.drop(_RECORD)

    def _rows(self, records: pl.DataFrame) -> pl.DataFrame:
        """Return the rows of the records: their columns, the element and its position."""
        array = pl.col(self.explode.field)
        counts = array.list.len().fill_null(0).cast(pl.Int64)
        if not self.explode.keeps_empty:
            records = records.filter(counts > 0)
        numbered = records.with_columns(pl.when(counts > 0).then(pl.int_ranges(counts)).alias(self.explode.position))
        elements = [pl.col(self.explode.position), pl.when(counts > 0).then(array).alias(self.explode.element)]
        split = numbered.select(_RECORD, *elements).explode(self.explode.position, self.explode.element)
        rest = records[records[_RECORD].search_sorted(split[_RECORD])] if split.height else records.clear()
        return rest.with_columns(split[self.explode.element], split[self.explode.position])

    def _map(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Map the rows; of a record with a failed one, keep the first failed one only."""
        mapped = self.mapping(rows)
        failed = mapped[CODE].is_not_null()
        if not failed.any():
            return mapped
        position = rows[self.explode.position].cast(pl.String)
        where = pl.concat_str([pl.lit(f"{self.explode.field}["), position, pl.lit("]: "), pl.col(REASON)])
        mapped = mapped.with_columns(pl.when(failed).then(where).otherwise(pl.col(REASON)).alias(REASON))
        broken = mapped[_RECORD].is_in(mapped[_RECORD].filter(failed).unique().implode())
        first = mapped.filter(failed).unique(_RECORD, keep="first", maintain_order=True)
        return pl.concat([mapped.filter(~broken), first]).sort(_RECORD, maintain_order=True)

    def _reject(self, records: pl.DataFrame, counts: pl.Series) -> pl.DataFrame:
        """Return a failed row for each record with too many elements."""
        none = records.with_columns(
            pl.lit(None, records.schema[self.explode.field].inner).alias(self.explode.element),  # type: ignore[attr-defined]
            pl.lit(None, pl.Int64).alias(self.explode.position),
        )
        reasons = [
            f"field {self.explode.field}: {count} elements; at most {self.explode.max_elements} become rows "
            "(explode.max_elements)"
            for count in counts.to_list()
        ]
        return self.mapping(none).with_columns(
            pl.lit(RowCode.TOO_MANY_ELEMENTS.value).alias(CODE), pl.Series(REASON, reasons, dtype=pl.String)
        )
