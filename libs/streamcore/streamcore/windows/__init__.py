"""Windows over event time: panes shared by every window that can share them, and aggregates over panes."""

from streamcore.windows.aggregates import Aggregation, Combine, Partial
from streamcore.windows.distinct import DistinctTable
from streamcore.windows.keys import KeyIndex
from streamcore.windows.panes import Arrivals, Layout, PaneRows, PaneTable, Windows

__all__ = [
    "Aggregation",
    "Arrivals",
    "Combine",
    "DistinctTable",
    "KeyIndex",
    "Layout",
    "PaneRows",
    "PaneTable",
    "Partial",
    "Windows",
]
