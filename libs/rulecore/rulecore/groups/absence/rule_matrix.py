"""The absence rules of each population as arrays, so that one calculation evaluates many rules.

A *population* is the set of keys that rules with an equal expected event share; it has a number. Each rule of a
population has a *lane*, a column of the arrays. The values of one lane are computed for all populations at once, so the
cost grows with the rules of the largest population, not with all rules. The module knows no keys.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rulecore.compile.absence import CompiledAbsence
from streamcore.watermark import END_OF_TIME_MS, NO_WATERMARK

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

#: The last event of a key without an event that the watermark has passed; the deadline of a key without a deadline.
NO_EVENT = NO_WATERMARK
NOT_DUE = END_OF_TIME_MS


class RuleWatch(NamedTuple):
    """One rule of a population, by their numbers. A ``muted`` rule (paused) keeps its alert counts and raises none."""

    population: int
    rule: int
    absence: CompiledAbsence
    muted: bool


@dataclass(frozen=True, slots=True)
class RuleMatrix:
    """The rules of all populations. Times are in milliseconds.

    By population and lane: ``rule``, the rule's number, -1 for none; ``every``, -1 for a muted rule; ``again``, 0 for a
    rule that alerts once; ``most``, the most alerts of one silence. By population: ``reach``, the shortest ``every``,
    and ``forget``, the longest ``forget``.
    """

    rule: Ints
    every: Ints
    again: Ints
    most: Ints
    reach: Ints
    forget: Ints

    @classmethod
    def build(cls, watches: Iterable[RuleWatch], populations: int) -> RuleMatrix:
        """Build the matrix. ``populations``: an upper bound of their numbers."""
        by_population: dict[int, list[RuleWatch]] = {}
        for watch in watches:
            by_population.setdefault(watch.population, []).append(watch)
        width = max(map(len, by_population.values()), default=0)
        lanes = cls(
            rule=np.full((populations, width), -1),
            every=np.full((populations, width), -1),
            again=np.zeros((populations, width), dtype=np.int64),
            most=np.zeros((populations, width), dtype=np.int64),
            reach=np.zeros(populations, dtype=np.int64),
            forget=np.full(populations, NOT_DUE),
        )
        for population, members in by_population.items():
            lanes._fill(population, members)
        return lanes

    def _fill(self, population: int, members: Sequence[RuleWatch]) -> None:
        expected = [member.absence for member in members]
        self.reach[population] = min(e.every_ms for e in expected)
        self.forget[population] = max(NOT_DUE if e.forget_ms is None else e.forget_ms for e in expected)
        for lane, watch in enumerate(members):
            last = watch.absence.last_time
            self.rule[population, lane] = watch.rule
            self.every[population, lane] = -1 if watch.muted else watch.absence.every_ms
            self.again[population, lane] = watch.absence.again_ms or 0
            self.most[population, lane] = NOT_DUE if last is None else last + 1

    @property
    def width(self) -> int:
        """The number of lanes."""
        return int(self.rule.shape[1])

    def due(self, lane: int, population: Ints, last: Ints, times: Ints) -> Ints:
        """Return the next deadline of keys that were seen at ``last`` and had ``times`` alerts since."""
        every = self.every[population, lane]
        waits = (every >= 0) & (last > NO_EVENT) & (times < self.most[population, lane])
        return np.where(waits, last + every + times * self.again[population, lane], NOT_DUE)

    def place(self, rule: Ints) -> tuple[Mask, Ints, Ints]:
        """Return which of the rule numbers exist, and the population and lane of each of these."""
        populations, lanes = np.nonzero(self.rule >= 0)
        known = self.rule[populations, lanes]
        order = np.argsort(known)
        at = np.minimum(np.searchsorted(known[order], rule), max(0, len(known) - 1))
        exists = known[order][at] == rule if len(known) else np.zeros(len(rule), dtype=bool)
        index = order[at[exists]] if len(known) else np.empty(0, np.int64)
        return exists, populations[index], lanes[index]


NO_RULES = RuleMatrix.build((), 0)
