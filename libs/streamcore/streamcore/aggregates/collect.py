"""Aggregates that list values: all in order of arrival, or those of the rows with the greatest values of a column."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from streamcore.aggregates.arrays import (
    ORDERED,
    is_ordered,
    non_null_rows,
    physical_type,
    sort_key,
    to_array,
    to_physical_values,
)
from streamcore.aggregates.base import Aggregate, Ints, Mask, Partials, Schema, non_null_values
from streamcore.aggregates.list_columns import flatten, object_array, to_list_column
from streamcore.errors import ConfigError
from streamcore.windowing.model import Element, Result

#: One group's partial: lists of equal length, the first of which holds the numbers of the rows.
_Lists = tuple[list[Any], ...]
_MORE = "more"


class _Listing(Aggregate):
    """The base of aggregates whose partials are lists.

    The lists of a partial have one length, at most the limit; ``more``: whether the limit omitted values.
    """

    def merge(self, left: Partials, right: Partials) -> Partials:
        names = [name for name in left if name != _MORE]
        left_groups, right_groups = (zip(*(side[name] for name in names), strict=True) for side in (left, right))
        merged = [
            self._merge_lists(left_lists, right_lists)
            for left_lists, right_lists in zip(left_groups, right_groups, strict=True)
        ]
        longer = np.fromiter((len(lists[0]) > self._limit for lists in merged), bool, len(merged))
        columns = {name: object_array([lists[i][: self._limit] for lists in merged]) for i, name in enumerate(names)}
        return columns | {_MORE: left[_MORE] | right[_MORE] | longer}

    def find_truncated(self, partials: Partials) -> Mask:
        return partials[_MORE]

    def _group_lists(self, rows: pl.DataFrame, groups: int) -> Partials:
        """Return one partial per group. ``rows`` are in the order of the lists; their first column is ``group``."""
        aggregated = rows.group_by("group").agg(pl.all().head(self._limit), (pl.len() > self._limit).alias(_MORE))
        group_index = aggregated["group"].to_numpy()
        partials = {name: object_array([[]] * groups) for name in rows.columns[1:]}
        for name, column in partials.items():
            column[group_index] = object_array(aggregated[name].to_list())
        is_truncated = np.zeros(groups, dtype=bool)
        is_truncated[group_index] = aggregated[_MORE].to_numpy()
        return partials | {_MORE: is_truncated}

    @property
    @abstractmethod
    def _limit(self) -> int:
        """Return the maximum length of a list."""

    @abstractmethod
    def _merge_lists(self, left: _Lists, right: _Lists) -> _Lists:
        """Merge the lists of two partials in the order of the aggregate."""


@dataclass(frozen=True)
class Collect(_Listing):
    """The first ``limit`` values that are not null, in order of arrival, as a list."""

    column: str
    limit: int = 1_000

    def __post_init__(self) -> None:
        if self.limit < 1:
            raise ConfigError(f"{self}: limit must be positive")

    @property
    def inputs(self) -> tuple[str, ...]:
        return (self.column,)

    def check(self, schema: Schema) -> pl.DataType:
        return pl.List(self.column_type(schema, self.column))

    def partial_types(self, schema: Schema) -> Mapping[str, pl.DataType]:
        values = pl.List(physical_type(schema[self.column]))
        return {"numbers": pl.List(pl.Int64()), "values": values, _MORE: pl.Boolean()}

    def aggregate_groups(self, rows: pl.DataFrame, numbers: Ints, group: Ints, groups: int) -> Partials:
        chosen = non_null_rows(rows[self.column])
        values = to_physical_values(rows[self.column].drop_nulls())
        return self._group_lists(
            pl.DataFrame({"group": group[chosen], "numbers": numbers[chosen], "values": values}), groups
        )

    def result(self, partials: Partials, schema: Schema) -> pl.Series:
        lists = partials["values"].tolist()
        values = flatten(lists, physical_type(schema[self.column])).cast(schema[self.column])
        return to_list_column(values, lists)

    def reference(self, elements: Sequence[Element]) -> Result:
        return tuple(non_null_values(elements, self.column)[: self.limit])

    @property
    def _limit(self) -> int:
        return self.limit

    def _merge_lists(self, left: _Lists, right: _Lists) -> _Lists:
        """Merge both lists by arrival. If the right one arrived later, as usual, no sort is needed."""
        joined = tuple(left_list + right_list for left_list, right_list in zip(left, right, strict=True))
        if left[0] and right[0] and right[0][0] < left[0][-1]:
            return _reorder(joined, sorted(range(len(joined[0])), key=joined[0].__getitem__))
        return joined


@dataclass(frozen=True)
class TopN(_Listing):
    """The ``n`` rows with the greatest ``by``, greatest first; of rows with equal ``by``, those that arrived first.

    The result is a list of structs of ``column`` and ``by``. Rows with a null in one of them are ignored. NaN is the
    greatest number.
    """

    column: str
    by: str
    n: int

    def __post_init__(self) -> None:
        if self.n < 1:
            raise ConfigError(f"{self}: n must be positive")
        if self.column == self.by:
            raise ConfigError(f"{self}: column and by must differ; name another column of the row")

    @property
    def inputs(self) -> tuple[str, ...]:
        return (self.column, self.by)

    def check(self, schema: Schema) -> pl.DataType:
        column, by = (self.column_type(schema, name) for name in self.inputs)
        if not is_ordered(by):
            raise self.type_error(self.by, by, ORDERED)
        return pl.List(pl.Struct({self.column: column, self.by: by}))

    def partial_types(self, schema: Schema) -> Mapping[str, pl.DataType]:
        values, by = (pl.List(physical_type(schema[name])) for name in self.inputs)
        return {"numbers": pl.List(pl.Int64()), "values": values, "by": by, _MORE: pl.Boolean()}

    def aggregate_groups(self, rows: pl.DataFrame, numbers: Ints, group: Ints, groups: int) -> Partials:
        chosen = (rows[self.column].is_not_null() & rows[self.by].is_not_null()).to_numpy()
        values, by = (to_physical_values(rows[name].filter(chosen)) for name in self.inputs)
        if by.dtype.is_float():
            by = pl.Series(to_array(by), dtype=by.dtype)  # -0.0 is 0.0
        frame = pl.DataFrame({"group": group[chosen], "numbers": numbers[chosen], "values": values, "by": by})
        return self._group_lists(frame.sort("by", descending=True, maintain_order=True), groups)

    def find_truncated(self, partials: Partials) -> Mask:
        """Return False for every partial: leaving rows out is the purpose of this aggregate."""
        return np.zeros_like(partials[_MORE])

    def result(self, partials: Partials, schema: Schema) -> pl.Series:
        lists = {self.column: partials["values"].tolist(), self.by: partials["by"].tolist()}
        values = {name: flatten(lists[name], physical_type(schema[name])).cast(schema[name]) for name in lists}
        return to_list_column(pl.DataFrame(values).to_struct(), lists[self.column])

    def reference(self, elements: Sequence[Element]) -> Result:
        rows = [{name: element.value.get(name) for name in self.inputs} for element in elements]
        chosen = [row for row in rows if None not in row.values()]
        return tuple(sorted(chosen, key=lambda row: sort_key(row[self.by]), reverse=True)[: self.n])

    @property
    def _limit(self) -> int:
        return self.n

    def _merge_lists(self, left: _Lists, right: _Lists) -> _Lists:
        numbers, _, by = joined = tuple(
            left_list + right_list for left_list, right_list in zip(left, right, strict=True)
        )
        arrived = sorted(range(len(numbers)), key=numbers.__getitem__)
        keys = [sort_key(value) for value in by] if by and isinstance(by[0], float) else by
        return _reorder(joined, sorted(arrived, key=keys.__getitem__, reverse=True))


def _reorder(lists: _Lists, order: Sequence[int]) -> _Lists:
    return tuple([values[i] for i in order] for values in lists)
