"""A process function without a key: rows in, rows by port out, one row at a time. It runs where its rows are.

It has no states, no timers, no broadcast state and no watermark: those belong to a key, or are known after the shuffle.
A call is atomic: a row on which the function fails goes to port ``FAILED`` with ``FAILED_REASON``, and nothing that the
call emitted is kept. An output row has the event time, and the record, of the row that it stems from.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NoReturn

import polars as pl

from streamcore.calls import CALL_ERRORS, failure_reason
from streamcore.errors import ConfigError
from streamcore.keyed.broadcast import declared_broadcast_states
from streamcore.keyed.call_records import InputRows, PortBuffer, check_schema, row_class
from streamcore.keyed.function import ProcessContext, ProcessFunction
from streamcore.keyed.keyed_store import KeyedLimits, KeyedStore
from streamcore.keyed.runtime_context import RuntimeContext
from streamcore.keyed.states import declared_states
from streamcore.operators.base import MAIN
from streamcore.operators.failures import FAILED, FAILED_REASON
from streamcore.operators.process.checks import check_function
from streamcore.operators.process.inputs import without_origin
from streamcore.schema import EVENT_MS
from streamcore.state.row_versions import Versions
from streamcore.wire.raw import ORIGIN

_ROW = "__row"
_REMEDY = "write key_by before process"


class KeylessContext(ProcessContext):
    """The context of a call without a key: the times of the row and of the cut, and side outputs."""

    @property
    def watermark_ms(self) -> NoReturn:
        """Raise ``LookupError``: rows without a key are processed before the watermark of their cut is known."""
        raise LookupError(f"there is no watermark without a key; {_REMEDY}")

    @property
    def is_late(self) -> NoReturn:
        """Raise ``LookupError``, as ``watermark_ms``."""
        raise LookupError(f"there is no watermark without a key; {_REMEDY}")


class KeylessProcess:
    """Calls a function for each row of frames with the columns ``events``; ``ports``: the columns of each output.

    Rows keep the columns of the engine and those of their record.
    """

    def __init__(self, function: ProcessFunction, events: Mapping[str, pl.DataType]) -> None:
        check_function(function, ProcessFunction, ("process",))
        name = type(function).__name__
        states = {**declared_states(type(function)), **declared_broadcast_states(type(function))}
        if states:
            raise ConfigError(f"{name}: state {min(states)} belongs to a key; {_REMEDY}")
        if FAILED in function.outputs:
            raise ConfigError(f"{name}: port name {FAILED!r} is reserved for the operator; choose another name")
        self._name = name
        self._function = function
        self._event_schema = check_schema(without_origin(events), f"{name}: events")
        self._event_row = row_class(self._event_schema, "Event")
        store = KeyedStore(name, {}, {}, Versions(name, 1, {}), KeyedLimits())
        self._scope = store.scope
        outputs = {MAIN: {}, **function.outputs}
        self._schemas = {port: check_schema(schema, f"{name}: port {port}") for port, schema in outputs.items()}
        self._ports = {port: _NumberedPort(port, schema, store) for port, schema in self._schemas.items()}
        self._context = KeylessContext(store, self._ports)
        self._origin = {column: dtype for column, dtype in events.items() if column in ORIGIN}

    @property
    def ports(self) -> Mapping[str, Mapping[str, pl.DataType]]:
        """The columns of each output port, without those of the engine."""
        failed = {**self._event_schema, FAILED_REASON: pl.String()}
        return {port: {**schema, **self._origin} for port, schema in {**self._schemas, FAILED: failed}.items()}

    def open(self, context: RuntimeContext) -> None:
        """Open the function, before the first rows of this process. What a failed call counts is taken back."""
        context.undo_in(self._scope.journal)
        self._function.open(context)

    def close(self) -> None:
        """Close the function."""
        self._function.close()

    def run(self, rows: pl.DataFrame, clock_ms: int) -> dict[str, pl.DataFrame]:
        """Process the rows in their order; return the rows by port."""
        scope, context, main = self._scope, self._context, self._ports[MAIN]
        scope.clock_ms = clock_ms
        events = InputRows.from_frame(rows, self._event_schema, f"{self._name}: events")
        failed: dict[int, str] = {}
        for n, (event, scope.event_ms) in enumerate(zip(events.rows(self._event_row), events.times, strict=True)):
            scope.row = n
            try:
                output_rows = self._function.process(event, context)
                if output_rows is not None:
                    for row in output_rows:
                        main.add(row)
            except CALL_ERRORS as error:
                failed[n] = failure_reason(f"{self._name}.process", error)
                scope.undo()
            scope.journal.clear()
        carried = rows.select(*self._origin, pl.col("^__.*$"))
        ports = {name: port.take_numbered(carried) for name, port in self._ports.items()}
        reasons = pl.Series(FAILED_REASON, [*failed.values()], dtype=pl.String)
        failed_rows = rows[[*failed]]
        ports[FAILED] = failed_rows.select(*self._event_schema, reasons, *self._origin, pl.col("^__.*$"))
        return ports


class _NumberedPort(PortBuffer):
    """A port that knows the number of the input row of each of its rows."""

    def __init__(self, name: str, schema: Mapping[str, pl.DataType], store: KeyedStore) -> None:
        super().__init__(name, schema, store.scope)

    def add(self, row: object) -> None:
        super().add(row)
        self._times[-1] = self._scope.row

    def take_numbered(self, carried: pl.DataFrame) -> pl.DataFrame:
        """Return the rows, each with the columns of its input row in ``carried``, and forget them."""
        rows = self.take_rows()
        return rows.drop(EVENT_MS).hstack(carried[rows[EVENT_MS].to_list()])
