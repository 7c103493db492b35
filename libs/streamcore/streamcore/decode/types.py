"""Input and output of a decoder, as values.

Every row of a ``RawBatch`` is in exactly one of the two tables of ``Decoded``. Nothing here knows a format.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa


@dataclass(frozen=True, slots=True)
class RawBatch:
    """BatchRecords as they came: arrays of one length. ``clock_ms`` is the cut's clock, in epoch milliseconds.

    ``partition`` is the number of (topic, partition) in the app.
    """

    values: pa.LargeBinaryArray | pa.BinaryArray
    partition: pa.Int32Array
    offset: pa.Int64Array
    clock_ms: int

    def __len__(self) -> int:
        return len(self.values)


#: ``row`` is the index into the batch (ascending), ``code`` a ``RejectCode``, ``reason`` a sentence for people.
DEAD_SCHEMA = pa.schema([pa.field("row", pa.uint32()), pa.field("code", pa.string()), pa.field("reason", pa.string())])


@dataclass(frozen=True, slots=True)
class Decoded:
    """``events``: ``StreamSchema.arrow``, in the order of the batch. ``dead``: ``DEAD_SCHEMA``."""

    events: pa.Table
    dead: pa.Table


class Decoder(Protocol):
    """Turns a batch into columns. No content of a record raises."""

    def decode(self, batch: RawBatch) -> Decoded:
        """All of the batch's rows, each either decoded or dead."""
        ...
