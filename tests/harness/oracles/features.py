"""Features as plain Python finds them: for each event a loop over all earlier events.

``Spec`` is a feature, ``Pay`` an event. Nothing here is shared with the code under test but the format of documents.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import orjson
import pytest

from streamcore.engine.in_process import RawRecord, control_record
from streamcore.schema import StreamSchema

MINUTE = 60_000
T0 = 1_700_006_400_000  # a whole number of days
CLOCK = T0 + 1000 * 86_400_000
SCHEMA = StreamSchema.parse(
    {
        "name": "pay",
        "event_time": "ts",
        "keys": [["user"]],
        "fields": {
            "ts": "timestamp not null",
            "user": "string",
            "amount": "decimal(12,2)",
            "card": "string",
            "x": "double",
            "n": "long not null",
        },
    }
)


@dataclass(frozen=True)
class Pay:
    minute: int
    user: str | None = "a"
    amount: int | None = 1
    card: str | None = "c"
    offset: int = 0

    @property
    def ms(self) -> int:
        return T0 + self.minute * MINUTE

    @property
    def x(self) -> float | None:
        return None if self.amount is None else self.amount / 4

    def record(self) -> RawRecord:
        event = {"ts": self.ms, "user": self.user, "amount": self.amount, "card": self.card, "x": self.x}
        return RawRecord(0, 0, self.offset, orjson.dumps(event | {"n": self.offset}))


Read = Callable[[Sequence[Pay], Pay], object]


def numbers(events: Sequence[Pay]) -> list[float]:
    return [e.x for e in events if e.x is not None]


def money_in_units(event: Pay) -> float | None:
    return None if event.amount is None else float(event.amount)


def money(value: int) -> str:
    return f"{value}.00"


def latest(events: Sequence[Pay]) -> Pay | None:
    return max(enumerate(events), key=lambda pair: (pair[1].ms, pair[0]))[1] if events else None


def deviation(events: Sequence[Pay], _: Pay) -> object:
    values = numbers(events)
    if len(values) < 2:
        return None
    mean = math.fsum(values) / len(values)
    return pytest.approx(math.sqrt(math.fsum((v - mean) ** 2 for v in values) / (len(values) - 1)), abs=1e-6)


def with_amount(events: Sequence[Pay]) -> list[Pay]:
    return [e for e in events if e.amount is not None]


def since_last(events: Sequence[Pay], event: Pay) -> object:
    found = latest(events)
    return None if found is None else event.ms - found.ms


def decayed(events: Sequence[Pay], event: Pay, half_life: int, read: Callable[[Pay], float | None]) -> object:
    known = [(value, e.minute) for e in events if (value := read(e)) is not None]
    now = max([event.minute, *(minute for _, minute in known)])
    known = [(value, now - minute) for value, minute in known]
    return pytest.approx(math.fsum(v * 0.5 ** (age / half_life) for v, age in known), rel=1e-12) if known else None


def first_of(events: Sequence[Pay], read: Callable[[Pay], object]) -> object:
    found = [e for e in events if read(e) is not None]
    return read(min(found, key=lambda e: e.ms)) if found else None


def last_card(events: Sequence[Pay], _: Pay) -> object:
    found = latest([e for e in events if e.card is not None])
    return None if found is None else found.card


def last_x(events: Sequence[Pay], _: Pay) -> object:
    found = latest([e for e in events if e.x is not None])
    return None if found is None else found.x


AGGREGATES: Mapping[str, Read] = {
    "count(*)": lambda events, _: len(events),
    "count(amount)": lambda events, _: len(with_amount(events)),
    "sum(amount)": lambda events, _: money(sum(e.amount or 0 for e in events)) if with_amount(events) else None,
    "avg(x)": lambda events, _: math.fsum(numbers(events)) / len(numbers(events)) if numbers(events) else None,
    "min(x)": lambda events, _: min(numbers(events), default=None),
    "max(amount)": lambda events, _: (
        money(max(e.amount or 0 for e in with_amount(events))) if with_amount(events) else None
    ),
    "stddev(x)": deviation,
    "count(distinct card)": lambda events, _: len({e.card for e in events} - {None}),
    "seen(card)": lambda events, event: None if event.card is None else event.card in {e.card for e in events},
    "first(card)": lambda events, _: first_of(events, lambda e: e.card),
    "first(x)": lambda events, _: first_of(events, lambda e: e.x),
    "last(card)": last_card,
    "last(x)": last_x,
    "time_decayed_count(interval 3 minutes)": lambda events, event: (
        decayed(events, event, 3, lambda _: 1.0) if events else 0.0
    ),
    "time_decayed_sum(x, interval 3 minutes)": lambda events, event: decayed(events, event, 3, lambda e: e.x),
    "time_decayed_sum(amount, interval 20 minutes)": lambda events, event: decayed(events, event, 20, money_in_units),
    "time_since_last()": since_last,
}
WHERES: Mapping[str | None, Callable[[Pay], bool]] = {
    None: lambda _: True,
    "amount > 1": lambda e: e.amount is not None and e.amount > 1,
}
KEYS: Mapping[tuple[str, ...], Callable[[Pay], object]] = {
    (): lambda e: e.user,
    ("user", "card"): lambda e: (e.user, e.card),
}
#: Keys by which the events of the rule, which is by user, are not routed.
OTHER_KEYS: Mapping[tuple[str, ...], Callable[[Pay], object]] = {
    ("card",): lambda e: e.card,
    ("n % 3",): lambda e: e.offset % 3,
    ("amount", "card"): lambda e: (e.amount, e.card),
}
WINDOWS: Mapping[str, tuple[int, int]] = {
    '{"sliding": "10m", "every": "1m"}': (1, 10),
    '{"sliding": "12m", "every": "4m"}': (4, 3),
    '{"tumbling": "5m"}': (5, 1),
}


@dataclass(frozen=True)
class Spec:
    of: str
    where: str | None
    by: tuple[str, ...]
    within: str
    including_this: bool

    def document(self, name: str) -> dict[str, object]:
        entries = {"name": name, "of": self.of, "by": self.by, "within": orjson.loads(self.within)}
        return entries | {"where": self.where, "including_this": self.including_this}

    def value(self, earlier: Sequence[Pay], event: Pay) -> object:
        """Return the value at the event; ``earlier``: all that arrived before it."""
        pane, panes = WINDOWS[self.within]
        known = [*earlier, event] if self.including_this else earlier
        key = {**KEYS, **OTHER_KEYS}[self.by]
        read = [e for e in known if key(e) == key(event) and e.minute // pane > event.minute // pane - panes]
        return AGGREGATES[self.of]([e for e in read if WHERES[self.where](e)], event)


def rule(
    specs: Sequence[Spec], version: int = 1, where: str = "n >= 0", name: str = "r", order: str = "on_arrival"
) -> RawRecord:
    document = {
        "order": order,
        "id": name,
        "version": version,
        "owner": "o",
        "on": "pay",
        "group_by": ["user"],
        "features": [spec.document(f"f{n}") for n, spec in enumerate(specs)],
        "where": where,
        "then": {"severity": "low", "message": "m"},
    }
    return control_record(version, name, orjson.dumps(document))


def on_time(cuts: Sequence[Sequence[Pay]], disorder: int) -> tuple[list[Pay], float]:
    """Return the events that are not late in order of arrival, and the last watermark."""
    watermark, newest = -math.inf, -math.inf
    arrived: list[Pay] = []
    for cut in cuts:
        arrived += [event for event in cut if event.ms >= watermark]
        newest = max([newest, *(e.ms for e in cut)])
        watermark = max(watermark, newest - disorder * MINUTE)
    return arrived, watermark


def values_over(events: Sequence[Pay], specs: Sequence[Spec]) -> dict[int, Mapping[str, object]]:
    """Return the values at each event, of those before it in the list."""
    return {
        event.offset: {f"f{n}": spec.value(events[:place], event) for n, spec in enumerate(specs)}
        for place, event in enumerate(events)
    }


def expected(specs: Sequence[Spec], cuts: Sequence[Sequence[Pay]], disorder: int) -> dict[int, Mapping[str, object]]:
    return values_over(on_time(cuts, disorder)[0], specs)


def expected_in_order(
    specs: Sequence[Spec], cuts: Sequence[Sequence[Pay]], disorder: int
) -> dict[int, Mapping[str, object]]:
    events, watermark = on_time(cuts, disorder)
    passed = sorted((e for e in events if e.ms < watermark), key=lambda e: (e.ms, e.offset))
    return values_over(passed, specs)


def split_into_cuts(events: Sequence[Pay], sizes: Sequence[int]) -> list[list[Pay]]:
    cuts: list[list[Pay]] = []
    start = 0
    while start < len(events):
        size = sizes[len(cuts) % len(sizes)]
        cuts.append([*events[start : start + size]])
        start += size
    return cuts
