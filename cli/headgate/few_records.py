"""A few records, one at a time: below ``FEW`` that takes less time than loading the code that decodes columns."""

from __future__ import annotations

from collections.abc import Iterable

from streamcore.records import DecodeLimits, ExtraFields, Rejected, Scalar, decode_one
from streamcore.schema import StreamSchema
from streamcore.times import zone_of

FEW = 1_000  # each takes about as long as a thousandth of loading the decoder of columns


def decode_few(
    schema: StreamSchema, values: Iterable[bytes | None], clock_ms: int
) -> list[tuple[Scalar, ...] | Rejected]:
    """Of each record its physical values in the order of the fields, or why it is no event.

    ``clock_ms``: what is far ahead of it is no event. Fields that the stream does not declare are passed over.
    """
    zone, limits = zone_of(schema.zone), DecodeLimits()
    return [
        decode_one(schema, value, clock_ms=clock_ms, zone=zone, limits=limits, extra_fields=ExtraFields.IGNORE)
        for value in values
    ]
