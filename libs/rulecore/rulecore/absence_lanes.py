"""The rules over each population as arrays, so that many rules are one calculation.

A population has a *number*, and its rules have a *lane* each: what one lane holds is worked out for all populations at
once, so the cost is that of the population with the most rules, not that of all rules one by one. Refuses to know keys.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rulecore.absence_spec import Absence
from streamcore.watermark import END_OF_TIME_MS, NO_WATERMARK

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

#: The last event of a key that has none the watermark has reached; the deadline of a key for which nothing is due.
NEVER = NO_WATERMARK
NOT_DUE = END_OF_TIME_MS


class Watch(NamedTuple):
    """One rule over a population: ``muted`` rules remember what they said and say nothing. Numbers are the group's."""

    population: int
    rule: int
    absence: Absence
    muted: bool


@dataclass(frozen=True, slots=True)
class Lanes:
    """By population and lane. ``rule``: its number, -1 for none; ``every``: -1 where nothing is due; ``again``: 0 for
    once; ``most``: alerts of one period of silence. By population: ``reach``, the shortest ``every``, and ``forget``,
    the longest."""

    rule: Ints
    every: Ints
    again: Ints
    most: Ints
    reach: Ints
    forget: Ints

    @classmethod
    def of(cls, watches: Iterable[Watch], populations: int) -> Lanes:
        """``populations``: numbers are below this."""
        by_population: dict[int, list[Watch]] = {}
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

    def _fill(self, population: int, members: Sequence[Watch]) -> None:
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
        """How many lanes there are."""
        return int(self.rule.shape[1])

    def due(self, lane: int, population: Ints, last: Ints, times: Ints) -> Ints:
        """The next deadline of keys that were seen at ``last`` and had ``times`` alerts since."""
        every = self.every[population, lane]
        waits = (every >= 0) & (last > NEVER) & (times < self.most[population, lane])
        return np.where(waits, last + every + times * self.again[population, lane], NOT_DUE)

    def place(self, rule: Ints) -> tuple[Mask, Ints, Ints]:
        """Which rule numbers are there, and the population and lane of each."""
        populations, lanes = np.nonzero(self.rule >= 0)
        known = self.rule[populations, lanes]
        order = np.argsort(known)
        at = np.minimum(np.searchsorted(known[order], rule), max(0, len(known) - 1))
        there = known[order][at] == rule if len(known) else np.zeros(len(rule), dtype=bool)
        found = order[at[there]] if len(known) else np.empty(0, np.int64)
        return there, populations[found], lanes[found]


NO_LANES = Lanes.of((), 0)
