"""The contract of an aggregate: how many rows become one value, in columns, a piece at a time.

What an aggregate remembers of some rows is a *partial*: a fixed set of columns, so that the partials of a million
groups are a few arrays. Partials are made from rows (``group``), combined with each other (``merge``, ``reduce``) and
read (``result``); combining is associative, so rows may be aggregated in any pieces. ``subtract`` undoes a
combination, where that is possible without loss. Null inputs are left out, as in SQL.

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

from streamcore.aggregates.lists import cut, flat, objects
from streamcore.errors import ConfigError
from streamcore.windowing.values import Element, Result

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
        """The columns it reads; ``EVENT_MS`` is always there and not among them."""

    @abstractmethod
    def check(self, schema: Schema) -> pl.DataType:
        """The type of the result over rows of these columns; ``ConfigError`` where they do not fit."""

    @abstractmethod
    def dtypes(self, schema: Schema) -> Mapping[str, pl.DataType]:
        """The columns of a partial and how they are stored: types that Arrow IPC knows, no Python objects."""

    @abstractmethod
    def group(self, rows: pl.DataFrame, numbers: Ints, group: Ints, groups: int) -> Partials:
        """One partial a group. ``group``: the group of each row, ``0 .. groups - 1``; rows are in order of arrival.

        ``numbers``: for each row how many rows of its key arrived before it, ever: it breaks ties of event time. A
        group without rows gets the partial of nothing.
        """

    @abstractmethod
    def merge(self, left: Partials, right: Partials) -> Partials:
        """Combine partials one by one. Where arrival matters, they hold what is needed to tell (``numbers``)."""

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
            merged = self.merge(take(columns, left), take(columns, left + step))
            for name, column in merged.items():
                columns[name][left] = column
            step *= 2
        return take(columns, starts)

    def invertible(self, schema: Schema) -> bool:  # noqa: ARG002 - most answer the same for all types
        """Whether ``subtract`` undoes a merge without loss over rows of these columns."""
        return False

    def subtract(self, total: Partials, part: Partials) -> Partials:
        """``total`` without ``part``, one by one, where ``total`` was combined from it."""
        raise NotImplementedError(f"{self} cannot be undone")

    def truncated(self, partials: Partials) -> Mask:
        """Which partials have left something out because of a limit of the aggregate's; to be counted in metrics."""
        return np.zeros(len(next(iter(partials.values()))), dtype=bool)

    @abstractmethod
    def result(self, partials: Partials, schema: Schema) -> pl.Series:
        """The value of each partial, of the type that ``check`` answers; null where there is none."""

    def store(self, partials: Partials, schema: Schema) -> Sequence[pl.Series]:
        """The partials as columns of ``dtypes``, for keeping."""
        return [_stored(name, partials[name], dtype) for name, dtype in self.dtypes(schema).items()]

    def load(self, columns: Sequence[pl.Series], schema: Schema) -> Partials:
        """What ``store`` was given. By position: whoever keeps the columns may give them other names."""
        pairs = zip(self.dtypes(schema).items(), columns, strict=True)
        return {name: _loaded(column, dtype) for (name, dtype), column in pairs}

    @abstractmethod
    def reference(self, elements: Sequence[Element]) -> Result:
        """The value over elements in order of arrival, computed afresh, as plainly as it can be written."""

    def __call__(self, elements: Sequence[Element]) -> Result:
        return self.reference(elements)

    def column_type(self, schema: Schema, column: str) -> pl.DataType:
        """The type of a column that must be there."""
        if column not in schema:
            raise ConfigError(f"{self}: there is no column {column!r}; the columns are {', '.join(schema)}")
        return schema[column]

    def refuse(self, column: str, dtype: pl.DataType, fitting: str) -> ConfigError:
        """What to raise where a column's type does not fit. ``fitting``: which types would."""
        return ConfigError(f"{self}: column {column!r} is {dtype}; {fitting} would fit")


def take(partials: Partials, places: Ints | Mask) -> dict[str, Array]:
    """The partials at these places."""
    return {name: column[places] for name, column in partials.items()}


def concat(pieces: Sequence[Partials]) -> dict[str, Array]:
    """One after the other; at least one piece."""
    return {name: np.concatenate([piece[name] for piece in pieces]) for name in pieces[0]}


def given(elements: Sequence[Element], column: str) -> list[Any]:
    """For references: the values that are not null, in order of arrival."""
    values = (element.value.get(column) for element in elements)
    return [value for value in values if value is not None]


_NUMPY = {pl.Int64(): np.int64, pl.Float64(): np.float64, pl.Boolean(): np.bool_}


def _stored(name: str, column: Array, dtype: pl.DataType) -> pl.Series:
    inner = dtype.inner if isinstance(dtype, pl.List) else None
    if isinstance(inner, pl.DataType) and not inner.is_nested():
        return cut(flat(column.tolist(), inner), column.tolist()).alias(name)
    return pl.Series(name, column.tolist() if column.dtype == object else column, dtype=dtype)


def _loaded(column: pl.Series, dtype: pl.DataType) -> Array:
    return column.to_numpy().astype(_NUMPY[dtype]) if dtype in _NUMPY else objects(column.to_list())
