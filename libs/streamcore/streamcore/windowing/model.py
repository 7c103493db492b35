"""The values that windows are described with: elements, windows, panes, drops. Times are epoch milliseconds.

The reference, the operators and the test transcripts share them. This module does not know how an element is assigned
to a window (``assigners``) or when a pane fires (``triggers``).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from enum import StrEnum

from streamcore.codes import Code
from streamcore.watermark import END_OF_TIME_MS as END_OF_TIME_MS  # noqa: PLC0414 - part of this vocabulary

#: The value of a field of an element.
Scalar = None | bool | int | float | Decimal | str | datetime
Fields = Mapping[str, Scalar]
#: The result of a window function.
Result = Scalar | tuple[Scalar | Fields, ...]


@dataclass(frozen=True, slots=True)
class Element:
    """One event of a key. ``value``: its fields. ``number``: how many elements of the key arrived before it."""

    key: Hashable
    value: Fields
    event_ms: int
    number: int


#: Returns the value of a pane for its elements, in order of arrival; there may be none. Aggregates are such functions.
WindowFunction = Callable[[Sequence[Element]], Result]


@dataclass(frozen=True, slots=True)
class Window:
    """An interval of event time: from ``start_ms`` to before ``end_ms``."""

    start_ms: int
    end_ms: int

    def overlaps(self, other: Window) -> bool:
        """Return whether both have an instant in common. Windows that only touch do not overlap."""
        return self.start_ms < other.end_ms and other.start_ms < self.end_ms

    def cover(self, other: Window) -> Window:
        """Return the smallest window that holds both."""
        return Window(min(self.start_ms, other.start_ms), max(self.end_ms, other.end_ms))


@dataclass(frozen=True, slots=True)
class CountWindow:
    """A window of the elements of a key with the numbers from ``first`` to before ``end``."""

    first: int
    end: int


AnyWindow = Window | CountWindow


class Timing(StrEnum):
    """When a pane fired, relative to the end of its window.

    EARLY: before the watermark reached the end. ON_TIME: the first pane after that, of a window that existed before.
    LATE: every other pane.
    """

    EARLY = "early"
    ON_TIME = "on_time"
    LATE = "late"


class Accumulation(StrEnum):
    """Which elements of earlier panes of its window a pane contains.

    ACCUMULATING: all. DISCARDING: none. RETRACTING: all, and a retraction of the previous pane is emitted first.
    """

    ACCUMULATING = "accumulating"
    DISCARDING = "discarding"
    RETRACTING = "retracting"


@dataclass(frozen=True, slots=True)
class FiredPane:
    """One pane of one window of one key, or its retraction. ``(key, window, pane_index)`` is unique.

    A retraction has the index after that of the retracted pane. ``is_first``: the index is 0. ``is_final``: no pane of
    this window follows. ``value``: the result of the window function for ``elements``.
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
    """An element that one of its windows did not accept. ``lateness_ms``: how far it was behind the watermark, or 0."""

    element: Element
    window: AnyWindow
    reason: DropReason
    lateness_ms: int


@dataclass(frozen=True, slots=True)
class WindowOutput:
    """The output for one input: fired panes in order, and dropped elements."""

    firings: tuple[FiredPane, ...] = ()
    dropped: tuple[DroppedElement, ...] = ()


@dataclass(frozen=True, slots=True)
class WindowCounts:
    """Counts of all elements. An assignment is one element in one window.

    Always holds: ``assignments == on_time + late_accepted + dropped_expired + dropped_closed``. ``evicted`` counts,
    over all panes, the elements that an evictor left out; they stay in their window and are also counted above.
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
        """Return whether the counts of assignments add up."""
        dropped = self.dropped_expired + self.dropped_closed
        return self.assignments == self.on_time + self.late_accepted + dropped
