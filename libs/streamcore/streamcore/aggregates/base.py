"""The contract of an aggregate: a function that combines the rows of a group into one value.

The intermediate result of an aggregate over some rows is a *partial*: a fixed set of columns, so that the partials of a
million groups are a few arrays. Partials are made from rows (``aggregate_groups``), combined with each other
(``merge``, ``reduce``) and read (``result``); combining is associative, so rows may be aggregated in any pieces.
``subtract`` is the inverse of ``merge``, for aggregates where that is exact. Null inputs are left out, as in SQL.

An aggregate is immutable and can be pickled: it holds settings and no data. No method changes the partials that it
receives. Called with elements, an aggregate is a window function of the reference.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

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
    """The base class of aggregates."""

    #: Whether methods call code of the user, which can fail.
    calls_user_code: ClassVar[bool] = False

    @property
    @abstractmethod
    def inputs(self) -> tuple[str, ...]:
        """Return the columns that the aggregate reads, without ``EVENT_MS``, which is always available."""

    @abstractmethod
    def check(self, schema: Schema) -> pl.DataType:
        """Return the type of the result for rows of these columns; ``ConfigError`` if they do not fit."""

    @abstractmethod
    def partial_types(self, schema: Schema) -> Mapping[str, pl.DataType]:
        """Return the columns of a partial with their stored types: types of Arrow IPC, no Python objects."""

    @abstractmethod
    def aggregate_groups(self, rows: pl.DataFrame, numbers: Ints, group: Ints, groups: int) -> Partials:
        """Return one partial per group.

        ``rows`` are in order of arrival. ``numbers`` and ``group`` have shape (rows,). ``numbers``: the arrival number
        of each row, which rises over all cuts and decides between rows with one event time. ``group``: the group of
        each row, from 0 to ``groups - 1``. A group can be without rows; it gets a partial too.
        """

    @abstractmethod
    def merge(self, left: Partials, right: Partials) -> Partials:
        """Merge two equally long sets of partials, pair by pair.

        The rows of ``left`` need not have arrived first: an aggregate that depends on arrival has arrival numbers in
        its partials.
        """

    def reduce(self, partials: Partials, starts: Ints) -> Partials:
        """Merge each run of partials into one. Run i is ``starts[i]`` to before ``starts[i + 1]``; none is empty.

        It merges neighbours, then neighbours of the results, and so on, so the number of merges is the logarithm of the
        longest run. A subclass can override it with a faster way.
        """
        length = len(next(iter(partials.values())))
        counts = np.diff(np.append(starts, length))
        run = np.repeat(np.arange(len(starts)), counts)
        position = np.arange(length) - np.repeat(starts, counts)
        columns = {name: column.copy() for name, column in partials.items()}
        step = 1
        while counts.size and step < counts.max():
            left = np.flatnonzero((position % (2 * step) == 0) & (position + step < counts[run]))
            merged = self.merge(take_rows(columns, left), take_rows(columns, left + step))
            for name, column in merged.items():
                columns[name][left] = column
            step *= 2
        return take_rows(columns, starts)

    def can_subtract(self, schema: Schema) -> bool:  # noqa: ARG002 - most aggregates return the same for all types
        """Return whether ``subtract`` is the exact inverse of ``merge`` for rows of these columns."""
        return False

    def subtract(self, total: Partials, part: Partials) -> Partials:
        """Return each ``total`` without the ``part`` that was merged into it; only if ``can_subtract``."""
        raise NotImplementedError(f"{self} cannot be undone")

    def find_truncated(self, partials: Partials) -> Mask:
        """Return a mask of the partials that omit values because of a limit of the aggregate; metrics count them."""
        return np.zeros(len(next(iter(partials.values()))), dtype=bool)

    def failing_rows(self, rows: pl.DataFrame) -> Mapping[int, str]:  # noqa: ARG002 - only user code fails
        """Return the rows that the aggregate cannot add, by number, and why. Such rows must not be aggregated."""
        return {}

    def find_failed(self, partials: Partials) -> Mask:
        """Return a mask of the partials that lack rows because the user's code failed."""
        return np.zeros(len(next(iter(partials.values()))), dtype=bool)

    def try_result(self, partials: Partials, schema: Schema) -> tuple[pl.Series, Mapping[int, str]]:
        """Return the values of ``result``, null where the user's code fails; and why it fails, by number of partial."""
        return self.result(partials, schema), {}

    @abstractmethod
    def result(self, partials: Partials, schema: Schema) -> pl.Series:
        """Return the value of each partial, of the type that ``check`` returns; null if there is none."""

    def store(self, partials: Partials, schema: Schema) -> Sequence[pl.Series]:
        """Return the partials as columns of ``partial_types``, to be stored."""
        return [_to_series(name, partials[name], dtype) for name, dtype in self.partial_types(schema).items()]

    def load(self, columns: Sequence[pl.Series], schema: Schema) -> Partials:
        """Return the partials of stored columns. Columns are matched by position; their names can differ."""
        pairs = zip(self.partial_types(schema).items(), columns, strict=True)
        return {name: _to_numpy(column, dtype) for (name, dtype), column in pairs}

    @abstractmethod
    def reference(self, elements: Sequence[Element]) -> Result:
        """Return the value for elements in order of arrival: the reference implementation, written plainly."""

    def __call__(self, elements: Sequence[Element]) -> Result:
        return self.reference(elements)

    def column_type(self, schema: Schema, column: str) -> pl.DataType:
        """Return the type of a column; ``ConfigError`` if it does not exist."""
        if column not in schema:
            raise ConfigError(f"{self}: there is no column {column!r}; the columns are {', '.join(schema)}")
        return schema[column]

    def type_error(self, column: str, dtype: pl.DataType, fitting: str) -> ConfigError:
        """Return the error for a column of an unsupported type. ``fitting``: the types that are supported."""
        return ConfigError(f"{self}: column {column!r} is {dtype}; supported are {fitting}")


def take_rows(partials: Partials, indexes: Ints | Mask) -> dict[str, Array]:
    """Return the partials at these indexes."""
    return {name: column[indexes] for name, column in partials.items()}


def concat_rows(pieces: Sequence[Partials]) -> dict[str, Array]:
    """Return the concatenation of at least one set of partials."""
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
