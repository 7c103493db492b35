"""The popularity of a product: which events count, and the value of each.

A view counts as one. A payment that went through counts its quantity and its amount, a refund takes both away. Amounts
are added up as they are: one currency a shop, or converted before. An event that comes twice counts twice.
"""

from __future__ import annotations

import polars as pl

from streamcore.aggregates import Aggregate, Sum

_TYPE = pl.col("type")
_VIEWED = _TYPE == "view"
_DONE = pl.col("status") == "ok"
_SOLD, _RETURNED = (_TYPE == "payment") & _DONE, (_TYPE == "refund") & _DONE

#: The events that count.
COUNTS = pl.col("product_id").is_not_null() & (_VIEWED | _SOLD | _RETURNED)

#: What is added up, by name.
MEASURES: dict[str, Aggregate] = {"views": Sum("views"), "units": Sum("units"), "revenue": Sum("revenue")}


def weighted_events(rows: pl.DataFrame) -> pl.DataFrame:
    """Return the views, units and revenue that each counting event adds."""
    return rows.select(
        pl.col("product_id").alias("id"),
        _VIEWED.cast(pl.Int64).alias("views"),
        _signed_quantity("quantity").alias("units"),
        _signed_quantity("amount").alias("revenue"),
        pl.col("^__.*$"),
    )


def _signed_quantity(column: str) -> pl.Expr:
    """Plus for a sale, minus for a refund; of a view nothing."""
    value = pl.col(column)
    return pl.when(_SOLD).then(value).when(_RETURNED).then(-value)


def is_inactive(figures: list[str]) -> pl.Expr:
    """Whether nothing is left of a product's popularity."""
    return pl.all_horizontal(pl.col(name).fill_null(0) == 0 for name in figures)
