"""Decodes binary records of one schema to columns by a walk."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa

from streamcore.decode.reject_codes import DecodeLimits, ExtraFields
from streamcore.decode.walk.avro import walk_datums
from streamcore.decode.walk.binary import FLOAT_BITS, MAX_SHORT_TEXT, WHOLE_DOUBLE
from streamcore.decode.walk.decoder import RecordWalk, WalkedRecords, bytes_of
from streamcore.decode.walk.fields import PRESENT
from streamcore.decode.walk.protobuf import walk_messages
from streamcore.decode.walk.steps import Int64s, Steps
from streamcore.decode.walk.values import StoredTexts
from streamcore.decode.walk.words import PAD, Bytes
from streamcore.schema import Kind, StreamSchema
from streamcore.timestamps import load_zone

_STACK = 256


class BinaryWalk:
    """Walks through records of one schema, for a stream without nested fields. For one thread."""

    def __init__(self, schema: StreamSchema, limits: DecodeLimits, steps: Steps, walk: Callable[..., None]) -> None:
        self._walk, self._steps = walk, steps
        self._records = RecordWalk(schema, load_zone(schema.zone), limits, ExtraFields.IGNORE)
        self._fields = len(schema.fields)
        self._doubles = [i for i, f in enumerate(schema.fields) if f.type.kind is Kind.DOUBLE]
        self._required = np.array([i for i, f in enumerate(schema.fields) if not f.nullable], np.int64)
        self._names = np.frombuffer(steps.names + bytes(PAD), np.uint8).copy()
        self._stack, self._scratch = np.zeros(_STACK, np.int64), np.zeros(MAX_SHORT_TEXT + PAD, np.uint8)

    @classmethod
    def of_avro(cls, schema: StreamSchema, limits: DecodeLimits, steps: Steps) -> BinaryWalk:
        """Return the walk through Avro datums."""
        return cls(schema, limits, steps, walk_datums)

    @classmethod
    def of_protobuf(cls, schema: StreamSchema, limits: DecodeLimits, steps: Steps) -> BinaryWalk:
        """Return the walk through Protobuf messages."""
        return cls(schema, limits, steps, walk_messages)

    def decode(self, records: pa.LargeBinaryArray, prefix_bytes: int, clock_ms: int) -> WalkedRecords:
        """Decode records, of which the first ``prefix_bytes`` are skipped. ``clock_ms``: limits event times."""
        source, offsets = bytes_of(records)
        count = len(records)
        values, lengths = np.zeros((self._fields, count), np.int64), np.zeros((self._fields, count), np.int64)
        found, sure = np.zeros((self._fields, count), np.uint8), np.zeros(count, np.bool_)
        arrays = (self._steps.steps, self._steps.symbols, self._stack, self._scratch, self._required)
        self._walk(source, offsets, prefix_bytes, *arrays, values, lengths, found, sure)
        for field in self._doubles:
            _to_doubles(values[field], found[field])
        texts = StoredTexts(source, self._names)
        return self._records.finish(records, texts, (values, lengths, found), sure, clock_ms)


def _to_doubles(values: Int64s, found: Bytes) -> None:
    """Replace whole numbers and the bits of floats by the bits of doubles."""
    whole, floats = found == WHOLE_DOUBLE, found == FLOAT_BITS
    if whole.any():
        values[whole] = values[whole].astype(np.float64).view(np.int64)
    if floats.any():
        singles = values[floats].astype(np.uint32).view(np.float32)
        values[floats] = singles.astype(np.float64).view(np.int64)
    found[whole | floats] = PRESENT
