"""The decoder of formats that are one line of text a record: CSV and access logs.

A ``LineFormat`` says how a line falls into cells: ``one`` for a single line, which is the definition, and ``split`` for
a column of lines, which vouches for those that it is sure of. Everything else is shared: sizes, UTF-8, the line's end,
types (``cells``), times and dead letters. One line end (LF or CRLF) at the end of a record is no part of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import polars as pl

from streamcore.decode.assembly import Part, Records, Rows, decode_each, events_of, records_of
from streamcore.decode.batch import Decoded, RawBatch
from streamcore.decode.cells import Cells, parse_cells, written
from streamcore.records.record import Rejected, bytes_of, text_of, values_of
from streamcore.records.scalars import RecordError, Scalar
from streamcore.records.terms import DecodeLimits
from streamcore.schema import StreamSchema
from streamcore.times import zone_of


@dataclass(frozen=True, slots=True)
class Split:
    """``vouched``: the rows, ascending. ``cells``: of those, a column of text for each field that the format gives; or,
    of timestamps that it read itself, of epoch milliseconds, null where the reference must decide."""

    vouched: Rows
    cells: Mapping[str, pl.Series]


class LineFormat(Protocol):
    """How a line falls into cells, by the names of the stream's fields. Fields without a cell are null."""

    @property
    def accepted(self) -> str:
        """What a record is, in messages."""
        ...

    def one(self, line: str) -> Mapping[str, str | None]:
        """The cells of one line; raises ``RecordError``."""
        ...

    def split(self, lines: pl.Series) -> Split:
        """The cells of those of the lines (null: not to be looked at) that this way reads as ``one`` does."""
        ...


def decode_line(
    schema: StreamSchema, lines: LineFormat, record: bytes | None, *, clock_ms: int, limits: DecodeLimits
) -> tuple[Scalar, ...] | Rejected:
    """The physical values of the schema's fields, in order, or the rejection."""
    try:
        text = text_of(bytes_of(record, limits, lines.accepted))
        cells = lines.one(without_line_end(text))
        found = {f.name: written(f, cells[f.name]) for f in schema.fields if f.name in cells}
        return values_of(schema, found, clock_ms=clock_ms, zone=zone_of(schema.zone), limits=limits)
    except RecordError as refused:
        return Rejected(refused.code, refused.reason)


def without_line_end(text: str) -> str:
    """The text without one LF or CRLF at its end."""
    return text.removesuffix("\n").removesuffix("\r") if text.endswith("\n") else text


class LineDecoder:
    """Decodes the lines of one stream."""

    def __init__(self, schema: StreamSchema, lines: LineFormat, limits: DecodeLimits) -> None:
        self._schema, self._lines, self._limits = schema, lines, limits
        zone_of(schema.zone)

    def decode(self, batch: RawBatch) -> Decoded:
        """See ``Decoder``. Events and dead letters are in the order of the batch."""
        records, parts = records_of(batch, self._limits), list[Part]()
        left = self._decode_vouched(records, parts)
        dead = decode_each(self._schema, records, left, self._decode_one, parts)
        return Decoded(events_of(self._schema, batch, parts), dead)

    def _decode_one(self, record: bytes | None, clock_ms: int) -> tuple[Scalar, ...] | Rejected:
        return decode_line(self._schema, self._lines, record, clock_ms=clock_ms, limits=self._limits)

    def _decode_vouched(self, records: Records, parts: list[Part]) -> Rows:
        """Decodes what the format vouches for into ``parts``; returns the other rows."""
        every = np.arange(len(records.text))
        text = records.text
        if text.str.ends_with("\n").any():
            text = text.str.replace(r"\r?\n\z", "")
        try:
            split = self._lines.split(text)
        except pl.exceptions.PolarsError:  # the parser sees what the pattern does not; the reference decides
            return every
        if not len(split.vouched):
            return every
        columns, sure = self._columns(split, records.clock_ms + self._limits.max_future_ms)
        good = split.vouched if sure.all() else split.vouched[sure.to_numpy()]
        if len(good):
            parts.append(Part(good, columns if sure.all() else columns.filter(sure)))
        left = np.ones(len(every), dtype=np.bool_)
        left[good] = False
        return every[left]

    def _columns(self, split: Split, latest_ms: int) -> tuple[pl.DataFrame, pl.Series]:
        nothing = pl.Series([None], dtype=pl.String).new_from_index(0, len(split.vouched))
        columns: dict[str, pl.Series] = {}
        sure = nothing.is_null()
        for field in self._schema.fields:
            column = split.cells.get(field.name, nothing)
            if column.dtype == pl.Int64:
                cells = Cells(column, column.is_not_null())
            else:
                cells = parse_cells(field, column, self._schema.zone)
            columns[field.name] = cells.values
            sure &= cells.sure if field.nullable else cells.sure & cells.values.is_not_null()
        sure &= (columns[self._schema.event_time] <= latest_ms).fill_null(value=False)
        return pl.DataFrame(columns), sure
