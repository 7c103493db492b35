"""The alerts that the shipped rules of `rules/shop` must raise in the demo shop's stream, computed without the product.

The rules are written here a second time, by hand, in plain Python over parsed JSON. More events can make a rule true,
never false (counts, sums of amounts that are not negative, distinct counts), so the set of alerts does not depend on
the order in which partitions are read or cuts are made. Alerts are compared by their subject: rule and event, or rule,
key and window. A window fires early if some event of the rule lies in its last pane and all events of the rule in the
window together satisfy the rule.

A rule changed in `rules/shop` is changed here too; the test beside this module fails when the two differ.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from headgate.demo.shop.settings import DAY_MS, RecordFate, ShopRecord, ShopSettings
from headgate.demo.shop.stream import records

_MINUTE_MS: Final = 60_000
_HOUR_MS: Final = 3_600_000
#: The app's allowance for disorder, in milliseconds: the watermark is this far behind the latest event.
DISORDER_MS: Final = 10_000

_WATCHED: Final = ("BY", "KP", "MM", "NG", "RU", "VE")


@dataclass(frozen=True, slots=True)
class AlertId:
    """The subject of an alert: ``source`` (partition, offset) for an event rule, key and window for a windowed rule."""

    rule: str
    key: str | None = None
    window: tuple[int, int] | None = None
    source: tuple[int, int] | None = None

    @classmethod
    def of(cls, alert: bytes) -> AlertId:
        """Return the identity of an alert as it is on the alerts topic."""
        body = json.loads(alert)
        if body["kind"] == "event":
            return cls(body["rule"], source=(body["source"]["partition"], body["source"]["offset"]))
        (key,) = body["key"].values()
        return cls(body["rule"], key, (body["window"]["start_ms"], body["window"]["end_ms"]))


@dataclass(frozen=True, slots=True)
class ExpectedAlerts:
    """The expected output of the first ``records`` records. ``alerts``: those that must exist.

    ``uncertain``: the alerts of windows that end between the watermarks of the slowest and the fastest partition;
    whether they exist depends on the idle time-out. There are none when the stream ends with a full block.
    """

    records: int
    alerts: frozenset[AlertId]
    uncertain: frozenset[AlertId]
    dead_letters: int
    late: int


@dataclass(frozen=True, slots=True)
class Event:
    """A record's fields as the rules see them; money in cents."""

    type: str
    time_ms: int
    user_id: str | None
    card: str | None
    ip: str | None
    country: str | None
    status: str | None
    cents: int | None

    @classmethod
    def read(cls, value: bytes) -> Event:
        body = json.loads(value)
        amount = body.get("amount")
        return cls(
            type=body["type"],
            time_ms=body["ts"],
            user_id=body.get("user_id"),
            card=body.get("card"),
            ip=body.get("ip"),
            country=body.get("country"),
            status=body.get("status"),
            cents=None if amount is None else round(amount * 100),
        )

    @property
    def declined(self) -> bool:
        return self.type == "payment" and self.status == "declined"

    @property
    def paid(self) -> bool:
        return self.type == "payment" and self.status == "ok"

    def above(self, cents: int) -> bool:
        return self.cents is not None and self.cents > cents


@dataclass(slots=True)
class WindowTotals:
    """Totals of some events. ``count``: their number; ``cents``: the sum of their amounts; ``values``: the distinct
    values of the field that a rule counts."""

    count: int = 0
    cents: int = 0
    values: set[str] = field(default_factory=set)

    def add(self, event: Event, value: str | None) -> None:
        self.count += 1
        self.cents += event.cents or 0
        if value is not None:
            self.values.add(value)

    @classmethod
    def of(cls, parts: Iterable[WindowTotals]) -> WindowTotals:
        total = cls()
        for part in parts:
            total.count += part.count
            total.cents += part.cents
            total.values |= part.values
        return total


PER_EVENT: Final[Mapping[str, Callable[[Event], bool]]] = {
    "card-testing": lambda e: e.declined and e.cents is not None and e.cents < 200,
    "high-value-from-watched-country": lambda e: e.type == "payment" and e.above(50_000) and e.country in _WATCHED,
    "large-payment": lambda e: e.paid and e.above(499_999),
    "large-refund": lambda e: e.type == "refund" and e.above(50_000),
    "payment-without-account": lambda e: e.type == "payment" and e.user_id is None and e.above(19_999),
}


@dataclass(frozen=True, slots=True)
class WindowedRule:
    """A windowed rule. ``key`` returns the key of an event, or None if the rule ignores it; ``value`` returns the value
    that is counted once per window; ``holds`` is the condition; ``final``: the rule fires only when a window ends."""

    size_ms: int
    slide_ms: int
    key: Callable[[Event], str | None]
    holds: Callable[[WindowTotals], bool]
    value: Callable[[Event], str | None] = lambda _: None
    final: bool = False


WINDOWED: Final[Mapping[str, WindowedRule]] = {
    "card-in-many-countries": WindowedRule(
        DAY_MS,
        _HOUR_MS,
        key=lambda e: e.card if e.type == "payment" else None,
        value=lambda e: e.country,
        holds=lambda t: len(t.values) >= 3,
    ),
    "cart-add-flood": WindowedRule(
        _MINUTE_MS,
        _MINUTE_MS,
        key=lambda e: e.user_id if e.type == "cart_add" else None,
        holds=lambda t: t.count >= 20,
    ),
    "credential-stuffing": WindowedRule(
        10 * _MINUTE_MS,
        _MINUTE_MS,
        key=lambda e: e.ip if e.type == "login" and e.status == "failed" else None,
        value=lambda e: e.user_id,
        holds=lambda t: len(t.values) >= 5,
    ),
    "daily-big-spender": WindowedRule(
        DAY_MS,
        DAY_MS,
        key=lambda e: e.user_id if e.paid else None,
        holds=lambda t: t.cents >= 200_000 and t.count >= 2,
        final=True,
    ),
    "declined-card-burst": WindowedRule(
        10 * _MINUTE_MS,
        _MINUTE_MS,
        key=lambda e: e.card if e.declined else None,
        holds=lambda t: t.count >= 5,
    ),
    "login-failures": WindowedRule(
        5 * _MINUTE_MS,
        _MINUTE_MS,
        key=lambda e: e.user_id if e.type == "login" and e.status == "failed" else None,
        holds=lambda t: t.count >= 5,
    ),
    "many-cards-per-ip": WindowedRule(
        10 * _MINUTE_MS,
        _MINUTE_MS,
        key=lambda e: e.ip if e.type == "payment" else None,
        value=lambda e: e.card,
        holds=lambda t: len(t.values) >= 6,
    ),
    "many-cards-per-user": WindowedRule(
        _HOUR_MS,
        5 * _MINUTE_MS,
        key=lambda e: e.user_id if e.type == "payment" else None,
        value=lambda e: e.card,
        holds=lambda t: len(t.values) >= 4,
    ),
    "rapid-payments": WindowedRule(
        5 * _MINUTE_MS,
        _MINUTE_MS,
        key=lambda e: e.user_id if e.paid else None,
        holds=lambda t: t.count >= 4 and t.cents >= 10_000,
    ),
    "refund-burst": WindowedRule(
        DAY_MS,
        _HOUR_MS,
        key=lambda e: e.user_id if e.type == "refund" else None,
        holds=lambda t: t.count >= 5,
    ),
    "refund-sum": WindowedRule(
        DAY_MS,
        DAY_MS,
        key=lambda e: e.user_id if e.type == "refund" and e.status == "ok" else None,
        holds=lambda t: t.cents > 100_000,
        final=True,
    ),
    "view-flood": WindowedRule(
        _MINUTE_MS,
        _MINUTE_MS,
        key=lambda e: e.ip if e.type == "view" else None,
        holds=lambda t: t.count >= 40,
    ),
}


@dataclass(slots=True)
class AlertExpectation:
    """Computes the expected alerts; takes the records of a stream one by one, from the first."""

    partitions: int
    max_out_of_orderness_ms: int = DISORDER_MS
    _offsets: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    _latest_ms: dict[int, int] = field(default_factory=dict)
    _fates: dict[RecordFate, int] = field(default_factory=lambda: defaultdict(int))
    _alerts: set[AlertId] = field(default_factory=set)
    _panes: dict[str, dict[str, dict[int, WindowTotals]]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(lambda: defaultdict(WindowTotals)))
    )

    def add(self, record: ShopRecord) -> None:
        """Add the next record."""
        partition = record.partition(self.partitions)
        source = (partition, self._offsets[partition])
        self._offsets[partition] += 1
        self._fates[record.fate] += 1
        if record.fate is RecordFate.DEAD or record.value is None:
            return
        event = Event.read(record.value)
        self._latest_ms[partition] = max(self._latest_ms.get(partition, event.time_ms), event.time_ms)
        self._alerts |= {AlertId(rule, source=source) for rule, true in PER_EVENT.items() if true(event)}
        if record.fate is RecordFate.EVENT:
            self._add_to_panes(event)

    def _add_to_panes(self, event: Event) -> None:
        for name, rule in WINDOWED.items():
            key = rule.key(event)
            if key is not None:
                self._panes[name][key][event.time_ms // rule.slide_ms].add(event, rule.value(event))

    def result(self) -> ExpectedAlerts:
        """Return the expected output for the records so far, once the app has read them all."""
        times = self._latest_ms.values()
        slowest = min(times, default=0) - self.max_out_of_orderness_ms
        fastest = max(times, default=0) - self.max_out_of_orderness_ms
        certain, uncertain = set(self._alerts), set[AlertId]()
        for name, rule in WINDOWED.items():
            for alert, end_ms in _windows(name, rule, self._panes.get(name, {})):
                if not rule.final or end_ms <= slowest:
                    certain.add(alert)
                elif end_ms <= fastest:
                    uncertain.add(alert)
        fates = self._fates
        return ExpectedAlerts(
            sum(fates.values()),
            frozenset(certain),
            frozenset(uncertain),
            fates[RecordFate.DEAD],
            fates[RecordFate.LATE],
        )


def _windows(
    name: str, rule: WindowedRule, keys: Mapping[str, Mapping[int, WindowTotals]]
) -> Iterable[tuple[AlertId, int]]:
    """Yield the windows of a rule that satisfy it, and their ends. For which windows
    of a key are checked, see the module's docstring."""
    length = rule.size_ms // rule.slide_ms
    for key, panes in keys.items():
        last_panes = {p + i for p in panes for i in range(length)} if rule.final else panes
        for last in last_panes:
            if rule.holds(WindowTotals.of(panes[p] for p in range(last - length + 1, last + 1) if p in panes)):
                end_ms = (last + 1) * rule.slide_ms
                yield AlertId(name, key, (end_ms - rule.size_ms, end_ms)), end_ms


def expect(settings: ShopSettings, n: int, partitions: int) -> ExpectedAlerts:
    """Return the expected output for the first ``n`` records in a topic with ``partitions`` partitions that holds no
    other records."""
    expectation = AlertExpectation(partitions)
    for record in records(settings, 0, n):
        expectation.add(record)
    return expectation.result()
