"""Calls a function of the user for groups of rows, such as the pane of a window, with state and side outputs.

A call sees the states of its key, and the states per window of its window (``streamcore.keyed.window_states``). It is
atomic: if it raises, or returns a row that does not fit, its changes to states and outputs are undone and the error is
raised. The values of a window are removed when the watermark has passed its end and the allowed lateness.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence

import polars as pl

from streamcore.calls import CALL_ERRORS
from streamcore.errors import ConfigError
from streamcore.keyed import KeyedLimits, UserFunction
from streamcore.keyed.broadcast import declared_broadcast_states
from streamcore.keyed.call_records import PortBuffer, check_schema
from streamcore.keyed.call_scope import NO_KEY, TimeDomain
from streamcore.keyed.keyed_store import KeyedStore
from streamcore.keyed.migration import Row
from streamcore.keyed.runtime_context import RuntimeContext
from streamcore.keyed.state_tables import build_tables
from streamcore.keyed.states import SingleValueState, declared_states
from streamcore.keyed.timers import ChainedTimerLimit
from streamcore.keyed.value_codec import ValueTypeMismatch
from streamcore.keyed.window_states import WindowBounds, WindowCell, stored_form
from streamcore.operators.base import MAIN, CutTime
from streamcore.schema import EVENT_MS
from streamcore.state.row_versions import Versions
from streamcore.state.table import StateTable
from streamcore.watermark import END_OF_TIME_MS


class GroupContext:
    """The times and side outputs of a call. Valid during the call."""

    __slots__ = ("_ports", "clock_ms", "event_ms")

    def __init__(self, ports: Mapping[str, PortBuffer]) -> None:
        self._ports = ports
        #: The event time of the rows that the call emits, in epoch milliseconds.
        self.event_ms = 0
        #: The processing time: the clock of the cut.
        self.clock_ms = 0

    def side(self, port: str, row: object) -> None:
        """Emit a row on a side output; ``ValueTypeMismatch`` if the port or its columns do not exist."""
        if port not in self._ports or port == MAIN:
            raise ValueTypeMismatch(f"no side output {port!r}: declared are {sorted({*self._ports} - {MAIN})}")
        self._ports[port].add(row)


class GroupCalls:
    """Calls ``function.process`` for groups of rows. ``key``: the key columns. ``reserved``: names that no port has.

    ``has_window_state``: whether there may be states per window. ``lateness_ms``: how long after its end, by the
    watermark, a window keeps its values; None: until ``end_window``.
    """

    def __init__(
        self,
        function: UserFunction,
        key: Mapping[str, pl.DataType],
        reserved: Sequence[str],
        *,
        has_window_state: bool = False,
        lateness_ms: int | None = None,
        limits: KeyedLimits | None = None,
    ) -> None:
        name = type(function).__name__
        #: For messages.
        self.__name__ = f"{name}.process"
        states = declared_states(type(function))
        if broadcast_states := declared_broadcast_states(type(function)):
            raise ConfigError(f"{name}: broadcast state {min(broadcast_states)} is for functions of connected streams")
        if taken := sorted({*reserved}.intersection(function.outputs)):
            raise ConfigError(f"{name}: port names {taken} are reserved for the operator; choose other names")
        versions: Versions[Row] = Versions(name, function.version, function.migrations)
        stored = {state_name: stored_form(state) for state_name, state in states.items()}
        self._store = KeyedStore(name, key, stored, versions, limits or KeyedLimits())
        self._scope = self._store.scope
        outputs = {MAIN: {}, **function.outputs}
        self.schemas = {port: check_schema(schema, f"{name}: port {port}") for port, schema in outputs.items()}
        self._ports = {port: PortBuffer(port, schema, self._scope) for port, schema in self.schemas.items()}
        self._context = GroupContext(self._ports)
        self._lateness_ms = lateness_ms
        self._function = copy.copy(function)
        self._cells: list[WindowCell] = []
        for storage in self._store.all_states:
            state = states[storage.name]
            if isinstance(state, SingleValueState) and state.is_per_window:
                cell = WindowCell(self._store.collections[state.name])
                self._cells.append(cell)
                vars(self._function)[state.name] = state.handle(cell)
            else:
                state.attach(self._function, storage)
        if self._cells and not has_window_state:
            raise ConfigError(
                f"{name}: a session merges with others and a window of a co-group fires once, so they have no state "
                "per window; declare it without per_window, for the key"
            )
        self._key_slots: dict[tuple[object, ...], int] = {}

    def open(self, context: RuntimeContext) -> None:
        """Open the function, before the first call of this process. What a failed call counts is taken back."""
        context.undo_in(self._scope.journal)
        self._function.open(context)

    def close(self) -> None:
        """Close the function."""
        self._function.close()

    def begin(self, time: CutTime) -> None:
        """Begin a cut."""
        self._store.sweep()
        self._key_slots.clear()
        scope = self._scope
        scope.clock_ms = self._context.clock_ms = time.clock_ms
        scope.watermark_ms = scope.now_ms = time.watermark_ms
        self._store.start_expiry()

    def call(self, key: tuple[object, ...], window: WindowBounds, event_ms: int, *arguments: object) -> pl.DataFrame:
        """Call the function; return its rows. ``event_ms``: the time of what it emits. Raise what the call raises."""
        scope, main = self._scope, self._ports[MAIN]
        scope.event_ms = self._context.event_ms = event_ms
        scope.now_ms = max(event_ms, scope.watermark_ms)
        try:
            scope.key_slot = self._key_slot(key)
            for cell in self._cells:
                cell.window = window
            rows = self._function.process(*arguments, self._context)  # type: ignore[attr-defined]  # of each subclass
            for row in rows or ():
                main.add(row)
            if self._lateness_ms is not None and self._cells:
                self._store.timers.set(min(END_OF_TIME_MS, window[1] + self._lateness_ms), TimeDomain.EVENT)
        except CALL_ERRORS:
            scope.undo()
            raise
        finally:
            scope.journal.clear()
            scope.key_slot = NO_KEY  # type: ignore[assignment]  # no current key between two calls
        return main.take_rows().drop(EVENT_MS)

    def end_window(self, key: tuple[object, ...], window: WindowBounds) -> None:
        """Clear the values of a window that fires no more."""
        self._scope.key_slot = self._key_slot(key)
        for cell in self._cells:
            cell.window = window
            cell.set(None)
        if self._cells and self._lateness_ms is not None:
            self._store.timers.delete(min(END_OF_TIME_MS, window[1] + self._lateness_ms), TimeDomain.EVENT)
        self._scope.journal.clear()

    def end(self, watermark_ms: int) -> dict[str, pl.DataFrame]:
        """Clear the values of windows that have expired at this watermark; return the side outputs of the cut."""
        scope, timers = self._scope, self._store.timers
        no_limit = ChainedTimerLimit(0)
        no_limit.first_chained_order = timers.next_order
        for scope.key_slot, at_ms in timers.take_due(TimeDomain.EVENT, watermark_ms, no_limit):
            for cell in self._cells:
                cell.expire(END_OF_TIME_MS if at_ms == END_OF_TIME_MS else at_ms - (self._lateness_ms or 0))
            scope.journal.clear()
        scope.now_ms = watermark_ms
        scope.key_slot = NO_KEY  # type: ignore[assignment]  # no current key between two cuts
        timers.compact()
        return {name: port.take_rows() for name, port in self._ports.items() if name != MAIN}

    def tables(self) -> dict[str, StateTable]:
        """Return the state tables by name."""
        tables = build_tables(self._store)
        return {f"function_{name}": table for name, table in tables.items() if name != "broadcast"}

    def on_state_loaded(self) -> None:
        """Migrate state that older versions of the function stored."""
        self._store.on_state_loaded()

    def _key_slot(self, key: tuple[object, ...]) -> int:
        slot = self._key_slots.get(key)
        if slot is None:
            columns = zip(self._store.keys.dtypes.items(), key, strict=True)
            frame = pl.DataFrame([pl.Series(name, [value], dtype=dtype) for (name, dtype), value in columns])
            ((slot),) = self._store.admit(frame if key else pl.DataFrame({EVENT_MS: [0]}))
            self._key_slots[key] = slot
        if slot < 0:
            raise OverflowError(f"the limit of {self._store.limits.keys} keys is reached")
        return slot
