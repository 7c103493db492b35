"""The storage of a pane table: two runs of entries sorted by code, each a set of columns of equal length.

In ``large``, entries are updated in place; new entries go to ``small``. A merge copies all entries, so it happens only
when ``small`` has a quarter of the entries of ``large``: on average each entry is copied a bounded number of times.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rulecore.groups.windows.aggregation import Array, Combine
from streamcore.columnar.grouping import expand_counts

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
ColumnKind = tuple[type[np.int64] | type[np.float64], int | float]

_SMALL = 4096
_EMPTY = np.empty(0, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class EntryLocations:
    """The locations of a list of ``length`` codes: for each run, the indexes of the codes in it, and their rows there.

    Valid until entries are inserted or removed (``generation``).
    """

    length: int
    generation: int
    by_run: list[tuple[Ints, Ints]]


@dataclass(frozen=True, slots=True)
class EntryRanges:
    """The entries of ``length`` ranges of codes, for each run: found once, then read for every column.

    Valid until entries are inserted or removed (``generation``).
    """

    length: int
    generation: int
    parts: list[_RunRanges]


@dataclass(frozen=True, slots=True)
class _RunRanges:
    """The entries of ranges in one run.

    ``rows``: the ranges that have entries; ``counts``: how many each has; ``members``: the rows in the run of all these
    entries; ``first``: the index in ``members`` of the first entry of each range.
    """

    rows: Ints
    counts: Ints
    members: Ints
    first: Ints

    @classmethod
    def between(cls, run: _Run, start: Ints, stop: Ints) -> _RunRanges:
        """Return the entries with ``start[i] <= code < stop[i]``."""
        low, high = np.searchsorted(run.codes, start), np.searchsorted(run.codes, stop)
        rows = np.flatnonzero(high > low)
        counts = (high - low)[rows]
        return cls(rows, counts, expand_counts(low[rows], counts), np.cumsum(counts) - counts)


class _Run:
    """Entries in order of their codes, and their columns."""

    def __init__(self, codes: Ints, columns: dict[str, Array]) -> None:
        self.codes = codes
        self.columns = columns

    def find(self, codes: Ints) -> tuple[Ints, Ints]:
        """Return the indexes of the codes that this run holds, and the row of each."""
        if not len(self.codes):
            return _EMPTY, _EMPTY
        rows = np.minimum(np.searchsorted(self.codes, codes), len(self.codes) - 1)
        indexes = np.flatnonzero(self.codes[rows] == codes)
        return indexes, rows[indexes]


class Runs:
    """Entries by code, with named columns. ``kinds``: the dtype and identity of each column."""

    def __init__(self) -> None:
        self.kinds: dict[str, ColumnKind] = {}
        self._generation = 0
        self.large = _Run(_EMPTY, {})
        self.small = _Run(_EMPTY, {})

    def __len__(self) -> int:
        return len(self.large.codes) + len(self.small.codes)

    def set_columns(self, kinds: Mapping[str, ColumnKind]) -> None:
        """Keep exactly these columns; a new column holds its identity in every entry."""
        for run in self._both():
            run.columns = {
                name: run.columns[name] if name in run.columns else np.full(len(run.codes), identity, dtype=dtype)
                for name, (dtype, identity) in kinds.items()
            }
        self.kinds = dict(kinds)

    def reset(self, name: str, counter: str, value: int | float) -> None:
        """Set a column to ``value`` in all entries where the column ``counter`` is 0."""
        for run in self._both():
            run.columns[name][run.columns[counter] == 0] = value

    def codes(self) -> Ints:
        """Return all codes, sorted."""
        if not len(self.small.codes):
            return self.large.codes
        self._merge()
        return self.large.codes

    def column(self, name: str) -> Array:
        """Return the values of a column, one for each of ``codes()``."""
        self.codes()
        return self.large.columns[name]

    def contains(self, codes: Ints) -> Mask:
        """Return which of the codes are present."""
        result = np.zeros(len(codes), dtype=bool)
        for run in self._both():
            result[run.find(codes)[0]] = True
        return result

    def insert(self, codes: Ints) -> None:
        """Insert entries with identity values. ``codes``: sorted, distinct, and not yet present."""
        if not codes.size:
            return
        self._generation += 1
        rows = np.searchsorted(self.small.codes, codes)
        for name, (_, identity) in self.kinds.items():
            self.small.columns[name] = np.insert(self.small.columns[name], rows, identity)
        self.small.codes = np.insert(self.small.codes, rows, codes)
        if len(self.small.codes) > max(_SMALL, len(self.large.codes) // 4):
            self._merge()

    def _merge(self) -> None:
        """Move the entries of ``small`` into ``large``."""
        self._generation += 1
        codes = np.concatenate([self.large.codes, self.small.codes])
        order = np.argsort(codes, kind="stable")
        # Column by column, so that there is never a second copy of all columns in memory.
        large, small = self.large.columns, self.small.columns
        columns = {name: np.concatenate([large.pop(name), small.pop(name)])[order] for name in self.kinds}
        self.large = _Run(codes[order], columns)
        self.small = _Run(_EMPTY, {n: np.empty(0, dtype=dtype) for n, (dtype, _) in self.kinds.items()})

    def retain(self, live: Mask) -> None:
        """Keep the entries where the mask is true, one bit per entry of ``codes()``; drop the others."""
        codes = self.codes()
        self._generation += 1
        columns = self.large.columns
        self.large = _Run(codes[live], {name: columns.pop(name)[live] for name in self.kinds})

    def members(self, start: Ints, stop: Ints) -> tuple[Ints, Ints]:
        """Return the entries with ``start[i] <= code < stop[i]``: the index i (ascending) and the code of each."""
        indexes, codes = [], []
        for run in self._both():
            part = _RunRanges.between(run, start, stop)
            indexes.append(np.repeat(part.rows, part.counts))
            codes.append(run.codes[part.members])
        index = np.concatenate(indexes)
        order = np.argsort(index, kind="stable")
        return index[order], np.concatenate(codes)[order]

    def ranges(self, start: Ints, stop: Ints) -> EntryRanges:
        """Return the entries with ``start[i] <= code < stop[i]``, for ``combine``."""
        return EntryRanges(len(start), self._generation, [_RunRanges.between(run, start, stop) for run in self._both()])

    def combine(
        self,
        name: str,
        combine: Combine,
        ranges: EntryRanges,
        change: Callable[[Array, Ints, Ints], Array] | None = None,
    ) -> Array:
        """Return the combined values of the entries in each range; the identity for a range without entries.

        ``change``: of the values before they are combined, with their codes and the number of their range.
        """
        assert ranges.generation == self._generation, "stale: entries were inserted or removed"
        dtype, identity = self.kinds[name]
        result = np.full(ranges.length, identity, dtype=dtype)
        operation = combine.operation
        for run, part in zip(self._both(), ranges.parts, strict=True):
            if part.rows.size:
                values = run.columns[name][part.members]
                if change is not None:
                    values = change(values, run.codes[part.members], np.repeat(part.rows, part.counts))
                values = operation.reduceat(values, part.first)
                result[part.rows] = operation(result[part.rows], values)
        return result

    def locate(self, codes: Ints) -> EntryLocations:
        """Return the locations of these codes, for ``merge``, ``read`` and ``write``; missing codes have none."""
        return EntryLocations(len(codes), self._generation, [run.find(codes) for run in self._both()])

    def merge(self, name: str, combine: Combine, locations: EntryLocations, values: Array) -> None:
        """Combine ``values[i]`` into the entry of code ``i``. The codes must be distinct."""
        operation = combine.operation
        for run, indexes, rows in self._by_run(locations):
            column = run.columns[name]
            column[rows] = operation(column[rows], values[indexes])

    def read(self, name: str, locations: EntryLocations, default: int | float) -> Array:
        """Return the value of each code; ``default`` if there is no such entry or no such column."""
        result = np.full(locations.length, default, dtype=self.kinds[name][0] if name in self.kinds else np.int64)
        for run, indexes, rows in self._by_run(locations):
            if name in run.columns:
                result[indexes] = run.columns[name][rows]
        return result

    def write(self, name: str, locations: EntryLocations, values: Array) -> None:
        """Set the entry of code ``i`` to ``values[i]``."""
        for run, indexes, rows in self._by_run(locations):
            run.columns[name][rows] = values[indexes]

    def _both(self) -> tuple[_Run, _Run]:
        return self.large, self.small

    def _by_run(self, locations: EntryLocations) -> Iterator[tuple[_Run, Ints, Ints]]:
        """Yield each run with the indexes of the codes in it and their rows there."""
        assert locations.generation == self._generation, "stale: entries were inserted or removed"
        for run, (indexes, rows) in zip(self._both(), locations.by_run, strict=True):
            if indexes.size:
                yield run, indexes, rows
