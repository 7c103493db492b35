"""Divides event time into slices, so that each window consists of whole slices.

Windows and slices are numbered in the order of their starts. Window ``w`` consists of the slices from ``w * step`` up
to, not including, ``w * step + length``. If the slide does not divide the size, each slide consists of two slices. (Li,
Maier, Tufte, Papadimos, Tucker: "No pane, no gain", 2005. Their panes are called slices here; a pane here is one firing
of a window.)
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import Protocol
from zoneinfo import ZoneInfo

import numpy as np

from streamcore.columnar.hash_table import Ints
from streamcore.windowing.assigners import Assigner, CalendarDay, Sliding, Tumbling

_DAY_MS = 86_400_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MS = timedelta(milliseconds=1)
_FIRST_DAY = date.min.toordinal() + 2
_LAST_DAY = date.max.toordinal() - 3
_EPOCH_DAY = date(1970, 1, 1).toordinal()


class Slicing(Protocol):
    """The slices of an assigner's windows.

    ``step``: how many slices the start of a window is after that of the window before it. ``length``: how many slices a
    window has.
    """

    @property
    def step(self) -> int: ...
    @property
    def length(self) -> int: ...

    def slices(self, event_ms: Ints) -> Ints:
        """Return the number of the slice of each event time."""
        ...

    def bounds(self, window: int) -> tuple[int, int]:
        """Return start and end of a window, in milliseconds."""
        ...

    def last_ended(self, watermark_ms: int) -> int:
        """Return the number of the last window whose end the watermark has reached."""
        ...


@dataclass(frozen=True, slots=True)
class EvenSlicing:
    """The slices of tumbling and sliding windows."""

    size_ms: int
    slide_ms: int
    offset_ms: int

    @property
    def step(self) -> int:
        return 2 if self.size_ms % self.slide_ms else 1

    @property
    def length(self) -> int:
        return self.size_ms // self.slide_ms * self.step + (self.step - 1)

    def slices(self, event_ms: Ints) -> Ints:
        since = event_ms - self.offset_ms
        slide = since // self.slide_ms
        if self.step == 1:
            return slide
        return 2 * slide + (since - slide * self.slide_ms >= self.size_ms % self.slide_ms)

    def bounds(self, window: int) -> tuple[int, int]:
        start_ms = window * self.slide_ms + self.offset_ms
        return start_ms, start_ms + self.size_ms

    def last_ended(self, watermark_ms: int) -> int:
        return (watermark_ms - self.size_ms - self.offset_ms) // self.slide_ms


@dataclass(frozen=True)
class CalendarSlicing:
    """Calendar days: a window is its date's ordinal. Times before the year 1 or after 9999 count to its edge."""

    zone: str
    step: int = 1
    length: int = 1
    _first: dict[int, int] = field(default_factory=dict, compare=False)

    def slices(self, event_ms: Ints) -> Ints:
        """Find the dates by the first instants of the dates around each event's date in UTC.

        No zone is a whole day away from UTC.
        """
        near = np.unique(event_ms // _DAY_MS) + _EPOCH_DAY
        days = np.unique(np.clip(near[:, None] + np.arange(-1, 3), _FIRST_DAY, _LAST_DAY))
        firsts = np.array([self.first_ms(day) for day in days.tolist()], dtype=np.int64)
        return days[np.maximum(np.searchsorted(firsts, event_ms, side="right") - 1, 0)]

    def bounds(self, window: int) -> tuple[int, int]:
        return self.first_ms(window), self.first_ms(window + 1)

    def last_ended(self, watermark_ms: int) -> int:
        day = min(max(watermark_ms // _DAY_MS + _EPOCH_DAY + 1, _FIRST_DAY), _LAST_DAY)
        while day >= _FIRST_DAY and self.first_ms(day + 1) > watermark_ms:
            day -= 1
        return day

    def first_ms(self, day: int) -> int:
        """Return the first instant of a date."""
        if day not in self._first:
            at = date.fromordinal(day)
            self._first[day] = (datetime(at.year, at.month, at.day, tzinfo=ZoneInfo(self.zone)) - _EPOCH) // _MS
        return self._first[day]


def slicing_for(assigner: Assigner) -> Slicing | None:
    """Return the slices of an assigner's windows, if they are equal for all keys; else None."""
    match assigner:
        case Tumbling(size_ms, offset_ms):
            return EvenSlicing(size_ms, size_ms, offset_ms)
        case Sliding(size_ms, slide_ms, offset_ms):
            return EvenSlicing(size_ms, slide_ms, offset_ms)
        case CalendarDay(zone):
            return CalendarSlicing(zone)
    return None
