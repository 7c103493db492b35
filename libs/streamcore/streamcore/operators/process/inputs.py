"""The inputs of a keyed function, and the order in which the rows of two inputs are processed.

The rows of a key are processed in the order of their event times, as far as the order of arrival permits: the rows of
each input stay in order of arrival, and a row of the second input comes after a row of the first if it is not earlier.
The event time of a row counts here as the latest of its input and key up to it in the cut. So the order of a key's rows
is a function of the rows of this key in the cut, and does not depend on other keys.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import polars as pl

from streamcore.errors import ConfigError
from streamcore.keyed.call_records import InputRows, Schema, check_schema, row_class
from streamcore.schema import EVENT_MS
from streamcore.wire.raw import ORIGIN

#: The number of a row in its frame, the row as the function sees it, its key slot, and its event time.
ArrivingRow = tuple[int, tuple[Any, ...], int, int]


@dataclass(frozen=True)
class EventInput:
    """One input of events. ``method``: of the function. ``schema``: the columns that it sees. ``key``: by column."""

    method: str
    schema: Mapping[str, pl.DataType]
    key: Mapping[str, pl.DataType]
    row: type[tuple[Any, ...]]
    where: str

    @classmethod
    def build(cls, method: str, schema: Schema, key: Sequence[str], function_name: str, name: str) -> EventInput:
        """Return the input; ``ConfigError`` if the function cannot have such columns, or the key is none of them."""
        where = f"{function_name}: {name}"
        checked = check_schema(without_origin(schema), where)
        return cls(method, checked, _key_columns(key, checked, function_name), row_class(checked, "Event"), where)

    def read(self, frame: pl.DataFrame, key_slots: Sequence[int]) -> Iterator[ArrivingRow]:
        """Yield the rows in order of arrival."""
        rows = InputRows.from_frame(frame, self.schema, self.where)
        return zip(range(frame.height), rows.rows(self.row), key_slots, rows.times, strict=True)


def merge_rows(
    inputs: Sequence[EventInput], frames: Sequence[pl.DataFrame], key_slots: Sequence[Sequence[int]]
) -> Iterator[tuple[EventInput, Iterator[ArrivingRow]]]:
    """Yield runs of rows of one input, in the order of the module docstring. ``frames``, ``key_slots``: by input."""
    rows = [list(one.read(frame, slots)) for one, frame, slots in zip(inputs, frames, key_slots, strict=True)]
    order = pl.concat(
        pl.DataFrame({"slot": slots, "at": frame[EVENT_MS]}, schema={"slot": pl.Int64, "at": pl.Int64}).select(
            pl.col("at").cum_max().over("slot"), input=pl.lit(n), row=pl.int_range(pl.len())
        )
        for n, (frame, slots) in enumerate(zip(frames, key_slots, strict=True))
    ).sort("at", "input", "row")
    for n, run in groupby(order.select("input", "row").iter_rows(), key=lambda place: int(place[0])):
        yield inputs[n], (rows[n][row] for _, row in run)


def without_origin(schema: Schema) -> Schema:
    """Return the columns that the function sees: not those of the records, which the failed rows have again."""
    return {name: dtype for name, dtype in schema.items() if name not in ORIGIN}


def _key_columns(key: Sequence[str], events: Mapping[str, pl.DataType], function_name: str) -> dict[str, pl.DataType]:
    columns = (key,) if isinstance(key, str) else tuple(key)
    if unknown := [column for column in columns if column not in events]:
        raise ConfigError(
            f"{function_name}: the key has columns {unknown} that the events do not have: {sorted(events)}"
        )
    if rejected := [f"{column} ({events[column]})" for column in columns if not _can_be_key(events[column])]:
        raise ConfigError(
            f"{function_name}: {rejected} cannot be a key; use text, booleans, times, whole numbers or decimal numbers "
            "of up to 18 digits"
        )
    return {column: events[column] for column in columns}


def _can_be_key(dtype: pl.DataType) -> bool:
    """Return whether equal values of the type always have equal, stable hashes."""
    if isinstance(dtype, pl.Decimal):
        return (dtype.precision or 38) - dtype.scale <= 18
    return not dtype.is_float() and not dtype.is_nested() and dtype != pl.UInt64
