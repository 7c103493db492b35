"""Converts columns to the arrays that aggregates compute with, and back.

Integers, booleans, times and decimals of up to 18 digits are int64 arrays, floats are float64 arrays, and text and
longer decimals are arrays of Python objects. A null becomes an arbitrary value, so the caller must keep a mask of the
rows with a value. NaN is greater than every other number and equal to itself, as in PostgreSQL, DuckDB and Spark; -0.0
equals 0.0.
"""

from __future__ import annotations

import numpy as np
import polars as pl
import pyarrow as pa

from streamcore.aggregates.base import Array, Ints, Mask
from streamcore.aggregates.list_columns import object_array
from streamcore.windowing.model import Scalar

#: Every decimal of so many digits fits in an int64 as an unscaled value.
SHORT_DIGITS = 18
LONGEST_DIGITS = 38
_INTEGERS = (pl.Int8, pl.Int16, pl.Int32, pl.Int64, pl.UInt8, pl.UInt16, pl.UInt32)
_WHOLE = (*_INTEGERS, pl.Boolean, pl.Datetime, pl.Date, pl.Time, pl.Duration)

#: For messages: the types that can be added up.
NUMBERS = "integers (but UInt64 and 128-bit ones: cast them to Int64 or Decimal), decimals and floats"
#: For messages: the types that are ordered.
ORDERED = "numbers (but UInt64 and 128-bit ones), booleans, times and text"


def is_integer(dtype: pl.DataType) -> bool:
    """Return whether the type is of integers that all fit in an int64."""
    return isinstance(dtype, _INTEGERS)


def is_number(dtype: pl.DataType) -> bool:
    """Return whether values of the type can be added up: integers, decimals and floats."""
    return is_integer(dtype) or dtype.is_float() or isinstance(dtype, pl.Decimal)


def is_ordered(dtype: pl.DataType) -> bool:
    """Return whether values of the type can be compared; the functions below take columns of such types."""
    return is_number(dtype) or isinstance(dtype, (*_WHOLE, pl.String))


def is_long(dtype: pl.DataType) -> bool:
    """Return whether the type is of decimals that may not fit in an int64."""
    return isinstance(dtype, pl.Decimal) and dtype.precision > SHORT_DIGITS


def decimal_scale(dtype: pl.DataType) -> int:
    """Return the scale of a decimal type; 0 for other types."""
    return dtype.scale if isinstance(dtype, pl.Decimal) else 0


def stored_type(dtype: pl.DataType) -> pl.DataType:
    """Return the column type in which an array of values of this type is stored."""
    if dtype.is_float():
        return pl.Float64()
    return dtype if isinstance(dtype, pl.String) or is_long(dtype) else pl.Int64()


def to_array(column: pl.Series) -> Array:
    """Return the values as an array of int64, float64 or Python objects, as described at the top of this module."""
    kind = stored_type(column.dtype)
    if kind == pl.Int64():
        return column.to_physical().cast(pl.Int64).fill_null(0).to_numpy()
    if kind == pl.Float64():
        # "+ 0.0" turns -0.0 into 0.0; Polars would optimize the addition away, NumPy does not.
        return column.cast(pl.Float64).fill_null(0.0).to_numpy() + 0.0
    return object_array(column.to_list())


def from_array(values: Array, present: Mask, dtype: pl.DataType) -> pl.Series:
    """Return a column of the type, null where ``present`` is false. Objects must be None there."""
    if values.dtype == object:
        return pl.Series(values.tolist(), dtype=dtype)
    if isinstance(dtype, pl.Decimal):
        return join_words(values >> 63, values, dtype, present)
    series = pl.Series(values)
    series = series.cast(pl.Int32).cast(dtype) if isinstance(dtype, pl.Date) else series.cast(dtype)
    return with_nulls(series, present)


def non_null_rows(column: pl.Series) -> Mask | slice:
    """Return an index of the rows where the column is not null, for NumPy."""
    return slice(None) if not column.has_nulls() else column.is_not_null().to_numpy()


def with_nulls(series: pl.Series, present: Mask) -> pl.Series:
    """Return the column with nulls where ``present`` is false."""
    if present.all():
        return series
    return series.zip_with(pl.Series(present), pl.Series([None], dtype=series.dtype))


def to_physical_values(column: pl.Series) -> pl.Series:
    """Return the column with times as integers, which take less memory and time as Python objects."""
    return column.to_physical() if column.dtype.is_temporal() else column


def physical_type(dtype: pl.DataType) -> pl.DataType:
    """Return the type of ``to_physical_values``."""
    return to_physical_values(pl.Series([], dtype=dtype)).dtype


def identity(column: pl.Series) -> pl.Series:
    """Return Int64 or text that is equal if and only if the values are: floats as bits, long decimals as text."""
    if column.dtype.is_float():
        values = to_array(column)
        return pl.Series(np.where(np.isnan(values), np.nan, values).view(np.int64))
    return column.cast(pl.String) if is_long(column.dtype) else column.to_physical().cast(identity_type(column.dtype))


def identity_type(dtype: pl.DataType) -> pl.DataType:
    """Return the type of ``identity``."""
    return pl.String() if isinstance(dtype, pl.String) or is_long(dtype) else pl.Int64()


def split_words(column: pl.Series) -> tuple[Ints, Ints]:
    """Return the upper and the lower 64 bits of the unscaled values of decimals; 0 for null."""
    array = column.to_arrow(compat_level=pl.CompatLevel.oldest())
    data = np.frombuffer(array.buffers()[1] or b"", np.int64).reshape(-1, 2)
    data = data[array.offset : array.offset + len(array)] * column.is_not_null().to_numpy()[:, None]
    return data[:, 1], data[:, 0]


def join_words(upper: Ints, lower: Ints, dtype: pl.Decimal, present: Mask) -> pl.Series:
    """Return decimals from the words of ``split_words``; null where ``present`` is false."""
    data = np.ascontiguousarray(np.stack([lower, upper], axis=1))
    valid = np.packbits(present, bitorder="little")
    kind = pa.decimal128(dtype.precision, dtype.scale)
    series = pl.from_arrow(pa.Array.from_buffers(kind, len(data), [pa.py_buffer(valid), pa.py_buffer(data)]))
    assert isinstance(series, pl.Series)
    return series.cast(dtype)


def sort_key(value: Scalar) -> tuple[bool, Scalar]:
    """Return a sort key of a Python value; NaN is the greatest."""
    is_nan = value != value  # noqa: PLR0124 - only NaN differs from itself
    return (is_nan, 0 if is_nan else value)
