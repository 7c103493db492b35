"""Timestamps as text: ISO 8601, with an offset or in the stream's zone, to epoch milliseconds.

Accepted: ``YYYY-MM-DD``, then ``T`` or one space, then ``HH:MM`` or ``HH:MM:SS`` or ``HH:MM:SS.f`` with 1 to 9 digits
(cut off, not rounded, after the milliseconds), then ``Z``, ``+HH:MM``, ``+HHMM``, ``+HH`` or nothing. Without an offset
the time is in the stream's zone. At the change of the clocks a time that exists twice is the earlier of the two, and a
time that does not exist is read with the offset from before the change, so it moves forward by the length of the gap;
Java, PostgreSQL and Spark do the same. Leap seconds (``:60``) and ``24:00`` are rejected.
"""

from __future__ import annotations

import functools
import re
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo, available_timezones

from streamcore.errors import ConfigError

MIN_MS = 0  # 1970-01-01T00:00:00Z
MAX_MS = 253_402_300_799_999  # 9999-12-31T23:59:59.999Z
HOUR_MS = 3_600_000
ACCEPTED = "a whole number of milliseconds since 1970, or text such as 2026-01-31T12:00:00.000Z"

_EPOCH = datetime(1970, 1, 1)  # local and UTC times are both counted from a bare epoch
_MILLISECOND = timedelta(milliseconds=1)
_ISO = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})[T ]([0-9]{2}):([0-9]{2})(?::([0-9]{2})(?:\.([0-9]{1,9}))?)?"
    r"(?:Z|([+-])([0-9]{2})(?::?([0-9]{2}))?)?"
)


def load_zone(name: str) -> ZoneInfo:
    """Return the IANA zone of that name; ``ConfigError`` when there is none.

    Only the name of a zone becomes the path of a file: ``ZoneInfo`` looks for any other name in folders.
    """
    if name == "UTC":  # most streams: the names of all zones take 30 ms to find
        return ZoneInfo(name)
    if not is_zone(name):
        raise ConfigError(f"zone {name!r}: no such time zone; use an IANA name such as Europe/London")
    return ZoneInfo(name)


def is_zone(name: str) -> bool:
    """Whether there is an IANA zone of that name. The zone of the machine is none."""
    return name == "UTC" or name in _zone_names()


@functools.cache
def _zone_names() -> frozenset[str]:
    return frozenset(available_timezones() - {"localtime", "Factory", "posixrules"})


def from_iso(text: str, zone: ZoneInfo) -> int | None:
    """Return epoch milliseconds, of any year; None if the text has no accepted form (see the module)."""
    match = _ISO.fullmatch(text)
    if match is None:
        return None
    year, month, day, hour, minute, second = (int(part or "0") for part in match.groups()[:6])
    try:
        local = datetime(year, month, day, hour, minute, second)
    except ValueError:
        return None
    local_ms = (local - _EPOCH) // _MILLISECOND + int((match[7] or "0").ljust(3, "0")[:3])
    if match[8] is None:
        return local_ms if text.endswith("Z") else local_ms - zone_offset_ms(zone, local)
    hours, minutes = int(match[9]), int(match[10] or "0")
    if hours > 23 or minutes > 59:
        return None
    ahead_ms = hours * HOUR_MS + minutes * 60_000
    return local_ms - (ahead_ms if match[8] == "+" else -ahead_ms)


def zone_offset_ms(zone: ZoneInfo, local: datetime) -> int:
    """Return how far the zone is ahead of UTC at a local time, in milliseconds."""
    offset = local.replace(tzinfo=zone, fold=0).utcoffset()
    return 0 if offset is None else offset // _MILLISECOND


def to_text(epoch_ms: int) -> str:
    """Return the time as ``2026-01-31T12:00:00.000Z``, for messages; a time outside 1970 to 9999 as the number."""
    if not MIN_MS <= epoch_ms <= MAX_MS:
        return str(epoch_ms)
    moment = datetime.fromtimestamp(epoch_ms // 1000, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{epoch_ms % 1000:03d}Z"
