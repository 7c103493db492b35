"""The settings and the record of the demo shop's stream, shared by the other modules."""

from __future__ import annotations

import enum
import zlib
from collections.abc import Mapping
from dataclasses import dataclass

#: The stream is computed in blocks of this many records; sessions and frauds begin and end inside a block.
EVENTS_PER_BLOCK = 1_000
#: The first block with late records: no record is late before the app's first cut.
FIRST_LATE_BLOCK = 1
#: Event times decrease by less than this from one record to the next, apart from late records; the app's allowance for
#: disorder must be longer (its default is 10 s).
MAX_DISORDER_MS = 8_000
#: The event time of a late record is at least this long before the stream's first event.
MIN_LATENESS_MS = 3_600_000

DAY_MS = 86_400_000

Value = str | int | float | None
#: A record's fields by name, before they are encoded.
Document = Mapping[str, Value]


@dataclass(frozen=True, slots=True)
class ShopSettings:
    """``start_ms``: the time of record 0, in epoch milliseconds; each record is ``step_ms`` later than the last one.

    Each block begins ``block_ms`` after the block before it, longer than its records span, so event time jumps between
    blocks: a short stream covers days. ``users``: the number of customers.
    """

    seed: int
    start_ms: int
    step_ms: int = 100
    block_ms: int = 1_200_000
    users: int = 20_000

    def time_ms(self, index: int) -> int:
        """Return the undisturbed event time of record ``index`` in epoch milliseconds; late and out-of-order events
        have an earlier one."""
        return self.start_ms + index // EVENTS_PER_BLOCK * self.block_ms + index % EVENTS_PER_BLOCK * self.step_ms


def shop_start_ms(now_ms: int, *, days: int = 1_000) -> int:
    """Return 20:41:30 UTC on the day before the day that is ``days`` before ``now_ms``, in epoch milliseconds.

    From there the first day ends after ten blocks, in the gap between two blocks.
    """
    return now_ms // DAY_MS * DAY_MS - days * DAY_MS - (3 * 3_600 + 18 * 60 + 30) * 1_000


class RecordFate(enum.StrEnum):
    """The expected outcome of a record."""

    EVENT = "event"  # valid and in time: every rule evaluates it
    LATE = "late"  # only event rules evaluate it
    DEAD = "dead"  # cannot be decoded


@dataclass(frozen=True, slots=True)
class ShopRecord:
    """One record of the stream. ``index`` counts from 0; ``event_ms`` is the event time, also of a corrupt value."""

    index: int
    key: bytes | None
    value: bytes | None
    fate: RecordFate
    event_ms: int

    def partition(self, partitions: int) -> int:
        """Return the partition for the key: all records of a user are in one, in order."""
        return self.index % partitions if self.key is None else zlib.crc32(self.key) % partitions
