"""Calls of the user's code: what they can raise, and why one failed, as text that a replayed cut gives again."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial

import polars as pl

#: What a call can raise. Polars reports an internal error by ``PanicException``, which is no ``Exception``.
CALL_ERRORS = (Exception, pl.exceptions.PanicException)
#: The most characters of a reason.
MAX_REASON_CHARS = 500

_FIRST_MS = -62_135_596_800_000  # 0001-01-01T00:00:00Z
_LAST_MS = 253_402_300_799_999  # 9999-12-31T23:59:59.999Z
_DAY_MS = 86_400_000
_OBJECT_ADDRESS = re.compile("0x[0-9a-f]{6,}")


def get_call_name(function: Callable[..., object]) -> str:
    """Return the name of a function, of that of a ``functools.partial``, or of the class of another callable."""
    inner = function.func if isinstance(function, partial) else function
    return str(getattr(inner, "__name__", type(inner).__name__))


def failure_reason(call: str, error: BaseException) -> str:
    """Return why a call failed, without addresses of objects, so that a replayed cut gives an equal text.

    A ``MemoryError`` is raised again: it is a fault of the machine, not of the data, so the cut must run again.
    """
    if isinstance(error, MemoryError):
        raise error
    try:
        text = str(error)
    except Exception:  # __str__ is the user's code
        text = "(its message cannot be read)"
    reason = f"{call}: {type(error).__name__}: {_OBJECT_ADDRESS.sub('0x...', text)}"
    return reason.encode(errors="replace").decode()[:MAX_REASON_CHARS]


def check_times(rows: pl.DataFrame) -> pl.DataFrame:
    """Return the rows; ``ValueError`` if a time is not within the years 1 to 9999, which are all that Python has."""
    for name, dtype in rows.schema.items():
        if isinstance(dtype, pl.Datetime):
            times_ms = rows[name].dt.epoch("ms")
        elif dtype == pl.Date:
            times_ms = rows[name].cast(pl.Int64) * _DAY_MS
        else:
            continue
        if not times_ms.is_between(_FIRST_MS, _LAST_MS).all():
            raise ValueError(f"column {name!r} has a time that is not within the years 1 to 9999")
    return rows
