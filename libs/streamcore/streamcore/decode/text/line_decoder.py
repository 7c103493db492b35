"""The decoder of formats whose records are one line of text: CSV and access logs.

A ``LineFormat`` splits lines into cells: ``split_line`` splits one line and is the reference, ``split_lines`` splits
those of a column of lines that its pattern matches. All else is common to the formats: sizes, UTF-8, types (``cells``),
times and rejected records. A line end (LF or CRLF) at the end of a record is not part of the line.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import polars as pl

from streamcore.decode.assembly import (
    DecodedPart,
    Rows,
    TextRecords,
    assemble_events,
    decode_by_reference,
    read_records,
)
from streamcore.decode.reject_codes import DecodeLimits, TimeBounds
from streamcore.decode.scalar.record import RejectedRecord, check_bytes, convert_values, decode_text
from streamcore.decode.scalar.values import Physical, RecordError, parse_cell
from streamcore.decode.text.cells import ParsedCells, parse_cells
from streamcore.decode.types import Decoded, RawBatch
from streamcore.schema import StreamSchema
from streamcore.timestamps import load_zone


@dataclass(frozen=True, slots=True)
class SplitLines:
    """The cells of the lines that the pattern of a format matches.

    ``matched``: the rows of these lines, ascending. ``cells``: by field, a column of text with a cell for each of these
    rows; or, of a timestamp that the format has parsed, epoch milliseconds, null where the reference must decide.
    """

    matched: Rows
    cells: Mapping[str, pl.Series]


class LineFormat(Protocol):
    """Splits lines into cells, by the names of the stream's fields. Fields without a cell are null."""

    @property
    def record_name(self) -> str:
        """The name of a record in messages."""
        ...

    def split_line(self, line: str) -> Mapping[str, str | None]:
        """Return the cells of one line; raise ``RecordError``."""
        ...

    def split_lines(self, lines: pl.Series) -> SplitLines:
        """Return the cells of the lines that are sure to have the cells of ``split_line``; null lines never match."""
        ...


def decode_line(
    schema: StreamSchema, lines: LineFormat, record: bytes | None, *, clock_ms: int, limits: DecodeLimits
) -> tuple[Physical, ...] | RejectedRecord:
    """Decode one record (the reference): return the values of the schema's fields, in order, or the rejection."""
    try:
        text = decode_text(check_bytes(record, limits, lines.record_name))
        cells = lines.split_line(without_line_end(text))
        values = {f.name: parse_cell(f, cells[f.name]) for f in schema.fields if f.name in cells}
        return convert_values(schema, values, clock_ms=clock_ms, zone=load_zone(schema.zone), limits=limits)
    except RecordError as error:
        return RejectedRecord(error.code, error.reason)


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
        undecoded = self._decode_matched(records, parts)
        dead = decode_by_reference(self._schema, records, undecoded, self._decode_one, parts)
        return Decoded(assemble_events(self._schema, batch, parts), dead)

    def _decode_one(self, record: bytes | None, clock_ms: int) -> tuple[Physical, ...] | RejectedRecord:
        return decode_line(self._schema, self._lines, record, clock_ms=clock_ms, limits=self._limits)

    def _decode_matched(self, records: TextRecords, parts: list[DecodedPart]) -> Rows:
        """Decode the lines that the format matches into ``parts``; return the other rows."""
        rows = np.arange(len(records.text))
        text = records.text
        if text.str.ends_with("\n").any():
            text = text.str.replace(r"\r?\n\z", "")
        try:
            split = self._lines.split_lines(text)
        except pl.exceptions.PolarsError:  # the parser rejects a line that the pattern matches; the reference decides
            return rows
        if not len(split.matched):
            return rows
        columns, sure = self._columns(split, TimeBounds.of(self._limits, records.clock_ms))
        decoded = split.matched if sure.all() else split.matched[sure.to_numpy()]
        if len(decoded):
            parts.append(DecodedPart.from_frame(decoded, columns if sure.all() else columns.filter(sure)))
        undecoded = np.ones(len(rows), dtype=np.bool_)
        undecoded[decoded] = False
        return rows[undecoded]

    def _columns(self, split: SplitLines, bounds: TimeBounds) -> tuple[pl.DataFrame, pl.Series]:
        """Return the columns of the matched lines, and a Boolean column: False where the reference must decide."""
        nulls = pl.Series([None], dtype=pl.String).new_from_index(0, len(split.matched))
        columns: dict[str, pl.Series] = {}
        sure = nulls.is_null()
        for field in self._schema.fields:
            column = split.cells.get(field.name, nulls)
            if column.dtype == pl.Int64:
                cells = ParsedCells(column, column.is_not_null())
            else:
                cells = parse_cells(field, column, self._schema.zone)
            columns[field.name] = cells.values
            sure &= cells.sure if field.nullable else cells.sure & cells.values.is_not_null()
        if self._schema.event_time:
            sure &= bounds.contain(columns[self._schema.event_time]).fill_null(value=False)
        return pl.DataFrame(columns), sure
