"""Parses times and offsets of command-line options, and renders times."""

from __future__ import annotations

import datetime

from headgate.errors import InputError
from rulecore.documents.scalars import FIRST_MS, LAST_MS, parse_duration_ms, parse_time_ms

_UNITS = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))
_MAX_OFFSET = 10**12  # a larger number is a time in milliseconds
_MOST_DIGITS = 18


def parse_number(text: str) -> int | None:
    """Parse a whole number of at most 18 digits; None for another text."""
    return int(text) if text.isdecimal() and len(text) <= _MOST_DIGITS else None


def parse_time(text: str, now_ms: int, option: str) -> int:
    """Return epoch milliseconds for a time with its zone, ``2h`` (so long ago), ``now`` or epoch milliseconds.

    Raises ``InputError`` for another form, and for a time outside the years 1 to 9999. ``option``: the name of the
    option, for the error.
    """
    time_ms = _read_time(text, now_ms)
    if time_ms is None:
        forms = "write a time with its zone (2026-12-01T08:00:00Z) or how long ago (2h, 30m)"
        raise InputError(f"{option} {text!r}: {forms}")
    if not FIRST_MS <= time_ms <= LAST_MS:
        raise InputError(f"{option} {text!r}: write a time of the years 1 to 9999")
    return time_ms


def _read_time(text: str, now_ms: int) -> int | None:
    if text == "now":
        return now_ms
    number = parse_number(text)
    if number is not None and number >= _MAX_OFFSET:
        return number
    for read in (parse_time_ms, lambda ago: now_ms - parse_duration_ms(ago)):
        try:
            return read(text)
        except ValueError:
            continue
    return None


def parse_offset(text: str) -> int | None:
    """Parse an offset; None for a time."""
    number = parse_number(text)
    return number if number is not None and number < _MAX_OFFSET else None


def show_time(time_ms: int | None) -> str:
    """Render epoch milliseconds as ``2026-12-01 08:00:00`` in UTC, with milliseconds unless they are 0; None as
    ``-``."""
    if time_ms is None:
        return "-"
    time = datetime.datetime.fromtimestamp(time_ms // 1000, datetime.UTC)
    millis = f".{time_ms % 1000:03d}" if time_ms % 1000 else ""
    return f"{time:%Y-%m-%d %H:%M:%S}{millis}"


def show_minute(time_ms: int | None) -> str:
    """Render epoch milliseconds as ``2026-12-01 08:00`` in UTC; None as ``-``."""
    return show_time(time_ms)[:16]


def show_span(ms: int) -> str:
    """Render a length of time with its two largest units, such as ``2 min 5 s``."""
    seconds = max(0, ms) / 1000
    if seconds < 10:
        return f"{seconds:.1f} s"
    left, parts = int(seconds), []
    for name, size in _UNITS:
        count, left = divmod(left, size)
        if count:
            parts.append(f"{count} {name}")
    return " ".join(parts[:2])
