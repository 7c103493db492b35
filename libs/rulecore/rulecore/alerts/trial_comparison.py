"""A version on trial beside the live one: how often only one of them fired, and how often both.

Promises: counts are exact per shard. A firing is identified by its key and mark. Two versions see an event in the
same cut, yet one may fire in a window earlier than the other, so each firing is remembered until the watermark passes
the window's end. Refuses to judge: it counts, people decide.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import astuple, dataclass

import orjson

from streamcore.columnar.timer_queue import TimerQueue
from streamcore.state import KeyValueTable

_LIVE, _CANDIDATE = 1, 2


@dataclass(slots=True)
class TrialCounts:
    """Of one rule since its candidate came. ``reported_ms``: the clock when they were last reported."""

    live: int
    candidate: int
    only_live: int = 0
    only_candidate: int = 0
    both: int = 0
    reported_ms: int = 0
    reported_firings: int = 0

    @property
    def firings(self) -> int:
        """Of both versions."""
        return self.only_live + self.only_candidate + 2 * self.both


class TrialComparison:
    """Of one shard; its state is ``counts`` (by rule) and ``subjects`` (the keys that fired and may still fire)."""

    def __init__(self, limit: int, every_ms: int) -> None:
        self.counts = KeyValueTable()
        self.subjects = KeyValueTable()
        self.limit = limit
        self.every_ms = every_ms
        self._expiries: TimerQueue[tuple[int, str]] = TimerQueue()

    def on_state_loaded(self) -> None:
        """After the tables' rows have been loaded."""
        self._expiries = TimerQueue((orjson.loads(value)[1], key) for key, value in self.subjects)

    def record_firing(
        self, rule: str, versions: tuple[int, int], *, candidate: bool, subject: str, end_ms: int
    ) -> None:
        """Record that one of the two versions (live, candidate) fired for this subject."""
        key = f"{rule}\0{subject}"
        stored = self.subjects.get(key)
        before = 0 if stored is None else orjson.loads(stored)[0]
        after = before | (_CANDIDATE if candidate else _LIVE)
        if before == after:
            return
        counts = self._counts(rule, versions)
        if after == _LIVE | _CANDIDATE:
            counts.both += 1
            counts.only_live -= before == _LIVE
            counts.only_candidate -= before == _CANDIDATE
        elif candidate:
            counts.only_candidate += 1
        else:
            counts.only_live += 1
        self.counts.put(rule, orjson.dumps(astuple(counts)))
        self.subjects.put(key, orjson.dumps([after, end_ms]))
        if stored is None:
            self._expiries.put((end_ms, key))

    def _counts(self, rule: str, versions: tuple[int, int]) -> TrialCounts:
        """Return the counts of these two versions: others begin from nothing."""
        stored = self.counts.get(rule)
        counts = TrialCounts(*versions) if stored is None else TrialCounts(*orjson.loads(stored))
        return counts if (counts.live, counts.candidate) == versions else TrialCounts(*versions)

    def expire(self, watermark_ms: int) -> None:
        """Forget subjects that are over, and the oldest beyond the limit."""
        while expiry := self._expiries.pop_due(None if len(self._expiries) > self.limit else watermark_ms - 1):
            self.subjects.put(expiry[1], None)

    def counts_to_report(self, clock_ms: int) -> Iterator[tuple[str, TrialCounts]]:
        """Yield the rules whose counts changed since the last report, at most every ``every_ms``."""
        for rule, value in [*self.counts]:
            counts = TrialCounts(*orjson.loads(value))
            if counts.firings != counts.reported_firings and clock_ms - counts.reported_ms >= self.every_ms:
                counts.reported_firings, counts.reported_ms = counts.firings, clock_ms
                self.counts.put(rule, orjson.dumps(astuple(counts)))
                yield rule, counts

    def keep(self, rules: set[str]) -> None:
        """Forget the counts of rules without a candidate."""
        for rule, _ in [*self.counts]:
            if rule not in rules:
                self.counts.put(rule, None)
