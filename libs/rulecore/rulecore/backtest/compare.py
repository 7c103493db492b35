"""Alerts of two versions over the same events: which are of both, and which of one alone.

An alert is the same when it is of the same rule (id), and about the same event, or the same key and window (of sessions
and sequences, which end when they fire, the same beginning); the rule's version is no part of that. Alerts about one
event come in the same batch on both sides. Others may come in different ones (a lower threshold is crossed earlier), so
an alert without a partner waits for it; the wait is bounded by ``MAX_WAITING`` alerts a side, beyond which the oldest
count as alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

MAX_WAITING = 2_000_000
_ALERT = ["rule", "identity"]


@dataclass(frozen=True, slots=True)
class VersionDiffResult:
    """Of one rule id. ``forgotten``: counted as alone because too many waited."""

    both: int
    only_new: int
    only_live: int
    forgotten: int = 0


class VersionDiff:
    """Takes hits (``backtest_tally.HITS``) of both sides batch by batch."""

    def __init__(self, rules: Sequence[str]) -> None:
        """``rules``: ids of both sides; a hit's rule is an index into these."""
        self.rules = tuple(rules)
        self._both, self._forgotten = np.zeros(len(rules), np.int64), np.zeros(len(rules), np.int64)
        self._alone = [np.zeros(len(rules), np.int64), np.zeros(len(rules), np.int64)]
        none = pl.DataFrame(schema={"rule": pl.UInt32, "identity": pl.UInt64, "settled": pl.Boolean})
        self._waiting = [none, none]

    def add(self, new: pl.DataFrame, live: pl.DataFrame) -> None:
        """Add one batch of each side, ``rule`` translated to an index of ``rules``."""
        columns = [*_ALERT, "settled"]
        sides = [pl.concat([w, h.select(columns)]) for w, h in zip(self._waiting, (new, live), strict=True)]
        _count(self._both, sides[0].join(sides[1], on=_ALERT, how="semi"))
        for number, (mine, other) in enumerate((sides, sides[::-1])):
            alone = mine.join(other, on=_ALERT, how="anti")
            _count(self._alone[number], alone.filter(pl.col("settled")))
            self._waiting[number] = self._limit_waiting(number, alone.filter(~pl.col("settled")))

    def _limit_waiting(self, number: int, waiting: pl.DataFrame) -> pl.DataFrame:
        over = waiting.height - MAX_WAITING
        if over > 0:
            _count(self._alone[number], waiting[:over])
            _count(self._forgotten, waiting[:over])
        return waiting[max(0, over) :]

    def results(self) -> dict[str, VersionDiffResult]:
        """Return the comparisons by rule id; an alert still without a partner counts as alone."""
        alone = [counts.copy() for counts in self._alone]
        for counts, waiting in zip(alone, self._waiting, strict=True):
            _count(counts, waiting)
        columns = (self._both, *alone, self._forgotten)
        return {rule: VersionDiffResult(*(int(c[i]) for c in columns)) for i, rule in enumerate(self.rules)}


def _count(counts: npt.NDArray[np.int64], alerts: pl.DataFrame) -> None:
    found = alerts.group_by("rule").len()
    counts[found["rule"].to_numpy()] += found["len"].to_numpy()


def reindex_rules(hits: pl.DataFrame, own: Sequence[str], rules: Mapping[str, int]) -> pl.DataFrame:
    """Return the hits whose rule is an index of ``own`` ids, as indexes of ``rules``."""
    table = np.array([rules[rule] for rule in own], np.uint32)
    return hits.with_columns(pl.Series("rule", table[hits["rule"].to_numpy()], pl.UInt32))
