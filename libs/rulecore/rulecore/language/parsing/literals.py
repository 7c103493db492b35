"""Parses and writes constants: numbers, strings with escapes, timestamps, intervals."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal

_LONG = re.compile(r"[0-9]{1,100}\Z")
_DECIMAL = re.compile(r"(?:[0-9]{1,100}\.[0-9]{0,100}|\.[0-9]{1,100})\Z")
_DOUBLE = re.compile(r"(?:[0-9]{1,100}(?:\.[0-9]{0,100})?|\.[0-9]{1,100})[eE][+-]?[0-9]{1,3}\Z")
_TIMESTAMP = re.compile(
    r"(\d{4})-(\d{2})-(\d{2})(?:[ T](\d{2}):(\d{2})(?::(\d{2})(?:\.(\d{1,3}))?)?)?\s*(Z|[+-]\d{2}:\d{2})?\Z", re.ASCII
)
_ESCAPES = {"\\": "\\", "'": "'", '"': '"', "n": "\n", "t": "\t", "r": "\r", "%": "\\%", "_": "\\_"}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MAX_LONG = 2**63 - 1

UNITS_MS = {
    "millisecond": 1,
    "second": 1_000,
    "minute": 60_000,
    "hour": 3_600_000,
    "day": 86_400_000,
    "week": 604_800_000,
}


def parse_number(text: str) -> int | float | Decimal | None:
    """Parse a number: ``100`` is a long, ``10.5`` a decimal, ``1.5e3`` a double; None for other text."""
    if _LONG.match(text):
        return int(text)
    if _DECIMAL.match(text):
        return Decimal(text)
    value = float(text) if _DOUBLE.match(text) else None
    return value if value is not None and value < float("inf") else None


def string_value(raw: str) -> str:
    r"""Return the value of ``'...'``, ``"..."`` or ``r'...'`` with its quotes.

    ``\%`` and ``\_`` stay as they are, for ``like``. Raise ``ValueError`` for an unknown escape: Spark silently drops
    the backslash of ``'\d'``, which would change a regular expression.
    """
    if raw[0] in "rR":
        return raw[2:-1]
    value, characters = [], iter(raw[1:-1])
    for character in characters:
        if character != "\\":
            value.append(character)
            continue
        following = next(characters, "")
        if following not in _ESCAPES:
            raise ValueError(f"unknown escape \\{following}")
        value.append(_ESCAPES[following])
    return "".join(value)


def quote(value: str) -> str:
    r"""Return the string constant whose value is ``value``. Every backslash is doubled, also that of ``\%``."""
    written = value.replace("\\", "\\\\").replace("'", "\\'")
    return "'" + written.replace("\n", "\\n").replace("\t", "\\t").replace("\r", "\\r") + "'"


def timestamp_ms(text: str) -> int | None:
    """Return the epoch milliseconds of ``2011-01-31`` or ``2011-01-31 12:00:00.123``; None for other text.

    The time is in UTC unless an offset follows.
    """
    match = _TIMESTAMP.match(text.strip())
    if match is None:
        return None
    year, month, day, hour, minute, second = (int(g or 0) for g in match.groups()[:6])
    try:
        moment = datetime(year, month, day, hour, minute, second, tzinfo=UTC)
        offset = _offset(match[8] or "Z")
    except ValueError:
        return None
    return (moment - _EPOCH - offset) // timedelta(milliseconds=1) + int((match[7] or "0").ljust(3, "0"))


def _offset(text: str) -> timedelta:
    if text == "Z":
        return timedelta(0)
    hours, minutes = int(text[1:3]), int(text[4:6])
    if hours > 18 or minutes > 59:
        raise ValueError(text)
    size = timedelta(hours=hours, minutes=minutes)
    return -size if text[0] == "-" else size


def timestamp_text(ms: int) -> str | None:
    """Return the text that reads back as these milliseconds; None outside of the years 1 to 9999."""
    try:
        moment = _EPOCH + timedelta(milliseconds=ms)
    except OverflowError:
        return None
    text = moment.replace(tzinfo=None).isoformat(sep=" ", timespec="milliseconds")
    return text.removesuffix(".000")


def interval_ms(words: Sequence[str]) -> int | None:
    """Return the milliseconds of ``["5", "minutes"]``; None unless a whole number and a unit of fixed length."""
    if len(words) != 2 or not _LONG.match(words[0]):
        return None
    unit = UNITS_MS.get(words[1].lower().removesuffix("s"))
    ms = None if unit is None else int(words[0]) * unit
    return ms if ms is not None and ms <= MAX_LONG else None


def interval_text(ms: int) -> str:
    """Return the shortest text that reads back as these milliseconds."""
    unit, size = next((u, s) for u, s in reversed(UNITS_MS.items()) if ms % s == 0)
    count = ms // size
    return f"interval {count} {unit}" + ("" if count == 1 else "s")
