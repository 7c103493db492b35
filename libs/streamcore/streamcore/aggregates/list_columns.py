"""Conversions of Python objects to arrays, and of lists to list columns, without Polars' slow path for each row."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa


def object_array(values: Sequence[Any]) -> npt.NDArray[Any]:
    """Return an array of Python objects, also if the objects are sequences."""
    return np.fromiter(values, dtype=object, count=len(values))


def flatten(lists: Sequence[list[Any]], dtype: pl.DataType) -> pl.Series:
    """Return the concatenated values of all lists. ``dtype``: the type of a value."""
    return pl.Series(list(chain.from_iterable(lists)), dtype=dtype)


def to_list_column(values: pl.Series, lists: Sequence[list[Any]]) -> pl.Series:
    """Return the values that ``flatten`` returns as a list column. ``lists``: for the length of each list."""
    lengths = np.fromiter(map(len, lists), np.int64, len(lists))
    offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]))
    arrow = values.to_arrow(compat_level=pl.CompatLevel.oldest())
    series = pl.from_arrow(pa.LargeListArray.from_arrays(offsets, arrow))
    assert isinstance(series, pl.Series)
    return series.cast(pl.List(values.dtype))
