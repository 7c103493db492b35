"""State and timers of one key at a time, for functions that users write.

The package exists so that a keyed function declares its state as class attributes and uses it like plain values. It
promises that a failed call leaves no trace, that state reads back exactly as it was written, and that a new version can
migrate the state of an older one. It does not know how events are routed to keys or when checkpoints are written.
"""

from streamcore.keyed.broadcast import BroadcastState
from streamcore.keyed.call_scope import TimeDomain
from streamcore.keyed.collection_states import ListState, MapState
from streamcore.keyed.collection_table import WhenFull
from streamcore.keyed.function import CoProcessFunction, KeyedFunction, ProcessContext, ProcessFunction, UserFunction
from streamcore.keyed.keyed_store import KeyedLimits
from streamcore.keyed.migration import Migration, Row
from streamcore.keyed.states import AggregatingState, ReducingState, ValueState
from streamcore.keyed.ttl import Refresh, Ttl
from streamcore.keyed.value_codec import ValueTypeMismatch

__all__ = [
    "AggregatingState",
    "BroadcastState",
    "CoProcessFunction",
    "KeyedFunction",
    "KeyedLimits",
    "ListState",
    "MapState",
    "Migration",
    "ProcessContext",
    "ProcessFunction",
    "ReducingState",
    "Refresh",
    "Row",
    "TimeDomain",
    "Ttl",
    "UserFunction",
    "ValueState",
    "ValueTypeMismatch",
    "WhenFull",
]
