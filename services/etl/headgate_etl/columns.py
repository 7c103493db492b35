"""Between the columns of a topology and those that expressions are computed over, in both directions.

Decimals and times are whole numbers there (``streamcore.schema``). A column that only changes its name is not touched.
"""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from streamcore.schema import Kind, Type
from streamcore.topology.logical_types import to_decimals
from streamcore.topology.nodes import TIME


def to_physical(rows: pl.DataFrame, types: Mapping[str, Type]) -> pl.DataFrame:
    """Select these columns of the rows, and a row number that keeps the height where there are none."""
    columns = [_to_physical(name, type_) for name, type_ in types.items()]
    return rows.select(pl.int_range(pl.len(), dtype=pl.UInt32).alias(ROW), *columns)


#: The row's number, a column that no field can have the name of.
ROW = "@row"


def _to_physical(name: str, type_: Type) -> pl.Expr:
    column = pl.col(name)
    if type_.kind is Kind.DECIMAL:
        return column.to_physical().cast(pl.Int64)
    return column.dt.epoch("ms") if type_.kind is Kind.TIMESTAMP else column


def to_logical(column: pl.Series, type_: Type) -> pl.Series:
    """Convert the column to the topology's type."""
    if type_.kind is Kind.DECIMAL:
        return to_decimals(column, type_)
    return column.cast(TIME) if type_.kind is Kind.TIMESTAMP else column
