"""Converts the columns of a topology to the physical columns that expressions are computed on, and back.

In physical columns decimals are unscaled integers and timestamps are milliseconds since 1970 (``streamcore.schema``).
"""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from streamcore.schema import Kind, Type
from streamcore.topology.logical_types import to_decimals
from streamcore.topology.nodes import TIME


def to_physical(rows: pl.DataFrame, types: Mapping[str, Type]) -> pl.DataFrame:
    """Select the columns in ``types`` as physical columns, after ``ROW``, which keeps the height without them."""
    columns = [_to_physical(name, type_) for name, type_ in types.items()]
    return rows.select(pl.int_range(pl.len(), dtype=pl.UInt32).alias(ROW), *columns)


#: The column with the number of the row. No field can have this name.
ROW = "@row"


def _to_physical(name: str, type_: Type) -> pl.Expr:
    column = pl.col(name)
    if type_.kind is Kind.DECIMAL:
        return column.to_physical().cast(pl.Int64)
    return column.dt.epoch("ms") if type_.kind is Kind.TIMESTAMP else column


def to_logical(column: pl.Series, type_: Type) -> pl.Series:
    """Convert a physical column to the type of the topology's column."""
    if type_.kind is Kind.DECIMAL:
        return to_decimals(column, type_)
    return column.cast(TIME) if type_.kind is Kind.TIMESTAMP else column
