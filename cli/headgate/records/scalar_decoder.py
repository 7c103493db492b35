"""Decodes records one at a time.

For up to ``SCALAR_LIMIT`` records this is faster than loading the columnar decoder.
"""

from __future__ import annotations

from collections.abc import Iterable

from streamcore.decode.scalar import (
    DecodeLimits,
    ExtraFields,
    IgnoredRecord,
    Physical,
    RejectedRecord,
    StreamRecord,
    decode_json_event,
)
from streamcore.schema import StreamSchema
from streamcore.timestamps import load_zone

SCALAR_LIMIT = 1_000  # loading the columnar decoder takes about as long as decoding this many


def decode_scalars(
    schema: StreamSchema, records: Iterable[StreamRecord], clock_ms: int
) -> list[tuple[Physical, ...] | RejectedRecord | IgnoredRecord]:
    """Return for each record its physical values in the order of the fields, or why it is no event of the stream.

    Records with a time far after ``clock_ms`` are no events. Fields that the stream does not declare are ignored.
    """
    zone, limits = load_zone(schema.zone), DecodeLimits()
    extra = ExtraFields.IGNORE
    return [
        decode_json_event(schema, one, clock_ms=clock_ms, zone=zone, limits=limits, extra_fields=extra)
        for one in records
    ]
