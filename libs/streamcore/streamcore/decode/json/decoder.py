"""Decodes JSON records: by a compiled walk through their bytes, and by the reference where the walk is not sure.

::

    records ─▶ walk ─▶ columns ─▶ events
                │ invalid, or not sure
                └─▶ reference ─▶ events or dead letters
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import pyarrow as pa

from streamcore.decode.assembly import BatchRecords, DecodedPart, Rows
from streamcore.decode.json.reference import JsonReference
from streamcore.decode.record_starts import RecordStarts
from streamcore.decode.reject_codes import DecodeLimits, ExtraFields
from streamcore.decode.row_decoding import add_part, decode_all
from streamcore.decode.types import Decoded, RawBatch
from streamcore.schema import StreamSchema

if TYPE_CHECKING:
    from streamcore.decode.walk.decoder import RecordWalk


class JsonDecoder:
    """Decodes the JSON records of one stream (see the package for the accepted records). ``prefix_bytes``: those before
    each record."""

    def __init__(
        self,
        schema: StreamSchema,
        *,
        limits: DecodeLimits | None = None,
        extra_fields: ExtraFields = ExtraFields.REJECT,
        prefix_bytes: int = 0,
    ) -> None:
        self._prefix_bytes = prefix_bytes
        self._reference = JsonReference(schema, limits=limits, extra_fields=extra_fields)

    def decode(self, batch: RawBatch) -> Decoded:
        """See ``Decoder``. Events and rejected records are in the order of the batch."""
        return decode_all(self._reference.schema, self, batch)

    def decode_rows(
        self, records: BatchRecords, starts: RecordStarts, rows: Rows, parts: list[DecodedPart]
    ) -> pa.Table:
        """See ``RowsDecoder``."""
        valid = starts.lengths[rows] >= self._prefix_bytes
        begins, ends = starts.places(rows, self._prefix_bytes)
        walked = self._walk.decode(starts.content, begins, ends, valid, records.clock_ms, records.fields)
        add_part(parts, rows, walked.sure, walked.columns)
        return self._reference.decode_rows(records, rows[~walked.sure], parts, self._prefix_bytes)

    @functools.cached_property
    def _walk(self) -> RecordWalk:
        """The walk. Its compiler is loaded by the process that decodes, and not by one that only plans."""
        from streamcore.decode.walk.decoder import RecordWalk

        reference = self._reference
        return RecordWalk(reference.schema, reference.zone, reference.limits, reference.extra_fields)
