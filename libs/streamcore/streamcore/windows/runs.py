"""Two sorted runs of entries, each a set of columns of equal length: the storage of a pane table.

``large`` is updated in place, ``small`` takes what is new. A merge copies everything, so it happens when ``small``
has grown to a quarter of ``large``: each entry is copied a bounded number of times on average.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from streamcore.windows.aggregates import Array, Combine

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
ColumnKind = tuple[type[np.int64] | type[np.float64], int | float]

_SMALL = 4096
_EMPTY = np.empty(0, dtype=np.int64)
_OPERATIONS = {Combine.SUM: np.add, Combine.MIN: np.minimum, Combine.MAX: np.maximum}


def expand(starts: Ints, counts: Ints) -> Ints:
    """``starts[i], starts[i]+1, ... counts[i] of them``, for every i in turn."""
    total = int(counts.sum())
    if total == 0:
        return _EMPTY
    offsets = np.repeat(starts - (np.cumsum(counts) - counts), counts)
    return offsets + np.arange(total)


class _Run:
    """One sorted run."""

    def __init__(self, codes: Ints, columns: dict[str, Array]) -> None:
        self.codes = codes
        self.columns = columns

    def find(self, codes: Ints) -> tuple[Ints, Mask]:
        """Place of each code and whether it is there."""
        if not len(self.codes):
            return np.zeros(len(codes), dtype=np.int64), np.zeros(len(codes), dtype=bool)
        place = np.minimum(np.searchsorted(self.codes, codes), len(self.codes) - 1)
        return place, self.codes[place] == codes


class Runs:
    """Entries by sorted code, with named columns."""

    def __init__(self) -> None:
        self.kinds: dict[str, ColumnKind] = {}
        self.large = _Run(_EMPTY, {})
        self.small = _Run(_EMPTY, {})

    def __len__(self) -> int:
        return len(self.large.codes) + len(self.small.codes)

    def set_columns(self, kinds: Mapping[str, ColumnKind]) -> None:
        """Keep exactly these columns; a new one holds its identity everywhere."""
        for run in (self.large, self.small):
            run.columns = {
                name: run.columns[name] if name in run.columns else np.full(len(run.codes), identity, dtype=dtype)
                for name, (dtype, identity) in kinds.items()
            }
        self.kinds = dict(kinds)

    def codes(self) -> Ints:
        """All codes, sorted."""
        if not len(self.small.codes):
            return self.large.codes
        self._merge()
        return self.large.codes

    def contains(self, codes: Ints) -> Mask:
        """Which of the codes are there."""
        return self.large.find(codes)[1] | self.small.find(codes)[1]

    def insert(self, codes: Ints) -> None:
        """Add entries with identity values. ``codes``: sorted, distinct, and not there yet."""
        if not codes.size:
            return
        place = np.searchsorted(self.small.codes, codes)
        for name, (_, identity) in self.kinds.items():
            self.small.columns[name] = np.insert(self.small.columns[name], place, identity)
        self.small.codes = np.insert(self.small.codes, place, codes)
        if len(self.small.codes) > max(_SMALL, len(self.large.codes) // 4):
            self._merge()

    def _merge(self) -> None:
        codes = np.concatenate([self.large.codes, self.small.codes])
        order = np.argsort(codes, kind="stable")
        columns = {n: np.concatenate([self.large.columns[n], self.small.columns[n]])[order] for n in self.kinds}
        self.large = _Run(codes[order], columns)
        self.small = _Run(_EMPTY, {n: np.empty(0, dtype=dtype) for n, (dtype, _) in self.kinds.items()})

    def retain(self, live: Mask) -> None:
        """Keep the entries of ``codes()`` where the mask is true."""
        codes = self.codes()
        self.large = _Run(codes[live], {n: c[live] for n, c in self.large.columns.items()})

    def members(self, start: Ints, stop: Ints) -> tuple[Ints, Ints]:
        """Entries with ``start[i] <= code < stop[i]``: the i (ascending) and the code of each."""
        which, found = [], []
        for run in (self.large, self.small):
            low, high = np.searchsorted(run.codes, start), np.searchsorted(run.codes, stop)
            which.append(np.repeat(np.arange(len(start)), high - low))
            found.append(run.codes[expand(low, high - low)])
        index = np.concatenate(which)
        order = np.argsort(index, kind="stable")
        return index[order], np.concatenate(found)[order]

    def combine(self, name: str, combine: Combine, start: Ints, stop: Ints) -> Array:
        """The combined values of the entries in each range; the identity where there is none."""
        dtype, identity = self.kinds[name]
        result = np.full(len(start), identity, dtype=dtype)
        operation = _OPERATIONS[combine]
        for run in (self.large, self.small):
            low, high = np.searchsorted(run.codes, start), np.searchsorted(run.codes, stop)
            counts = high - low
            some = np.flatnonzero(counts)
            if not some.size:
                continue
            values = run.columns[name][expand(low[some], counts[some])]
            first = np.cumsum(counts[some]) - counts[some]
            result[some] = operation(result[some], operation.reduceat(values, first))
        return result

    def merge(self, name: str, combine: Combine, codes: Ints, values: Array) -> None:
        """Combine a value into each of these distinct, existing entries."""
        operation = _OPERATIONS[combine]
        for run in (self.large, self.small):
            place, found = run.find(codes)
            column = run.columns[name]
            column[place[found]] = operation(column[place[found]], values[found])

    def read(self, name: str, codes: Ints, default: int | float) -> Array:
        """The value at each code; ``default`` where there is no entry or no such column."""
        result = np.full(len(codes), default, dtype=self.kinds[name][0] if name in self.kinds else np.int64)
        for run in (self.large, self.small):
            if name in run.columns:
                place, found = run.find(codes)
                result[found] = run.columns[name][place[found]]
        return result

    def write(self, name: str, codes: Ints, values: Array) -> None:
        """Set the value at existing entries."""
        for run in (self.large, self.small):
            place, found = run.find(codes)
            run.columns[name][place[found]] = values[found]
