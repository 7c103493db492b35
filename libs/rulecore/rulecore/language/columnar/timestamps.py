"""Polars expressions that parse and format times, also in time zones.

Text is ISO 8601 as streams accept it (``streamcore.timestamps``), or has a given format (``time_formats``). A local
time that exists twice means the earlier one. A local time that does not exist is read with the UTC offset from before
the clock change. In zones other than UTC, local times must be in the years 1900 to 2099.
"""

from __future__ import annotations

import polars as pl

from rulecore.language.columnar.operators import ComputedOperand, let
from rulecore.language.time_formats import ISO, TimeField, TimeFormat

_DAY_MS = 86_400_000
_MIN_MS = -62_135_596_800_000  # the year 1
_ZONES_FROM_MS, _ZONES_TO_MS = -2_208_988_800_000, 4_102_444_799_999  # the years 1900 to 2099
_ISO_TEXT = (
    r"\A[0-9]{4}-[0-9]{2}-[0-9]{2}[T ](?:[01][0-9]|2[0-3]):[0-5][0-9](?::([0-5][0-9])(?:\.([0-9]{1,9}))?)?"
    r"(?:Z|([+-])([01][0-9]|2[0-3])(?::?([0-5][0-9]))?)?\z"
)
_DEFAULTS = {"hour": "00", "minute": "00", "second": "00", "fraction": "000"}


def to_timestamp(operand: ComputedOperand, time_format: str, zone: str) -> pl.Expr:
    """Return epoch ms; NULL for text that does not follow the format. ``zone``: of times without an offset."""
    if time_format == ISO:
        return let([operand], lambda text: _from_iso(text, zone))
    layout = TimeFormat.parse(time_format)
    return let(
        [ComputedOperand(let([operand], lambda text: _as_iso(text, layout)), operand.type)],
        lambda t: _from_iso(t, zone),
    )


def to_utc(operand: ComputedOperand, zone: str) -> pl.Expr:
    """Convert a timestamp in local time of the zone to UTC; NULL outside of the years 1900 to 2099."""
    return let([operand], lambda ms: _to_utc(ms, zone))


def _to_utc(ms: pl.Expr, zone: str) -> pl.Expr:
    """Convert to UTC; NULL outside of 1900 to 2099, where libraries disagree about the offsets of zones."""
    if zone == "UTC":
        return ms
    inside = pl.when(ms.is_between(_ZONES_FROM_MS, _ZONES_TO_MS)).then(ms)
    day_before = inside - _DAY_MS
    skipped = inside - (day_before - _existing(day_before, zone))
    return pl.coalesce(_existing(inside, zone), skipped)


def _existing(ms: pl.Expr, zone: str) -> pl.Expr:
    """Convert local time to UTC; NULL for a local time that does not exist."""
    local = ms.cast(pl.Datetime("ms"))
    return local.dt.replace_time_zone(zone, ambiguous="earliest", non_existent="null").dt.epoch("ms")


def _as_iso(text: pl.Expr, layout: TimeFormat) -> pl.Expr:
    """Rewrite a time of that format as ISO 8601; NULL for other text."""
    pattern = _pattern(layout)
    places = {field.name: number for number, field in enumerate(layout.fields, 1)}

    def part(name: str, width: int) -> pl.Expr:
        if name not in places:
            return pl.lit(_DEFAULTS[name])
        return text.str.extract(pattern, places[name]).str.zfill(width)

    written = [part("year", 4), pl.lit("-"), part("month", 2), pl.lit("-"), part("day", 2), pl.lit("T")]
    written += [part("hour", 2), pl.lit(":"), part("minute", 2), pl.lit(":"), part("second", 2)]
    return pl.concat_str([*written, pl.lit("."), part("fraction", 3)])


def _pattern(layout: TimeFormat) -> str:
    """Return the regular expression of a whole text, with one group for each field."""
    parts = (f"({e.digits})" if isinstance(e, TimeField) else pl.escape_regex(e) for e in layout.elements)
    return rf"\A{''.join(parts)}\z"


def _from_iso(text: pl.Expr, zone: str) -> pl.Expr:
    """Parse ISO 8601; NULL for other text. A text without an offset is a local time of ``zone``."""
    read = pl.when(text.str.contains(_ISO_TEXT)).then(text)
    seconds = read.str.extract(_ISO_TEXT, 1).fill_null("00")
    plain = pl.concat_str([read.str.head(10), pl.lit(" "), read.str.slice(11, 5), pl.lit(":"), seconds])
    moment = plain.str.to_datetime("%Y-%m-%d %H:%M:%S", time_unit="ms", strict=False).dt.epoch("ms")
    fraction = read.str.extract(_ISO_TEXT, 2).str.head(3).str.pad_end(3, "0").cast(pl.Int64).fill_null(0)
    local = pl.when(moment >= _MIN_MS).then(moment) + fraction
    ahead = _number_in_group(read, 4) * 3_600_000 + _number_in_group(read, 5) * 60_000
    sign = read.str.extract(_ISO_TEXT, 3)
    return (
        pl.when(sign == "+")
        .then(local - ahead)
        .when(sign == "-")
        .then(local + ahead)
        .when(read.str.ends_with("Z"))
        .then(local)
        .otherwise(_to_utc(local, zone))
    )


def _number_in_group(read: pl.Expr, group: int) -> pl.Expr:
    """Return the whole number in a group of ``_ISO_TEXT``; 0 if the group matches nothing."""
    return read.str.extract(_ISO_TEXT, group).cast(pl.Int64).fill_null(0)
