"""Windows over event time: panes shared by every window that can share them, and aggregates over panes."""

from rulecore.groups.windows.aggregation import Aggregation, Combine, Partial
from rulecore.groups.windows.distinct_table import DistinctTable
from rulecore.groups.windows.pane_table import Arrivals, PaneRows, PaneTable, WindowLayout, Windows

__all__ = [
    "Aggregation",
    "Arrivals",
    "Combine",
    "DistinctTable",
    "PaneRows",
    "PaneTable",
    "Partial",
    "WindowLayout",
    "Windows",
]
