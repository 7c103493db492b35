"""Which deadlines have passed without the event, for all keys at once.

Nothing is kept in order of time: the next deadline of every entry and rule is a number in an array, and looking through
a million of them costs less than keeping them sorted would. Refuses to know rules and alerts.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

import numpy as np

from rulecore.groups.absence.rule_matrix import Ints
from rulecore.groups.absence.state import ExpectedKeys


class MissedDeadline(NamedTuple):
    """DeadlineScan of a rule (by number) and an entry.

    ``new_alerts`` of them, the first at ``first_ms``, ``step_ms`` apart.

    ``last_ms``: the last event, or the arming if none was ``seen``. ``previous_alerts``: alerts that were raised
    before.
    """

    rule: int
    entry: int
    last_ms: int
    seen: bool
    first_ms: int
    step_ms: int
    previous_alerts: int
    new_alerts: int


class DeadlineScan:
    """The deadlines of these entries. ``repeats``: of one rule and entry at most, in one cut."""

    def __init__(self, entries: ExpectedKeys, repeats: int, counts: Counter[str]) -> None:
        self.entries = entries
        self.repeats = repeats
        self.counts = counts

    def before_watermark(self, watermark_ms: int) -> list[MissedDeadline]:
        """Return all deadlines that are before this time."""
        found: list[MissedDeadline] = []
        for lane in range(self.entries.matrix.width):
            entries = np.flatnonzero(self.entries.due[lane, : self.entries.size] < watermark_ms)
            found += self._take_due(lane, entries, np.full(len(entries), watermark_ms))
        return found

    def before_events(self, entries: Ints, event_ms: Ints) -> list[MissedDeadline]:
        """Return the deadlines of these entries that are before their next event."""
        found: list[MissedDeadline] = []
        for lane in range(self.entries.matrix.width):
            late = self.entries.due[lane, entries] < event_ms
            found += self._take_due(lane, entries[late], event_ms[late])
        return found

    def _take_due(self, lane: int, entries: Ints, until_ms: Ints) -> list[MissedDeadline]:
        """DeadlineScan before a time. All of them count as given, also those beyond the limit."""
        if not entries.size:
            return []
        store, lanes = self.entries, self.entries.matrix
        population, due, times = store.population[entries], store.due[lane, entries], store.times[lane, entries]
        again = lanes.again[population, lane]
        count = 1 + np.where(again > 0, (until_ms - 1 - due) // np.maximum(again, 1), 0)
        count = np.minimum(count, lanes.most[population, lane] - times)
        new_alerts = np.minimum(count, self.repeats)
        self.counts["repeats_dropped"] += int((count - new_alerts).sum())
        columns = (lanes.rule[population, lane], entries, store.last[entries], store.seen[entries], due, again)
        found = [MissedDeadline(*row) for row in zip(*(c.tolist() for c in (*columns, times, new_alerts)), strict=True)]
        store.times[lane, entries] = times + count
        store.renew(entries)
        return found
