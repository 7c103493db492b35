"""The popularity of a product: which events are counted, and what each of them adds to the rolling totals.

A view adds 1 to ``views``. A successful payment adds its quantity to ``units`` and its amount to ``revenue``; a
successful refund subtracts both. Amounts are summed without conversion, so the shop must have one currency. Duplicate
events are counted again.
"""

from __future__ import annotations

import polars as pl

from streamcore.aggregates import Aggregate, Sum

_TYPE = pl.col("type")
_IS_VIEW = _TYPE == "view"
_IS_SUCCESSFUL = pl.col("status") == "ok"
_IS_SALE, _IS_REFUND = (_TYPE == "payment") & _IS_SUCCESSFUL, (_TYPE == "refund") & _IS_SUCCESSFUL

#: The condition of the events that are counted: views, successful payments and successful refunds of a product.
IS_COUNTED = pl.col("product_id").is_not_null() & (_IS_VIEW | _IS_SALE | _IS_REFUND)

#: The rolling totals of each product and span, by name.
MEASURES: dict[str, Aggregate] = {"views": Sum("views"), "units": Sum("units"), "revenue": Sum("revenue")}


def to_amounts(rows: pl.DataFrame) -> pl.DataFrame:
    """Convert counted events to the views, units and revenue that each adds to its product."""
    return rows.select(
        pl.col("product_id").alias("id"),
        _IS_VIEW.cast(pl.Int64).alias("views"),
        _signed_quantity("quantity").alias("units"),
        _signed_quantity("amount").alias("revenue"),
        pl.col("^__.*$"),
    )


def _signed_quantity(column: str) -> pl.Expr:
    """Return the column: positive for a sale, negative for a refund, null for a view."""
    value = pl.col(column)
    return pl.when(_IS_SALE).then(value).when(_IS_REFUND).then(-value)


def is_inactive(metric_columns: list[str]) -> pl.Expr:
    """Return the condition that all metrics of a product are 0 or null."""
    return pl.all_horizontal(pl.col(name).fill_null(0) == 0 for name in metric_columns)
