"""The values themselves, in order of arrival, up to a limit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from streamcore.aggregates.aggregate import Aggregate, Ints, Mask, Partials, Schema, given, objects
from streamcore.aggregates.columns import plain, plain_type
from streamcore.aggregates.totals import present
from streamcore.errors import ConfigError
from streamcore.windowing.values import Element, Result

_Numbered = tuple[list[int], list[object]]


@dataclass(frozen=True)
class Collect(Aggregate):
    """A list of the values that are not null, in order of arrival; of more than ``limit`` the first ``limit``.

    A partial holds ``numbers`` and ``values`` of what it keeps, and whether there was ``more``.
    """

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

    def dtypes(self, schema: Schema) -> Mapping[str, pl.DataType]:
        values = plain_type(schema[self.column])
        return {"numbers": pl.List(pl.Int64()), "values": pl.List(values), "more": pl.Boolean()}

    def group(self, rows: pl.DataFrame, numbers: Ints, group: Ints, groups: int) -> Partials:
        some = present(rows[self.column])
        values = plain(rows[self.column].drop_nulls())
        frame = pl.DataFrame({"group": group[some], "numbers": numbers[some], "values": values})
        found = frame.group_by("group").agg(
            pl.col("numbers", "values").head(self.limit), (pl.len() > self.limit).alias("more")
        )
        partials = {
            "numbers": objects([[]] * groups),
            "values": objects([[]] * groups),
            "more": np.zeros(groups, dtype=bool),
        }
        at = found["group"].to_numpy()
        partials["numbers"][at] = objects(found["numbers"].to_list())
        partials["values"][at] = objects(found["values"].to_list())
        partials["more"][at] = found["more"].to_numpy()
        return partials

    def merge(self, left: Partials, right: Partials) -> Partials:
        columns = (left["numbers"], left["values"], right["numbers"], right["values"])
        merged = [_merged((ln, lv), (rn, rv)) for ln, lv, rn, rv in zip(*columns, strict=True)]
        above = np.fromiter((len(numbers) > self.limit for numbers, _ in merged), bool, len(merged))
        return {
            "numbers": objects([numbers[: self.limit] for numbers, _ in merged]),
            "values": objects([values[: self.limit] for _, values in merged]),
            "more": left["more"] | right["more"] | above,
        }

    def truncated(self, partials: Partials) -> Mask:
        return partials["more"]

    def result(self, partials: Partials, schema: Schema) -> pl.Series:
        lists = pl.Series(partials["values"].tolist(), dtype=self.dtypes(schema)["values"])
        return lists.cast(pl.List(schema[self.column]))

    def reference(self, elements: Sequence[Element]) -> Result:
        return tuple(given(elements, self.column)[: self.limit])


def _merged(left: _Numbered, right: _Numbered) -> _Numbered:
    """Both in order of arrival; mostly one is all after the other."""
    if left[0] and right[0] and left[0][-1] > right[0][0]:
        if right[0][-1] > left[0][0]:
            return _sorted(left, right)
        left, right = right, left
    return left[0] + right[0], left[1] + right[1]


def _sorted(left: _Numbered, right: _Numbered) -> _Numbered:
    numbers, values = left[0] + right[0], left[1] + right[1]
    order = sorted(range(len(numbers)), key=numbers.__getitem__)
    return [numbers[i] for i in order], [values[i] for i in order]
