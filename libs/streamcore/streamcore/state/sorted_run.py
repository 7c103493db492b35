"""One sorted run of a ``RowTable``: rows ordered by the hash of their key, event time and arrival.

Only the states of its rows ever change, so the indexes of a run (by time, by bucket) are computed once. A *place* is
the index of a row in its run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt
import polars as pl

from streamcore.columnar.grouping import expand_counts
from streamcore.hashing import UInt64Array, bucket_for

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

#: The states of a row, as bits. The operator defines the meaning of MARKED. A row with DELETED has been dropped.
LIVE, MARKED, DELETED = 0, 1, 2


@dataclass
class SortedRun:
    """Rows sorted by ``(hash, time, number)``. ``times``: epoch ms. ``numbers``: order of arrival in the table."""

    keys: tuple[str, ...]
    hashes: UInt64Array
    times: Ints
    numbers: Ints
    frame: pl.DataFrame
    states: npt.NDArray[np.int8]
    expired_count: int = 0  # how many rows of ``by_time`` ``expire`` has visited
    deleted_count: int = 0  # how many rows have the state DELETED
    _buckets: dict[int, tuple[Ints, Ints]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.hashes)

    @cached_property
    def by_time(self) -> Ints:
        """The places of the rows, earliest first."""
        return np.argsort(self.times, kind="stable")

    @cached_property
    def sorted_times(self) -> Ints:
        """The times of ``by_time``."""
        return self.times[self.by_time]

    def in_bucket(self, bucket: int, buckets: int) -> Ints:
        """Return the places of a bucket's rows."""
        if buckets not in self._buckets:
            numbers = bucket_for(self.hashes, buckets).astype(
                np.min_scalar_type(buckets)
            )  # narrow integers sort faster
            order = np.argsort(numbers, kind="stable")
            self._buckets[buckets] = order, np.searchsorted(numbers[order], np.arange(buckets + 1))
        order, edges = self._buckets[buckets]
        return order[edges[bucket] : edges[bucket + 1]]

    def take(self, places: Ints) -> SortedRun:
        """Return a run of the rows at these ascending places."""
        arrays = (self.hashes[places], self.times[places], self.numbers[places])
        return SortedRun(self.keys, *arrays, self.frame[places], self.states[places])

    def drop(self, places: Ints) -> None:
        """Delete these rows, which must be distinct and live."""
        self.states[places] |= DELETED
        self.deleted_count += len(places)

    def expire(self, before_ms: int) -> Ints:
        """Drop the live rows before this time, and return their places. The cost is that of the dropped rows."""
        end = max(self.expired_count, int(np.searchsorted(self.sorted_times, before_ms)))
        places = self.by_time[self.expired_count : end]
        places = places[self.states[places] < DELETED]
        self.expired_count = end
        self.drop(places)
        return places

    def matches(self, of: SortedRun, low_ms: int, high_ms: int) -> tuple[Ints, Ints]:
        """Return pairs: a row of ``of``, and the place of a live row of its hash, ``low_ms`` to ``high_ms`` later.

        Ascending by row of ``of``, then by place. The caller must compare the keys.
        """
        low = np.searchsorted(self.hashes, of.hashes, "left")
        high = np.searchsorted(self.hashes, of.hashes, "right")
        rows = np.flatnonzero(high > low)
        low, high, times = low[rows], high[rows], of.times[rows]
        first = _lower_bound(self.times, low, high, times + low_ms)
        end = _lower_bound(self.times, first, high, times + (high_ms + 1))
        counts = end - first
        places = expand_counts(first, counts)
        live = self.states[places] < DELETED
        return np.repeat(rows, counts)[live], places[live]

    def last(self, of: SortedRun) -> Ints:
        """Return, for each row of ``of``, the place of the last row of its key that is not later, or -1.

        Dropped rows count too.
        """
        low = np.searchsorted(self.hashes, of.hashes, "left")
        high = np.searchsorted(self.hashes, of.hashes, "right")
        places = _lower_bound(self.times, low, high, of.times + 1) - 1
        unfinished = np.flatnonzero(places >= low)
        while unfinished.size:  # a second pass only where two keys have one hash
            unfinished = unfinished[~self.same_keys(places[unfinished], of, unfinished)]
            places[unfinished] -= 1
            unfinished = unfinished[places[unfinished] >= low[unfinished]]
        return np.where(places >= low, places, -1)

    def last_per_key(self) -> Ints:
        """Return the place of the last row of each key, ascending."""
        order = np.lexsort((self.numbers, self.times))
        keys = self.frame.select(self.keys)[order].with_columns(pl.Series("__place", order))
        return np.sort(keys.unique(subset=self.keys, keep="last")["__place"].to_numpy())

    def same_keys(self, places: Ints, of: SortedRun, rows: Ints) -> Mask:
        """Return which pairs of a place and a row of ``of`` have equal keys; equal hashes do not prove it."""
        equal = np.ones(len(rows), dtype=bool)
        if rows.size:
            for ours, theirs in zip(self.keys, of.keys, strict=True):
                equal &= (self.frame[ours][places] == of.frame[theirs][rows]).to_numpy()
        return equal


def build_run(
    keys: tuple[str, ...],
    hashes: UInt64Array,
    times: Ints,
    numbers: Ints,
    frame: pl.DataFrame,
    states: npt.NDArray[np.int8],
) -> SortedRun:
    """Return a run of rows. Rows of one key must be in order of arrival."""
    order = _order(hashes, times)
    return SortedRun(keys, hashes[order], times[order], numbers[order], frame[order], states[order])


def merge_runs(runs: Sequence[SortedRun]) -> SortedRun:
    """Return the live rows of runs, oldest run first, as one run."""
    return concat_runs([run.take(np.flatnonzero(run.states < DELETED)) if run.deleted_count else run for run in runs])


def concat_runs(runs: Sequence[SortedRun]) -> SortedRun:
    """Return all rows of at least one run, oldest run first, as one run."""
    if len(runs) == 1:
        return runs[0]
    return build_run(
        runs[0].keys,
        np.concatenate([run.hashes for run in runs]),
        np.concatenate([run.times for run in runs]),
        np.concatenate([run.numbers for run in runs]),
        pl.concat([run.frame for run in runs]),
        np.concatenate([run.states for run in runs]),
    )


def _order(hashes: UInt64Array, times: Ints) -> Ints:
    """Return the order by hash, then by time, then by arrival.

    Runs that are merged are sorted already, so a stable sort by hash is fast. Only the few hashes that are in more than
    one run need a sort by time.
    """
    order = np.argsort(hashes, kind="stable")
    hashes, times = hashes[order], times[order]
    equal_hash = hashes[1:] == hashes[:-1]
    out_of_order = np.flatnonzero(equal_hash & (times[1:] < times[:-1]))
    if out_of_order.size:
        group = np.cumsum(np.append(False, ~equal_hash))
        is_unsorted = np.zeros(group[-1] + 1, dtype=bool)
        is_unsorted[group[out_of_order]] = True
        places = np.flatnonzero(is_unsorted[group])
        order[places] = order[places][np.lexsort((times[places], group[places]))]
    return order


def _lower_bound(sorted_times: Ints, low: Ints, high: Ints, targets: Ints) -> Ints:
    """Return, for each i, the first place from ``low[i]`` whose time is at least ``targets[i]``; ``high[i]`` if none.

    Bisects all ranges together: as many passes as the longest range has bits.
    """
    low, high = low.copy(), high.copy()
    unfinished = np.flatnonzero(low < high)
    while unfinished.size:
        middle = (low[unfinished] + high[unfinished]) // 2
        below = sorted_times[middle] < targets[unfinished]
        low[unfinished[below]] = middle[below] + 1
        high[unfinished[~below]] = middle[~below]
        unfinished = unfinished[low[unfinished] < high[unfinished]]
    return low
