"""The parts of an invented stream: values that the other modules share."""

from __future__ import annotations

import enum
import zlib
from collections.abc import Mapping
from dataclasses import dataclass

#: Records are made in blocks of so many; sessions and frauds begin and end inside a block.
BLOCK = 1_000
#: No late record is among the first ones: nothing is late before the app has seen a first cut.
FIRST_LATE_BLOCK = 1
#: Event times go back by less than this; the app must allow for more (its default is 10 s).
MAX_DISORDER_MS = 8_000
#: Late records are from so long before the stream's first event.
MIN_LATENESS_MS = 3_600_000

DAY_MS = 86_400_000

Value = str | int | float | None
#: A record's JSON object before it is written.
Document = Mapping[str, Value]


@dataclass(frozen=True, slots=True)
class ShopSettings:
    """``start_ms``: the time of record 0, in epoch milliseconds; each record is ``step_ms`` later than the last one.

    A block begins ``block_ms`` after the block before it, so time jumps between blocks, and hours and days end within
    a stream of bearable length. ``users``: how many there are.
    """

    seed: int
    start_ms: int
    step_ms: int = 100
    block_ms: int = 1_200_000
    users: int = 20_000

    def time_ms(self, index: int) -> int:
        """Return the virtual clock when record ``index`` is sent: its event time, if it is neither late nor out of
        order."""
        return self.start_ms + index // BLOCK * self.block_ms + index % BLOCK * self.step_ms


def start_before(now_ms: int, *, days: int = 1_000) -> int:
    """Return a start so many days ago, at 20:41:30 UTC: the first day ends after ten blocks, in the gap between
    two."""
    return now_ms // DAY_MS * DAY_MS - days * DAY_MS - (3 * 3_600 + 18 * 60 + 30) * 1_000


class RecordFate(enum.StrEnum):
    """The expected outcome of a record."""

    EVENT = "event"  # every rule sees it
    LATE = "late"  # only rules per event see it
    DEAD = "dead"  # not decodable


@dataclass(frozen=True, slots=True)
class ShopRecord:
    """One record of the topic. ``index`` counts from 0; ``event_ms`` is the event time, also where the value is bad."""

    index: int
    key: bytes | None
    value: bytes | None
    fate: RecordFate
    event_ms: int

    def partition(self, partitions: int) -> int:
        """Return the partition for the key: all records of a user are in one, in order."""
        return self.index % partitions if self.key is None else zlib.crc32(self.key) % partitions
