"""The distinct values of each pane, exact: the state of ``count_distinct``, whose partial is a set, not a number.

Sets cannot be vectorized, so this is plain Python for each event. A pane keeps at most ``max_values`` values and counts
no further ones, so that its count is then a lower bound.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence, Set

import numpy as np
import numpy.typing as npt
import polars as pl

from rulecore.groups.windows.pane_table import PANE, PANE_MASK, SHIFT, Ints, WindowLayout
from rulecore.state_size import StateSize, ValueCount
from streamcore.columnar.key_slots import KeySlots
from streamcore.state.table import HASH

VALUE = "__value"


class DistinctTable:
    """A ``StateTable`` of the distinct values of one aggregate. It shares its key slots with a ``PaneTable``."""

    def __init__(self, keys: KeySlots, dtype: pl.DataType, max_values: int) -> None:
        self.keys = keys
        self.dtype = dtype
        self.max_values = max_values
        self._sets: dict[int, set[object]] = {}
        self._dirty: list[tuple[int, object]] = []
        self._count = ValueCount()

    @property
    def state_size(self) -> StateSize:
        """The size of all sets; those of expired panes count until they are dropped."""
        return self._count.size

    def measure_living(self, living: Callable[[Ints], npt.NDArray[np.bool_]]) -> StateSize:
        """Return the size of the sets of living panes. ``living``: which of these codes are living panes."""
        codes = np.fromiter(self._sets, np.int64, len(self._sets))
        count = ValueCount()
        for code in codes[living(codes)].tolist():
            count.sets += 1
            count.add_values(self._sets[code])
        return count.size

    def trail(self, layout: WindowLayout, panes: int, values: Sequence[object]) -> Ints:
        """Return the number of distinct values for each row of the layout, also those that are not ``there``.

        ``values``: the value of each event, None if the event does not count.
        """
        counts = np.zeros(len(layout.event), dtype=np.int64)
        current, seen = -1, set[object]()
        for i, (event, segment) in enumerate(zip(layout.event.tolist(), layout.segment.tolist(), strict=True)):
            if segment != current:
                current, seen = segment, self._window(int(layout.segments[segment]), panes)
            if values[event] is not None:
                seen.add(values[event])
            counts[i] = len(seen)
        return counts

    def totals(self, windows: Ints, panes: int) -> Ints:
        """Return the number of distinct values of each window of ``panes`` panes that ends at these codes."""
        return np.fromiter((len(self._window(w, panes)) for w in windows.tolist()), np.int64, len(windows))

    def values(self, code: int) -> Set[object]:
        """Return the values of the pane with this code."""
        return self._sets.get(code, frozenset())

    def retain(self, codes: Ints) -> None:
        """Drop the panes whose codes are not among these, which are sorted. Call before key slots are reused."""
        own = np.fromiter(self._sets, np.int64, len(self._sets))
        index = np.minimum(np.searchsorted(codes, own), max(len(codes) - 1, 0))
        dropped = own[codes[index] != own] if len(codes) else own
        self._drop(dropped.tolist())

    def add(self, codes: Ints, values: Sequence[object]) -> None:
        """Add the events' values to their panes."""
        for code, value in zip(codes.tolist(), values, strict=True):
            if value is not None and self._put(code, value):
                self._dirty.append((code, value))

    def expire(self, first_pane: int) -> None:
        """Drop the panes before this one. Call before the pane table reuses key slots."""
        self._drop([c for c in self._sets if (c & PANE_MASK) < first_pane])

    def changes(self) -> pl.DataFrame:
        dirty, self._dirty = self._dirty, []
        return self._frame((c, v) for c, v in dirty if c in self._sets)

    def rows(self, bucket: int, buckets: int) -> pl.DataFrame:
        codes = np.fromiter(sorted(self._sets), np.int64, len(self._sets))
        in_bucket = codes[self.keys.in_bucket(codes >> SHIFT, bucket, buckets)]
        return self._frame((c, v) for c in in_bucket.tolist() for v in sorted(self._sets[c], key=repr))

    def load(self, rows: pl.DataFrame) -> None:
        codes = (self.keys.assign(rows) << SHIFT) | rows[PANE].to_numpy()
        for code, value in zip(codes.tolist(), rows[VALUE].to_list(), strict=True):
            self._put(code, value)

    def _put(self, code: int, value: object) -> bool:
        """Add a value to a pane; return whether it is new and within the limit."""
        values = self._sets.get(code)
        if values is None:
            values = self._sets[code] = set()
            self._count.sets += 1
        if value in values or len(values) >= self.max_values:
            return False
        values.add(value)
        self._count.add(value)
        return True

    def _drop(self, codes: Iterable[int]) -> None:
        """Drop the panes with these codes."""
        for code in codes:
            self._count.remove_set(self._sets.pop(code))

    def _window(self, code: int, panes: int) -> set[object]:
        """Return the values of the window of ``panes`` panes that ends at this code."""
        start = max(code - panes + 1, (code >> SHIFT) << SHIFT)
        return set[object]().union(*(self._sets[c] for c in range(start, code + 1) if c in self._sets))

    def _frame(self, pairs: Iterable[tuple[int, object]]) -> pl.DataFrame:
        """Return pairs of a code and a value as rows of the table."""
        pairs = list(pairs)
        codes = np.fromiter((c for c, _ in pairs), np.int64, len(pairs))
        columns = [
            pl.Series(HASH, self.keys.hashes[codes >> SHIFT]),
            pl.Series(PANE, codes & PANE_MASK),
            pl.Series(VALUE, [v for _, v in pairs], dtype=self.dtype),
        ]
        return pl.DataFrame([*self.keys.frame(codes >> SHIFT).get_columns(), *columns])
