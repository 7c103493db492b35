"""State and timers of one key at a time: what a keyed function declares, how it is kept, how it becomes durable."""

from streamcore.keyed.collections import ListState, MapState
from streamcore.keyed.entries import WhenFull
from streamcore.keyed.function import Context, ProcessFunction
from streamcore.keyed.migration import Migration, Row
from streamcore.keyed.plain import Misfit
from streamcore.keyed.scope import TimeDomain
from streamcore.keyed.states import AggregatingState, ReducingState, ValueState
from streamcore.keyed.store import KeyedLimits
from streamcore.keyed.ttl import Refresh, Ttl

__all__ = [
    "AggregatingState",
    "Context",
    "KeyedLimits",
    "ListState",
    "MapState",
    "Migration",
    "Misfit",
    "ProcessFunction",
    "ReducingState",
    "Refresh",
    "Row",
    "TimeDomain",
    "Ttl",
    "ValueState",
    "WhenFull",
]
