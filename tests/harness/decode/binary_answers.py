"""``python -m tests.harness.decode.binary_answers SEED COUNT``: a digest of what the walks say of binary records.

With ``NUMBA_DISABLE_JIT=1`` the walks run uncompiled: the digest is the same, and NumPy checks each access to an array.
"""

from __future__ import annotations

import hashlib
import json
import random
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from streamcore.decode.assembly import BatchRecords, DecodedPart
from streamcore.decode.avro.decoder import AvroDecoder
from streamcore.decode.formats import Avro, Bare
from streamcore.decode.protobuf.decoder import ProtobufDecoder
from streamcore.decode.protobuf.schema import parse_proto_schema
from streamcore.decode.record_starts import RecordStarts
from streamcore.decode.reject_codes import DecodeLimits, ExtraFields, RejectCode
from streamcore.decode.scalar.record import RejectedRecord
from streamcore.schema import StreamSchema
from tests.harness.decode import random_avro, random_protobuf
from tests.harness.decode.spoil import spoil

CLOCK_MS = 1_800_000_000_000
#: What a record of Protobuf begins with: an id, and the first message of its schema.
HEAD = b"\0\0\0\0\1\0"
#: So few that records exceed it.
#: Times at random are plausible from 1970 on.
ANY_TIMES = DecodeLimits(min_event_ms=0)
FEW_VALUES = DecodeLimits(max_record_values=6, min_event_ms=0)
_LEFT = RejectedRecord(RejectCode.NO_STREAM, "left to the reference")
Row = tuple[Any, ...]


@dataclass
class Decoding:
    """The decoder of records of one schema, and its reference."""

    stream: StreamSchema
    decoder: AvroDecoder | ProtobufDecoder

    @property
    def reference(self) -> Callable[[bytes | None, int], Row | RejectedRecord]:
        """The reference, for a record and the clock."""
        return self.decoder._decode_one if isinstance(self.decoder, AvroDecoder) else self.decoder.decode_one

    def walk(self, records: Sequence[bytes]) -> list[Row | None]:
        """Return the row of each record; None where the walk leaves it to the reference."""
        name = self.reference.__name__
        setattr(self.decoder, name, lambda *_: _LEFT)
        parts: list[DecodedPart] = []
        data = BatchRecords(pa.array(records, pa.large_binary()), CLOCK_MS, None)
        try:
            self.decoder.decode_rows(data, RecordStarts(data.data), np.arange(len(records)), parts)
        finally:
            delattr(self.decoder, name)
        rows: list[Row | None] = [None] * len(records)
        for part in parts:
            part.columns.validate(full=True)
            columns = (column.to_pylist() for column in part.columns.columns)
            for row, values in zip(part.rows.tolist(), zip(*columns, strict=True), strict=True):
                rows[row] = values
        return rows


def avro_decoding(schema: object, stream: StreamSchema, limits: DecodeLimits | None = None) -> Decoding:
    """Return the decoder of bare datums."""
    form = Avro(Bare(json.dumps(schema)))
    decoder = form.decoder(stream, limits=limits or ANY_TIMES, extra_fields=ExtraFields.IGNORE)
    assert isinstance(decoder, AvroDecoder)
    return Decoding(stream, decoder)


def proto_decoding(text: str, stream: StreamSchema, limits: DecodeLimits | None = None) -> Decoding:
    """Return the decoder of records that begin with ``HEAD``."""
    schema, limits = parse_proto_schema(text), limits or ANY_TIMES
    return Decoding(
        stream, ProtobufDecoder(stream, schema, "schema 1", 5, limits=limits, extra_fields=ExtraFields.IGNORE)
    )


def digest(seed: int, count: int) -> str:
    """Return the digest of the answers for records, right and spoiled, of this many schemas of each format."""
    seen = hashlib.sha256()
    for number in range(seed, seed + count):
        chance = random.Random(number)
        avro, proto = random_avro.make_case(number), random_protobuf.make_case(number)
        right = [avro.write(chance)[0] for _ in range(20)]
        spoiled = [spoil(one, chance) for one in right]
        for limits in (None, FEW_VALUES):
            answers = avro_decoding(avro.schema, avro.stream, limits).walk([*right, *spoiled])
            seen.update(repr(answers).encode())
        right = [HEAD + proto.write(chance) for _ in range(20)]
        spoiled = [spoil(one, chance, len(HEAD)) for one in right]
        for limits in (None, FEW_VALUES):
            seen.update(repr(proto_decoding(proto.text, proto.stream, limits).walk([*right, *spoiled])).encode())
    return seen.hexdigest()


if __name__ == "__main__":
    print(digest(int(sys.argv[1]), int(sys.argv[2])))
