"""The sum of one score rule for one key, kept up signal by signal.

A signal costs as much as it moves: signals are in order of time, the oldest leave at the front, and of each rule
the sum knows how often each weight is present. Refuses to know where signals come from and how a sum is used.
"""

from __future__ import annotations

import bisect
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from rulecore.compile.score import CompiledScore


class ActiveSignal(NamedTuple):
    """A signal of a key, as it is kept, in the order in which signals are taken: by time, rule and identity.

    ``weight`` is the rule's own score; partition and offset are -1 for a signal that is no event's.
    """

    time_ms: int
    rule: str
    identity: str
    weight: int
    partition: int = -1
    offset: int = -1


class RunningScore:
    """The signals in ``(latest - within, latest]`` and their sum."""

    def __init__(self, scoring: CompiledScore, held: Iterable[ActiveSignal], watermark_ms: int) -> None:
        """``held``: in order. Those that are over by now do not count."""
        self.scoring = scoring
        mine = [signal for signal in held if signal.rule in scoring.weights]
        self.latest_ms = max(watermark_ms, mine[-1].time_ms) if mine else watermark_ms
        self.window: list[ActiveSignal] = []
        self.total = 0
        self._weights: dict[str, Counter[int]] = {}
        for signal in mine:
            if signal.time_ms > self.latest_ms - scoring.within_ms:
                self._add(signal)

    @property
    def rules(self) -> list[str]:
        """Those that gave the signals, sorted."""
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
        """Return the largest weight of a rule: a rule's own score has few values, one for each of its versions."""
        return max(self._weights.get(rule, ()), default=0)
