"""A stream with a field of every type, and both decoders side by side."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest

from streamcore.decode.avro.decoder import AvroDecoder
from streamcore.decode.formats import InputFormat
from streamcore.decode.json.decoder import JsonDecoder
from streamcore.decode.reject_codes import DecodeLimits, ExtraFields
from streamcore.decode.scalar.json import decode_one
from streamcore.decode.scalar.record import RejectedRecord
from streamcore.decode.text.line_decoder import LineDecoder
from streamcore.decode.types import Decoded, Decoder, RawBatch
from streamcore.schema import StreamSchema
from tests.harness.decode.projections import decode_and_project

CLOCK_MS = 1_800_000_000_000
SCHEMA = StreamSchema.parse(
    {
        "name": "everything",
        "event_time": "ts",
        "keys": [["s"]],
        "zone": "Europe/London",
        "fields": {
            "id": "string not null",
            "ts": "timestamp not null",
            "s": "string",
            "b": "boolean",
            "n": "long",
            "d": "double",
            "m": "decimal(18,2)",
            "r": "decimal(4,4)",
            "u": "timestamp",
        },
    }
)


def raw_batch(records: Sequence[bytes | None]) -> RawBatch:
    n = len(records)
    return RawBatch(
        values=pa.array(records, pa.large_binary()),
        partition=pa.array([i % 3 for i in range(n)], pa.int32()),
        offset=pa.array([1000 + i for i in range(n)], pa.int64()),
        clock_ms=CLOCK_MS,
    )


def _comparable(value: object) -> object:
    """Doubles by their bits, so that -0.0 is not 0.0."""
    return struct.pack(">d", value) if isinstance(value, float) else value


def check_agreement(
    schema: StreamSchema,
    fast: Decoder,
    slow: Callable[[bytes | None], tuple[object, ...] | RejectedRecord],
    records: Sequence[bytes | None],
) -> Decoded:
    """Decode by both ways and asserts that they say the same of every record."""
    decoded = decode_and_project(fast, raw_batch(records), schema)
    assert decoded.events.schema == schema.arrow
    assert decoded.events.num_rows + decoded.dead.num_rows == len(records)
    rows = iter(zip(*(decoded.events.column(i).to_pylist() for i in range(decoded.events.num_columns)), strict=True))
    dead = iter(decoded.dead.to_pylist())
    for i, record in enumerate(records):
        expected = slow(record)
        if isinstance(expected, RejectedRecord):
            assert next(dead) == {"row": i, "code": expected.code.value, "reason": expected.reason}, record
        else:
            event_ms = expected[schema.names.index(schema.event_time)] if schema.event_time else None
            engine = (i % 3, 1000 + i, event_ms)
            assert [*map(_comparable, next(rows))] == [*map(_comparable, (*expected, *engine))], record
    return decoded


@dataclass(frozen=True)
class OfFormat:
    """The decoder of a format, checked against its own reference, record by record."""

    schema: StreamSchema
    fast: LineDecoder | AvroDecoder

    def agree(self, records: Sequence[bytes | None]) -> Decoded:
        """See ``check_agreement``."""
        return check_agreement(self.schema, self.fast, lambda record: self.fast._decode_one(record, CLOCK_MS), records)

    @staticmethod
    def batch(records: Sequence[bytes | None]) -> RawBatch:
        """Return a batch of these records."""
        return raw_batch(records)

    def codes(self, *records: bytes | None) -> list[str]:
        """Return the codes of the dead letters."""
        return [str(code) for code in self.agree(records).dead.column("code").to_pylist()]


MakeFormat = Callable[..., OfFormat]


@pytest.fixture(scope="session")
def make_format() -> MakeFormat:
    def make(
        schema: StreamSchema,
        written: InputFormat,
        *,
        limits: DecodeLimits | None = None,
        extra_fields: ExtraFields = ExtraFields.IGNORE,
    ) -> OfFormat:
        decoder = written.decoder(schema, limits=limits or DecodeLimits(), extra_fields=extra_fields)
        assert isinstance(decoder, (LineDecoder, AvroDecoder))
        return OfFormat(schema, decoder)

    return make


@dataclass(frozen=True)
class Both:
    """The fast decoder, checked against the reference on everything it is given."""

    schema: StreamSchema
    limits: DecodeLimits
    extra_fields: ExtraFields
    fast: JsonDecoder

    def slow(self, record: bytes | None) -> tuple[object, ...] | RejectedRecord:
        return decode_one(
            self.schema,
            record,
            clock_ms=CLOCK_MS,
            zone=ZoneInfo(self.schema.zone),
            limits=self.limits,
            extra_fields=self.extra_fields,
        )

    def agree(self, records: Sequence[bytes | None]) -> Decoded:
        """Decode by both ways and asserts that they say the same of every record."""
        return check_agreement(self.schema, self.fast, self.slow, records)


MakeBoth = Callable[..., Both]


@pytest.fixture(scope="session")
def make_both() -> MakeBoth:
    def make(
        schema: StreamSchema = SCHEMA,
        *,
        limits: DecodeLimits | None = None,
        extra_fields: ExtraFields = ExtraFields.REJECT,
    ) -> Both:
        limits = limits or DecodeLimits()
        return Both(schema, limits, extra_fields, JsonDecoder(schema, limits=limits, extra_fields=extra_fields))

    return make
