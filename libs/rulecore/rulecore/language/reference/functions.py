"""The functions of the language for the reference evaluator; one entry per name in ``functions.FUNCTIONS``.

All are plain Python but those with regular expressions: Python's regular expressions have another syntax and
backtrack, so Polars matches patterns here too.
"""

from __future__ import annotations

import ipaddress
import math
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from decimal import ROUND_HALF_UP, Decimal
from typing import TYPE_CHECKING, Any

from rulecore.language.ast import Call
from rulecore.language.reference.arrays import ARRAY_FUNCTIONS, CONSTRUCTORS
from rulecore.language.reference.texts import TEXT_FUNCTIONS, TEXTS_WITH_NULLS
from rulecore.language.reference.values import (
    EPOCH,
    WIDE,
    Number,
    coerce,
    coerce_number,
    compare,
    double,
    order,
    text_of_time,
    to_datetime,
)
from rulecore.language.text_signatures import parse_replacement
from rulecore.language.types import Value
from streamcore.schema import LONG, TIMESTAMP
from streamcore.schema.time_patterns import DAYS, MONTHS, TimeField, TimePattern, read_local
from streamcore.timestamps import from_iso, load_zone, zone_offset_ms

if TYPE_CHECKING:
    import polars as pl

_DAY_MS = 86_400_000


def call(expr: Call, values: list[Any]) -> Any:
    """Return the result of a call; NULL if an argument is NULL, except for functions in ``_WITH_NULLS``."""
    if expr.function in _WITH_NULLS:
        return _WITH_NULLS[expr.function](expr, values)
    if None in values:
        return None
    return _FUNCTIONS[expr.function](expr, *values)


def _coalesce(expr: Call, values: list[Value]) -> Value:
    return next((v for value in values if (v := coerce(value, expr.type)) is not None), None)


def _nullif(expr: Call, values: list[Value]) -> Value:
    left, right = expr.arguments
    return None if compare("=", values[0], values[1], left, right) is True else values[0]


def _greatest(expr: Call, values: list[Value], sign: int = 1) -> Value:
    best: Value = None
    for value in values:
        coerced = coerce(value, expr.type)
        if coerced is not None and (best is None or order(coerced, best) * sign > 0):
            best = coerced
    return best


def _substr(_expr: Call, text: str, start: int, length: int | None = None) -> str:
    """Return the part from ``start``, counted from 1. A negative start counts from the end and may precede it."""
    first = start - 1 if start > 0 else start + len(text) if start < 0 else 0
    last = len(text) if length is None else first + length
    return text[max(0, first) : max(0, last)]


def _cidr(_expr: Call, text: str, network: str) -> bool:
    """Return whether the text is an address of the network; an address with a zone is in none."""
    try:
        return "%" not in text and ipaddress.ip_address(text) in ipaddress.ip_network(network)
    except ValueError:
        return False


def _abs(expr: Call, value: Number) -> Value:
    return coerce_number(value.copy_abs() if isinstance(value, Decimal) else abs(value), expr.type)


def _round(expr: Call, value: Number, places: int = 0) -> Value:
    """Round half away from zero. For a double, round its product with the power of ten, which is itself inexact."""
    if isinstance(value, float):
        scaled = value * 10.0**places
        if not math.isfinite(scaled):
            return value
        whole = math.floor(abs(scaled))
        whole += abs(scaled) - whole >= 0.5
        return math.copysign(float(whole), scaled) / 10.0**places
    if isinstance(value, Decimal):
        rounded = value.quantize(Decimal(1).scaleb(-expr.type.scale), rounding=ROUND_HALF_UP, context=WIDE)
        return coerce_number(rounded, expr.type)
    return value


def _whole(value: Number, function: Callable[[Number], int]) -> Value:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return coerce_number(function(value), LONG)


def _ln(value: float) -> float | None:
    return None if value <= 0 else math.log(value)


def _exp(value: float) -> float:
    try:
        return math.exp(value)
    except OverflowError:
        return math.inf


def _power(base: float, exponent: float) -> float:
    """Compute C's ``pow``: a pole and an overflow are infinite, and a negative base may give NaN."""
    odd = math.isfinite(exponent) and exponent % 2 == 1
    negative = math.copysign(1.0, base) < 0 and odd
    try:
        return math.pow(base, exponent)
    except OverflowError:
        return -math.inf if negative else math.inf
    except ValueError:
        return math.nan if base != 0 else -math.inf if negative else math.inf


def _date_trunc(_expr: Call, unit: str, ms: int) -> Value:
    """Return the start of the unit that contains a time; NULL outside of the years 1 to 9999."""
    moment = to_datetime(ms)
    if moment is None:
        return None
    start = moment.replace(microsecond=0)
    smaller = {"minute": ("second",), "hour": ("second", "minute")}
    day = start.replace(second=0, minute=0, hour=0)
    match unit.lower():
        case "second":
            cut = start
        case "minute" | "hour" as name:
            cut = start.replace(**dict.fromkeys(smaller[name], 0))  # type: ignore[arg-type]
        case "week":
            cut = day - timedelta(days=day.weekday())
        case "month":
            cut = day.replace(day=1)
        case "quarter":
            cut = day.replace(day=1, month=(day.month - 1) // 3 * 3 + 1)
        case "year":
            cut = day.replace(day=1, month=1)
        case _:
            cut = day
    return (cut - EPOCH) // timedelta(milliseconds=1)


def _series(text: str) -> pl.Series:
    """Return the text as a Polars series. Polars is imported only for rules with patterns."""
    import polars as pl

    return pl.Series([text])


def _extract(_expr: Call, text: str, pattern: str, group: int = 1) -> Value:
    found: str | None = _series(text).str.extract(pattern, group)[0]
    return found


def _regexp_replace(_expr: Call, text: str, pattern: str, replacement: str) -> Value:
    parts = parse_replacement(replacement)
    rust = "".join(f"${{{part}}}" if isinstance(part, int) else part.replace("$", "$$") for part in parts)
    found: str | None = _series(text).str.replace_all(pattern, rust)[0]
    return found


def _split(_expr: Call, text: str, pattern: str) -> list[str]:
    import polars as pl

    column = _series(text).to_frame("text").select(pl.col("text").str.split(pattern, literal=False))["text"]
    found: list[str] = column[0].to_list()
    return found


def _to_long(_expr: Call, value: Number | str) -> Value:
    if isinstance(value, str):
        return coerce_number(int(value), LONG) if re.fullmatch(r"[+-]?[0-9]{1,19}", value) else None
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return coerce_number(int(value), LONG) if value == int(value) else None


_PLAIN = r"(?:[0-9]{%s}(?:\.[0-9]{0,%s})?|\.[0-9]{1,%s})"


def _to_double(_expr: Call, value: Number | str) -> Value:
    if not isinstance(value, str):
        return double(value)
    if not re.fullmatch(rf"[+-]?{_PLAIN % ('1,100', 100, 100)}(?:[eE][+-]?[0-9]{{1,3}})?", value):
        return None
    return number if math.isfinite(number := float(value)) else None


def _to_decimal(expr: Call, value: Number | str, _precision: int, _scale: int) -> Value:
    kind = expr.type
    unit = Decimal(1).scaleb(-kind.scale)
    if isinstance(value, float):
        scaled = value * 10.0**kind.scale
        rounded = None if not math.isfinite(scaled) else _round(expr, scaled)
        exact = None if rounded is None else WIDE.multiply(Decimal(int(rounded)), unit)
    elif isinstance(value, str):
        exact = Decimal(value) if re.fullmatch(rf"[+-]?{_PLAIN % ('1,18', 36, 36)}", value) else None
    else:
        exact = Decimal(value)
    if exact is None or abs(exact) >= 10 ** (kind.precision - kind.scale):
        return None
    fitted = exact.quantize(unit, context=WIDE)
    return fitted if fitted == exact else None


def _to_text(expr: Call, value: Value) -> Value:
    match value:
        case bool():
            return "true" if value else "false"
        case int() if expr.arguments[0].type == TIMESTAMP:
            return text_of_time(value)
        case Decimal():
            return format(value, f".{expr.arguments[0].type.scale}f")
        case _:
            return str(value)


def _to_timestamp(_expr: Call, text: str, time_format: str = "iso", zone: str = "UTC") -> Value:
    if time_format == "iso":
        local = from_iso(text, load_zone("UTC"))
        return local if local is None or _OFFSET.search(text) else _local_to_utc(local, zone)
    found = read_local(text, TimePattern.parse_input(time_format))
    if found is None:
        return None
    return _local_to_utc(found.ms, found.zone or zone) if found.offset_ms is None else found.ms - found.offset_ms


_OFFSET = re.compile(r"(Z|[+-][0-9]{2}(:?[0-9]{2})?)\Z")


def _format_time(_expr: Call, ms: int, time_format: str, zone: str = "UTC") -> Value:
    local = _utc_to_local(ms, zone)
    moment = None if local is None else to_datetime(local)
    if local is None or moment is None:
        return None
    parts = TimePattern.parse(time_format).written
    return "".join(one if isinstance(one, str) else _format_part(one, moment, local - ms, zone) for one in parts)


def _format_part(field: TimeField, moment: datetime, offset_ms: int, zone: str) -> str:
    symbol, width = field.symbol, len(field.symbol)
    match field.name:
        case "year":
            return f"{moment.year:04d}"[-2 if width == 2 else 0 :]
        case "month" if width > 2:
            return MONTHS[moment.month - 1][: 3 if width == 3 else None]
        case "day of the week":
            return DAYS[moment.weekday()][: 3 if width < 4 else None]
        case "half of the day":
            return "AM" if moment.hour < 12 else "PM"
        case "fraction":
            return f"{moment.microsecond // 1000:03d}000000"[:width]
        case "offset":
            return _format_offset(symbol, offset_ms // 60_000)
        case "zone":
            utc = (moment - timedelta(milliseconds=offset_ms)).replace(tzinfo=UTC)
            return zone if symbol == "VV" else str(utc.astimezone(load_zone(zone)).tzname())
    number = {
        "month": moment.month,
        "day": moment.day,
        "hour": moment.hour,
        "hour of half a day": (moment.hour + 11) % 12 + 1,
        "minute": moment.minute,
        "second": moment.second,
    }[field.name]
    return str(number).zfill(width)


def _format_offset(symbol: str, minutes: int) -> str:
    if symbol[0] == "X" and minutes == 0:
        return "Z"
    hours, rest = divmod(abs(minutes), 60)
    sign = "-" if minutes < 0 else "+"
    if symbol == "X" and rest == 0:
        return f"{sign}{hours:02d}"
    return f"{sign}{hours:02d}{':' if len(symbol) == 3 else ''}{rest:02d}"


def _utc_to_local(ms: int, zone: str) -> int | None:
    moment = to_datetime(ms)
    if zone == "UTC" or moment is None:
        return None if moment is None else ms
    if not 1900 <= moment.year <= 2099:
        return None
    offset = moment.astimezone(load_zone(zone)).utcoffset()
    return ms if offset is None else ms + offset // timedelta(milliseconds=1)


def _part(expr: Call, ms: int) -> Value:
    moment = to_datetime(ms)
    if moment is None:
        return None
    match expr.function:
        case "quarter":
            return (moment.month + 2) // 3
        case "dayofyear":
            return moment.timetuple().tm_yday
        case "weekofyear":
            return moment.isocalendar().week
    part: int = getattr(moment, expr.function)
    return part


_UNITS_PER_SECOND = {"seconds": 1, "millis": 1_000, "micros": 1_000_000}


def _from_number(expr: Call, number: int) -> Value:
    per_second = _UNITS_PER_SECOND[expr.function.rpartition("_")[2]]
    ms = number * 1_000 // per_second
    return None if to_datetime(ms) is None else ms


def _to_number(expr: Call, ms: int) -> Value:
    return coerce_number(ms * _UNITS_PER_SECOND[expr.function.rpartition("_")[2]] // 1_000, LONG)


def _from_unixtime(expr: Call, seconds: int, time_format: str = "yyyy-MM-dd HH:mm:ss") -> Value:
    return None if to_datetime(seconds * 1_000) is None else _format_time(expr, seconds * 1_000, time_format)


def _local_to_utc(ms: int, zone: str) -> Value:
    if zone == "UTC":
        return ms
    moment = to_datetime(ms)
    if moment is None or not 1900 <= moment.year <= 2099:
        return None
    return ms - zone_offset_ms(load_zone(zone), moment.replace(tzinfo=None))


_WITH_NULLS: Mapping[str, Callable[[Call, list[Value]], Any]] = {
    **CONSTRUCTORS,
    **TEXTS_WITH_NULLS,
    "coalesce": _coalesce,
    "nullif": _nullif,
    "greatest": _greatest,
    "least": lambda e, values: _greatest(e, values, sign=-1),
}
_FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    **ARRAY_FUNCTIONS,
    "lower": lambda _, s: s.lower(),
    "upper": lambda _, s: s.upper(),
    "trim": lambda _, s: s.strip(" "),
    "length": lambda _, s: len(s),
    "substr": _substr,
    "concat": lambda _, *parts: "".join(parts),
    "starts_with": lambda _, s, part: s.startswith(part),
    "ends_with": lambda _, s, part: s.endswith(part),
    "contains": lambda _, s, part: part in s,
    "replace": lambda _, s, old, new: s.replace(old, new),
    "regexp_like": lambda _, s, pattern: bool(_series(s).str.contains(pattern)[0]),
    "cidr_match": _cidr,
    "abs": _abs,
    "round": _round,
    "floor": lambda _, value: _whole(value, math.floor),
    "ceil": lambda _, value: _whole(value, math.ceil),
    "sqrt": lambda _, value: math.nan if double(value) < 0 else math.sqrt(double(value)),
    "ln": lambda _, value: _ln(double(value)),
    "exp": lambda _, value: _exp(double(value)),
    "power": lambda _, base, exponent: _power(double(base), double(exponent)),
    "hour": lambda _, ms: ms // 3_600_000 % 24,
    "minute": lambda _, ms: ms // 60_000 % 60,
    "dayofweek": lambda _, ms: (ms // _DAY_MS + 4) % 7 + 1,
    "date_trunc": _date_trunc,
    "regexp_extract": _extract,
    "regexp_replace": _regexp_replace,
    "split": _split,
    "to_long": _to_long,
    "to_double": _to_double,
    "to_decimal": _to_decimal,
    "to_text": _to_text,
    "to_timestamp": _to_timestamp,
    "to_utc_timestamp": lambda _, ms, zone: _local_to_utc(ms, zone),
    "from_utc_timestamp": lambda _, ms, zone: ms if zone == "UTC" else _utc_to_local(ms, zone),
    "second": lambda _, ms: ms // 1_000 % 60,
    **dict.fromkeys(("year", "quarter", "month", "day", "dayofyear", "weekofyear"), _part),
    **dict.fromkeys((f"timestamp_{unit}" for unit in _UNITS_PER_SECOND), _from_number),
    **dict.fromkeys((f"unix_{unit}" for unit in _UNITS_PER_SECOND), _to_number),
    "date_format": _format_time,
    "from_unixtime": _from_unixtime,
    **TEXT_FUNCTIONS,
}
