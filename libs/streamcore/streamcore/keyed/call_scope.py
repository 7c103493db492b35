"""The scope of one call of a keyed function: the current key, the times, and the journal that undoes a failed call.

One scope is shared by all states, timers and outputs of a function. For each change they append to the journal the
call that undoes it. A failed call is undone from the latest change back; a successful one clears the journal.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NoReturn, SupportsIndex

from streamcore.watermark import NO_WATERMARK


class TimeDomain(StrEnum):
    """EVENT: the time that events carry, moved by the watermark. CLOCK: processing time, moved by the cut's clock."""

    EVENT = "event"
    CLOCK = "clock"


class _NoKey:
    """Takes the place of a key slot while there is no current key: every use as an index or in a dictionary raises."""

    def __index__(self) -> NoReturn:
        raise LookupError(
            "there is no current key here: state and timers belong to a key, and control records have none"
        )

    __hash__ = __index__  # dictionaries by key slot raise too


NO_KEY: SupportsIndex = _NoKey()


@dataclass(slots=True)
class CallScope:
    """The current key, the times and the journal of one call. Times are epoch milliseconds.

    ``key_slot``: the index of the current key's state. ``row``: the number of the input row, of a function without a
    key. ``event_ms``: the time of the event or timer. ``now_ms``: the event time by which state expires, never before
    the watermark. ``in_control``: a control record is processed. ``journal``: functions and arguments that undo the
    call. ``emptied``: key slots that lost a value or timer, so that the key may have no state left. ``counts``: for the
    metrics. ``after_undo``: called after every undo.
    """

    key_slot: int = NO_KEY  # type: ignore[assignment]  # raises on use, which saves a check at each use
    row: int = 0
    event_ms: int = 0
    now_ms: int = NO_WATERMARK
    watermark_ms: int = NO_WATERMARK
    clock_ms: int = 0
    in_control: bool = False
    journal: list[tuple[Callable[..., object], *tuple[object, ...]]] = field(default_factory=list)
    emptied: set[int] = field(default_factory=set)
    counts: Counter[str] = field(default_factory=Counter)
    after_undo: list[Callable[[], None]] = field(default_factory=list)

    def count(self, name: str) -> None:
        """Add 1 to a count; undone if the call fails."""
        self.journal.append((self.counts.__setitem__, name, self.counts[name]))
        self.counts[name] += 1

    def undo(self) -> None:
        """Undo every change in the journal, the latest first."""
        while self.journal:
            function, *arguments = self.journal.pop()
            function(*arguments)
        for restore_order in self.after_undo:
            restore_order()

    def now(self, domain: TimeDomain) -> int:
        """Return the time in that domain by which state expires."""
        return self.clock_ms if domain is TimeDomain.CLOCK else self.now_ms
