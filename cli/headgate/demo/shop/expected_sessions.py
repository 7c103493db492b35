"""The expected table of the sessions app after a part of the demo shop's stream, computed without the product.

A session is a sequence of a user's events with less than the gap between two neighbours; duplicates and late events do
not count. Once the watermark has passed its end, its row must exist with the right values; once the watermark has
passed the end by the allowed lateness, the row must be final. Before, the row may be missing or older, because the app
publishes open sessions at intervals of the clock.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from headgate.demo.shop.expected_alerts import DISORDER_MS
from headgate.demo.shop.settings import RecordFate, ShopRecord

_FUNNEL: Final = ("view", "cart_add", "checkout", "payment")
_SIGNS: Final[Mapping[str, int]] = {"payment": 1, "refund": -1}
_FAILED: Final = ("declined", "failed")


@dataclass(frozen=True, slots=True)
class SessionRow:
    """The compared values of a session; times in epoch milliseconds, money in cents."""

    user_id: str
    started_ms: int
    ended_ms: int
    events: int
    pages: int
    first_page: str | None
    last_page: str | None
    funnel_step: int
    converted: bool
    cents: int
    currency: str | None
    bounce: bool

    def within(self, whole: SessionRow) -> bool:
        """Return whether this row may be an earlier state of the row ``whole``."""
        inside = whole.started_ms <= self.started_ms and self.ended_ms <= whole.ended_ms
        return inside and self.events <= whole.events and self.pages <= whole.pages


@dataclass(frozen=True, slots=True)
class ExpectedSession:
    """An expected session. ``is_required``: the row must exist with these values.

    ``final``: whether it must be marked final; None: either, because it depends on whether the slowest or the
    fastest partition determines the watermark.
    """

    row: SessionRow
    is_required: bool
    final: bool | None


@dataclass(frozen=True, slots=True)
class ExpectedSessions:
    """The expected output of the first ``records`` records of the stream."""

    records: int
    sessions: tuple[ExpectedSession, ...]
    dead_letters: int
    late: int


@dataclass(frozen=True, slots=True)
class _Event:
    time_ms: int
    type: str
    page: str | None
    failed: bool
    cents: int
    currency: str | None


@dataclass(slots=True)
class SessionsExpectation:
    """Computes the expected sessions; takes the records of a stream one by one, from the first."""

    partitions: int
    gap_ms: int
    lateness_ms: int
    max_out_of_orderness_ms: int = DISORDER_MS
    _users: dict[str, dict[str, _Event]] = field(default_factory=lambda: defaultdict(dict))
    _latest_ms: dict[int, int] = field(default_factory=dict)
    _fates: dict[RecordFate, int] = field(default_factory=lambda: defaultdict(int))

    def add(self, record: ShopRecord) -> None:
        """Add the next record."""
        self._fates[record.fate] += 1
        if record.fate is not RecordFate.EVENT or record.value is None:
            return
        body = json.loads(record.value)
        partition = record.partition(self.partitions)
        self._latest_ms[partition] = max(self._latest_ms.get(partition, body["ts"]), body["ts"])
        if body.get("user_id") is not None:
            self._users[body["user_id"]][body["event_id"]] = _event(body)

    def result(self) -> ExpectedSessions:
        """Return the expected sessions for the records so far, once the app has read them all."""
        times = self._latest_ms.values()
        slowest = min(times, default=0) - self.max_out_of_orderness_ms
        fastest = max(times, default=0) - self.max_out_of_orderness_ms
        sessions = tuple(
            self._session(_row(user, events), slowest, fastest)
            for user, user_events in self._users.items()
            for events in _sessions(sorted(user_events.values(), key=lambda event: event.time_ms), self.gap_ms)
        )
        fates = self._fates
        return ExpectedSessions(sum(fates.values()), sessions, fates[RecordFate.DEAD], fates[RecordFate.LATE])

    def _session(self, row: SessionRow, slowest: int, fastest: int) -> ExpectedSession:
        end_ms = row.ended_ms + self.gap_ms
        final_ms = end_ms + self.lateness_ms
        final = True if final_ms <= slowest else None if final_ms <= fastest else False
        return ExpectedSession(row, end_ms <= slowest, final)


def _event(body: Mapping[str, str | int | float | None]) -> _Event:
    amount, page, currency = body.get("amount"), body.get("product_id"), body.get("currency")
    return _Event(
        int(str(body["ts"])),
        str(body["type"]),
        None if page is None else str(page),
        body.get("status") in _FAILED,
        0 if amount is None else round(float(amount) * 100),
        None if currency is None else str(currency),
    )


def _sessions(events: Sequence[_Event], gap_ms: int) -> Iterator[list[_Event]]:
    """Yield the events of each session of one user. ``events``: in order of time."""
    session: list[_Event] = []
    for event in events:
        if session and event.time_ms - session[-1].time_ms >= gap_ms:
            yield session
            session = []
        session.append(event)
    if session:
        yield session


def _row(user: str, events: Sequence[_Event]) -> SessionRow:
    paid_events = [event for event in events if event.type in _SIGNS and not event.failed]
    page_times = [(event.time_ms, event.page) for event in events if event.page is not None]
    converted = any(event.type == "payment" for event in paid_events)
    return SessionRow(
        user_id=user,
        started_ms=events[0].time_ms,
        ended_ms=events[-1].time_ms,
        events=len(events),
        pages=len({page for _, page in page_times}),
        first_page=min(page_times)[1] if page_times else None,
        last_page=max(page_times)[1] if page_times else None,
        funnel_step=_funnel_step(events),
        converted=converted,
        cents=sum(_SIGNS[event.type] * event.cents for event in paid_events),
        currency=min((event.time_ms, event.currency or "XXX") for event in paid_events)[1] if paid_events else None,
        bounce=len(events) <= 1 and not converted,
    )


def _funnel_step(events: Sequence[_Event]) -> int:
    """Return how many steps of the funnel the events reach in order; events of the same time count in the best
    order."""
    types_by_time: dict[int, set[str]] = defaultdict(set)
    for event in events:
        if not event.failed:
            types_by_time[event.time_ms].add(event.type)
    step = 0
    for time_ms in sorted(types_by_time):
        while step < len(_FUNNEL) and _FUNNEL[step] in types_by_time[time_ms]:
            step += 1
    return step
