"""Compares the hits of two versions on the same events: those that both have, and those that only one has.

Two hits are the same if they are of the same rule id and concern the same event, or the same key and window. Of windows
that end when they fire (sessions, sequences) only the start is compared. The rule's version is not compared. Hits of
event rules are in the same cut on both sides. Others may be in different cuts (a lower threshold is crossed earlier),
so a hit that only one side has waits for the other side. At most ``MAX_WAITING`` hits of each side wait; above that the
oldest are counted as hits of one side only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

MAX_WAITING = 2_000_000
_SAME_ALERT = ["rule", "identity"]


@dataclass(frozen=True, slots=True)
class VersionDiffResult:
    """The numbers of hits of one rule id that both versions have, and that only one has.

    ``forgotten``: how many of the latter no longer waited for the other side, because of ``MAX_WAITING``.
    """

    both: int
    only_new: int
    only_live: int
    forgotten: int = 0


class VersionDiff:
    """Compares the hits of the new side and of the live side, cut by cut."""

    def __init__(self, rules: Sequence[str]) -> None:
        """``rules``: the rule ids of both sides."""
        self.rules = tuple(rules)
        self._both, self._forgotten = np.zeros(len(rules), np.int64), np.zeros(len(rules), np.int64)
        # Of the new side and of the live side.
        self._only_one = [np.zeros(len(rules), np.int64), np.zeros(len(rules), np.int64)]
        empty = pl.DataFrame(schema={"rule": pl.UInt32, "identity": pl.UInt64, "same_cut": pl.Boolean})
        self._waiting = [empty, empty]

    def add(self, new: pl.DataFrame, live: pl.DataFrame) -> None:
        """Add the hits of one cut (``HITS`` of ``counts``) of each side; their ``rule`` is an index of ``rules``."""
        columns = [*_SAME_ALERT, "same_cut"]
        sides = [
            pl.concat([waiting, hits.select(columns)]) for waiting, hits in zip(self._waiting, (new, live), strict=True)
        ]
        _add_counts(self._both, sides[0].join(sides[1], on=_SAME_ALERT, how="semi"))
        for side, (own, other) in enumerate((sides, sides[::-1])):
            unmatched = own.join(other, on=_SAME_ALERT, how="anti")
            _add_counts(self._only_one[side], unmatched.filter(pl.col("same_cut")))
            self._waiting[side] = self._limit_waiting(side, unmatched.filter(~pl.col("same_cut")))

    def _limit_waiting(self, side: int, waiting: pl.DataFrame) -> pl.DataFrame:
        """Return the latest ``MAX_WAITING`` hits, and count the others as hits of this side only."""
        excess = waiting.height - MAX_WAITING
        if excess > 0:
            _add_counts(self._only_one[side], waiting[:excess])
            _add_counts(self._forgotten, waiting[:excess])
        return waiting[max(0, excess) :]

    def results(self) -> dict[str, VersionDiffResult]:
        """Return the comparisons so far by rule id. A waiting hit counts as a hit of one side only."""
        only_one = [counts.copy() for counts in self._only_one]
        for counts, waiting in zip(only_one, self._waiting, strict=True):
            _add_counts(counts, waiting)
        columns = (self._both, *only_one, self._forgotten)
        return {rule: VersionDiffResult(*(int(c[i]) for c in columns)) for i, rule in enumerate(self.rules)}


def _add_counts(counts: npt.NDArray[np.int64], hits: pl.DataFrame) -> None:
    """Add the number of hits of each rule to ``counts``, in place."""
    by_rule = hits.group_by("rule").len()
    counts[by_rule["rule"].to_numpy()] += by_rule["len"].to_numpy()


def reindex_rules(hits: pl.DataFrame, rule_ids: Sequence[str], target_indexes: Mapping[str, int]) -> pl.DataFrame:
    """Return the hits with ``rule``, an index of ``rule_ids``, replaced by the index of that id in the mapping."""
    table = np.array([target_indexes[rule] for rule in rule_ids], np.uint32)
    return hits.with_columns(pl.Series("rule", table[hits["rule"].to_numpy()], pl.UInt32))
