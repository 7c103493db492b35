"""One sorted piece of a row table: rows by hash of their key and event time, with the rows themselves beside.

Exists so that ``RowTable`` can find, merge and drop rows column-wise. Promises: apart from the states of its rows a run
never changes, so its indexes (rows by time, by bucket) are computed once. Does not know other runs.
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

#: Bits of a row's state. The operator gives the mark its meaning. A row with GONE has been dropped.
LIVE, MARKED, DELETED = 0, 1, 2


@dataclass
class SortedRun:
    """Rows by ``(hash, time, number)``. ``numbers``: in order of arrival over all rows of the table."""

    keys: tuple[str, ...]
    hashes: UInt64Array
    times: Ints
    numbers: Ints
    frame: pl.DataFrame
    states: npt.NDArray[np.int8]
    expired_count: int = 0  # how many of ``by_time`` have been looked at by ``expire``
    deleted_count: int = 0  # how many rows are
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
            numbers = bucket_for(self.hashes, buckets).astype(np.min_scalar_type(buckets))  # short ones sort faster
            order = np.argsort(numbers, kind="stable")
            self._buckets[buckets] = order, np.searchsorted(numbers[order], np.arange(buckets + 1))
        order, edges = self._buckets[buckets]
        return order[edges[bucket] : edges[bucket + 1]]

    def take(self, places: Ints) -> SortedRun:
        """Return some of the rows; ``places`` ascending."""
        arrays = (self.hashes[places], self.times[places], self.numbers[places])
        return SortedRun(self.keys, *arrays, self.frame[places], self.states[places])

    def drop(self, places: Ints) -> None:
        """Delete these rows, which must be distinct and live."""
        self.states[places] |= DELETED
        self.deleted_count += len(places)

    def expire(self, before_ms: int) -> Ints:
        """Drop the live rows before this time, and return their slots. Cost: the number of dropped rows."""
        end = max(self.expired_count, int(np.searchsorted(self.sorted_times, before_ms)))
        places = self.by_time[self.expired_count : end]
        places = places[self.states[places] < DELETED]
        self.expired_count = end
        self.drop(places)
        return places

    def matches(self, of: SortedRun, low_ms: int, high_ms: int) -> tuple[Ints, Ints]:
        """Pairs of a row of ``of`` and a live row here of the same hash, ``low_ms`` to ``high_ms`` after it.

        Ascending by row of ``of``, then by place. Equality of the keys is for the caller to see to.
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
        """For each row of ``of`` the place of the last row here of its key that is not after it, gone or not, or -1."""
        low = np.searchsorted(self.hashes, of.hashes, "left")
        high = np.searchsorted(self.hashes, of.hashes, "right")
        places = _lower_bound(self.times, low, high, of.times + 1) - 1
        open_ = np.flatnonzero(places >= low)
        while open_.size:  # a second pass only where two keys have one hash
            open_ = open_[~self.same_keys(places[open_], of, open_)]
            places[open_] -= 1
            open_ = open_[places[open_] >= low[open_]]
        return np.where(places >= low, places, -1)

    def last_per_key(self) -> Ints:
        """Return the place of the last row of each key, ascending."""
        order = np.lexsort((self.numbers, self.times))
        keys = self.frame.select(self.keys)[order].with_columns(pl.Series("__place", order))
        return np.sort(keys.unique(subset=self.keys, keep="last")["__place"].to_numpy())

    def same_keys(self, places: Ints, of: SortedRun, rows: Ints) -> Mask:
        """Whether the keys of pairs are equal: hashes may be by accident."""
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
    """Return a run of rows that are in order of arrival, at least those of one key."""
    order = _order(hashes, times)
    return SortedRun(keys, hashes[order], times[order], numbers[order], frame[order], states[order])


def merge_runs(runs: Sequence[SortedRun]) -> SortedRun:
    """Return the live rows of runs, oldest run first, as one run."""
    return concat_runs([run.take(np.flatnonzero(run.states < DELETED)) if run.deleted_count else run for run in runs])


def concat_runs(runs: Sequence[SortedRun]) -> SortedRun:
    """All rows of runs, at least one, oldest run first, as one run."""
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
    same = hashes[1:] == hashes[:-1]
    back = np.flatnonzero(same & (times[1:] < times[:-1]))
    if back.size:
        group = np.cumsum(np.append(False, ~same))
        wrong = np.zeros(group[-1] + 1, dtype=bool)
        wrong[group[back]] = True
        places = np.flatnonzero(wrong[group])
        order[places] = order[places][np.lexsort((times[places], group[places]))]
    return order


def _lower_bound(sorted_times: Ints, low: Ints, high: Ints, targets: Ints) -> Ints:
    """For each i the first place in ``low[i] .. high[i]`` whose time is not below ``targets[i]``; ``high[i]`` if none.

    Bisects all ranges together: as many passes as the longest range has bits.
    """
    low, high = low.copy(), high.copy()
    open_ = np.flatnonzero(low < high)
    while open_.size:
        middle = (low[open_] + high[open_]) // 2
        below = sorted_times[middle] < targets[open_]
        low[open_[below]] = middle[below] + 1
        high[open_[~below]] = middle[~below]
        open_ = open_[low[open_] < high[open_]]
    return low
