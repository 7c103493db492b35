"""What a match becomes: a row of expressions over its events, or the rows that a function returns for it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import polars as pl

from streamcore.arguments import check_function, check_type
from streamcore.calls import CALL_ERRORS, failure_reason, get_call_name
from streamcore.errors import ConfigError
from streamcore.patterns.engine import read_value
from streamcore.patterns.expressions import MatchExpression, MatchFunction, MatchRead
from streamcore.wire.raw import ORIGIN

Schema = Mapping[str, pl.DataType]
#: A match as a function sees it: by step that has any, its events in order, as dictionaries of columns.
MatchEvents = Mapping[str, Sequence[Mapping[str, Any]]]


@dataclass(frozen=True, eq=False)
class MatchColumns:
    """A row for each match, with these columns. A step without events has the values of an empty step."""

    columns: Mapping[str, MatchExpression]

    def __post_init__(self) -> None:
        if not self.columns:
            raise ConfigError("select: give at least one column, such as first=matched('a').first('v')")
        for name, expression in self.columns.items():
            check_type(f"select: column {name}", expression, MatchExpression, "write such as matched('a').first('v')")
            if expression.columns:
                raise ConfigError(f"select: column {name}: a match has no candidate; write matched(step).last(column)")
            if name.startswith("__"):
                raise ConfigError(f"select: column {name}: names with two underscores are those of the engine")

    def needs(self, schema: Schema) -> set[str]:
        """Return the columns of events that it reads."""
        del schema
        return {read.column for e in self.columns.values() for read in e.reads if read.column}

    def schema(self, schema: Schema) -> Schema:
        """Return the columns of the rows; ``schema``: those of events. ``ConfigError`` if it cannot work."""
        return {name: _infer_dtype(name, expression, schema) for name, expression in self.columns.items()}

    def rows(self, by_step: Mapping[str, list[int]], read_node: Callable[[int, str], Any]) -> list[dict[str, Any]]:
        """Return the row of a match. ``by_step``: its nodes. ``read_node``: a value of a node."""
        row = {}
        for name, expression in self.columns.items():
            values = [read_value(read, by_step.get(read.step, ()), read_node) for read in expression.reads]
            row[name] = expression.value({}, values)
        return [row]


@dataclass(frozen=True, eq=False)
class MatchApply:
    """The rows that a function returns for each match. ``columns``: their columns."""

    function: Callable[[MatchEvents], Iterable[Mapping[str, Any]]]
    columns: Schema

    def __post_init__(self) -> None:
        check_function("apply", self.function, "write a function of a match: lists of events by step")
        if not self.columns or any(name.startswith("__") for name in self.columns):
            raise ConfigError("apply: give the columns of the rows that the function returns, without __ in front")

    def needs(self, schema: Schema) -> set[str]:
        """Return the columns of events that the function sees: all but those of their records."""
        return {*schema} - {*ORIGIN}

    def schema(self, schema: Schema) -> Schema:
        """Return the columns of the rows."""
        del schema
        return self.columns


class MatchRows:
    """Collects the rows of matches of one port. ``events``: the columns of events, as a function sees them."""

    def __init__(self, output: MatchColumns | MatchApply, events: Schema) -> None:
        self._output = output
        self._events = [*events]
        self.schema = dict(output.schema(events))
        self.rows: list[dict[str, Any]] = []
        self.sources: list[int] = []

    def add(self, number: int, by_step: Mapping[str, list[int]], read_node: Callable[[int, str], Any]) -> str | None:
        """Add the rows of match ``number``. Return why that failed, or None."""
        output = self._output
        try:
            if isinstance(output, MatchColumns):
                rows = output.rows(by_step, read_node)
            else:
                match = {
                    step: [{name: read_node(node, name) for name in self._events} for node in nodes]
                    for step, nodes in by_step.items()
                }
                rows = [self._checked(row) for row in output.function(match)]
        except CALL_ERRORS as error:
            name = "select" if isinstance(output, MatchColumns) else get_call_name(output.function)
            return failure_reason(name, error)
        self.rows += rows
        self.sources += [number] * len(rows)
        return None

    def _checked(self, row: Mapping[str, Any]) -> dict[str, Any]:
        if {*row} != {*self.schema}:
            raise TypeError(f"it returned a row with {sorted(row)}, and the declared columns are {sorted(self.schema)}")
        pl.DataFrame([dict(row)], schema=self.schema, strict=True)
        return dict(row)

    def frame(self) -> pl.DataFrame:
        """Return all rows."""
        return pl.DataFrame(self.rows, schema=self.schema, strict=False)


def check_match_condition(condition: MatchExpression, schema: Schema) -> None:
    """Raise ``ConfigError`` for a condition that cannot be computed from columns of these types, or that is none."""
    about = f"pattern: {condition!r}"
    read = {column: schema[column] for column in condition.columns}
    kinds = [*read.values(), *(_read_dtype(about, one, schema) for one in condition.reads)]
    if not all(kind.is_numeric() or kind.is_temporal() or kind in (pl.Boolean, pl.String) for kind in kinds):
        return  # there is no sample of such a value
    samples = map(_sample, kinds[len(read) :])
    try:
        value = condition.value({name: _sample(kind) for name, kind in read.items()}, [*samples])
    except CALL_ERRORS as error:
        names = [*(f"candidate({column!r})" for column in read), *map(str, condition.reads)]
        types = ", ".join(f"{name} is {kind}" for name, kind in zip(names, kinds, strict=True))
        raise ConfigError(f"{about}: it cannot be computed: {error}; {types}") from error
    if value is not None and not isinstance(value, bool):
        raise ConfigError(f"{about}: it gives a {type(value).__name__}; write a condition, which is true or false")


def _infer_dtype(name: str, expression: MatchExpression, schema: Schema) -> pl.DataType:
    if expression.is_read:
        return _read_dtype(f"select: column {name}", expression.reads[0], schema)
    sample = [_sample(_read_dtype(f"select: column {name}", read, schema)) for read in expression.reads]
    try:
        value = expression.value({}, sample)
    except CALL_ERRORS as error:
        raise ConfigError(f"select: column {name}: {expression!r} cannot be computed: {error}") from error
    known = {bool: pl.Boolean(), int: pl.Int64(), float: pl.Float64(), str: pl.String()}
    if type(value) not in known:
        raise ConfigError(
            f"select: column {name}: {expression!r} gives a {type(value).__name__}; select its parts, and use map"
        )
    return known[type(value)]


def _read_dtype(about: str, read: MatchRead, schema: Schema) -> pl.DataType:
    if read.function is MatchFunction.COUNT:
        return pl.Int64()
    dtype = schema.get(read.column)
    if dtype is None:
        raise ConfigError(f"{about}: the stream has no column {read.column!r}; it has {[*schema]}")
    if read.function in (MatchFunction.SUM, MatchFunction.MEAN):
        if not dtype.is_numeric():
            raise ConfigError(f"{about}: {read.function} of {read.column!r}, which is {dtype}")
        if isinstance(dtype, pl.Decimal) and read.function is MatchFunction.SUM:
            return pl.Decimal(38, dtype.scale)
        return pl.Int64() if dtype.is_integer() and read.function is MatchFunction.SUM else pl.Float64()
    return dtype


def _sample(dtype: pl.DataType) -> Any:
    match dtype:
        case pl.Boolean():
            return True
        case pl.String():
            return "a"
        case pl.Decimal():
            return Decimal(1)
        case pl.Datetime():
            return datetime(2000, 1, 1, tzinfo=UTC if dtype.time_zone else None)
        case pl.Date():
            return date(2000, 1, 1)
        case pl.Duration():
            return timedelta(seconds=1)
        case _:
            return 1.0 if dtype.is_float() else 1
