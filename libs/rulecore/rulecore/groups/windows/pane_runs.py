"""Two sorted runs of entries, each a set of columns of equal length: the storage of a pane table.

``large`` is updated in place, ``small`` takes new entries. A merge copies everything, so it happens when ``small``
has grown to a quarter of ``large``: each entry is copied a bounded number of times on average.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
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
    """Where some codes are: for each run the indices of those that it holds, and the place of each.

    Good until entries are added or removed; so are ``EntryRanges``.
    """

    length: int
    generation: int
    found: list[tuple[Ints, Ints]]


@dataclass(frozen=True, slots=True)
class EntryRanges:
    """EntryRanges of codes as the runs hold them: looked up once, read for every column."""

    length: int
    generation: int
    parts: list[_RunRanges]


@dataclass(frozen=True, slots=True)
class _RunRanges:
    """One run's share: the ranges with entries, how many each has, all their places, and where each begins there."""

    rows: Ints
    counts: Ints
    members: Ints
    first: Ints

    @classmethod
    def between(cls, run: _Run, start: Ints, stop: Ints) -> _RunRanges:
        low, high = np.searchsorted(run.codes, start), np.searchsorted(run.codes, stop)
        rows = np.flatnonzero(high > low)
        counts = (high - low)[rows]
        return cls(rows, counts, expand_counts(low[rows], counts), np.cumsum(counts) - counts)


class _Run:
    """One sorted run."""

    def __init__(self, codes: Ints, columns: dict[str, Array]) -> None:
        self.codes = codes
        self.columns = columns

    def find(self, codes: Ints) -> tuple[Ints, Ints]:
        """Find the codes that this run holds: their indices, and the location of each."""
        if not len(self.codes):
            return _EMPTY, _EMPTY
        place = np.minimum(np.searchsorted(self.codes, codes), len(self.codes) - 1)
        rows = np.flatnonzero(self.codes[place] == codes)
        return rows, place[rows]


class Runs:
    """Entries by sorted code, with named columns."""

    def __init__(self) -> None:
        self.kinds: dict[str, ColumnKind] = {}
        self._generation = 0
        self.large = _Run(_EMPTY, {})
        self.small = _Run(_EMPTY, {})

    def __len__(self) -> int:
        return len(self.large.codes) + len(self.small.codes)

    def set_columns(self, kinds: Mapping[str, ColumnKind]) -> None:
        """Keep exactly these columns; a new one holds its identity everywhere."""
        for run in self._both():
            run.columns = {
                name: run.columns[name] if name in run.columns else np.full(len(run.codes), identity, dtype=dtype)
                for name, (dtype, identity) in kinds.items()
            }
        self.kinds = dict(kinds)

    def reset(self, name: str, counter: str, value: int | float) -> None:
        """Set a column to this value wherever another one is 0."""
        for run in self._both():
            run.columns[name][run.columns[counter] == 0] = value

    def codes(self) -> Ints:
        """Return all codes, sorted."""
        if not len(self.small.codes):
            return self.large.codes
        self._merge()
        return self.large.codes

    def contains(self, codes: Ints) -> Mask:
        """Return which of the codes are present."""
        result = np.zeros(len(codes), dtype=bool)
        for run in self._both():
            result[run.find(codes)[0]] = True
        return result

    def insert(self, codes: Ints) -> None:
        """Add entries with identity values. ``codes``: sorted, distinct, and not there yet."""
        if not codes.size:
            return
        self._generation += 1
        place = np.searchsorted(self.small.codes, codes)
        for name, (_, identity) in self.kinds.items():
            self.small.columns[name] = np.insert(self.small.columns[name], place, identity)
        self.small.codes = np.insert(self.small.codes, place, codes)
        if len(self.small.codes) > max(_SMALL, len(self.large.codes) // 4):
            self._merge()

    def _merge(self) -> None:
        self._generation += 1
        codes = np.concatenate([self.large.codes, self.small.codes])
        order = np.argsort(codes, kind="stable")
        # One column after the other: at no time is there a second copy of them all.
        large, small = self.large.columns, self.small.columns
        columns = {name: np.concatenate([large.pop(name), small.pop(name)])[order] for name in self.kinds}
        self.large = _Run(codes[order], columns)
        self.small = _Run(_EMPTY, {n: np.empty(0, dtype=dtype) for n, (dtype, _) in self.kinds.items()})

    def retain(self, live: Mask) -> None:
        """Keep the entries of ``codes()`` where the mask is true."""
        codes = self.codes()
        self._generation += 1
        columns = self.large.columns
        self.large = _Run(codes[live], {name: columns.pop(name)[live] for name in self.kinds})

    def members(self, start: Ints, stop: Ints) -> tuple[Ints, Ints]:
        """Return the entries with ``start[i] <= code < stop[i]``: the i (ascending) and the code of each."""
        which, found = [], []
        for run in self._both():
            part = _RunRanges.between(run, start, stop)
            which.append(np.repeat(part.rows, part.counts))
            found.append(run.codes[part.members])
        index = np.concatenate(which)
        order = np.argsort(index, kind="stable")
        return index[order], np.concatenate(found)[order]

    def ranges(self, start: Ints, stop: Ints) -> EntryRanges:
        """Return the entries with ``start[i] <= code < stop[i]``, for ``combine``."""
        return EntryRanges(len(start), self._generation, [_RunRanges.between(run, start, stop) for run in self._both()])

    def combine(self, name: str, combine: Combine, ranges: EntryRanges) -> Array:
        """Return the combined values of the entries in each range; the identity where there is none."""
        assert ranges.generation == self._generation, "entries have moved since"
        dtype, identity = self.kinds[name]
        result = np.full(ranges.length, identity, dtype=dtype)
        operation = combine.operation
        for run, part in zip(self._both(), ranges.parts, strict=True):
            if part.rows.size:
                values = operation.reduceat(run.columns[name][part.members], part.first)
                result[part.rows] = operation(result[part.rows], values)
        return result

    def locate(self, codes: Ints) -> EntryLocations:
        """Return where these codes are, for ``merge``, ``read`` and ``write``; missing ones are left out."""
        return EntryLocations(len(codes), self._generation, [run.find(codes) for run in self._both()])

    def merge(self, name: str, combine: Combine, places: EntryLocations, values: Array) -> None:
        """Combine a value into each of these entries, which must be distinct."""
        operation = combine.operation
        for run, rows, place in self._at(places):
            column = run.columns[name]
            column[place] = operation(column[place], values[rows])

    def read(self, name: str, places: EntryLocations, default: int | float) -> Array:
        """Return the value at each place; ``default`` where there is no entry or no such column."""
        result = np.full(places.length, default, dtype=self.kinds[name][0] if name in self.kinds else np.int64)
        for run, rows, place in self._at(places):
            if name in run.columns:
                result[rows] = run.columns[name][place]
        return result

    def write(self, name: str, places: EntryLocations, values: Array) -> None:
        """Set the value at each place."""
        for run, rows, place in self._at(places):
            run.columns[name][place] = values[rows]

    def _both(self) -> tuple[_Run, _Run]:
        return self.large, self.small

    def _at(self, places: EntryLocations) -> Iterator[tuple[_Run, Ints, Ints]]:
        assert places.generation == self._generation, "entries have moved since"
        for run, (rows, place) in zip(self._both(), places.found, strict=True):
            if rows.size:
                yield run, rows, place
