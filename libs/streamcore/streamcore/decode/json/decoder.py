"""Decodes JSON records: by a compiled walk through their bytes, and by the reference where the walk is not sure.

::

    records ─▶ walk ─▶ columns ─▶ events
                │ invalid, or not sure
                └─▶ reference ─▶ events or dead letters
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from streamcore.decode.assembly import BatchRecords, DecodedPart, assemble_events, decode_by_reference
from streamcore.decode.reject_codes import DecodeLimits, ExtraFields
from streamcore.decode.scalar.json import decode_one
from streamcore.decode.scalar.record import RejectedRecord
from streamcore.decode.scalar.values import Scalar
from streamcore.decode.types import Decoded, RawBatch
from streamcore.schema import StreamSchema
from streamcore.timestamps import load_zone

if TYPE_CHECKING:
    from streamcore.decode.walk.decoder import RecordWalk


class JsonDecoder:
    """Decodes the JSON records of one stream (see the package for the accepted records)."""

    def __init__(
        self,
        schema: StreamSchema,
        *,
        limits: DecodeLimits | None = None,
        extra_fields: ExtraFields = ExtraFields.REJECT,
    ) -> None:
        self._schema = schema
        self._limits = limits or DecodeLimits()
        self._extra_fields = ExtraFields(extra_fields)
        self._zone = load_zone(schema.zone)

    def decode(self, batch: RawBatch) -> Decoded:
        """See ``Decoder``. Events and rejected records are in the order of the batch."""
        records = BatchRecords(batch.values.cast(pa.large_binary()), batch.clock_ms)
        walked = self._walk.decode(records.data, records.clock_ms)
        parts = [DecodedPart(np.flatnonzero(walked.sure), walked.columns)]
        dead = decode_by_reference(self._schema, records, np.flatnonzero(~walked.sure), self._decode_one, parts)
        return Decoded(assemble_events(self._schema, batch, parts), dead)

    @functools.cached_property
    def _walk(self) -> RecordWalk:
        """The walk. Its compiler is loaded by the process that decodes, and not by one that only plans."""
        from streamcore.decode.walk.decoder import RecordWalk

        return RecordWalk(self._schema, self._zone, self._limits, self._extra_fields)

    def _decode_one(self, record: bytes | None, clock_ms: int) -> tuple[Scalar, ...] | RejectedRecord:
        return decode_one(
            self._schema,
            record,
            clock_ms=clock_ms,
            zone=self._zone,
            limits=self._limits,
            extra_fields=self._extra_fields,
        )
