"""The Polars types of a stream's physical columns, and a parser of timestamps in columns."""

from __future__ import annotations

import numpy as np
import polars as pl

from streamcore.columnar.local_timestamps import local_to_utc
from streamcore.decode.literal_patterns import TimeText
from streamcore.timestamps import HOUR_MS, MAX_MS, MIN_MS, load_zone

#: Length of the date and the time, without fraction and zone.
_MAIN_CHARS = len("2026-01-31T12:00:00")


def parse_times(text: pl.Series, notation: TimeText, zone: str) -> pl.Series:
    """Return the epoch milliseconds of texts in this notation.

    ``zone``: the time zone of texts without one. Null where ``timestamps.from_iso`` finds no time, or the time is not
    between ``MIN_MS`` and ``MAX_MS``.
    """
    local = text.str.head(_MAIN_CHARS).str.to_datetime(
        f"%Y-%m-%d{notation.separator}%H:%M:%S", time_unit="ms", strict=False, exact=True
    )
    fraction = text.str.slice(_MAIN_CHARS + 1)
    if notation.zone_chars:
        fraction = fraction.str.head(-notation.zone_chars)
    local_ms = local.to_physical() + fraction.str.head(3).str.pad_end(3, "0").cast(pl.Int64)
    match notation.zone_chars:
        case 0:
            filled = local_ms.fill_null(0).to_numpy()
            utc_ms = pl.Series(text.name, local_to_utc(load_zone(zone), filled.astype(np.int64, copy=False)))
            utc_ms = utc_ms.set(local_ms.is_null(), None)
        case 1:
            utc_ms = local_ms
        case _:
            utc_ms = local_ms - _utc_offsets_ms(text.str.tail(notation.zone_chars))
    return utc_ms.set(~utc_ms.is_between(MIN_MS, MAX_MS), None).rename(text.name)


def _utc_offsets_ms(text: pl.Series) -> pl.Series:
    """Return the milliseconds by which ``+HH:MM`` texts are ahead of UTC."""
    distinct = [t for t in text.unique().to_list() if t is not None]
    offsets_ms = [int(t[0] + "1") * (int(t[1:3]) * HOUR_MS + int(t[4:6]) * 60_000) for t in distinct]
    return text.replace_strict(distinct, offsets_ms, default=None, return_dtype=pl.Int64)
