"""Converts the columns of a topology to the physical columns that expressions are computed on.

In physical columns decimals are unscaled integers and timestamps are milliseconds since 1970 (``streamcore.schema``).
"""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from streamcore.schema import Type
from streamcore.topology.logical_types import to_physical_column


def to_physical(rows: pl.DataFrame, types: Mapping[str, Type]) -> pl.DataFrame:
    """Select the columns in ``types`` as physical columns, after ``ROW``, which keeps the height without them."""
    numbers = pl.int_range(pl.len(), dtype=pl.UInt32).alias(ROW)
    return rows.select(numbers).with_columns(to_physical_column(rows[name], type_) for name, type_ in types.items())


#: The column with the number of the row. No field can have this name.
ROW = "__row"
