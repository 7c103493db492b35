"""Applies a lambda that reads values from outside of it: Polars sees nothing but the elements inside of a list.

The values are put beside the elements of an array in a frame of columns, in slices of elements, so that memory does not
grow with the product of their sizes. A slice has at most ``MAX_SIZE``, or one element.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from rulecore.language.limits import MAX_TRANSFORMED
from streamcore.columnar.polars_types import polars_type
from streamcore.schema import BOOLEAN, STRING, Type, array_of

#: The most values, and bytes of their texts, that are put beside elements at a time.
MAX_SIZE = 4_000_000

_Counts = npt.NDArray[np.int64]


def apply_beside(
    function: str, array: pl.Expr, element: Type, values: Sequence[pl.Expr], body: pl.Expr, result: Type
) -> pl.Expr:
    """Return ``exists``, ``forall``, ``filter`` or ``transform`` of an array of ``element``.

    ``body``: over the columns ``0``, the element, and ``1`` and so on, the ``values``; of type ``result``.
    """
    record = pl.struct(column.alias(str(number)) for number, column in enumerate([array, *values]))
    elements = {"filter": element, "transform": result}
    kind = polars_type(array_of(elements[function]) if function in elements else BOOLEAN)
    limited = function == "transform" and (result.is_nested or result == STRING)

    def apply(columns: pl.Series) -> pl.Series:
        return _apply(function, columns, body, limited=limited).cast(kind)

    return record.map_batches(apply, return_dtype=kind, is_elementwise=True)


def _apply(function: str, columns: pl.Series, body: pl.Expr, *, limited: bool) -> pl.Series:
    array, *values = columns.struct.unnest().get_columns()
    lengths = _lengths(array)
    rows: _Counts = np.repeat(np.arange(len(array)), lengths)
    elements = array.filter(lengths > 0).explode().rename("0")
    results = []
    sizes = np.zeros(len(array), np.int64)  # of the results of each row
    for start, end in _slices(1 + sum((_sizes(value) for value in values), np.zeros(len(array), np.int64)), rows):
        inside = rows[start:end]
        frame = pl.DataFrame([elements.slice(start, end - start), *(value.gather(inside) for value in values)])
        found = frame.with_columns(body.alias("result"))["result"]
        if limited:
            np.add.at(sizes, inside, _sizes(found))
            found = _null_unless(pl.Series(sizes[inside] <= MAX_TRANSFORMED), found)
        results.append(found)
    found = pl.concat(results)
    valid = array.is_not_null()
    if function in ("exists", "forall"):
        return _decide(found, lengths, valid, decisive=function == "exists")
    if function == "transform":
        return _lists(found, lengths, valid & pl.Series(sizes <= MAX_TRANSFORMED))
    kept = found.fill_null(value=False)
    return _lists(elements.filter(kept), np.bincount(rows[kept.to_numpy()], minlength=len(array)), valid)


def _lengths(array: pl.Series) -> _Counts:
    return array.list.len().fill_null(0).cast(pl.Int64).to_numpy()


def _slices(sizes: _Counts, rows: _Counts) -> Iterator[tuple[int, int]]:
    """Yield the first element of each slice and the one behind it; one slice if there are no elements.

    ``sizes``: of the values beside each element of a row. ``rows``: the row of each element.
    """
    until = np.cumsum(sizes[rows])
    start = 0
    while True:
        before = int(until[start - 1]) if start else 0
        end = max(start + 1, int(np.searchsorted(until, before + MAX_SIZE, side="right")))
        yield start, min(end, len(rows))
        start = end
        if start >= len(rows):
            return


def _sizes(series: pl.Series) -> _Counts:
    """Return the size of each value: the number of values in it, and the bytes of its texts."""
    if isinstance(series.dtype, pl.Struct):
        return sum((_sizes(field) for field in series.struct.unnest().get_columns()), np.ones(len(series), np.int64))
    if isinstance(series.dtype, pl.List):
        lengths = _lengths(series)
        inside = np.concatenate([[0], np.cumsum(_sizes(series.filter(lengths > 0).explode()))])
        ends = np.cumsum(lengths)
        sizes: _Counts = 1 + inside[ends] - inside[ends - lengths]
        return sizes
    if series.dtype == pl.String:
        return 1 + series.str.len_bytes().fill_null(0).cast(pl.Int64).to_numpy()
    return np.ones(len(series), np.int64)


def _decide(found: pl.Series, lengths: _Counts, valid: pl.Series, *, decisive: bool) -> pl.Series:
    """Return the ``or`` (``decisive`` is True) or ``and`` of each row's truth values: NULL only if none is decisive."""
    ends = np.cumsum(lengths)

    def has(flags: pl.Series) -> pl.Series:
        counts = np.concatenate([[0], np.cumsum(flags.to_numpy())])
        return pl.Series(counts[ends] > counts[ends - lengths])

    decided = has((found if decisive else ~found).fill_null(value=False))
    unknown = has(found.is_null()) & ~decided
    values = decided if decisive else ~decided
    return _null_unless(valid & ~unknown, values)


def _null_unless(condition: pl.Series, values: pl.Series) -> pl.Series:
    return pl.select(pl.when(condition).then(values)).to_series()


def _lists(values: pl.Series, lengths: _Counts, valid: pl.Series) -> pl.Series:
    """Return lists of these lengths; NULL where they are not ``valid``."""
    offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]), pa.int64())
    elements = values.to_arrow(compat_level=pl.CompatLevel.newest())
    return pl.Series(pa.LargeListArray.from_arrays(offsets, elements, mask=(~valid).to_arrow()))
