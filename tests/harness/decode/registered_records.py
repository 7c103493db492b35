"""Records of a schema registry, for tests of decoders."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import pyarrow as pa

from streamcore.decode.types import BesideValues, Decoded, Decoder, RawBatch
from streamcore.schema import StreamSchema
from streamcore.schema_registry.schemas import MAGIC, RegisteredSchema, SchemaId
from tests.harness.decode.projections import decode_and_project

CLOCK_MS = 1_800_000_000_000


class Schemas:
    """The ``SchemaLookup`` of a test; ``asked``: the ids that were looked up, ``pinned``: those that are absent."""

    def __init__(self, *schemas: RegisteredSchema) -> None:
        self.known = {schema.id: schema for schema in schemas}
        self.asked: list[SchemaId] = []
        self.pinned: set[SchemaId] = set()

    def absent(self) -> Collection[SchemaId]:
        """See ``SchemaLookup``."""
        return self.pinned

    def find(self, ids: Collection[SchemaId]) -> Mapping[SchemaId, RegisteredSchema | None]:
        """See ``SchemaLookup``."""
        self.asked += ids
        self.pinned |= {n for n in ids if n not in self.known}
        return {n: self.known.get(n) for n in ids}


def prefix(number: int) -> bytes:
    """Return what a record with this schema begins with."""
    return bytes([MAGIC]) + number.to_bytes(4, "big")


def decode_with(
    decoder: Decoder,
    stream: StreamSchema,
    schemas: Schemas,
    records: Sequence[bytes | None],
    headers: Mapping[str, Sequence[bytes | None]] | None = None,
) -> Decoded:
    """Decode records as one batch. ``headers``: of the records, by name."""
    count = len(records)
    places = pa.array(range(count), pa.int64())
    values = pa.array(records, pa.large_binary())
    beside = BesideValues(headers={name: pa.array(one, pa.binary()) for name, one in (headers or {}).items()})
    batch = RawBatch(values, pa.array([0] * count, pa.int32()), places, CLOCK_MS, beside, schemas)
    decoded = decode_and_project(decoder, batch, stream)
    assert decoded.events.schema == stream.arrow
    assert decoded.events.num_rows + decoded.dead.num_rows == count
    return decoded
