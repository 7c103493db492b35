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

from streamcore.decode.assembly import BatchRecords, DecodedPart, assemble_events
from streamcore.decode.json.reference import JsonReference
from streamcore.decode.reject_codes import DecodeLimits, ExtraFields
from streamcore.decode.types import Decoded, RawBatch
from streamcore.schema import StreamSchema

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
        self._reference = JsonReference(schema, limits=limits, extra_fields=extra_fields)

    def decode(self, batch: RawBatch) -> Decoded:
        """See ``Decoder``. Events and rejected records are in the order of the batch."""
        records = BatchRecords.from_batch(batch)
        walked = self._walk.decode(records.data, records.clock_ms)
        parts = [DecodedPart(np.flatnonzero(walked.sure), walked.columns)]
        dead = self._reference.decode_rows(records, np.flatnonzero(~walked.sure), parts)
        return Decoded(assemble_events(self._reference.schema, batch, parts), dead)

    @functools.cached_property
    def _walk(self) -> RecordWalk:
        """The walk. Its compiler is loaded by the process that decodes, and not by one that only plans."""
        from streamcore.decode.walk.decoder import RecordWalk

        reference = self._reference
        return RecordWalk(reference.schema, reference.zone, reference.limits, reference.extra_fields)
