"""Checks that what a step returns for a row depends on this row alone, by trying it on a few made-up rows.

It finds what ``expression_check`` cannot see: Python functions, plugins, and functions from frames to frames. A step
that fails on the made-up rows passes, because their values need not be ones that it can process.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import polars as pl

from streamcore.calls import CALL_ERRORS
from streamcore.errors import ConfigError
from streamcore.schema import EVENT_MS, OFFSET, PARTITION
from streamcore.topology.checks.expression_check import REMEDY

#: The numbers of the made-up rows: in no order, and one of them twice.
_VALUES = (3, 1, 2, 1)
_BASE_MS = 1_700_000_000_000


def check_step(
    step_kind: str, function: Callable[[pl.DataFrame], pl.DataFrame], schema: Mapping[str, pl.DataType]
) -> None:
    """Raise ``ConfigError`` if the function returns other rows for some made-up rows than for each of them."""
    try:
        rows = _made_up_rows(schema)
        together = function(rows).sort(EVENT_MS, maintain_order=True)
        parts = [function(rows[index : index + 1]) for index in range(rows.height)]
        one_by_one = pl.concat(parts, how="vertical_relaxed").sort(EVENT_MS, maintain_order=True)
        one_by_one = one_by_one.cast(together.schema)
    except CALL_ERRORS:
        return
    if not together.equals(one_by_one):
        same_rows = together[EVENT_MS].equals(one_by_one[EVENT_MS])
        columns = [c for c in together.columns if not together[c].equals(one_by_one[c])] if same_rows else []
        what = f"column {columns[0]}" if columns else "what it returns for a row"
        raise ConfigError(
            f"{step_kind}: {what} depends on other rows, and a cut may hold any of them, so the result would depend "
            f"on the cut; {REMEDY}"
        )


def _made_up_rows(schema: Mapping[str, pl.DataType]) -> pl.DataFrame:
    """Return a few rows of these columns and those of the engine."""
    times = [_BASE_MS + index for index in range(len(_VALUES))]
    return pl.DataFrame(
        [
            *(_made_up_values(dtype).alias(name) for name, dtype in schema.items()),
            pl.Series(EVENT_MS, times, pl.Int64),
            pl.Series(PARTITION, [0] * len(times), pl.Int32),
            pl.Series(OFFSET, range(len(times)), pl.Int64),
        ]
    )


def _made_up_values(dtype: pl.DataType) -> pl.Series:
    """Return a value for each row; nulls for types that numbers cannot be converted to."""
    numbers = pl.Series(_VALUES, dtype=pl.Int64)
    match dtype:
        case pl.Boolean():
            return numbers > 1
        case pl.Datetime():
            return (numbers * 3_600_000 + _BASE_MS).cast(pl.Datetime("ms", dtype.time_zone)).cast(dtype)
        case pl.Binary():
            return numbers.cast(pl.String).cast(pl.Binary)
        case pl.List() if isinstance(dtype.inner, pl.DataType):
            inner = _made_up_values(dtype.inner)
            return pl.Series([inner[: index + 1] for index in range(len(_VALUES))], dtype=dtype)
        case pl.Struct():
            fields = [_made_up_values(f.dtype).alias(f.name) for f in dtype.fields if isinstance(f.dtype, pl.DataType)]
            return pl.DataFrame(fields).to_struct()
        case _:
            return numbers.cast(dtype, strict=False)
