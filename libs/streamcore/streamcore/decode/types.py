"""Input and output of a decoder.

Every row of a ``RawBatch`` is in exactly one of the two tables of ``Decoded``. Nothing here knows a format.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from streamcore.schema_registry.schemas import NO_REGISTRY, SchemaLookup


@dataclass(frozen=True, slots=True)
class RawBatch:
    """Records before they are decoded: three arrays of one length.

    ``partition``: the number that the app gives to a (topic, partition). ``clock_ms``: the wall clock of the
    cut (``CutClock.wall_ms``), which limits event times. ``schemas``: finds the schemas of the cut in a registry.
    """

    values: pa.LargeBinaryArray | pa.BinaryArray
    partition: pa.Int32Array
    offset: pa.Int64Array
    clock_ms: int
    schemas: SchemaLookup = NO_REGISTRY

    def __len__(self) -> int:
        return len(self.values)


#: Rejected records. ``row``: index in the batch, ascending. ``code``: a ``RejectCode``. ``reason``: text for people.
DEAD_SCHEMA = pa.schema([pa.field("row", pa.uint32()), pa.field("code", pa.string()), pa.field("reason", pa.string())])


@dataclass(frozen=True, slots=True)
class Decoded:
    """The events (``StreamSchema.arrow``) and rejected records (``DEAD_SCHEMA``) of a batch, in its order."""

    events: pa.Table
    dead: pa.Table


class Decoder(Protocol):
    """Decodes the records of one stream. A record never causes an exception, whatever its bytes."""

    def decode(self, batch: RawBatch) -> Decoded:
        """Decode all rows of the batch, each to an event or to a rejected record."""
        ...
