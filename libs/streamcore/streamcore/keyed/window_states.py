"""State per window: the value of a state for each window of a key, until the window expires.

::

    class Changes(ProcessWindowFunction):
        reported = per_window(ValueState(int, default=0))       # of this window
        windows = ValueState(int, default=0)                    # of the key

A state per window is stored as a map of the key, from the bounds of the window to the value.
"""

from __future__ import annotations

from typing import TypeVar

from streamcore.errors import ConfigError
from streamcore.keyed.collection_states import CollectionState, MapState
from streamcore.keyed.collection_table import CollectionTable
from streamcore.keyed.states import DeclaredState, SingleValueState

S = TypeVar("S", bound=DeclaredState)

#: The bounds of a window, in epoch milliseconds or numbers of elements.
WindowBounds = tuple[int, int]
_MAX_WINDOWS = 1_000_000


def per_window(state: S) -> S:
    """Return the declaration as one of a state per window; ``ConfigError`` for lists, maps and a time to live."""
    if not isinstance(state, SingleValueState) or state.ttl is not None:
        raise ConfigError(
            "per_window: it takes a ValueState, ReducingState or AggregatingState without ttl; the state ends with its "
            "window, whose elements the function gets as a whole"
        )
    state.is_per_window = True
    return state


def stored_form(state: DeclaredState) -> DeclaredState:
    """Return the declaration of how the state is stored: of a state per window, as a map."""
    if not isinstance(state, SingleValueState) or not state.is_per_window:
        return state
    by_window: CollectionState = MapState(tuple, most=_MAX_WINDOWS)
    by_window.name, by_window.value_type = state.name, state.value_type
    return by_window


class WindowCell:
    """The values of a state per window. ``get`` and ``set`` work on ``window`` of the current key."""

    #: Not None, so that a read calls ``get``.
    ttl = False

    def __init__(self, table: CollectionTable) -> None:
        self.window: WindowBounds = (0, 0)
        self._table = table

    def get(self) -> object:
        """Return the value, or None."""
        return self._table.read(self.window)

    def set(self, value: object) -> None:
        """Write a value; None clears."""
        if value is not None:
            self._table.put(self.window, value)
        elif self.window in self._table.unexpired_items():
            self._table.remove(self.window)

    def coerce(self, value: object) -> object:
        """Return the value as a later read returns it."""
        return self._table.coerce(value)

    def expire(self, until_end: int) -> None:
        """Clear the values of the current key's windows that end at ``until_end`` or before."""
        for window in [window for window in self._table.unexpired_items() if _end(window) <= until_end]:
            self._table.remove(window)


def _end(window: object) -> int:
    assert isinstance(window, tuple), "a window is stored as its bounds"
    return int(window[1])
