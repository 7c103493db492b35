"""The contract of an aggregate: how many rows become one value, in columns, a piece at a time.

The intermediate result of an aggregate over some rows is a *partial*: a fixed set of columns, so that the partials of a
million groups are a few arrays. Partials are made from rows (``aggregate_groups``), combined with each other
(``merge``, ``reduce``) and read (``result``); combining is associative, so rows may be aggregated in any pieces.
``subtract`` undoes a combination, where that is possible without loss. Null inputs are left out, as in SQL.

An aggregate is a frozen value: it holds what was asked for, never data, and it can be pickled. No method changes the
partials it is given. Called with elements, an aggregate is a window function of the reference.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from streamcore.aggregates.list_columns import flatten, object_array, to_list_column
from streamcore.errors import ConfigError
from streamcore.windowing.model import Element, Result

#: Columns of equal length by name: int64, float64, bool, or Python objects that are never changed in place.
Partials = Mapping[str, npt.NDArray[Any]]
#: The columns of a row by name.
Schema = Mapping[str, pl.DataType]
Array = npt.NDArray[Any]
Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


class Aggregate(ABC):
    """An aggregate over columns of a row."""

    @property
    @abstractmethod
    def inputs(self) -> tuple[str, ...]:
        """Return the columns it reads; ``EVENT_MS`` is always there and not among them."""

    @abstractmethod
    def check(self, schema: Schema) -> pl.DataType:
        """Return the type of the result over rows of these columns; ``ConfigError`` where they do not fit."""

    @abstractmethod
    def partial_types(self, schema: Schema) -> Mapping[str, pl.DataType]:
        """Return the columns of a partial and how they are stored: types that Arrow IPC knows, no Python objects."""

    @abstractmethod
    def aggregate_groups(self, rows: pl.DataFrame, numbers: Ints, group: Ints, groups: int) -> Partials:
        """Return one partial a group. ``aggregate_groups``: the group of each row, ``0 .. groups - 1``; rows are in
        order of
        arrival.

        ``numbers``: for each row how many rows of its key arrived before it, ever: it breaks ties of event time. A
        group without rows gets the partial of nothing.
        """

    @abstractmethod
    def merge(self, left: Partials, right: Partials) -> Partials:
        """Combine partials one by one. Where arrival matters, partials hold the arrival numbers that decide."""

    def reduce(self, partials: Partials, starts: Ints) -> Partials:
        """Combine runs of partials: run i is ``starts[i]`` up to ``starts[i + 1]``, the last to the end; none is empty.

        By doubling: as many merges as the longest run has bits. An aggregate may know a faster way.
        """
        length = len(next(iter(partials.values())))
        counts = np.diff(np.append(starts, length))
        run = np.repeat(np.arange(len(starts)), counts)
        place = np.arange(length) - np.repeat(starts, counts)
        columns = {name: column.copy() for name, column in partials.items()}
        step = 1
        while counts.size and step < counts.max():
            left = np.flatnonzero((place % (2 * step) == 0) & (place + step < counts[run]))
            merged = self.merge(take_rows(columns, left), take_rows(columns, left + step))
            for name, column in merged.items():
                columns[name][left] = column
            step *= 2
        return take_rows(columns, starts)

    def can_subtract(self, schema: Schema) -> bool:  # noqa: ARG002 - most answer the same for all types
        """Return whether ``subtract`` undoes a merge without loss over rows of these columns."""
        return False

    def subtract(self, total: Partials, part: Partials) -> Partials:
        """Take each ``part`` out of its ``total``, which was combined from it."""
        raise NotImplementedError(f"{self} cannot be undone")

    def find_truncated(self, partials: Partials) -> Mask:
        """Return which partials have left something out because of a limit of the aggregate's; to be counted in
        metrics."""
        return np.zeros(len(next(iter(partials.values()))), dtype=bool)

    @abstractmethod
    def result(self, partials: Partials, schema: Schema) -> pl.Series:
        """Return the value of each partial, of the type that ``check`` answers; null where there is none."""

    def store(self, partials: Partials, schema: Schema) -> Sequence[pl.Series]:
        """Return the partials as columns of ``partial_types``, for keeping."""
        return [_to_series(name, partials[name], dtype) for name, dtype in self.partial_types(schema).items()]

    def load(self, columns: Sequence[pl.Series], schema: Schema) -> Partials:
        """Return the partials that ``store`` was given. Columns are matched by position: their names may differ."""
        pairs = zip(self.partial_types(schema).items(), columns, strict=True)
        return {name: _to_numpy(column, dtype) for (name, dtype), column in pairs}

    @abstractmethod
    def reference(self, elements: Sequence[Element]) -> Result:
        """Return the value over elements in order of arrival, computed afresh, as plainly as it can be written."""

    def __call__(self, elements: Sequence[Element]) -> Result:
        return self.reference(elements)

    def column_type(self, schema: Schema, column: str) -> pl.DataType:
        """Return the type of a column that must be there."""
        if column not in schema:
            raise ConfigError(f"{self}: there is no column {column!r}; the columns are {', '.join(schema)}")
        return schema[column]

    def type_error(self, column: str, dtype: pl.DataType, fitting: str) -> ConfigError:
        """Return the error for a column of an unsupported type. ``fitting``: the types that are supported."""
        return ConfigError(f"{self}: column {column!r} is {dtype}; supported are {fitting}")


def take_rows(partials: Partials, places: Ints | Mask) -> dict[str, Array]:
    """Return the partials at these places."""
    return {name: column[places] for name, column in partials.items()}


def concat_rows(pieces: Sequence[Partials]) -> dict[str, Array]:
    """Return one after the other; at least one piece."""
    return {name: np.concatenate([piece[name] for piece in pieces]) for name in pieces[0]}


def non_null_values(elements: Sequence[Element], column: str) -> list[Any]:
    """Return the values that are not null, in order of arrival; for ``Aggregate.reference``."""
    values = (element.value.get(column) for element in elements)
    return [value for value in values if value is not None]


_NUMPY = {pl.Int64(): np.int64, pl.Float64(): np.float64, pl.Boolean(): np.bool_}


def _to_series(name: str, column: Array, dtype: pl.DataType) -> pl.Series:
    inner = dtype.inner if isinstance(dtype, pl.List) else None
    if isinstance(inner, pl.DataType) and not inner.is_nested():
        return to_list_column(flatten(column.tolist(), inner), column.tolist()).alias(name)
    return pl.Series(name, column.tolist() if column.dtype == object else column, dtype=dtype)


def _to_numpy(column: pl.Series, dtype: pl.DataType) -> Array:
    return column.to_numpy().astype(_NUMPY[dtype]) if dtype in _NUMPY else object_array(column.to_list())
