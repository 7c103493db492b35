"""The sum of one score rule for one key, updated signal by signal.

Signals are in order of time, and the oldest leave at the front. For each rule the sum counts how often each weight
occurs, so adding or removing a signal does not read the others.
"""

from __future__ import annotations

import bisect
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from rulecore.compile.score import CompiledScore


class ActiveSignal(NamedTuple):
    """A stored signal of a key. Signals are ordered by time, rule and identity.

    ``weight``: the rule's own score. ``partition`` and ``offset``: the source partition and the offset of the event, -1
    for a signal without one.
    """

    time_ms: int
    rule: str
    identity: str
    weight: int
    partition: int = -1
    offset: int = -1


class RunningScore:
    """The signals of a key in ``(latest_ms - within, latest_ms]`` and their sum (``total``)."""

    def __init__(self, scoring: CompiledScore, held: Iterable[ActiveSignal], watermark_ms: int) -> None:
        """``held``: the stored signals of the key, in order; those that have left the window are skipped."""
        self.scoring = scoring
        own = [signal for signal in held if signal.rule in scoring.weights]
        self.latest_ms = max(watermark_ms, own[-1].time_ms) if own else watermark_ms
        self.window: list[ActiveSignal] = []
        self.total = 0
        self._weights: dict[str, Counter[int]] = {}
        for signal in own:
            if signal.time_ms > self.latest_ms - scoring.within_ms:
                self._add(signal)

    @property
    def rules(self) -> list[str]:
        """The ids of the rules of the signals, sorted."""
        return sorted(self._weights)

    def take(self, signal: ActiveSignal, watermark_ms: int) -> bool:
        """Add the signal; return whether the sum reaches the limit with this signal, and did not without it."""
        self.latest_ms = max(self.latest_ms, watermark_ms, signal.time_ms)
        first_ms = self.latest_ms - self.scoring.within_ms
        while self.window and self.window[0].time_ms <= first_ms:
            self.remove(self.window[0])
        if signal.time_ms <= first_ms:
            return False
        before = self.total
        self._add(signal)
        return before < self.scoring.limit <= self.total

    def remove(self, signal: ActiveSignal) -> None:
        """Remove the first signal of the window, if it is this one."""
        if not self.window or self.window[0] != signal:
            return
        del self.window[0]
        weight, before = self._weight(signal), self._part(signal.rule)
        weights = self._weights[signal.rule]
        weights[weight] -= 1
        if not weights[weight]:
            del weights[weight]
        if not weights:
            del self._weights[signal.rule]
        self.total += self._part(signal.rule) - before if not self.scoring.every else -weight

    def _add(self, signal: ActiveSignal) -> None:
        bisect.insort(self.window, signal)
        weight, before = self._weight(signal), self._part(signal.rule)
        self._weights.setdefault(signal.rule, Counter())[weight] += 1
        self.total += self._part(signal.rule) - before if not self.scoring.every else weight

    def _weight(self, signal: ActiveSignal) -> int:
        given = self.scoring.weights[signal.rule]
        return signal.weight if given is None else given

    def _part(self, rule: str) -> int:
        """Return the largest weight of a rule's signals, 0 without one. There are few: one per version of the rule."""
        return max(self._weights.get(rule, ()), default=0)
