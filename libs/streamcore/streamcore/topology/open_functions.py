"""Opens the functions of a level in this process, each before its first call, and closes them.

An operator or a function object that has a method ``open`` gets a ``RuntimeContext``. A function is opened where it
runs, never where an app is only described or packed.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import polars as pl

from streamcore.runtime_context import Openable, RuntimeContext, close
from streamcore.topology.graph import TopologyGraph
from streamcore.topology.nodes import StatelessNode, TopologyNode, Transform


@dataclass
class OpenFunctions:
    """The functions of one level on one shard, or of level 0 in one task."""

    topology: TopologyGraph
    shard: int | None = None
    shards: int = 1
    _contexts: dict[TopologyNode, RuntimeContext] = field(default_factory=dict)
    _opened: list[object] = field(default_factory=list)

    def locate(self, shard: int, shards: int) -> None:
        """Set where the functions run. Called before each cut, and taken for those that are opened later."""
        self.shard, self.shards = shard, shards

    def transform(self, node: StatelessNode) -> tuple[Transform, RuntimeContext | None]:
        """Return the function of a stateless step, and its context if it has one. Its counts of a failed call are
        taken back."""
        context = self._open(node, node.function)
        if context is None:
            return node.function, None

        def counted(rows: pl.DataFrame) -> pl.DataFrame:
            with context.undone_on_error():
                return node.function(rows)

        return counted, context

    def open(self, node: TopologyNode, runner: object) -> RuntimeContext | None:
        """Open what runs the functions of a node, unless it was opened; return its context if it has one."""
        return self._open(node, runner)

    def close(self) -> None:
        """Close what was opened."""
        while self._opened:
            close(self._opened.pop())
        self._contexts.clear()

    def _open(self, node: TopologyNode, function: object) -> RuntimeContext | None:
        known = self._contexts.get(node)
        if known is None and isinstance(function, Openable) and not isinstance(function, type):
            known = RuntimeContext(self.topology.node_name(node), self.shard, self.shards)
            function.open(known)
            self._contexts[node] = known
            self._opened.append(function)
        return known
