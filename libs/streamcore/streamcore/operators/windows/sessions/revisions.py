"""Windows that are emitted more than once: the revisions emitted so far, beside their bounds and contents."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np
import polars as pl

from streamcore.columnar.deadlines import DeadlineIndex
from streamcore.columnar.grouping import distinct
from streamcore.columnar.hash_table import Ints
from streamcore.columnar.key_slots import KeySlots
from streamcore.operators.windows.aggregate_set import AggregateSet, Columns
from streamcore.operators.windows.sessions.session_table import SessionWindowTable
from streamcore.windowing.revisions import RevisionPolicy

ANCHOR = "__anchor"
REVISION = "__revision"
SINCE = "__since"

_NONE = np.empty(0, dtype=np.int64)
#: ``since`` of a session without changes to emit.
_QUIET = -(2**63)


@dataclass(frozen=True, slots=True)
class RevisionRows:
    """Records of windows, as arrays. ``gone``: they are deleted; ``into`` is the anchor of the absorbing session."""

    slots: Ints
    start: Ints
    end: Ints
    anchor: Ints
    revision: Ints
    into: Ints
    gone: bool

    def at(self, places: Ints) -> RevisionRows:
        """Return the records at these indexes."""
        slots, start, end, anchor, revision, into = (
            column[places] for column in (self.slots, self.start, self.end, self.anchor, self.revision, self.into)
        )
        return RevisionRows(slots, start, end, anchor, revision, into, self.gone)


class RevisedSessionWindowTable(SessionWindowTable):
    """``anchor``: the start as it was first emitted; ``revision``: how often the session was emitted; ``since``: the
    clock of the first change that was not."""

    def __init__(self, keys: KeySlots, aggregate_set: AggregateSet, near_ms: int, policy: RevisionPolicy) -> None:
        super().__init__(keys, aggregate_set, near_ms, (ANCHOR, REVISION, SINCE))
        self.policy = policy
        self.clock_ms = 0
        self._absorbed: list[RevisionRows] = []
        self._urgent: list[Ints] = []
        self._waiting: deque[tuple[int, Ints]] = deque()  # by the clock at which it is over
        self._at_end = DeadlineIndex(near_ms)

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
        if self.policy.early_ms and fresh.size:
            self._waiting.append((self.clock_ms + self.policy.early_ms, fresh))
        if self.policy.at_end:
            self._at_end.put(end, entries)

    def merge_order(self, group: Ints, entries: Ints) -> Ints:
        """Return the order by group; the earliest of those already emitted survives."""
        return np.lexsort((self.start[entries], self.marks[REVISION][entries] == 0, group))

    def absorb(self, entries: Ints, into: Ints) -> None:
        was_emitted = self.marks[REVISION][entries] > 0
        entries, into = entries[was_emitted], into[was_emitted]
        if entries.size:
            self._absorbed.append(self._records(entries, self.marks[ANCHOR][into], gone=True))
            self._urgent.append(into)

    # --- output ------------------------------------------------------------------------------------------

    def take_absorbed(self) -> list[RevisionRows]:
        """Return the last records of the sessions absorbed since the last call, and forget them."""
        found, self._absorbed = self._absorbed, []
        return found

    def take_changed(self, watermark_ms: int, clock_ms: int) -> Ints:
        """Remove and return the live entries whose changes are due to be emitted."""
        parts = [_NONE, *self._urgent, *self._take_waiting(clock_ms)]
        self._urgent = []
        if self.policy.at_end:
            parts.append(self._at_end.take(watermark_ms, self.end, self._size))
        found = np.concatenate(parts)
        found = found[distinct(found, self._size)[1]]
        due: Ints = found[(self.end[found] != self.FREE) & (self.marks[SINCE][found] != _QUIET)]
        return due

    def emit(self, entries: Ints) -> RevisionRows:
        """Emit distinct entries: return their rows and mark them as emitted."""
        anchor, revision, since = (self.marks[name] for name in (ANCHOR, REVISION, SINCE))
        first = entries[revision[entries] == 0]
        anchor[first] = self.start[first]
        records = self._records(entries, _NONE, gone=False)
        revision[entries] += 1
        since[entries] = _QUIET
        self._dirty.append(entries)
        return records

    def _take_waiting(self, clock_ms: int) -> list[Ints]:
        """Return the entries whose early pause is over.

        An entry may have been emitted since, or hold another session by now: such an entry waits anew.
        """
        found = []
        while self._waiting and self._waiting[0][0] <= clock_ms:
            _, entries = self._waiting.popleft()
            found.append(entries[self.marks[SINCE][entries] <= clock_ms - self.policy.early_ms])
        return found

    def _records(self, entries: Ints, into: Ints, *, gone: bool) -> RevisionRows:
        return RevisionRows(
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
        for clock_ms in np.unique(since[since != _QUIET]).tolist() if self.policy.early_ms else ():
            self._waiting.append((clock_ms + self.policy.early_ms, np.flatnonzero(since == clock_ms)))
