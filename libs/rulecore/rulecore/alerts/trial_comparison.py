"""Counts how often only the live version of a rule fired, only the version on trial (candidate), or both.

The counts are exact per shard. Two firings of one subject (key and mark) are the same. One version may fire in a window
earlier than the other, so a firing is kept until the watermark passes the window's end.
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
    """The counts of one rule since its candidate was published. ``live`` and ``candidate`` are the two version numbers.

    ``reported_ms``: the clock at the last report; ``reported_firings``: ``firings`` at that time.
    """

    live: int
    candidate: int
    only_live: int = 0
    only_candidate: int = 0
    both: int = 0
    reported_ms: int = 0
    reported_firings: int = 0

    @property
    def firings(self) -> int:
        """The number of firings of both versions together."""
        return self.only_live + self.only_candidate + 2 * self.both


class TrialComparison:
    """The comparisons of one shard. Its tables: ``counts`` by rule; ``subjects`` that fired and may fire again."""

    def __init__(self, limit: int, every_ms: int) -> None:
        self.counts = KeyValueTable()
        self.subjects = KeyValueTable()
        self.limit = limit
        self.every_ms = every_ms
        self._expiries: TimerQueue[tuple[int, str]] = TimerQueue()

    def on_state_loaded(self) -> None:
        """Rebuild the queue of expiries after the tables' rows have been loaded."""
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
        """Return the stored counts, or zero counts if they are of other versions."""
        stored = self.counts.get(rule)
        counts = TrialCounts(*versions) if stored is None else TrialCounts(*orjson.loads(stored))
        return counts if (counts.live, counts.candidate) == versions else TrialCounts(*versions)

    def expire(self, watermark_ms: int) -> None:
        """Drop the subjects that the watermark has passed, and the oldest above the limit."""
        while expiry := self._expiries.pop_due(None if len(self._expiries) > self.limit else watermark_ms - 1):
            self.subjects.put(expiry[1], None)

    def counts_to_report(self, clock_ms: int) -> Iterator[tuple[str, TrialCounts]]:
        """Yield rules with new firings since their last report, each at most every ``every_ms`` of the clock."""
        for rule, value in [*self.counts]:
            counts = TrialCounts(*orjson.loads(value))
            if counts.firings != counts.reported_firings and clock_ms - counts.reported_ms >= self.every_ms:
                counts.reported_firings, counts.reported_ms = counts.firings, clock_ms
                self.counts.put(rule, orjson.dumps(astuple(counts)))
                yield rule, counts

    def keep(self, rules: set[str]) -> None:
        """Drop the counts of all other rules. ``rules``: the ids of rules with a candidate."""
        for rule, _ in [*self.counts]:
            if rule not in rules:
                self.counts.put(rule, None)
