"""Windows that are said more than once: what each has said so far, beside its bounds and contents."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np
import polars as pl

from streamcore.operators.windows.bundle import Bundle, Columns
from streamcore.operators.windows.deadlines import Deadlines
from streamcore.operators.windows.grouping import distinct
from streamcore.operators.windows.keys import KeySlots
from streamcore.operators.windows.sessions import Sessions
from streamcore.operators.windows.table import Ints
from streamcore.windowing.revising import Revising

ANCHOR = "__anchor"
REVISION = "__revision"
SINCE = "__since"

_NONE = np.empty(0, dtype=np.int64)
#: ``since`` of a session with nothing that it has not said.
_QUIET = -(2**63)


@dataclass(frozen=True, slots=True)
class Records:
    """Records of windows, before they are rows. ``into``: the anchor of the session that took it in, where ``gone``."""

    slots: Ints
    start: Ints
    end: Ints
    anchor: Ints
    revision: Ints
    into: Ints
    gone: bool

    def at(self, places: Ints) -> Records:
        """These of them; where they are ``gone``."""
        slots, start, end, anchor, revision, into = (
            column[places] for column in (self.slots, self.start, self.end, self.anchor, self.revision, self.into)
        )
        return Records(slots, start, end, anchor, revision, into, self.gone)


class RevisedSessions(Sessions):
    """``anchor``: the start as it was first said; ``revision``: how often it was said; ``since``: the clock of the
    first change that was not."""

    def __init__(self, keys: KeySlots, bundle: Bundle, near_ms: int, revising: Revising) -> None:
        super().__init__(keys, bundle, near_ms, (ANCHOR, REVISION, SINCE))
        self.revising = revising
        self.clock_ms = 0
        self._taken_in: list[Records] = []
        self._urgent: list[Ints] = []
        self._waiting: deque[tuple[int, Ints]] = deque()  # by the clock at which it is over
        self._at_end = Deadlines(near_ms)

    # --- what changes -------------------------------------------------------------------------------------------

    def new(self, slots: Ints) -> Ints:
        entries = super().new(slots)
        self.marks[SINCE][entries] = _QUIET
        return entries

    def write(self, entries: Ints, start: Ints, end: Ints, partials: Columns) -> None:
        super().write(entries, start, end, partials)
        since = self.marks[SINCE]
        fresh = entries[since[entries] == _QUIET]
        since[fresh] = self.clock_ms
        if self.revising.early_ms and fresh.size:
            self._waiting.append((self.clock_ms + self.revising.early_ms, fresh))
        if self.revising.at_end:
            self._at_end.put(end, entries)

    def in_turn(self, group: Ints, entries: Ints) -> Ints:
        """Of those that were said, the earliest goes on."""
        return np.lexsort((self.start[entries], self.marks[REVISION][entries] == 0, group))

    def absorb(self, entries: Ints, into: Ints) -> None:
        said = self.marks[REVISION][entries] > 0
        entries, into = entries[said], into[said]
        if entries.size:
            self._taken_in.append(self._records(entries, self.marks[ANCHOR][into], gone=True))
            self._urgent.append(into)

    # --- what is said -------------------------------------------------------------------------------------------

    def taken_in(self) -> list[Records]:
        """The last records of sessions that were taken in since the last call."""
        found, self._taken_in = self._taken_in, []
        return found

    def changed(self, watermark_ms: int, clock_ms: int) -> Ints:
        """The entries that have something to say, of those that live."""
        parts = [_NONE, *self._urgent, *self._waited(clock_ms)]
        self._urgent = []
        if self.revising.at_end:
            parts.append(self._at_end.take(watermark_ms, self.end, self._size))
        found = np.concatenate(parts)
        found = found[distinct(found, self._size)[1]]
        due: Ints = found[(self.end[found] != self.FREE) & (self.marks[SINCE][found] != _QUIET)]
        return due

    def say(self, entries: Ints) -> Records:
        """Records of distinct entries."""
        anchor, revision, since = (self.marks[name] for name in (ANCHOR, REVISION, SINCE))
        first = entries[revision[entries] == 0]
        anchor[first] = self.start[first]
        records = self._records(entries, _NONE, gone=False)
        revision[entries] += 1
        since[entries] = _QUIET
        self._dirty.append(entries)
        return records

    def _waited(self, clock_ms: int) -> list[Ints]:
        """An entry may have been said since, or stand for another session by now: then it waits on its own."""
        found = []
        while self._waiting and self._waiting[0][0] <= clock_ms:
            _, entries = self._waiting.popleft()
            found.append(entries[self.marks[SINCE][entries] <= clock_ms - self.revising.early_ms])
        return found

    def _records(self, entries: Ints, into: Ints, *, gone: bool) -> Records:
        return Records(
            self.slot[entries],
            self.start[entries],
            self.end[entries],
            self.marks[ANCHOR][entries],
            self.marks[REVISION][entries] + 1,
            into,
            gone,
        )

    # --- state --------------------------------------------------------------------------------------------------

    def restore(self, rows: pl.DataFrame) -> None:
        super().restore(rows)
        self._waiting.clear()
        since = self.marks[SINCE][: self._size]
        for clock_ms in np.unique(since[since != _QUIET]).tolist() if self.revising.early_ms else ():
            self._waiting.append((clock_ms + self.revising.early_ms, np.flatnonzero(since == clock_ms)))
