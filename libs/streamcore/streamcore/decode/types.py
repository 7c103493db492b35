"""Input and output of a decoder.

Every row of a ``RawBatch`` is an event, a rejected record or an ignored one of ``Decoded``. Nothing here knows a
format.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import pyarrow as pa

from streamcore.schema import EVENT_MS, OFFSET, PARTITION
from streamcore.schema_registry.schemas import NO_REGISTRY, SchemaLookup


@dataclass(frozen=True, slots=True)
class BesideValues:
    """What Kafka keeps of the records of a batch beside their values: arrays of the length of the batch, or None where
    the records have none. ``headers``: by name, those that a field is read from. ``topic``: None for records that are
    not from Kafka. ``partition``: the number in the topic."""

    topic: str | None = None
    partition: pa.Int32Array | None = None
    key: pa.BinaryArray | None = None
    timestamp_ms: pa.Int64Array | None = None
    headers: Mapping[str, pa.BinaryArray] = field(default_factory=dict)

    def take(self, rows: pa.Array) -> BesideValues:
        """Return those of some rows."""
        partition, key, times = (
            None if a is None else a.take(rows) for a in (self.partition, self.key, self.timestamp_ms)
        )
        return BesideValues(self.topic, partition, key, times, {name: a.take(rows) for name, a in self.headers.items()})


NOTHING_BESIDE = BesideValues()


@dataclass(frozen=True, slots=True)
class RawBatch:
    """Records before they are decoded: three arrays of one length, and what is beside the values.

    ``partition``: the number that the app gives to a (topic, partition). ``clock_ms``: the wall clock of the
    cut (``CutClock.wall_ms``), which limits event times. ``schemas``: finds the schemas of the cut in a registry.
    ``fields``: those that become columns, the event time among them; None for all. It has no influence on which records
    are events: the values of all fields are checked.
    """

    values: pa.LargeBinaryArray | pa.BinaryArray
    partition: pa.Int32Array
    offset: pa.Int64Array
    clock_ms: int
    beside: BesideValues = NOTHING_BESIDE
    schemas: SchemaLookup = NO_REGISTRY
    fields: frozenset[str] | None = None

    def __len__(self) -> int:
        return len(self.values)

    def take(self, rows: pa.Array) -> RawBatch:
        """Return the batch of some rows."""
        values, partition, offset = (a.take(rows) for a in (self.values, self.partition, self.offset))
        return replace(self, values=values, partition=partition, offset=offset, beside=self.beside.take(rows))

    def project(self, schema: pa.Schema) -> pa.Schema:
        """Return those columns of a stream's events that ``fields`` asks for, and those of the engine."""
        if self.fields is None:
            return schema
        engine = (PARTITION, OFFSET, EVENT_MS)
        return pa.schema([one for one in schema if one.name in self.fields or one.name in engine])


#: Rejected records. ``row``: index in the batch, ascending. ``code``: a ``RejectCode``. ``reason``: text for people.
DEAD_SCHEMA = pa.schema([pa.field("row", pa.uint32()), pa.field("code", pa.string()), pa.field("reason", pa.string())])


def dead_table(dead: Sequence[tuple[int, str, str]]) -> pa.Table:
    """Return rejected records, each with its row, code and reason, as ``DEAD_SCHEMA``."""
    rows, codes, reasons = zip(*dead, strict=True) if dead else ((), (), ())
    return pa.table([[*rows], [*codes], [*reasons]], schema=DEAD_SCHEMA)


@dataclass(frozen=True, slots=True)
class Decoded:
    """The events (``StreamSchema.arrow``, of the fields only ``RawBatch.fields``) and rejected records
    (``DEAD_SCHEMA``) of a batch, in its order.

    ``ignored``: the rows that are neither, ascending: tombstones of an envelope.
    """

    events: pa.Table
    dead: pa.Table
    ignored: tuple[int, ...] = ()

    @property
    def undecoded(self) -> list[int]:
        """The rows without an event."""
        return [*self.dead.column("row").to_pylist(), *self.ignored]


class Decoder(Protocol):
    """Decodes the records of one stream. A record never causes an exception, whatever its bytes."""

    def decode(self, batch: RawBatch) -> Decoded:
        """Decode all rows of the batch, each to an event or to a rejected record, or ignore it."""
        ...
