"""Lets a caller in this process see the rows of each step while a topology runs: for explanations of single records.

An observer gets the rows and returns nothing, so no output depends on it. Nothing observes on Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import polars as pl

    from streamcore.topology.nodes import TopologyNode

#: Takes a node, the name of one of its ports, and the rows there.
RowObserver = Callable[["TopologyNode", str, "pl.DataFrame"], None]

_observers: list[RowObserver] = []


@contextmanager
def observed(observer: RowObserver) -> Iterator[None]:
    """Call ``observer`` with the rows of each step inside this context, steps in the order in which they run."""
    _observers.append(observer)
    try:
        yield
    finally:
        _observers.remove(observer)


def show_rows(node: TopologyNode, port: str, rows: pl.DataFrame) -> None:
    """Show the rows of a port to the observers."""
    for observer in _observers:
        observer(node, port, rows)
