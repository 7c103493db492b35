"""The rows of a keyed function: input frames become one named tuple per row, output rows become frames.

Output values are checked against the declared columns of their port.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from typing import Any

import polars as pl

from streamcore.errors import ConfigError
from streamcore.keyed.call_scope import CallScope
from streamcore.keyed.value_codec import ValueTypeMismatch, describe
from streamcore.keyed.value_types import ColumnType, value_type_for_column
from streamcore.schema import EVENT_MS

#: Column types by name.
Schema = Mapping[str, ColumnType]


def check_schema(schema: Schema, where: str) -> dict[str, pl.DataType]:
    """Return the schema with instances of its column types; ``ConfigError`` for types that rows cannot have.

    ``where`` names the function and its input or port in messages.
    """
    if not isinstance(schema, Mapping):
        raise ConfigError(f"{where}: give a mapping of column names to Polars types, not {describe(schema)}")
    if reserved := [name for name in schema if name.startswith("__")]:
        raise ConfigError(f"{where}: columns {reserved}: names that begin with __ are reserved for the engine")
    try:
        return {name: value_type_for_column(declared).dtype for name, declared in schema.items()}
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from None


@dataclass(frozen=True)
class InputRows:
    """The rows of one input in order of arrival: the values by column, and the event times in epoch milliseconds."""

    values: Mapping[str, list[Any]]
    times: list[int]

    @classmethod
    def from_frame(cls, frame: pl.DataFrame, schema: Mapping[str, pl.DataType], where: str) -> InputRows:
        """Read a frame with at least the columns of the schema and ``EVENT_MS``; ``ConfigError`` if it lacks any."""
        expected = {**schema, EVENT_MS: pl.Int64()}
        if missing := [f"{name} ({dtype})" for name, dtype in expected.items() if frame.schema.get(name) != dtype]:
            raise ConfigError(f"{where}: the frame lacks {', '.join(missing)}; it has {dict(frame.schema)}")
        return cls({name: frame[name].to_list() for name in schema}, frame[EVENT_MS].to_list())

    def rows(self, row: type[tuple[Any, ...]]) -> Iterable[tuple[Any, ...]]:
        """Yield one object per row, of a class that ``row_class`` returned."""
        create_row = partial(tuple.__new__, row)
        return (
            map(create_row, zip(*self.values.values(), strict=True))
            if self.values
            else (create_row(()) for _ in self.times)
        )


def row_class(schema: Mapping[str, pl.DataType], name: str) -> type[tuple[Any, ...]]:
    """Return a named tuple class with the columns of the schema as attributes."""
    row: type[tuple[Any, ...]] = namedtuple(name, schema, rename=True)  # type: ignore[misc]  # the fields are data
    fields = getattr(row, "_fields", ())
    for n, column in enumerate(schema):
        if column not in fields:  # a keyword, such as class, is no field name: getattr(event, "class")
            setattr(row, column, property(itemgetter(n)))
    return row


class PortBuffer:
    """The rows that a function emits on one output port in a cut."""

    def __init__(self, name: str, schema: Mapping[str, pl.DataType], scope: CallScope) -> None:
        self.name = name
        self._schema = dict(schema)
        self._columns = [(column, value_type_for_column(dtype).coerce) for column, dtype in schema.items()]
        self._scope = scope
        self._values: list[object] = []  # row after row: an object per row would slow the garbage collector
        self._times: list[int] = []
        self._undo = (self._undo_add,)

    def add(self, row: object) -> None:
        """Add one row with the event time of the call; ``ValueTypeMismatch`` if its columns or values do not fit."""
        if type(row) is not dict:
            row = self._to_dict(row)
        if len(row) != len(self._columns):
            raise ValueTypeMismatch(self._columns_message(row))
        values = self._values
        try:
            for column, coerce in self._columns:
                values.append(coerce(row[column]))
        except (KeyError, ValueTypeMismatch) as error:
            del values[len(self._times) * len(self._columns) :]
            raise ValueTypeMismatch(
                self._columns_message(row) if isinstance(error, KeyError) else self._mismatch_message(row)
            ) from None
        self._times.append(self._scope.event_ms)
        self._scope.journal.append(self._undo)

    def take_rows(self) -> pl.DataFrame:
        """Return the rows added since the last call, and forget them."""
        values, times, width = self._values, self._times, len(self._schema)
        self._values, self._times = [], []
        pairs = enumerate(self._schema.items())
        columns = [pl.Series(name, values[n::width], dtype=dtype) for n, (name, dtype) in pairs]
        return pl.DataFrame([*columns, pl.Series(EVENT_MS, times, dtype=pl.Int64)])

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self._times)

    def truncate(self, rows: int) -> None:
        """Forget all rows but the first ``rows``."""
        del self._times[rows:], self._values[rows * len(self._schema) :]

    def _undo_add(self) -> None:
        """Remove the last row."""
        self._times.pop()
        del self._values[len(self._values) - len(self._schema) :]

    def _to_dict(self, row: object) -> dict[str, object]:
        if isinstance(row, Mapping):
            return dict(row)
        if isinstance(row, tuple) and hasattr(row, "_fields"):
            return {name: getattr(row, name) for name in self._schema if hasattr(row, name)}
        raise ValueTypeMismatch(
            f"port {self.name}: a row is a mapping from columns to values or an event, not {describe(row)}"
        )

    def _mismatch_message(self, row: Mapping[str, object]) -> str:
        """Return the message that names the offending column, found by a second check, because errors are rare."""
        for column, coerce in self._columns:
            try:
                coerce(row[column])
            except ValueTypeMismatch as error:
                return f"port {self.name}, column {column}: {error}"
        raise AssertionError("a value that was rejected is accepted")

    def _columns_message(self, row: Mapping[str, object]) -> str:
        missing = [name for name in self._schema if name not in row]
        unknown = [name for name in row if name not in self._schema]
        return f"port {self.name}: columns missing: {missing}, columns not declared: {unknown}"
