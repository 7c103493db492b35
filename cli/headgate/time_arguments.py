"""Times and offsets as people write them on a command line."""

from __future__ import annotations

import datetime

from headgate.errors import InputError
from rulecore.documents.scalars import parse_duration_ms, parse_time_ms

_MAX_OFFSET = 10**12  # what is larger is a time in milliseconds


def parse_time(text: str, now_ms: int, option: str) -> int:
    """``2026-12-01T08:00:00Z``, ``2h`` (so long ago), ``now`` or epoch milliseconds; ``InputError`` for others."""
    if text == "now":
        return now_ms
    if text.isdecimal() and int(text) >= _MAX_OFFSET:
        return int(text)
    for read in (parse_time_ms, lambda ago: now_ms - parse_duration_ms(ago)):
        try:
            return read(text)
        except ValueError:
            continue
    raise InputError(f"{option} {text!r}: write a time with its zone (2026-12-01T08:00:00Z) or how long ago (2h, 30m)")


def parse_offset(text: str) -> int | None:
    """Parse an offset; None for a time."""
    return int(text) if text.isdecimal() and int(text) < _MAX_OFFSET else None


def show_time(time_ms: int | None) -> str:
    """``2026-12-01 08:00:00``, UTC; with milliseconds where there are any."""
    if time_ms is None:
        return "-"
    time = datetime.datetime.fromtimestamp(time_ms // 1000, datetime.UTC)
    millis = f".{time_ms % 1000:03d}" if time_ms % 1000 else ""
    return f"{time:%Y-%m-%d %H:%M:%S}{millis}"


def show_minute(time_ms: int | None) -> str:
    """``2026-12-01 08:00``, UTC."""
    return show_time(time_ms)[:16]
