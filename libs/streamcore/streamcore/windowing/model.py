"""The parts of windows: elements, windows, panes. Frozen values with times in epoch milliseconds.

Exists so that the reference, the kernels and the transcripts mean the same things by the same names. Refuses to know
how an element gets into a window or when a pane fires.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from enum import StrEnum

from streamcore.codes import Code
from streamcore.watermark import END_OF_TIME_MS as END_OF_TIME_MS  # noqa: PLC0414 - part of this vocabulary

#: A field of an element.
Scalar = None | bool | int | float | Decimal | str | datetime
Fields = Mapping[str, Scalar]
#: What a window function answers.
Result = Scalar | tuple[Scalar | Fields, ...]


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
        """Return whether some instant is in both. Windows that only touch do not overlap."""
        return self.start_ms < other.end_ms and other.start_ms < self.end_ms

    def cover(self, other: Window) -> Window:
        """Return the smallest window that holds both."""
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
    """The share of earlier panes of its window that a pane holds.

    ACCUMULATING: all their elements. DISCARDING: none. RETRACTING: all, and first the last pane is taken back.
    """

    ACCUMULATING = "accumulating"
    DISCARDING = "discarding"
    RETRACTING = "retracting"


@dataclass(frozen=True, slots=True)
class FiredPane:
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


class DropReason(Code):
    """Reasons of rows on the lane `late` that a window does not take, in the column `late_reason`."""

    EXPIRED = (
        "expired",
        "The watermark has passed the end of the window and the allowed lateness.",
        "Raise the allowed lateness, or `max_out_of_orderness_ms`.",
    )
    CLOSED = (
        "closed",
        "The trigger of the window has finished.",
        "Use a trigger that repeats, if later rows matter.",
    )


@dataclass(frozen=True, slots=True)
class DroppedElement:
    """An element that one of its windows did not take. ``lateness_ms``: how far it was behind the watermark, or 0."""

    element: Element
    window: AnyWindow
    reason: DropReason
    lateness_ms: int


@dataclass(frozen=True, slots=True)
class WindowOutput:
    """The effects of one input: panes in the order of firing, and the lane of dropped elements."""

    firings: tuple[FiredPane, ...] = ()
    dropped: tuple[DroppedElement, ...] = ()


@dataclass(frozen=True, slots=True)
class WindowCounts:
    """The fate of every element that came in. An assignment is one element in one window.

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
    def is_balanced(self) -> bool:
        """Return whether the law holds."""
        dropped = self.dropped_expired + self.dropped_closed
        return self.assignments == self.on_time + self.late_accepted + dropped
