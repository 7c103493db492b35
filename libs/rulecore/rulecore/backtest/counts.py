"""The counts of each rule in a back-test: hits, keys, first and last event time, incomplete hits.

The hits of one cut are a frame (``HITS``); ``RuleCounter`` adds up such frames. Distinct keys are counted exactly up to
``MAX_KEYS`` per rule, by a 64-bit hash. Above that the count is a lower bound, and is marked as not exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

MAX_KEYS = 1_000_000
_NEVER = 2**62

#: The columns of a frame of hits, one row per hit: the rule (an index), a hash of the key, the event time in epoch
#: milliseconds, and whether the alert is incomplete. ``identity`` is a hash that the hits of two versions share if they
#: are the same alert; it may be null without a comparison. ``same_cut``: the other version has its hit of this identity
#: in the same cut or never, so the comparison need not wait for it.
HITS = {
    "rule": pl.UInt32,
    "key": pl.UInt64,
    "event_ms": pl.Int64,
    "incomplete": pl.Boolean,
    "identity": pl.UInt64,
    "same_cut": pl.Boolean,
}


def empty_hits() -> pl.DataFrame:
    """Return a frame of ``HITS`` without rows."""
    return pl.DataFrame(schema=HITS)


@dataclass(frozen=True, slots=True)
class RuleCounts:
    """The counts of one rule. Times are event times in epoch milliseconds.

    ``keys``: its distinct keys, a lower bound if ``keys_exact`` is false. ``incomplete``: hits of windows that began
    before the first event. ``failure_reason``: why its evaluation was given up, None if it was not.
    """

    version: int
    kind: str
    hits: int
    keys: int
    keys_exact: bool
    first_ms: int | None
    last_ms: int | None
    incomplete: int
    failure_reason: str | None = None


class RuleCounter:
    """Adds up the hits of a fixed number of rules. The array fields hold one number per rule."""

    def __init__(self, rules: int) -> None:
        self.hits = np.zeros(rules, np.int64)
        self.incomplete = np.zeros(rules, np.int64)
        self.first_ms = np.full(rules, _NEVER, np.int64)
        self.last_ms = np.full(rules, -_NEVER, np.int64)
        self.keys_overflowed = np.zeros(rules, np.bool_)  # has MAX_KEYS keys; further keys are not counted
        self._key_frames: list[pl.DataFrame] = []
        self._rows = 0
        self._compacted_rows = 0

    def add(self, hits: pl.DataFrame) -> None:
        """Add the hits of one cut (``HITS``)."""
        if not hits.height:
            return
        ms = pl.col("event_ms")
        sums = hits.group_by("rule").agg(
            pl.len().alias("hits"),
            ms.min().alias("first_ms"),
            ms.max().alias("last_ms"),
            pl.col("incomplete").sum(),
        )
        rule = sums["rule"].to_numpy()
        self.hits[rule] += sums["hits"].to_numpy()
        self.incomplete[rule] += sums["incomplete"].to_numpy()
        self.first_ms[rule] = np.minimum(self.first_ms[rule], sums["first_ms"].to_numpy())
        self.last_ms[rule] = np.maximum(self.last_ms[rule], sums["last_ms"].to_numpy())
        self._add_keys(hits.select("rule", "key"))

    def _add_keys(self, keys: pl.DataFrame) -> None:
        """Collect the distinct pairs of rule and key, of rules with fewer than ``MAX_KEYS`` keys."""
        if self.keys_overflowed.any():
            keys = keys.filter(~pl.Series(self.keys_overflowed[keys["rule"].to_numpy()]))
        distinct_keys = keys.unique()
        self._key_frames.append(distinct_keys)
        self._rows += distinct_keys.height
        if self._rows > 2 * self._compacted_rows + 1_000_000:
            self._compact()

    def _compact(self) -> None:
        """Merge the collected frames into one of distinct pairs, and mark the rules that have ``MAX_KEYS`` keys."""
        merged = pl.concat(self._key_frames).unique() if self._key_frames else pl.DataFrame(schema={"rule": pl.UInt32})
        counts = merged.group_by("rule").len()
        self.keys_overflowed[counts.filter(pl.col("len") >= MAX_KEYS)["rule"].to_numpy()] = True
        self._key_frames, self._rows, self._compacted_rows = [merged], merged.height, merged.height

    def keys(self) -> Sequence[int]:
        """Return the number of distinct keys of each rule, and update ``keys_overflowed``."""
        self._compact()
        key_counts = np.zeros(len(self.hits), np.int64)
        counts = self._key_frames[0].group_by("rule").len()
        key_counts[counts["rule"].to_numpy()] = counts["len"].to_numpy()
        return [int(n) for n in key_counts]
