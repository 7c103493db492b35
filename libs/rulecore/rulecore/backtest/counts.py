"""The counts of each rule in a back-test: alerts, keys, first and last time, incomplete ones.

``Hits`` are the alerts of one batch as columns; a counter adds them up. Distinct keys are counted exactly up to
``MAX_KEYS`` a rule, by a 64-bit hash; beyond that the count is the least that it may be, and is marked so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

MAX_KEYS = 1_000_000
_NEVER = 2**62

#: One row an alert: the rule (index), a hash of its key, its event time, whether it is incomplete, and the hash of its
#: subject (rule's version apart; null without a comparison); ``settled``: the other side has it in the same batch.
HITS = {
    "rule": pl.UInt32,
    "key": pl.UInt64,
    "event_ms": pl.Int64,
    "incomplete": pl.Boolean,
    "identity": pl.UInt64,
    "settled": pl.Boolean,
}


def empty_hits() -> pl.DataFrame:
    """Return a batch without alerts."""
    return pl.DataFrame(schema=HITS)


@dataclass(frozen=True, slots=True)
class RuleCounts:
    """One rule. ``keys`` is exact when ``exact``, else at least that many. ``failed``: why it was not evaluated on."""

    version: int
    kind: str
    alerts: int
    keys: int
    exact: bool
    first_ms: int | None
    last_ms: int | None
    incomplete: int
    failed: str | None = None


class RuleCounter:
    """Adds up hits of so many rules."""

    def __init__(self, rules: int) -> None:
        self.alerts = np.zeros(rules, np.int64)
        self.incomplete = np.zeros(rules, np.int64)
        self.first = np.full(rules, _NEVER, np.int64)
        self.last = np.full(rules, -_NEVER, np.int64)
        self.full = np.zeros(rules, np.bool_)
        self._pieces: list[pl.DataFrame] = []
        self._rows = 0
        self._compacted = 0

    def add(self, hits: pl.DataFrame) -> None:
        """Add one batch (``HITS``)."""
        if not hits.height:
            return
        ms = pl.col("event_ms")
        sums = hits.group_by("rule").agg(
            pl.len().alias("n"), ms.min().alias("first"), ms.max().alias("last"), pl.col("incomplete").sum().alias("w")
        )
        rule = sums["rule"].to_numpy()
        self.alerts[rule] += sums["n"].to_numpy()
        self.incomplete[rule] += sums["w"].to_numpy()
        self.first[rule] = np.minimum(self.first[rule], sums["first"].to_numpy())
        self.last[rule] = np.maximum(self.last[rule], sums["last"].to_numpy())
        self._add_keys(hits.select("rule", "key"))

    def _add_keys(self, keys: pl.DataFrame) -> None:
        if self.full.any():
            keys = keys.filter(~pl.Series(self.full[keys["rule"].to_numpy()]))
        some = keys.unique()
        self._pieces.append(some)
        self._rows += some.height
        if self._rows > 2 * self._compacted + 1_000_000:
            self._compact()

    def _compact(self) -> None:
        every = pl.concat(self._pieces).unique() if self._pieces else pl.DataFrame(schema={"rule": pl.UInt32})
        counts = every.group_by("rule").len()
        self.full[counts.filter(pl.col("len") >= MAX_KEYS)["rule"].to_numpy()] = True
        self._pieces, self._rows, self._compacted = [every], every.height, every.height

    def keys(self) -> Sequence[int]:
        """Return the distinct keys of each rule."""
        self._compact()
        found = np.zeros(len(self.alerts), np.int64)
        counts = self._pieces[0].group_by("rule").len()
        found[counts["rule"].to_numpy()] = counts["len"].to_numpy()
        return [int(n) for n in found]
