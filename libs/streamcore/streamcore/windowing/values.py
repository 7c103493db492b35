"""What windows are made of: elements, windows, panes. Frozen values with times in epoch milliseconds.

Exists so that the reference, the kernels and the transcripts mean the same things by the same names. Refuses to know
how an element gets into a window or when a pane fires.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from typing import Final

#: A field of an element.
Scalar = None | bool | int | float | Decimal | str | datetime
Fields = Mapping[str, Scalar]
#: What a window function answers.
Result = Scalar | tuple[Scalar | Fields, ...]

#: The watermark after the last element of all, and the end of the global window. No event time comes near it.
END_OF_TIME_MS: Final = 2**62


@dataclass(frozen=True, slots=True)
class Element:
    """One event under a key. ``number``: how many elements of its key arrived before it."""

    key: Hashable
    value: Fields
    event_ms: int
    number: int


#: From the elements of a pane, in order of arrival and maybe none, to its value. Aggregates are such functions.
WindowFunction = Callable[[Sequence[Element]], Result]


@dataclass(frozen=True, slots=True)
class Window:
    """Event time from ``start_ms`` up to, not including, ``end_ms``."""

    start_ms: int
    end_ms: int

    def overlaps(self, other: Window) -> bool:
        """Whether some instant is in both. Windows that only touch do not overlap."""
        return self.start_ms < other.end_ms and other.start_ms < self.end_ms

    def cover(self, other: Window) -> Window:
        """The smallest window that holds both."""
        return Window(min(self.start_ms, other.start_ms), max(self.end_ms, other.end_ms))


@dataclass(frozen=True, slots=True)
class CountWindow:
    """The elements of a key by order of arrival, from number ``first`` up to, not including, number ``end``."""

    first: int
    end: int


AnyWindow = Window | CountWindow


class Timing(StrEnum):
    """When a pane fired, as seen from its window's end.

    EARLY: before the watermark reached it. ON_TIME: the first pane from then on, of a window that was there before.
    LATE: every other pane.
    """

    EARLY = "early"
    ON_TIME = "on_time"
    LATE = "late"


class Accumulation(StrEnum):
    """What a pane holds of the panes of its window before it.

    ACCUMULATING: all their elements. DISCARDING: none. RETRACTING: all, and first the last pane is taken back.
    """

    ACCUMULATING = "accumulating"
    DISCARDING = "discarding"
    RETRACTING = "retracting"


@dataclass(frozen=True, slots=True)
class Firing:
    """One pane of one window of one key, or its retraction. ``(key, window, pane_index)`` is its unique name.

    A retraction takes an index of its own, the one after the pane that it takes back. ``is_first``: index 0.
    ``is_final``: nothing of this window follows. ``value``: the window function of ``elements``.
    """

    key: Hashable
    window: AnyWindow
    pane_index: int
    timing: Timing
    is_first: bool
    is_final: bool
    is_retraction: bool
    value: Result
    elements: tuple[Element, ...]


class DropReason(StrEnum):
    """EXPIRED: the watermark had passed the window's end and the allowed lateness. CLOSED: its trigger had finished."""

    EXPIRED = "expired"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class Dropped:
    """An element that one of its windows did not take. ``lateness_ms``: how far it was behind the watermark, or 0."""

    element: Element
    window: AnyWindow
    reason: DropReason
    lateness_ms: int


@dataclass(frozen=True, slots=True)
class Output:
    """What one input brought about: panes in the order of firing, and the lane of what was dropped."""

    firings: tuple[Firing, ...] = ()
    dropped: tuple[Dropped, ...] = ()


@dataclass(frozen=True, slots=True)
class Counts:
    """What became of everything that came in. An assignment is one element in one window.

    The law: ``assignments == on_time + late_accepted + dropped_expired + dropped_closed``. ``evicted`` counts, over all
    panes, the elements left out of the view; they stay in their window and are already counted above.
    """

    elements: int = 0
    assignments: int = 0
    on_time: int = 0
    late_accepted: int = 0
    dropped_expired: int = 0
    dropped_closed: int = 0
    evicted: int = 0

    @property
    def balanced(self) -> bool:
        """Whether the law holds."""
        dropped = self.dropped_expired + self.dropped_closed
        return self.assignments == self.on_time + self.late_accepted + dropped
