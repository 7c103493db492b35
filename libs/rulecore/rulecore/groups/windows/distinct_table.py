"""Exact distinct values per pane: the one aggregate whose partial is a set, not a number.

Sets do not vectorise, so this is plain Python per event. The number of values that a pane keeps is bounded; above the
bound a pane counts no further values, so the count is then a lower bound.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set

import numpy as np
import polars as pl

from rulecore.groups.windows.pane_table import PANE, PANE_MASK, SHIFT, Ints, WindowLayout
from streamcore.columnar.key_slots import KeySlots
from streamcore.state.table import HASH

VALUE = "__value"


class DistinctTable:
    """The distinct values of one aggregate. A ``StateTable`` that shares its keys with a pane table."""

    def __init__(self, keys: KeySlots, dtype: pl.DataType, max_values: int) -> None:
        self.keys = keys
        self.dtype = dtype
        self.max_values = max_values
        self._sets: dict[int, set[object]] = {}
        self._dirty: list[tuple[int, object]] = []

    def trail(self, layout: WindowLayout, panes: int, values: Sequence[object]) -> Ints:
        """Count the values for each row of an unmasked layout. ``values``: by event, None where it does not count."""
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
        """Return the count of each window that ends at these codes."""
        return np.fromiter((len(self._window(w, panes)) for w in windows.tolist()), np.int64, len(windows))

    def values(self, code: int) -> Set[object]:
        """Return the values of the pane with this code."""
        return self._sets.get(code, frozenset())

    def retain(self, codes: Ints) -> None:
        """Forget the panes that are not among these, which are sorted. Call before slots are given out again."""
        mine = np.fromiter(self._sets, np.int64, len(self._sets))
        place = np.minimum(np.searchsorted(codes, mine), max(len(codes) - 1, 0))
        gone = mine[codes[place] != mine] if len(codes) else mine
        for code in gone.tolist():
            del self._sets[code]

    def add(self, codes: Ints, values: Sequence[object]) -> None:
        """Add the events' values to their panes."""
        for code, value in zip(codes.tolist(), values, strict=True):
            if value is not None and self._put(code, value):
                self._dirty.append((code, value))

    def expire(self, first_pane: int) -> None:
        """Forget the panes before this one. Call before the pane table gives slots out again."""
        for code in [c for c in self._sets if (c & PANE_MASK) < first_pane]:
            del self._sets[code]

    def changes(self) -> pl.DataFrame:
        dirty, self._dirty = self._dirty, []
        return self._frame((c, v) for c, v in dirty if c in self._sets)

    def rows(self, bucket: int, buckets: int) -> pl.DataFrame:
        codes = np.fromiter(sorted(self._sets), np.int64, len(self._sets))
        mine = codes[self.keys.in_bucket(codes >> SHIFT, bucket, buckets)]
        return self._frame((c, v) for c in mine.tolist() for v in sorted(self._sets[c], key=repr))

    def load(self, rows: pl.DataFrame) -> None:
        codes = (self.keys.assign(rows) << SHIFT) | rows[PANE].to_numpy()
        for code, value in zip(codes.tolist(), rows[VALUE].to_list(), strict=True):
            self._put(code, value)

    def _put(self, code: int, value: object) -> bool:
        values = self._sets.setdefault(code, set())
        if value in values or len(values) >= self.max_values:
            return False
        values.add(value)
        return True

    def _window(self, code: int, panes: int) -> set[object]:
        start = max(code - panes + 1, (code >> SHIFT) << SHIFT)
        return set[object]().union(*(self._sets[c] for c in range(start, code + 1) if c in self._sets))

    def _frame(self, pairs: Iterable[tuple[int, object]]) -> pl.DataFrame:
        listed = list(pairs)
        codes = np.fromiter((c for c, _ in listed), np.int64, len(listed))
        columns = [
            pl.Series(HASH, self.keys.hashes[codes >> SHIFT]),
            pl.Series(PANE, codes & PANE_MASK),
            pl.Series(VALUE, [v for _, v in listed], dtype=self.dtype),
        ]
        return pl.DataFrame([*self.keys.frame(codes >> SHIFT).get_columns(), *columns])
