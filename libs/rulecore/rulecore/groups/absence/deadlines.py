"""Finds the deadlines that passed without the expected event, for all keys at once.

The next deadline of every entry and rule is a number in an unsorted array: scanning a million of them costs less than
keeping them sorted. The module knows neither rules nor alerts.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

import numpy as np

from rulecore.groups.absence.rule_matrix import Ints
from rulecore.groups.absence.state import ExpectedKeys


class MissedDeadline(NamedTuple):
    """The missed deadlines of a rule (its number) and an entry: ``new_alerts`` of them, ``step_ms`` apart.

    ``first_ms``: the first of them. ``last_ms``: the time of the last event, or of the arming if none was ``seen``.
    ``previous_alerts``: the alerts raised since ``last_ms`` before these.
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
    """Scans the deadlines of the entries. ``repeats``: most alerts of a rule and entry in one cut."""

    def __init__(self, entries: ExpectedKeys, repeats: int, counts: Counter[str]) -> None:
        self.entries = entries
        self.repeats = repeats
        self.counts = counts

    def before_watermark(self, watermark_ms: int) -> list[MissedDeadline]:
        """Return all deadlines before this time."""
        missed: list[MissedDeadline] = []
        for lane in range(self.entries.matrix.width):
            entries = np.flatnonzero(self.entries.due[lane, : self.entries.size] < watermark_ms)
            missed += self._take_due(lane, entries, np.full(len(entries), watermark_ms))
        return missed

    def before_events(self, entries: Ints, event_ms: Ints) -> list[MissedDeadline]:
        """Return the deadlines of these entries that are before ``event_ms``, the next event of each."""
        missed: list[MissedDeadline] = []
        for lane in range(self.entries.matrix.width):
            late = self.entries.due[lane, entries] < event_ms
            missed += self._take_due(lane, entries[late], event_ms[late])
        return missed

    def _take_due(self, lane: int, entries: Ints, until_ms: Ints) -> list[MissedDeadline]:
        """Return the deadlines before a time, and count all of them as alerted, also those above the limit."""
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
        missed = [
            MissedDeadline(*row) for row in zip(*(c.tolist() for c in (*columns, times, new_alerts)), strict=True)
        ]
        store.times[lane, entries] = times + count
        store.renew(entries)
        return missed
