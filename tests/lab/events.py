"""The events of a round, a pure function of its seed.

Event times run from ``START_MS`` on, 20 ms an event, and each event is up to ``LAG_MS`` older than its place in the
order of arrival. So events of a user come out of order, and none comes later than the app's disorder allows. A user
stays in one partition, as a key does in Kafka. At times a partition is silent for a twelfth of the round.
"""

from __future__ import annotations

import json
import random
import zlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass

PARTITIONS = 4
START_MS = 1_704_067_200_000  # 2024-01-01, a whole minute
STEP_MS = 20
LAG_MS = 8_000
#: What the app allows. The difference to ``LAG_MS`` covers what reaches two partitions in another order.
DISORDER_MS = 10_000
#: Far behind every window, session, sequence and deadline of the rules.
END_MS = START_MS + 10 * 86_400_000
TICK = "tick"
BAD_IPS = ("10.0.0.3", "10.0.0.17", "10.0.0.40")
_IPS = 60
_USERS = 400
_SILENCES = 3
_KINDS = {"pay": 30, "fail": 14, "a": 8, "b": 8, "c": 8, "beat": 12, "click": 14, "note": 6}


@dataclass(frozen=True, slots=True)
class Event:
    """``amount``: decimal text, as sent."""

    id: int
    ts: int
    user: str
    kind: str
    amount: str | None = None
    ip: str | None = None

    @property
    def value(self) -> bytes:
        """Return the record's value."""
        return json.dumps(asdict(self)).encode()

    @property
    def partition(self) -> int:
        """Return the partition, which is the same for all events of a user."""
        return zlib.crc32(self.user.encode()) % PARTITIONS


@dataclass(frozen=True, slots=True)
class Placed:
    """An event and its place in the topic."""

    partition: int
    offset: int
    event: Event


def stream_file() -> str:
    """Return the schema file of the events."""
    return """\
name: lab
event_time: ts
keys: [[user]]
fields:
  id: long not null
  ts: timestamp not null
  user: string not null
  kind: string not null
  amount: decimal(12,2)
  ip: string
"""


def events(seed: str, count: int) -> list[Event]:
    """Return so many events in the order of their arrival."""
    chance = random.Random(f"{seed}/events")
    silences = _silences(chance, count)
    return [_event(chance, n, {p for first, last, p in silences if first <= n < last}) for n in range(count)]


def ticks(first_id: int) -> list[tuple[int, Event]]:
    """Return an event for each partition that takes the watermark behind everything."""
    return [(p, Event(first_id + p, END_MS, TICK, TICK)) for p in range(PARTITIONS)]


def placed(arrivals: Sequence[Event]) -> list[Placed]:
    """Return the events with the places that an empty topic would give them, and ticks behind them."""
    offsets = [0] * PARTITIONS
    found = []
    for partition, event in [*((e.partition, e) for e in arrivals), *ticks(len(arrivals))]:
        found.append(Placed(partition, offsets[partition], event))
        offsets[partition] += 1
    return found


def _silences(chance: random.Random, count: int) -> list[tuple[int, int, int]]:
    """Return the first and last event of each silence, and its partition."""
    length = count // 12
    starts = [chance.randrange(length, count - length) if count > 2 * length else 0 for _ in range(_SILENCES)]
    return [(start, start + length, chance.randrange(PARTITIONS)) for start in starts]


def _event(chance: random.Random, number: int, silent: set[int]) -> Event:
    while True:
        user = f"u{min(int(chance.expovariate(5 / _USERS)), _USERS - 1)}"
        kind = chance.choices([*_KINDS], [*_KINDS.values()])[0]
        cents = chance.randrange(1, 100_000)
        amount = f"{cents // 100}.{cents % 100:02}" if kind == "pay" and chance.random() < 0.97 else None
        ip = f"10.0.0.{chance.randrange(_IPS)}" if chance.random() < 0.8 else None
        event = Event(number, START_MS + number * STEP_MS - chance.randrange(LAG_MS), user, kind, amount, ip)
        if event.partition not in silent:
            return event
