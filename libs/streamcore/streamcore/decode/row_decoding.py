"""Decodes some rows of a batch: what the decoders of records of several schemas are made of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamcore.decode.assembly import BatchRecords, DecodedPart, Rows, assemble_events
from streamcore.decode.record_starts import RecordStarts
from streamcore.decode.types import Decoded, RawBatch
from streamcore.schema import StreamSchema


class RowsDecoder(Protocol):
    """Decodes some of the records of a batch."""

    def decode_rows(
        self, records: BatchRecords, starts: RecordStarts, rows: Rows, parts: list[DecodedPart]
    ) -> pa.Table:
        """Decode the records in ``rows`` (ascending): append their values to ``parts``, and return the rejected ones
        (``DEAD_SCHEMA``)."""
        ...


def decode_all(schema: StreamSchema, decoder: RowsDecoder, batch: RawBatch) -> Decoded:
    """Decode all records of a batch."""
    records, parts = BatchRecords.from_batch(batch), list[DecodedPart]()
    dead = decoder.decode_rows(records, RecordStarts(records.data), np.arange(len(batch)), parts)
    return Decoded(assemble_events(schema, batch, parts), dead)


def add_part(parts: list[DecodedPart], rows: Rows, sure: npt.NDArray[np.bool_], columns: pa.Table) -> None:
    """Append the columns of those of the ``rows`` that are sure, if there are any."""
    sure_rows = rows if sure.all() else rows[sure]
    if len(sure_rows):
        parts.append(DecodedPart(sure_rows, columns))


def rows_without(rows: Rows, parts: Sequence[DecodedPart]) -> Rows:
    """Return those of the ``rows`` that are in none of the parts, which have no others."""
    if sum(len(part.rows) for part in parts) == len(rows):
        return rows[:0]
    return np.setdiff1d(rows, np.concatenate([rows[:0], *(part.rows for part in parts)]), assume_unique=True)
