"""Rows as a keyed function sees them and gives them: one light object a row in, checked columns out."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from operator import itemgetter
from typing import Any

import polars as pl

from streamcore.errors import ConfigError
from streamcore.keyed.kinds import ColumnType, column_kind
from streamcore.keyed.plain import Misfit, show
from streamcore.keyed.scope import Scope
from streamcore.schema import EVENT_MS

#: Column types by name.
Schema = Mapping[str, ColumnType]


def checked(schema: Schema, what: str) -> dict[str, pl.DataType]:
    """The schema with plain column types; ``ConfigError`` where rows cannot have them."""
    if not isinstance(schema, Mapping):
        raise ConfigError(f"{what}: needs a mapping of column names to Polars types, not {show(schema)}")
    if reserved := [name for name in schema if name.startswith("__")]:
        raise ConfigError(f"{what}: columns {reserved}: names that begin with __ are the engine's")
    try:
        return {name: column_kind(declared).dtype for name, declared in schema.items()}
    except ConfigError as error:
        raise ConfigError(f"{what}: {error}") from None


def reader(schema: Mapping[str, pl.DataType], name: str) -> Callable[[pl.DataFrame], Iterable[tuple[Any, ...]]]:
    """Makes rows of a frame: named tuples of the columns of the schema; times are in UTC."""
    row = namedtuple(name, schema, rename=True)  # type: ignore[misc]  # the fields are data
    for n, column in enumerate(schema):
        if column not in row._fields:  # a name that Python keeps to itself, such as class: getattr(event, "class")
            setattr(row, column, property(itemgetter(n)))
    make = partial(tuple.__new__, row)
    columns = list(schema)

    def rows(frame: pl.DataFrame) -> Iterable[tuple[Any, ...]]:
        if not columns:
            return (make(()) for _ in range(frame.height))
        return map(make, zip(*(frame[name].to_list() for name in columns), strict=True))

    return rows


class Port:
    """The rows given to one port in this cut."""

    def __init__(self, name: str, schema: Mapping[str, pl.DataType], scope: Scope) -> None:
        self.name = name
        self._schema = dict(schema)
        self._columns = [(column, column_kind(dtype).fit) for column, dtype in schema.items()]
        self._scope = scope
        self._rows: list[tuple[object, ...]] = []

    def add(self, row: object) -> None:
        """One row, at the event time of the call; ``Misfit`` if it has other columns or values."""
        if type(row) is not dict:
            row = self._mapping(row)
        if len(row) != len(self._columns):
            raise Misfit(self._difference(row))
        values: list[object] = [self._scope.event_ms]
        column = ""
        try:
            for column, fit in self._columns:
                value = row[column]
                values.append(None if value is None else fit(value))
        except KeyError:
            raise Misfit(self._difference(row)) from None
        except Misfit as error:
            raise Misfit(f"port {self.name}, column {column}: {error}") from None
        self._rows.append(tuple(values))
        self._scope.journal.append((self._rows.pop,))

    def take(self) -> pl.DataFrame | None:
        """The rows since the last call; None without any."""
        if not self._rows:
            return None
        times, *columns = zip(*self._rows, strict=True)
        self._rows = []
        pairs = zip(self._schema.items(), columns, strict=True)
        series = [pl.Series(name, values, dtype=dtype) for (name, dtype), values in pairs]
        return pl.DataFrame([*series, pl.Series(EVENT_MS, times, dtype=pl.Int64)])

    def _mapping(self, row: object) -> dict[str, object]:
        if isinstance(row, Mapping):
            return dict(row)
        if isinstance(row, tuple) and hasattr(row, "_fields"):
            return {name: getattr(row, name) for name in self._schema if hasattr(row, name)}
        raise Misfit(f"port {self.name}: a row is a mapping from columns to values or an event, not {show(row)}")

    def _difference(self, row: Mapping[str, object]) -> str:
        missing = [name for name in self._schema if name not in row]
        unknown = [name for name in row if name not in self._schema]
        return f"port {self.name}: columns missing: {missing}, columns not declared: {unknown}"


def input_rows(frame: pl.DataFrame, schema: Mapping[str, pl.DataType], what: str) -> pl.DataFrame:
    """The columns of the schema and ``EVENT_MS``; ``ConfigError`` if the frame is not of it."""
    found: Mapping[str, object] = frame.schema
    wanted: Sequence[tuple[str, object]] = [*schema.items(), (EVENT_MS, pl.Int64())]
    if wrong := [f"{name} ({dtype})" for name, dtype in wanted if found.get(name) != dtype]:
        raise ConfigError(f"{what}: the frame lacks {', '.join(wrong)}; it has {dict(found)}")
    return frame.select([name for name, _ in wanted])
