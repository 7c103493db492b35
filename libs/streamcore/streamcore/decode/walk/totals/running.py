"""``combine_rows``, compiled for whole numbers and for doubles."""

from __future__ import annotations

from streamcore.decode.walk.compiler import entry
from streamcore.decode.walk.totals.rows import combine_rows

_INTS = "Array(int64, 1, 'C', readonly=True)"
_DOUBLES = "Array(float64, 1, 'C', readonly=True)"

run_longs = entry(f"void(int64, boolean, {_INTS}, {_INTS}, {_INTS}, int64[::1])")(combine_rows)
run_doubles = entry(f"void(int64, boolean, {_DOUBLES}, {_INTS}, {_DOUBLES}, float64[::1])")(combine_rows)
