"""Polars expressions that read and write times, by patterns (``streamcore.schema.time_patterns``) and as ISO 8601.

A local time that exists twice means the earlier one. A local time that does not exist is read with the UTC offset from
before the clock change. In zones other than UTC, local times must be in the years 1900 to 2099.
"""

from __future__ import annotations

import polars as pl

from streamcore.schema.time_patterns import MONTHS, TimeField, TimePattern, find_zone

_DAY_MS = 86_400_000
_MIN_MS, _MAX_MS = -62_135_596_800_000, 253_402_300_799_999  # the years 1 to 9999
_ZONES_FROM_MS, _ZONES_TO_MS = -2_208_988_800_000, 4_102_444_799_999  # the years 1900 to 2099
_ISO_TEXT = (
    r"\A[0-9]{4}-[0-9]{2}-[0-9]{2}[T ](?:[01][0-9]|2[0-3]):[0-5][0-9](?::([0-5][0-9])(?:\.([0-9]{1,9}))?)?"
    r"(?:Z|([+-])([01][0-9]|2[0-3])(?::?([0-5][0-9]))?)?\z"
)
_MONTH_NUMBERS = {name[:3].lower(): f"{number:02d}" for number, name in enumerate(MONTHS, 1)}
_HALF_DAY = {f"{hour:02d}{half}": f"{hour % 12 + 12 * (half == 'pm'):02d}" for hour in range(1, 13) for half in
             ("am", "pm")}  # fmt: skip


def read_pattern(text: pl.Expr, pattern: TimePattern, zone: str) -> pl.Expr:
    """Return epoch ms; NULL for text that does not follow the pattern. ``zone``: of times without an offset or zone."""
    groups = text.str.extract_groups(pattern.regex() + r"\z")
    if pattern.has("zone"):
        own = [_group(number).alias(f"{number} {field.symbol}") for number, field in _places(pattern, "zone")]
        parts = groups.struct.with_fields(_as_iso(pattern).alias("iso"), pl.struct(own).alias("zones"))
        return parts.map_batches(lambda found: _in_own_zones(found, zone), return_dtype=pl.Int64, is_elementwise=True)
    iso = groups.struct.with_fields(_as_iso(pattern).alias("iso")).struct.field("iso")
    record = pl.struct(iso.alias("iso"))
    return record.struct.with_fields(read_iso(pl.field("iso"), zone).alias("ms")).struct.field("ms")


def _in_own_zones(found: pl.Series, zone: str) -> pl.Series:
    """Return epoch ms of times that name their zones.

    ``found``: structs of ``iso`` and ``zones``: names by the number and the symbol of their field.
    """
    rows = found.struct.unnest().select("iso", "zones").with_row_index("row").unnest("zones")
    symbols = rows.columns[2:]
    times = list[pl.DataFrame]()
    for names, part in rows.group_by(symbols):
        # The first name counts, as the first field of a name does.
        given = [
            find_zone(str(name), symbol.partition(" ")[2])
            for symbol, name in zip(symbols, names, strict=True)
            if name is not None
        ]
        own = given[0] if given else zone
        if own is None:
            ms = pl.lit(None, dtype=pl.Int64)
        elif isinstance(own, int):
            has_offset = pl.col("iso").str.contains(_ENDS_WITH_OFFSET)
            ms = read_iso(pl.col("iso"), "UTC") - pl.when(~has_offset).then(own).otherwise(0)
        else:
            ms = read_iso(pl.col("iso"), own)
        times.append(part.select("row", ms.alias("ms")))
    if not times:
        return pl.Series(found.name, [], dtype=pl.Int64)
    return pl.concat(times).sort("row")["ms"].rename(found.name)


_ENDS_WITH_OFFSET = r"T.*(?:Z|[+-][0-9:]+)\z"


def _places(pattern: TimePattern, name: str) -> list[tuple[int, TimeField]]:
    """Return the fields of a name with the numbers of their groups, in order."""
    return [(number, field) for number, field in enumerate(pattern.fields, 1) if field.name == name]


def _group(number: int) -> pl.Expr:
    return pl.field(str(number))


def _as_iso(pattern: TimePattern) -> pl.Expr:
    """Return the ISO 8601 text of the groups of a pattern, which are the fields of a struct."""

    def part(name: str, default: str = "00", width: int = 2) -> pl.Expr:
        given = [_group(number).str.zfill(width) for number, _ in _places(pattern, name)]
        return pl.coalesce([*given, pl.lit(default)]) if given else pl.lit(default)

    ((of_year, year_field),) = _places(pattern, "year")
    ((of_month, month_field),) = _places(pattern, "month")
    ((of_day, _),) = _places(pattern, "day")
    year = _group(of_year) if year_field.symbol != "yy" else pl.lit("20") + _group(of_year)
    month = _group(of_month).str.zfill(2)
    if len(month_field.symbol) > 2:
        name = _group(of_month).str.head(3).str.to_lowercase()
        month = name.replace_strict(_MONTH_NUMBERS, default=None, return_dtype=pl.String)
    hour = part("hour")
    if pattern.has("half of the day"):
        half = pl.coalesce([_group(number) for number, _ in _places(pattern, "half of the day")]).str.to_lowercase()
        twelve = pl.coalesce([_group(number).str.zfill(2) for number, _ in _places(pattern, "hour of half a day")])
        read = (twelve + half).replace_strict(_HALF_DAY, default=None, return_dtype=pl.String)
        hour = pl.when(half.is_null()).then(pl.lit("00")).otherwise(read)
    written = [year, pl.lit("-"), month, pl.lit("-"), _group(of_day).str.zfill(2), pl.lit("T"), hour, pl.lit(":")]
    written += [part("minute"), pl.lit(":"), part("second"), pl.lit("."), part("fraction", "000", 1)]
    if offsets := _places(pattern, "offset"):
        written.append(pl.coalesce([*(_group(number) for number, _ in offsets), pl.lit("")]))
    return pl.concat_str(written)


def read_iso(text: pl.Expr, zone: str) -> pl.Expr:
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
        .otherwise(local_to_utc(local, zone))
    )


def _number_in_group(read: pl.Expr, group: int) -> pl.Expr:
    """Return the whole number in a group of ``_ISO_TEXT``; 0 if the group matches nothing."""
    return read.str.extract(_ISO_TEXT, group).cast(pl.Int64).fill_null(0)


def local_to_utc(ms: pl.Expr, zone: str) -> pl.Expr:
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


def utc_to_local(ms: pl.Expr, zone: str) -> pl.Expr:
    """Return the local time of a zone, as if it were a time of UTC; NULL outside of 1900 to 2099."""
    return ms if zone == "UTC" else _moment(ms, zone).dt.replace_time_zone(None).dt.epoch("ms")


def _moment(ms: pl.Expr, zone: str) -> pl.Expr:
    if zone == "UTC":
        return pl.when(ms.is_between(_MIN_MS, _MAX_MS)).then(ms).cast(pl.Datetime("ms", "UTC"))
    inside = pl.when(ms.is_between(_ZONES_FROM_MS, _ZONES_TO_MS)).then(ms)
    return inside.cast(pl.Datetime("ms", "UTC")).dt.convert_time_zone(zone)


#: The symbols that are directives of ``strftime``.
_DIRECTIVES = {
    "yyyy": "%Y", "uuuu": "%Y", "yy": "%y", "MM": "%m", "M": "%-m", "MMM": "%b", "MMMM": "%B", "dd": "%d", "d": "%-d",
    "HH": "%H", "H": "%-H", "hh": "%I", "h": "%-I", "a": "%p", "mm": "%M", "m": "%-M", "ss": "%S", "s": "%-S",
    "Z": "%z", "XXX": "%:z", "XX": "%z", "X": "%z", "xxx": "%:z", "z": "%Z", "zz": "%Z", "zzz": "%Z", "E": "%a",
    "EEE": "%a", "EEEE": "%A",
}  # fmt: skip


def write_pattern(ms: pl.Expr, pattern: TimePattern, zone: str) -> pl.Expr:
    """Return a time as text in a zone; NULL outside of the years 1 to 9999 (of a zone but UTC, 1900 to 2099).

    The parts of the text are written one by one, since ``strftime`` has no
    directive for a fraction of any length, or for an offset that is ``Z``.
    """
    moment, parts = _moment(ms, zone), list[pl.Expr]()
    plain = ""
    for element in pattern.written:
        if isinstance(element, str):
            plain += element.replace("%", "%%")
        elif element.symbol == "VV":
            plain += zone
        elif element.name not in ("fraction", "offset"):
            plain += _DIRECTIVES[element.symbol]
        else:
            parts += [moment.dt.strftime(plain)] if plain else []
            plain = ""
            is_fraction = element.name == "fraction"
            parts.append(_fraction(ms, len(element.symbol)) if is_fraction else _offset(moment, element))
    parts += [moment.dt.strftime(plain)] if plain else []
    return pl.concat_str([pl.when(moment.is_not_null()).then(pl.lit("")), *parts], ignore_nulls=False)


def _fraction(ms: pl.Expr, digits: int) -> pl.Expr:
    text = (ms % 1000).cast(pl.String).str.zfill(3)
    return text.str.head(digits) if digits <= 3 else text.str.pad_end(digits, "0")


def _offset(moment: pl.Expr, element: TimeField) -> pl.Expr:
    text = moment.dt.strftime(_DIRECTIVES[element.symbol])
    if element.symbol == "X":
        text = text.str.replace(r"00\z", "")
    if element.symbol[0] == "X":
        text = pl.when(text.str.contains(r"\A[+-][0:]*\z")).then(pl.lit("Z")).otherwise(text)
    return text
