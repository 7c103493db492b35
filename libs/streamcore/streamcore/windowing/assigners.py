"""Assigners: which windows an element belongs to.

An assigner is immutable, and ``windows`` is a pure function of one element. It returns windows ordered by start, each
of which contains the element: at least one, except for samples (``Sliding``). Negative times are valid. An assigner
does not know which windows exist: the owner of the windows merges sessions.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import ClassVar
from zoneinfo import ZoneInfo

from streamcore.arguments import check_whole
from streamcore.durations import DurationField
from streamcore.errors import ConfigError
from streamcore.windowing.model import END_OF_TIME_MS, AnyWindow, CountWindow, Element, Window

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MS = timedelta(milliseconds=1)
#: The longest gap of a session: a thousand years, so that the end of a session is a date.
MAX_GAP_MS = 1_000 * 366 * 86_400_000


class Assigner(ABC):
    """The base class of assigners. The class variables describe the kind of windows."""

    #: Overlapping windows of one key are merged.
    merges: ClassVar[bool] = False
    #: Windows end by the watermark, not by arrival.
    in_event_time: ClassVar[bool] = True
    #: Windows end before the stream does, so that elements can be late.
    ends: ClassVar[bool] = True

    @abstractmethod
    def windows(self, element: Element) -> tuple[AnyWindow, ...]:
        """Return the windows that the element belongs to, ordered by start."""


@dataclass(frozen=True)
class Tumbling(Assigner):
    """Adjacent windows of ``size_ms``, one of which starts at ``offset_ms``.

    Durations are text such as ``"10m"``, a ``timedelta``, or milliseconds (``streamcore.durations``).
    """

    size_ms: DurationField = DurationField()
    offset_ms: DurationField = DurationField(0)

    def __post_init__(self) -> None:
        _require(self.size_ms > 0, f"size_ms must be positive, not {self.size_ms}")
        _require(abs(self.offset_ms) < self.size_ms, f"offset_ms must be within one size_ms, not {self.offset_ms}")

    def windows(self, element: Element) -> tuple[Window]:
        start_ms = _floor(element.event_ms, self.size_ms, self.offset_ms)
        return (Window(start_ms, start_ms + self.size_ms),)


@dataclass(frozen=True)
class Sliding(Assigner):
    """Windows of ``size_ms`` that start every ``slide_ms``, one of them at ``offset_ms``.

    With a ``slide_ms`` above ``size_ms`` the windows are samples: an event between two of them is in no window, and is
    neither counted nor late.
    """

    size_ms: DurationField = DurationField()
    slide_ms: DurationField = DurationField()
    offset_ms: DurationField = DurationField(0)

    def __post_init__(self) -> None:
        _require(self.slide_ms > 0, f"slide_ms must be positive, not {self.slide_ms}")
        _require(abs(self.offset_ms) < self.slide_ms, f"offset_ms must be within one slide_ms, not {self.offset_ms}")

    def windows(self, element: Element) -> tuple[Window, ...]:
        last_ms = _floor(element.event_ms, self.slide_ms, self.offset_ms)
        first_ms = _floor(element.event_ms - self.size_ms, self.slide_ms, self.offset_ms) + self.slide_ms
        starts = range(first_ms, last_ms + 1, self.slide_ms)
        return tuple(Window(start_ms, start_ms + self.size_ms) for start_ms in starts)


@dataclass(frozen=True)
class Session(Assigner):
    """Sessions of events less than ``gap_ms`` apart. An event ``gap_ms`` or more after the last starts a new session.

    ``gap_field``: a field with the gap of the event in milliseconds; ``gap_ms`` is used if it is no positive integer up
    to ``MAX_GAP_MS``.
    """

    gap_ms: DurationField = DurationField()
    gap_field: str | None = None
    merges: ClassVar[bool] = True

    def __post_init__(self) -> None:
        _require(0 < self.gap_ms <= MAX_GAP_MS, f"gap_ms must be positive and at most {MAX_GAP_MS}, not {self.gap_ms}")

    def windows(self, element: Element) -> tuple[Window]:
        """Return the session of this element alone. The caller merges it with overlapping sessions."""
        return (Window(element.event_ms, element.event_ms + self._gap_ms(element)),)

    def _gap_ms(self, element: Element) -> int:
        gap = None if self.gap_field is None else element.value.get(self.gap_field)
        usable = isinstance(gap, int) and not isinstance(gap, bool) and 0 < gap <= MAX_GAP_MS
        return gap if usable and isinstance(gap, int) else self.gap_ms


@dataclass(frozen=True)
class GlobalWindow(Assigner):
    """One window for all event time, which ends with the stream."""

    ends: ClassVar[bool] = False

    def windows(self, element: Element) -> tuple[Window]:
        return (Window(-END_OF_TIME_MS, END_OF_TIME_MS),)


@dataclass(frozen=True)
class CalendarDay(Assigner):
    """Calendar days in an IANA zone: from the first instant of a date to the first instant of the next date.

    A day has 23 or 25 hours when the clocks change. If a change at midnight repeats some minutes of a date, the day
    still starts at the first instant of its date.
    """

    zone: str

    def __post_init__(self) -> None:
        try:
            ZoneInfo(self.zone)
        except (KeyError, ValueError, OSError) as error:
            raise ConfigError(
                f"{self.zone!r} is not a zone of the IANA database; write for example Europe/Paris"
            ) from error

    def windows(self, element: Element) -> tuple[Window]:
        day = (_EPOCH + element.event_ms * _MS).astimezone(ZoneInfo(self.zone)).date()
        if element.event_ms >= self._first_ms(_next_day(day)):
            day = _next_day(day)
        return (Window(self._first_ms(day), self._first_ms(_next_day(day))),)

    def _first_ms(self, day: date) -> int:
        """Return the first instant of a day: the change if midnight is skipped, or the earlier of two midnights."""
        return (datetime(day.year, day.month, day.day, tzinfo=ZoneInfo(self.zone)) - _EPOCH) // _MS


@dataclass(frozen=True)
class CountTumbling(Assigner):
    """Windows of ``count`` elements of a key, in order of arrival."""

    count: int
    in_event_time: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_whole(count=self.count)
        _require(self.count > 0, f"count must be positive, not {self.count}")

    def windows(self, element: Element) -> tuple[CountWindow]:
        first = _floor(element.number, self.count, 0)
        return (CountWindow(first, first + self.count),)


@dataclass(frozen=True)
class CountSliding(Assigner):
    """Windows of ``count`` elements of a key, in order of arrival; each ``every``-th element starts a window.

    Flink's ``countWindow(10, 3)``, which fires at every third element with the last ten, is ``GlobalWindow()`` with
    ``Repeatedly(AfterCount(3))`` and ``KeepCount(10)``.
    """

    count: int
    every: int
    in_event_time: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_whole(count=self.count, every=self.every)
        _require(self.every > 0, f"every must be positive, not {self.every}")
        _require(
            self.every <= self.count,
            f"every ({self.every}) above count ({self.count}) leaves elements without a window",
        )

    def windows(self, element: Element) -> tuple[CountWindow, ...]:
        last = _floor(element.number, self.every, 0)
        first = max(0, _floor(element.number - self.count, self.every, 0) + self.every)
        return tuple(CountWindow(start, start + self.count) for start in range(first, last + 1, self.every))


def _floor(point: int, step: int, offset: int) -> int:
    """Return the largest ``offset + n * step`` (n may be negative) that is not above ``point``."""
    return (point - offset) // step * step + offset


def _next_day(day: date) -> date:
    return day + timedelta(days=1)


def _require(condition: object, message: str) -> None:
    if not condition:
        raise ConfigError(message)
