"""The decoder of formats that are one line of text a record: CSV and access logs.

A ``LineFormat`` defines how a line falls into cells: ``one`` for a single line, which is the definition, and ``split``
for a column of lines, which vouches for those that it is sure of. Everything else is shared: sizes, UTF-8, the line's
end, types (``cells``), times and rejected records. One line end (LF or CRLF) at the end of a record is no part of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import polars as pl

from streamcore.decode.assembly import (
    BatchRecords,
    DecodedPart,
    Rows,
    assemble_events,
    decode_by_reference,
    read_records,
)
from streamcore.decode.reject_codes import DecodeLimits
from streamcore.decode.scalar.record import RejectedRecord, check_bytes, convert_values, decode_text
from streamcore.decode.scalar.values import RecordError, Scalar
from streamcore.decode.text.cells import ParsedCells, parse_cell, parse_cells
from streamcore.decode.types import Decoded, RawBatch
from streamcore.schema import StreamSchema
from streamcore.timestamps import load_zone


@dataclass(frozen=True, slots=True)
class SplitLines:
    """``matched``: the rows, ascending. ``cells``: of those, a column of text for each field that the format gives; or,
    of timestamps that it read itself, of epoch milliseconds, null where the reference must decide."""

    matched: Rows
    cells: Mapping[str, pl.Series]


class LineFormat(Protocol):
    """How a line falls into cells, by the names of the stream's fields. Fields without a cell are null."""

    @property
    def record_name(self) -> str:
        """The name of a record in messages."""
        ...

    def split_line(self, line: str) -> Mapping[str, str | None]:
        """Return the cells of one line; raise ``RecordError``."""
        ...

    def split_lines(self, lines: pl.Series) -> SplitLines:
        """Return the cells of those of the lines (null: not to be looked at) that this way reads as ``one`` does."""
        ...


def decode_line(
    schema: StreamSchema, lines: LineFormat, record: bytes | None, *, clock_ms: int, limits: DecodeLimits
) -> tuple[Scalar, ...] | RejectedRecord:
    """Return the physical values of the schema's fields, in order, or the rejection."""
    try:
        text = decode_text(check_bytes(record, limits, lines.record_name))
        cells = lines.split_line(without_line_end(text))
        found = {f.name: parse_cell(f, cells[f.name]) for f in schema.fields if f.name in cells}
        return convert_values(schema, found, clock_ms=clock_ms, zone=load_zone(schema.zone), limits=limits)
    except RecordError as refused:
        return RejectedRecord(refused.code, refused.reason)


def without_line_end(text: str) -> str:
    """Return the text without one LF or CRLF at its end."""
    return text.removesuffix("\n").removesuffix("\r") if text.endswith("\n") else text


class LineDecoder:
    """Decodes the lines of one stream."""

    def __init__(self, schema: StreamSchema, lines: LineFormat, limits: DecodeLimits) -> None:
        self._schema, self._lines, self._limits = schema, lines, limits
        load_zone(schema.zone)

    def decode(self, batch: RawBatch) -> Decoded:
        """See ``Decoder``. Events and rejected records are in the order of the batch."""
        records, parts = read_records(batch, self._limits), list[DecodedPart]()
        left = self._decode_matched(records, parts)
        dead = decode_by_reference(self._schema, records, left, self._decode_one, parts)
        return Decoded(assemble_events(self._schema, batch, parts), dead)

    def _decode_one(self, record: bytes | None, clock_ms: int) -> tuple[Scalar, ...] | RejectedRecord:
        return decode_line(self._schema, self._lines, record, clock_ms=clock_ms, limits=self._limits)

    def _decode_matched(self, records: BatchRecords, parts: list[DecodedPart]) -> Rows:
        """Decode the lines that the format vouches for into ``parts``; return the other rows."""
        every = np.arange(len(records.text))
        text = records.text
        if text.str.ends_with("\n").any():
            text = text.str.replace(r"\r?\n\z", "")
        try:
            split = self._lines.split_lines(text)
        except pl.exceptions.PolarsError:  # the parser sees what the pattern does not; the reference decides
            return every
        if not len(split.matched):
            return every
        columns, sure = self._columns(split, records.clock_ms + self._limits.max_future_ms)
        good = split.matched if sure.all() else split.matched[sure.to_numpy()]
        if len(good):
            parts.append(DecodedPart(good, columns if sure.all() else columns.filter(sure)))
        left = np.ones(len(every), dtype=np.bool_)
        left[good] = False
        return every[left]

    def _columns(self, split: SplitLines, latest_ms: int) -> tuple[pl.DataFrame, pl.Series]:
        nothing = pl.Series([None], dtype=pl.String).new_from_index(0, len(split.matched))
        columns: dict[str, pl.Series] = {}
        sure = nothing.is_null()
        for field in self._schema.fields:
            column = split.cells.get(field.name, nothing)
            if column.dtype == pl.Int64:
                cells = ParsedCells(column, column.is_not_null())
            else:
                cells = parse_cells(field, column, self._schema.zone)
            columns[field.name] = cells.values
            sure &= cells.sure if field.nullable else cells.sure & cells.values.is_not_null()
        sure &= (columns[self._schema.event_time] <= latest_ms).fill_null(value=False)
        return pl.DataFrame(columns), sure
