"""Converts arrays of local times to UTC, as ``streamcore.timestamps.from_iso`` does for one time."""

from __future__ import annotations

from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

import numpy as np
import numpy.typing as npt

from streamcore.timestamps import HOUR_MS, zone_offset_ms

_EPOCH = datetime(1970, 1, 1)  # local and UTC times are both counted from the epoch without a zone

Int64s = npt.NDArray[np.int64]


def local_to_utc(zone: ZoneInfo, local_ms: Int64s) -> Int64s:
    """Convert an array of local times to UTC as ``timestamps.from_iso`` does (local epoch milliseconds, years 1 to
    9999)."""
    hours, hour_index = np.unique(local_ms // HOUR_MS, return_inverse=True)
    starts = [_offset_at(zone, int(hour) * HOUR_MS) for hour in hours]
    ends = [_offset_at(zone, (int(hour) + 1) * HOUR_MS - 1) for hour in hours]
    offsets = np.array(starts, dtype=np.int64)[hour_index]
    # The clocks may change inside an hour of local time (Lord Howe, Monrovia 1972): those rows one by one.
    changing = np.array([a != b for a, b in zip(starts, ends, strict=True)], dtype=np.bool_)[hour_index]
    for row in np.flatnonzero(changing):
        offsets[row] = _offset_at(zone, int(local_ms[row]))
    return local_ms - offsets


def _offset_at(zone: ZoneInfo, local_ms: int) -> int:
    return zone_offset_ms(zone, _EPOCH + timedelta(milliseconds=local_ms))
