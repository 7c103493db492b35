"""Which windows an element belongs to.

Each assigner is a frozen value, and ``windows`` a pure function of one element. Promises: at least one window for
every element, in order of their starts, each holding the element; negative times are as good as others. Refuses to
know watermarks, triggers, and which windows exist: the owner of the windows merges sessions.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import ClassVar
from zoneinfo import ZoneInfo

from streamcore.errors import ConfigError
from streamcore.windowing.model import END_OF_TIME_MS, AnyWindow, CountWindow, Element, Window

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MS = timedelta(milliseconds=1)


class Assigner(ABC):
    """The windows of an element. The class variables describe the kind of windows."""

    #: Windows of one key that overlap become one.
    merges: ClassVar[bool] = False
    #: Windows end by the watermark, not by arrival.
    in_event_time: ClassVar[bool] = True
    #: Windows end before the stream does, so that something can come late.
    ends: ClassVar[bool] = True

    @abstractmethod
    def windows(self, element: Element) -> tuple[AnyWindow, ...]:
        """Return the windows that the element belongs to, by start."""


@dataclass(frozen=True)
class Tumbling(Assigner):
    """Event time cut into equal pieces, one of which starts at ``offset_ms``."""

    size_ms: int
    offset_ms: int = 0

    def __post_init__(self) -> None:
        _need(self.size_ms > 0, f"size_ms must be positive, not {self.size_ms}")
        _need(abs(self.offset_ms) < self.size_ms, f"offset_ms must be within one size_ms, not {self.offset_ms}")

    def windows(self, element: Element) -> tuple[Window]:
        start_ms = _floor(element.event_ms, self.size_ms, self.offset_ms)
        return (Window(start_ms, start_ms + self.size_ms),)


@dataclass(frozen=True)
class Sliding(Assigner):
    """A window of ``size_ms`` starting every ``slide_ms``, one of them at ``offset_ms``."""

    size_ms: int
    slide_ms: int
    offset_ms: int = 0

    def __post_init__(self) -> None:
        _need(self.slide_ms > 0, f"slide_ms must be positive, not {self.slide_ms}")
        _need(
            self.slide_ms <= self.size_ms,
            f"slide_ms ({self.slide_ms}) above size_ms ({self.size_ms}) leaves events without a window",
        )
        _need(abs(self.offset_ms) < self.slide_ms, f"offset_ms must be within one slide_ms, not {self.offset_ms}")

    def windows(self, element: Element) -> tuple[Window, ...]:
        last_ms = _floor(element.event_ms, self.slide_ms, self.offset_ms)
        first_ms = _floor(element.event_ms - self.size_ms, self.slide_ms, self.offset_ms) + self.slide_ms
        starts = range(first_ms, last_ms + 1, self.slide_ms)
        return tuple(Window(start_ms, start_ms + self.size_ms) for start_ms in starts)


@dataclass(frozen=True)
class Session(Assigner):
    """Runs of events with less than a gap between neighbours; an event a whole gap later starts a new session.

    ``gap_field``: the field with the event's own gap in milliseconds; ``gap_ms`` serves where it holds no positive
    whole number.
    """

    gap_ms: int
    gap_field: str | None = None
    merges: ClassVar[bool] = True

    def __post_init__(self) -> None:
        _need(self.gap_ms > 0, f"gap_ms must be positive, not {self.gap_ms}")

    def windows(self, element: Element) -> tuple[Window]:
        """Return the session of this element alone, to be merged with those it overlaps."""
        return (Window(element.event_ms, element.event_ms + self._gap_ms(element)),)

    def _gap_ms(self, element: Element) -> int:
        own = None if self.gap_field is None else element.value.get(self.gap_field)
        usable = isinstance(own, int) and not isinstance(own, bool) and own > 0
        return own if usable and isinstance(own, int) else self.gap_ms


@dataclass(frozen=True)
class GlobalWindow(Assigner):
    """One window for all time; it ends with the stream."""

    ends: ClassVar[bool] = False

    def windows(self, element: Element) -> tuple[Window]:
        return (Window(-END_OF_TIME_MS, END_OF_TIME_MS),)


@dataclass(frozen=True)
class CalendarDay(Assigner):
    """A calendar day in an IANA zone: from the first instant of its date to the first instant of the next.

    23 or 25 hours where the clocks change. Where a change at midnight brings a date back for minutes, the date's first
    instant still begins the day.
    """

    zone: str

    def __post_init__(self) -> None:
        try:
            ZoneInfo(self.zone)
        except (KeyError, ValueError, OSError) as error:
            raise ConfigError(
                f"{self.zone!r} is no zone of the IANA database; write for example Europe/Paris"
            ) from error

    def windows(self, element: Element) -> tuple[Window]:
        day = (_EPOCH + element.event_ms * _MS).astimezone(ZoneInfo(self.zone)).date()
        if element.event_ms >= self._first_ms(_next(day)):
            day = _next(day)
        return (Window(self._first_ms(day), self._first_ms(_next(day))),)

    def _first_ms(self, day: date) -> int:
        """Return a midnight that the clocks skip is the instant of the change; of two midnights it is the earlier."""
        return (datetime(day.year, day.month, day.day, tzinfo=ZoneInfo(self.zone)) - _EPOCH) // _MS


@dataclass(frozen=True)
class CountTumbling(Assigner):
    """Every ``count`` elements of a key, in order of arrival."""

    count: int
    in_event_time: ClassVar[bool] = False

    def __post_init__(self) -> None:
        _need(self.count > 0, f"count must be positive, not {self.count}")

    def windows(self, element: Element) -> tuple[CountWindow]:
        first = _floor(element.number, self.count, 0)
        return (CountWindow(first, first + self.count),)


@dataclass(frozen=True)
class CountSliding(Assigner):
    """``count`` elements of a key in order of arrival, a new window beginning with every ``every``-th element."""

    count: int
    every: int
    in_event_time: ClassVar[bool] = False

    def __post_init__(self) -> None:
        _need(self.every > 0, f"every must be positive, not {self.every}")
        _need(self.every <= self.count, f"every ({self.every}) above count ({self.count}) leaves elements out")

    def windows(self, element: Element) -> tuple[CountWindow, ...]:
        last = _floor(element.number, self.every, 0)
        first = max(0, _floor(element.number - self.count, self.every, 0) + self.every)
        return tuple(CountWindow(start, start + self.count) for start in range(first, last + 1, self.every))


def _floor(point: int, step: int, offset: int) -> int:
    """Return the last multiple of ``step`` from ``offset`` that is not after ``point``, also below zero."""
    return (point - offset) // step * step + offset


def _next(day: date) -> date:
    return day + timedelta(days=1)


def _need(holds: object, otherwise: str) -> None:
    if not holds:
        raise ConfigError(otherwise)
