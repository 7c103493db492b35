"""The partials of windows: changes are recorded one by one during a cut, and computed together at its end.

The contents of a window are a *node*: the number of a row of partials. During a cut the store only records which rows
belong to which new node (a *leaf*), and which two nodes merge into which new node. ``compute`` then aggregates all
leaves in one call, and merges the other nodes level by level. So triggers can be evaluated element by element, while
the data is processed in columns.
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
    """The partials of all nodes. It reuses the numbers of freed nodes."""

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
        """Create a leaf for rows of the cut, and return its node."""
        node = self._new()
        self._leaves[node] = []
        return node

    def put(self, leaf: int, row: int) -> None:
        """Add a row of the cut to a leaf. Call it in order of arrival."""
        self._leaves[leaf].append(row)

    def merge(self, left: int, right: int) -> int:
        """Create a node for the contents of two nodes, and return it; if one is ``NOTHING``, return the other."""
        if NOTHING in (left, right):
            return left or right
        node = self._new()
        self._level[node] = level = 1 + max(self._level.get(left, 0), self._level.get(right, 0))
        self._merges[level].append((node, left, right))
        return node

    def compute(self, rows: pl.DataFrame, numbers: Ints) -> None:
        """Compute the partials of the nodes created in this cut.

        ``rows``: the rows of the cut; ``numbers``, of shape (rows,): their arrival numbers.
        """
        self._reserve()
        if self._leaves:
            self._compute_leaves(rows, numbers)
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
        """Return the partials of these nodes as columns of the state table."""
        return self.aggregate_set.store(take_rows(self.columns, nodes))

    def load(self, rows: pl.DataFrame) -> list[int]:
        """Create nodes from columns that ``store`` returned."""
        return self.take(self.aggregate_set.load(rows), rows.height)

    def take(self, partials: Columns, count: int) -> list[int]:
        """Create ``count`` nodes with these partials."""
        nodes = [self._new() for _ in range(count)]
        self._reserve()
        self._write(np.asarray(nodes, dtype=np.int64), partials)
        return nodes

    def keep(self, before: set[int], now: set[int]) -> None:
        """Free the nodes created in this cut and those of ``before``, except those of ``now``.

        ``before``: nodes that the changed windows used before the cut; ``now``: nodes that they use after it.
        """
        self._free += sorted((before | set(self._new_nodes)) - now - {NOTHING})
        self._new_nodes = []

    def keep_loaded(self) -> None:
        """Mark all loaded nodes as in use."""
        self._new_nodes = []

    def _compute_leaves(self, rows: pl.DataFrame, numbers: Ints) -> None:
        """Compute the partials of all leaves. A row can be in several leaves."""
        counts = np.fromiter(map(len, self._leaves.values()), np.int64, len(self._leaves))
        row_indexes = np.concatenate([np.asarray(leaf_rows, dtype=np.int64) for leaf_rows in self._leaves.values()])
        group = np.repeat(np.arange(len(counts)), counts)
        order = np.argsort(row_indexes, kind="stable")
        row_indexes, group = row_indexes[order], group[order]
        nodes = np.fromiter(self._leaves, np.int64, len(self._leaves))
        self._write(
            nodes, self.aggregate_set.aggregate_groups(rows[row_indexes], numbers[row_indexes], group, len(counts))
        )

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
                larger = np.empty(max(64, 2 * self._size), dtype=column.dtype)
                larger[: len(column)] = column
                self.columns[name] = larger

    def _write(self, nodes: Ints, partials: Columns) -> None:
        for name, values in partials.items():
            self.columns[name][nodes] = values
