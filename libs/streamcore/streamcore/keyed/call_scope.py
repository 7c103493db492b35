"""What a call of a keyed function is about: whose state, at which time, and how to undo what it did.

One scope is shared by all states, timers and outputs of a function. Each of them writes down in the journal how to
take a change back; a call that fails is undone from the end, one that succeeds clears the journal.
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
    """Stands where the slot of a key is expected while there is no key: every use of it raises an error."""

    def __index__(self) -> NoReturn:
        raise LookupError("there is no key here: state and timers belong to a key, and control records have none")

    __hash__ = __index__  # it never answers


NO_KEY: SupportsIndex = _NoKey()


@dataclass(slots=True)
class CallScope:
    """``slot``: the place of the current key. ``now_ms``: event time for expiry, never before the watermark.

    ``emptied``: slots that lost something, so that their key may have nothing left. ``counts``: for the metrics.
    ``repairs``: what is left to do after changes were taken back.
    """

    slot: int = NO_KEY  # type: ignore[assignment]  # fails like a missing key, without a question asked at each use
    event_ms: int = 0
    now_ms: int = NO_WATERMARK
    watermark_ms: int = NO_WATERMARK
    clock_ms: int = 0
    in_control: bool = False
    journal: list[tuple[Callable[..., object], *tuple[object, ...]]] = field(default_factory=list)
    emptied: set[int] = field(default_factory=set)
    counts: Counter[str] = field(default_factory=Counter)
    repairs: list[Callable[[], None]] = field(default_factory=list)

    def count(self, name: str) -> None:
        """Count something that is taken back with the call."""
        self.journal.append((self.counts.__setitem__, name, self.counts[name]))
        self.counts[name] += 1

    def undo(self) -> None:
        """Take back everything since the journal was empty, the latest first."""
        while self.journal:
            function, *arguments = self.journal.pop()
            function(*arguments)
        for repair in self.repairs:
            repair()

    def now(self, domain: TimeDomain) -> int:
        """Return the present in that domain, as expiry sees it."""
        return self.clock_ms if domain is TimeDomain.CLOCK else self.now_ms
