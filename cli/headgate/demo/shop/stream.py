"""The stream: block by block, scripts put together, disturbed as real streams are, and written.

A block has ``BLOCK`` records and is a pure function of the settings and its number. In it, next to customers and
frauds: records that come twice, bad ones, late ones, and event times that do not go up.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from headgate.demo.shop.behaviours import FRAUDS, Fraud, Person, ScriptedEvent, any_customer, passing_by, shopping
from headgate.demo.shop.corrupt_records import corrupt, write
from headgate.demo.shop.settings import (
    BLOCK,
    FIRST_LATE_BLOCK,
    MIN_LATENESS_MS,
    Document,
    RecordFate,
    ShopRecord,
    ShopSettings,
)

#: Every kind of fraud is found within so many blocks, counted from a multiple of it.
ROUND: Final = 5
_DUPLICATES: Final = 5
_BAD: Final = 5
_LATE: Final = 3
_DUPLICATE_WITHIN: Final = 30  # records
_JITTER_MS: Final = 4_000
_JITTER_SHARE: Final = 0.15


def records(settings: ShopSettings, start: int, stop: int | None) -> Iterator[ShopRecord]:
    """Yield records ``start`` to before ``stop`` (None: without end), in order."""
    number = start // BLOCK
    while stop is None or number * BLOCK < stop:
        for record in block(settings, number):
            if record.index >= start and (stop is None or record.index < stop):
                yield record
        number += 1


def block(settings: ShopSettings, number: int) -> list[ShopRecord]:
    """All records of one block, in order."""
    rng = random.Random(f"{settings.seed}/{number}")  # noqa: S311 - the same people each time is what is wanted
    late = _LATE if number >= FIRST_LATE_BLOCK else 0
    places = sorted(rng.sample(range(_DUPLICATE_WITHIN, BLOCK), _DUPLICATES + _BAD + late))
    fates = dict(
        zip(places, rng.sample(["twice"] * _DUPLICATES + ["bad"] * _BAD + ["late"] * late, len(places)), strict=True)
    )
    steps = iter(_steps(rng, settings, number, BLOCK - len(places)))
    made: list[ShopRecord] = []
    for place in range(BLOCK):
        index = number * BLOCK + place
        match fates.get(place):
            case "twice":
                made.append(_again(rng, made, index))
            case "bad":
                event = _with_id(any_customer(rng, settings).does("view", "s0"), index, settings.time_ms(index))
                made.append(_record(event, index, corrupt(rng, event), RecordFate.DEAD))
            case "late":
                made.append(_late(rng, settings, index))
            case _:
                event = _with_id(next(steps).fields, index, _jitter(rng, settings.time_ms(index)))
                made.append(_record(event, index, write(event), RecordFate.EVENT))
    return made


def _steps(rng: random.Random, settings: ShopSettings, number: int, count: int) -> list[ScriptedEvent]:
    """So many events of customers and of some frauds, in order."""
    steps: list[ScriptedEvent] = []
    for fraud in _frauds(settings, number):
        steps += fraud(rng, settings)
    while len(steps) < count:
        steps += passing_by(rng) if rng.random() < 0.15 else shopping(rng, any_customer(rng, settings))
    return sorted(steps[:count], key=lambda step: step.place)


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


def _again(rng: random.Random, made: list[ShopRecord], index: int) -> ShopRecord:
    """One of the good records shortly before, a second time; a key that is null has no order to keep."""
    before = [r for r in made[-_DUPLICATE_WITHIN:] if r.fate is RecordFate.EVENT]
    return replace(rng.choice(before), index=index)


def _late(rng: random.Random, settings: ShopSettings, index: int) -> ShopRecord:
    """Return an event from before the stream's beginning, by a user without other events; one in four is a payment."""
    person = Person((1 << 22) + index)
    event_ms = settings.start_ms - MIN_LATENESS_MS - rng.randrange(10 * MIN_LATENESS_MS)
    paid = rng.randrange(4) == 0
    fields = person.pays("s1", "payment", 900_000, "ok") if paid else person.does("view", "s1", product_id="p1")
    event = _with_id(fields, index, event_ms)
    return _record(event, index, write(event), RecordFate.LATE)
