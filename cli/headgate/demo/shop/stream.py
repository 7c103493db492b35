"""The demo shop's stream of events.

A block has ``EVENTS_PER_BLOCK`` records and is a pure function of the settings and its number. It holds the events of
the scripts of customers and frauds, and what real streams have too: duplicates, corrupt records, late events, and event
times that decrease.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from headgate.demo.shop.behaviours import FRAUDS, Fraud, Person, ScriptedEvent, any_customer, guest_view, shopping
from headgate.demo.shop.corrupt_records import corrupt, write
from headgate.demo.shop.settings import (
    EVENTS_PER_BLOCK,
    FIRST_LATE_BLOCK,
    MIN_LATENESS_MS,
    Document,
    RecordFate,
    ShopRecord,
    ShopSettings,
)

#: Blocks ``n * ROUND`` to before ``(n + 1) * ROUND`` hold every kind of fraud once.
ROUND: Final = 5
_DUPLICATES: Final = 5
_CORRUPT: Final = 5
_LATE: Final = 3
_DUPLICATE_WITHIN: Final = 30  # records
_JITTER_MS: Final = 4_000
_JITTER_SHARE: Final = 0.15


def records(settings: ShopSettings, start: int, stop: int | None) -> Iterator[ShopRecord]:
    """Yield records ``start`` to before ``stop`` (None: without end), in order."""
    number = start // EVENTS_PER_BLOCK
    while stop is None or number * EVENTS_PER_BLOCK < stop:
        for record in block(settings, number):
            if record.index >= start and (stop is None or record.index < stop):
                yield record
        number += 1


def block(settings: ShopSettings, number: int) -> list[ShopRecord]:
    """Return all records of one block, in order."""
    rng = random.Random(f"{settings.seed}/{number}")  # noqa: S311 - the stream must be reproducible
    late = _LATE if number >= FIRST_LATE_BLOCK else 0
    positions = sorted(rng.sample(range(_DUPLICATE_WITHIN, EVENTS_PER_BLOCK), _DUPLICATES + _CORRUPT + late))
    fates = dict(
        zip(
            positions,
            rng.sample(["duplicate"] * _DUPLICATES + ["corrupt"] * _CORRUPT + ["late"] * late, len(positions)),
            strict=True,
        )
    )
    steps = iter(_steps(rng, settings, number, EVENTS_PER_BLOCK - len(positions)))
    block_records: list[ShopRecord] = []
    for position in range(EVENTS_PER_BLOCK):
        index = number * EVENTS_PER_BLOCK + position
        match fates.get(position):
            case "duplicate":
                block_records.append(_duplicate(rng, block_records, index))
            case "corrupt":
                event = _with_id(any_customer(rng, settings).event("view", "s0"), index, settings.time_ms(index))
                block_records.append(_record(event, index, corrupt(rng, event), RecordFate.DEAD))
            case "late":
                block_records.append(_late_record(rng, settings, index))
            case _:
                event = _with_id(next(steps).fields, index, _jitter(rng, settings.time_ms(index)))
                block_records.append(_record(event, index, write(event), RecordFate.EVENT))
    return block_records


def _steps(rng: random.Random, settings: ShopSettings, number: int, count: int) -> list[ScriptedEvent]:
    """Return ``count`` events of customers and of the block's frauds, in order of their position."""
    steps: list[ScriptedEvent] = []
    for fraud in _frauds(settings, number):
        steps += fraud(rng, settings)
    while len(steps) < count:
        steps += guest_view(rng) if rng.random() < 0.15 else shopping(rng, any_customer(rng, settings))
    return sorted(steps[:count], key=lambda step: step.position)


def _frauds(settings: ShopSettings, number: int) -> Sequence[Fraud]:
    """Return the frauds of a block: each kind comes once in every ``ROUND`` blocks."""
    turn, part = divmod(number, ROUND)
    rng = random.Random(f"{settings.seed}/frauds/{turn}")  # noqa: S311
    return rng.sample(FRAUDS, len(FRAUDS))[part::ROUND]


def _with_id(fields: Document, index: int, event_ms: int) -> Document:
    return {"event_id": f"e{index:010d}", "ts": event_ms, **fields}


def _jitter(rng: random.Random, time_ms: int) -> int:
    return time_ms - rng.randrange(_JITTER_MS) if rng.random() < _JITTER_SHARE else time_ms


def _record(event: Document, index: int, value: bytes | None, fate: RecordFate) -> ShopRecord:
    user, event_ms = event.get("user_id"), event["ts"]
    assert isinstance(event_ms, int)
    return ShopRecord(index, user.encode() if isinstance(user, str) else None, value, fate, event_ms)


def _duplicate(rng: random.Random, block_records: list[ShopRecord], index: int) -> ShopRecord:
    """Return a copy of a random valid record among the last ones before it."""
    before = [r for r in block_records[-_DUPLICATE_WITHIN:] if r.fate is RecordFate.EVENT]
    return replace(rng.choice(before), index=index)


def _late_record(rng: random.Random, settings: ShopSettings, index: int) -> ShopRecord:
    """Return an event from before the stream's beginning, by a user without other events. One in four is a payment."""
    person = Person((1 << 22) + index)
    event_ms = settings.start_ms - MIN_LATENESS_MS - rng.randrange(10 * MIN_LATENESS_MS)
    paid = rng.randrange(4) == 0
    fields = person.payment("s1", "payment", 900_000, "ok") if paid else person.event("view", "s1", product_id="p1")
    event = _with_id(fields, index, event_ms)
    return _record(event, index, write(event), RecordFate.LATE)
