"""Values that are asked for one by one and computed together.

The contents of a window are a *node*: the number of a row of partials. While a cut runs, rows are put into new leaves
and nodes are merged into new nodes, all on paper; ``compute`` then groups all leaves in one call and merges level by
level. So triggers may be asked element by element, and data is still only touched in columns.
"""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import polars as pl

from streamcore.columnar.hash_table import Ints
from streamcore.operators.windows.aggregate_set import AggregateSet, Columns, take_rows

#: The node of no elements.
NOTHING = 0


class PartialStore:
    """Rows of partials; rows that are free are given out again."""

    def __init__(self, aggregate_set: AggregateSet) -> None:
        self.aggregate_set = aggregate_set
        self.columns: Columns = aggregate_set.empty_partial()
        self._size = 1
        self._free: list[int] = []
        self._new_nodes: list[int] = []
        self._leaves: dict[int, list[int]] = {}
        self._level: dict[int, int] = {}
        self._merges: dict[int, list[tuple[int, int, int]]] = defaultdict(list)

    def leaf(self) -> int:
        """Return a new node, for rows of the cut."""
        node = self._new()
        self._leaves[node] = []
        return node

    def put(self, leaf: int, row: int) -> None:
        """Add a row of the cut to a leaf. Call it in order of arrival."""
        self._leaves[leaf].append(row)

    def merge(self, left: int, right: int) -> int:
        """Return the node of the contents of both."""
        if NOTHING in (left, right):
            return left or right
        node = self._new()
        self._level[node] = level = 1 + max(self._level.get(left, 0), self._level.get(right, 0))
        self._merges[level].append((node, left, right))
        return node

    def compute(self, rows: pl.DataFrame, numbers: Ints) -> None:
        """Bring all nodes of the cut up to date."""
        self._reserve()
        if self._leaves:
            self._group(rows, numbers)
        for level in sorted(self._merges):
            into, left, right = np.array(self._merges[level], dtype=np.int64).T
            self._write(into, self.aggregate_set.merge(take_rows(self.columns, left), take_rows(self.columns, right)))
        self._leaves.clear()
        self._level.clear()
        self._merges.clear()

    def partials(self, nodes: Ints) -> Columns:
        """Return the partials of these nodes."""
        return take_rows(self.columns, nodes)

    def store(self, nodes: Ints) -> list[pl.Series]:
        """Return the partials of these nodes, for keeping."""
        return self.aggregate_set.store(take_rows(self.columns, nodes))

    def load(self, rows: pl.DataFrame) -> list[int]:
        """Create new nodes with the partials that ``store`` gave."""
        return self.take(self.aggregate_set.load(rows), rows.height)

    def take(self, partials: Columns, count: int) -> list[int]:
        """Create new nodes with these partials."""
        nodes = [self._new() for _ in range(count)]
        self._reserve()
        self._write(np.asarray(nodes, dtype=np.int64), partials)
        return nodes

    def keep(self, before: set[int], now: set[int]) -> None:
        """Give back the nodes of the cut and those used before it, but for those that are used now."""
        self._free += sorted((before | set(self._new_nodes)) - now - {NOTHING})
        self._new_nodes = []

    def keep_loaded(self) -> None:
        """Mark all loaded nodes as in use."""
        self._new_nodes = []

    def _group(self, rows: pl.DataFrame, numbers: Ints) -> None:
        """Return one group per leaf. A row in several leaves is repeated."""
        counts = np.fromiter(map(len, self._leaves.values()), np.int64, len(self._leaves))
        taken = np.concatenate([np.asarray(found, dtype=np.int64) for found in self._leaves.values()])
        group = np.repeat(np.arange(len(counts)), counts)
        order = np.argsort(taken, kind="stable")
        taken, group = taken[order], group[order]
        nodes = np.fromiter(self._leaves, np.int64, len(self._leaves))
        self._write(nodes, self.aggregate_set.aggregate_groups(rows[taken], numbers[taken], group, len(counts)))

    def _new(self) -> int:
        if self._free:
            node = self._free.pop()
        else:
            node, self._size = self._size, self._size + 1
        self._new_nodes.append(node)
        return node

    def _reserve(self) -> None:
        for name, column in self.columns.items():
            if len(column) < self._size:
                room = np.empty(max(64, 2 * self._size), dtype=column.dtype)
                room[: len(column)] = column
                self.columns[name] = room

    def _write(self, nodes: Ints, partials: Columns) -> None:
        for name, values in partials.items():
            self.columns[name][nodes] = values
