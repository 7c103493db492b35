"""The exact number of distinct values, up to a limit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from streamcore.aggregates.arrays import ORDERED, identity, identity_type, is_ordered, non_null_rows, sort_key
from streamcore.aggregates.base import Aggregate, Ints, Mask, Partials, Schema, non_null_values
from streamcore.aggregates.list_columns import object_array
from streamcore.errors import ConfigError
from streamcore.windowing.model import Element, Result


@dataclass(frozen=True)
class CountDistinct(Aggregate):
    """The number of distinct values that are not null; ``limit`` if there are more.

    A partial holds the ``limit`` least values in sorted order, so the count does not depend on the order of the rows.
    NaN equals NaN, and -0.0 equals 0.0. ``ApproxDistinct`` is for larger numbers of values.
    """

    column: str
    limit: int = 10_000

    def __post_init__(self) -> None:
        if self.limit < 1:
            raise ConfigError(f"{self}: limit must be positive")

    @property
    def inputs(self) -> tuple[str, ...]:
        return (self.column,)

    def check(self, schema: Schema) -> pl.DataType:
        dtype = self.column_type(schema, self.column)
        if not is_ordered(dtype):
            raise self.type_error(self.column, dtype, ORDERED)
        return pl.Int64()

    def partial_types(self, schema: Schema) -> Mapping[str, pl.DataType]:
        return {"values": pl.List(identity_type(schema[self.column])), "more": pl.Boolean()}

    def aggregate_groups(self, rows: pl.DataFrame, numbers: Ints, group: Ints, groups: int) -> Partials:  # noqa: ARG002
        chosen = non_null_rows(rows[self.column])
        frame = pl.DataFrame({"group": group[chosen], "values": identity(rows[self.column].drop_nulls())})
        distinct = frame.unique().sort("values").group_by("group")
        aggregated = distinct.agg(pl.col("values").head(self.limit), (pl.len() > self.limit).alias("more"))
        values, more = object_array([[]] * groups), np.zeros(groups, dtype=bool)
        group_index = aggregated["group"].to_numpy()
        values[group_index], more[group_index] = (
            object_array(aggregated["values"].to_list()),
            aggregated["more"].to_numpy(),
        )
        return {"values": values, "more": more}

    def merge(self, left: Partials, right: Partials) -> Partials:
        pairs = zip(left["values"], right["values"], strict=True)
        merged = [list(dict.fromkeys(sorted(left_values + right_values))) for left_values, right_values in pairs]
        longer = np.fromiter((len(values) > self.limit for values in merged), bool, len(merged))
        return {
            "values": object_array([values[: self.limit] for values in merged]),
            "more": left["more"] | right["more"] | longer,
        }

    def find_truncated(self, partials: Partials) -> Mask:
        return partials["more"]

    def result(self, partials: Partials, schema: Schema) -> pl.Series:  # noqa: ARG002
        return pl.Series([len(values) for values in partials["values"]], dtype=pl.Int64)

    def reference(self, elements: Sequence[Element]) -> Result:
        return min(len({sort_key(value) for value in non_null_values(elements, self.column)}), self.limit)
