"""The table of sessions that are emitted again after each change: it also stores how often each was emitted."""

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
#: The mark ``SINCE`` of a session without changes to emit.
_QUIET = -(2**63)


@dataclass(frozen=True, slots=True)
class RevisionRows:
    """One revision of each of several sessions, as arrays of shape (sessions,).

    ``anchor``: the start of the session when it was first emitted; it identifies the session. ``revision``: the number
    of the revision, from 1. ``gone``: whether the sessions were absorbed by others and are deleted downstream; if so,
    ``into`` has the anchors of the absorbing sessions, and otherwise it is empty.
    """

    key_slots: Ints
    start: Ints
    end: Ints
    anchor: Ints
    revision: Ints
    into: Ints
    gone: bool

    def at(self, indexes: Ints) -> RevisionRows:
        """Return the records at these indexes."""
        key_slots, start, end, anchor, revision, into = (
            column[indexes] for column in (self.key_slots, self.start, self.end, self.anchor, self.revision, self.into)
        )
        return RevisionRows(key_slots, start, end, anchor, revision, into, self.gone)


class RevisedSessionWindowTable(SessionWindowTable):
    """The live sessions of a shard, with the marks that their revisions need.

    ``ANCHOR``: the start of the session when it was first emitted. ``REVISION``: how often the session was emitted.
    ``SINCE``: the clock, in milliseconds, of the first change that is not emitted yet. ``near_ms``: how far the end of
    a session usually is ahead of the watermark.
    """

    def __init__(self, keys: KeySlots, aggregate_set: AggregateSet, near_ms: int, policy: RevisionPolicy) -> None:
        super().__init__(keys, aggregate_set, near_ms, (ANCHOR, REVISION, SINCE))
        self.policy = policy
        self.clock_ms = 0
        self._absorbed: list[RevisionRows] = []
        self._urgent: list[Ints] = []
        self._waiting: deque[tuple[int, Ints]] = deque()  # with the clock at which they are due
        self._at_end = DeadlineIndex(near_ms)

    # --- changes -----------------------------------------------------------------------------------------------

    def new(self, key_slots: Ints) -> Ints:
        entries = super().new(key_slots)
        self.marks[SINCE][entries] = _QUIET
        return entries

    def write(self, entries: Ints, start: Ints, end: Ints, partials: Columns) -> None:
        super().write(entries, start, end, partials)
        since = self.marks[SINCE]
        newly_changed = entries[since[entries] == _QUIET]
        since[newly_changed] = self.clock_ms
        if self.policy.early_ms and newly_changed.size:
            self._waiting.append((self.clock_ms + self.policy.early_ms, newly_changed))
        if self.policy.at_end:
            self._at_end.put(end, entries)

    def merge_order(self, group: Ints, entries: Ints) -> Ints:
        """Return the order of the entries by group.

        The first entry of a group survives: the earliest that was emitted, if any was.
        """
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
        absorbed, self._absorbed = self._absorbed, []
        return absorbed

    def take_changed(self, watermark_ms: int, clock_ms: int) -> Ints:
        """Return the live entries whose changes are due, and remove them from the queues of due changes."""
        parts = [_NONE, *self._urgent, *self._take_waiting(clock_ms)]
        self._urgent = []
        if self.policy.at_end:
            parts.append(self._at_end.take(watermark_ms, self.end, self._size))
        candidates = np.concatenate(parts)
        candidates = candidates[distinct(candidates, self._size)[1]]
        due: Ints = candidates[(self.end[candidates] != self.FREE) & (self.marks[SINCE][candidates] != _QUIET)]
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
        """Remove and return the entries whose oldest unemitted change is at least ``early_ms`` old.

        An entry that has been emitted since, or that holds another session now, is not returned: its later change is in
        the queue too.
        """
        due = []
        while self._waiting and self._waiting[0][0] <= clock_ms:
            _, entries = self._waiting.popleft()
            due.append(entries[self.marks[SINCE][entries] <= clock_ms - self.policy.early_ms])
        return due

    def _records(self, entries: Ints, into: Ints, *, gone: bool) -> RevisionRows:
        return RevisionRows(
            self.key_slot[entries],
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
