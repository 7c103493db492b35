"""Converts one value of a record to the physical value of a field: defines the values that a field accepts.

A number keeps its text (``Number``), so a decimal stays exact. No conversion is guessed: text is not a number, a number
is not text, and ``1.0`` and ``1e3`` are not whole numbers. Only decimals, and times with a unit, may be texts:
many systems send them so to keep all digits.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal, InvalidOperation
from typing import Any
from zoneinfo import ZoneInfo

from streamcore import timestamps
from streamcore.decode.reject_codes import RejectCode
from streamcore.schema import Field, Kind, TimeUnit, Type
from streamcore.schema.field_paths import Path, format_path
from streamcore.schema.time_patterns import AHEAD_OF_RECORD_MS, TimePattern, read_local, with_year
from streamcore.schema.types import quote_name
from streamcore.wire.map_entries import KEY, VALUE

Scalar = bool | int | float | str | None
#: A physical value: a list of an array or of the entries of a map, an object of a struct or of an entry.
Physical = Scalar | list[Any] | dict[str, Any]
_Converter = Callable[[Field, object, ZoneInfo], Physical]

_BOOLEANS = {"true": True, "false": False}
_WHOLE = re.compile(r"-?(?:0|[1-9][0-9]*)")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_INT64_DIGITS = 19
_MOST_TIME_DIGITS = 30
_SHOWN_CHARS = 60


class Number(str):
    """The text of a JSON number."""

    __slots__ = ()


class EpochMilliseconds(Number):
    """The text of a time in milliseconds, whatever the unit of its field."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class ObjectValue:
    """An object of a record: its names and values in the order of the record, repeated names included."""

    pairs: tuple[tuple[str, object], ...]


@dataclass(frozen=True, slots=True)
class NoObject:
    """A value on the way of a field's path that is no object, and the path to it."""

    path: Path
    value: object


class RecordError(ValueError):
    """A record is invalid. Raised and caught inside ``streamcore.decode``, which returns a ``RejectedRecord``."""

    def __init__(self, code: RejectCode, reason: str) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason


def convert(field: Field, value: object, zone: ZoneInfo) -> Physical:
    """Return the physical value of a field (``streamcore.schema``); raise ``RecordError``.

    ``value``: None, a boolean, a ``Number``, text, a list or an ``ObjectValue``. ``zone``: of times without an offset.
    """
    if value is None:
        if field.nullable:
            return None
        raise RecordError(RejectCode.MISSING_FIELD, f"field {field.label} is null; a {field.type} is needed")
    if isinstance(value, NoObject):
        raise RecordError(
            RejectCode.WRONG_TYPE,
            f"field {field.label}: {format_path(value.path)}: found {show(value.value)}; accepted is an object",
        )
    return _CONVERTERS[field.type.kind](field, value, zone)


def parse_cell(field: Field, text: str | None) -> object:
    """Return the value of a cell for ``values.convert``: text that is no value of the type is returned unchanged."""
    if text is None:
        return None
    match field.type.kind:
        case Kind.BOOLEAN:
            return _BOOLEANS.get(text, text)
        case Kind.LONG | Kind.DOUBLE | Kind.TIMESTAMP if is_number(text):
            return Number(text)
    return text


def show(value: object) -> str:
    """Return a value and its type for a message: printable ASCII, long texts cut off."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case Number():
            return f"the number {_shorten(value)}"
        case str():
            return f"the text {_shorten(json.dumps(value[: _SHOWN_CHARS + 1]))}"
        case list():
            return "an array"
    return "an object"


def show_name(name: str) -> str:
    """Return a name for a message, in quotes and printable ASCII."""
    return show(name).removeprefix("the text ")


def is_number(text: str) -> bool:
    """Return whether the text is a JSON number."""
    return _NUMBER.fullmatch(text) is not None


def _shorten(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARS else text[: _SHOWN_CHARS - 3] + "..."


def _wrong_type(field: Field, value: object, accepted: str) -> RecordError:
    return RecordError(RejectCode.WRONG_TYPE, f"field {field.label}: found {show(value)}; accepted is {accepted}")


def _out_of_range(field: Field, value: object, accepted: str) -> RecordError:
    return RecordError(RejectCode.OUT_OF_RANGE, f"field {field.label}: found {show(value)}; accepted is {accepted}")


def _to_boolean(field: Field, value: object, _zone: ZoneInfo) -> bool:
    if not isinstance(value, bool):
        raise _wrong_type(field, value, "true or false")
    return value


def _to_string(field: Field, value: object, _zone: ZoneInfo) -> str:
    if isinstance(value, Number) or not isinstance(value, str):
        raise _wrong_type(field, value, "text")
    return value


def _to_long(field: Field, value: object, _zone: ZoneInfo) -> int:
    accepted = "a whole number of 64 bits, written without fraction and exponent"
    if not isinstance(value, Number) or not _WHOLE.fullmatch(value):
        raise _wrong_type(field, value, accepted)
    number = int(value) if len(value) <= _INT64_DIGITS + 1 else None
    if number is None or not -(2**63) <= number < 2**63:
        raise _out_of_range(field, value, accepted)
    return number


def _to_double(field: Field, value: object, _zone: ZoneInfo) -> float:
    if not isinstance(value, Number):
        raise _wrong_type(field, value, "a number")
    number = float(value)
    if not math.isfinite(number):
        raise _out_of_range(field, value, "a number of double precision, up to about 1.8e308")
    return number


def _to_decimal(field: Field, value: object, _zone: ZoneInfo) -> int:
    scale, whole_digits = field.type.scale, field.type.precision - field.type.scale
    accepted = (
        f"a number, or a number as text, of at most {whole_digits} digits before and {scale} after the point"
        f" ({field.type})"
    )
    if not isinstance(value, str) or not _NUMBER.fullmatch(value):
        raise _wrong_type(field, value, accepted)
    try:
        sign, digits, exponent = Decimal(value).as_tuple()
    except InvalidOperation:  # the exponent has too many digits for the library
        raise _out_of_range(field, value, accepted) from None
    if not isinstance(exponent, int):  # infinity: an exponent that overflowed
        raise _out_of_range(field, value, accepted)
    end = len(digits)
    while end and digits[end - 1] == 0:  # trailing zeros are no digits of the value: 1.500 is 1.5
        end -= 1
    exponent += len(digits) - end
    if end == 0:
        return 0
    start = next(i for i, digit in enumerate(digits) if digit)
    if exponent < -scale or (end - start) + exponent > whole_digits:
        raise _out_of_range(field, value, accepted)
    units = int("".join(map(str, digits[start:end]))) * int(10 ** (exponent + scale))
    return -units if sign else units


def _to_timestamp(field: Field, value: object, zone: ZoneInfo) -> int:
    accepted = timestamps.ACCEPTED.replace("milliseconds", field.unit.word)
    if type(value) is str and field.unit is not TimeUnit.MILLISECONDS and _WHOLE.fullmatch(value):
        value = Number(value)  # many systems send numbers of 64 bits as text
    if isinstance(value, Number):
        if not _WHOLE.fullmatch(value) and field.unit is not TimeUnit.SECONDS:
            raise _wrong_type(field, value, accepted)
        unit = TimeUnit.MILLISECONDS if isinstance(value, EpochMilliseconds) else field.unit
        epoch_ms = _from_unit(value, unit) if len(value) <= _MOST_TIME_DIGITS else -1
    elif isinstance(value, str):
        found = timestamps.from_iso(value, zone)
        if found is None:
            raise RecordError(
                RejectCode.BAD_TIMESTAMP, f"field {field.label}: found {show(value)}; accepted is {accepted}"
            )
        epoch_ms = found
    else:
        raise _wrong_type(field, value, accepted)
    if not timestamps.MIN_MS <= epoch_ms <= timestamps.MAX_MS:
        raise _out_of_range(field, value, f"a time in the years 1970 to 9999{_smaller_unit(field, value)}")
    return epoch_ms


def _smaller_unit(field: Field, value: object) -> str:
    """Return a question about the unit, for a number that would be a time with a smaller one."""
    units = [*TimeUnit]
    if not isinstance(value, Number) or not _WHOLE.fullmatch(value) or len(value) > _MOST_TIME_DIGITS:
        return ""
    for unit in units[units.index(field.unit) + 1 :]:
        if 0 <= _from_unit(value, unit) <= _LAST_LIKELY_MS:
            return f"; are these {unit.word}? Use unit: {unit}"
    return ""


#: The end of the year 2099.
_LAST_LIKELY_MS = 4_102_444_799_999


def read_time(field: Field, value: object, zone: ZoneInfo, record_ms: int | None) -> int | None:
    """Return the time of a text in the pattern of a field; raise ``RecordError``.

    ``record_ms``: the timestamp of the record. It decides about the year of a text without one: the last in which the
    time is at most a day later.
    """
    if value is None:
        return None
    pattern, has_year = with_year(field.pattern)
    if has_year:
        return _read_time(field, value, pattern, zone)
    if record_ms is None or not timestamps.MIN_MS <= record_ms <= timestamps.MAX_MS - AHEAD_OF_RECORD_MS:
        reason = f"field {field.label}: {field.pattern} has no year, and the record has no timestamp to take it from"
        raise RecordError(RejectCode.BAD_TIMESTAMP, reason)
    latest = record_ms + AHEAD_OF_RECORD_MS
    year = (datetime(1970, 1, 1) + timedelta(milliseconds=latest)).year
    text = re.sub(" +", " ", value) if isinstance(value, str) else value
    for earlier in range(_YEARS_TO_LEAP_DAY):
        dated = f"{year - earlier:04d} {text}" if isinstance(text, str) else text
        if isinstance(dated, str) and read_local(dated, pattern) is None and earlier < _YEARS_TO_LEAP_DAY - 1:
            continue
        found = _read_time(field, dated, pattern, zone, value)
        if found <= latest:
            return found
    raise _out_of_range(field, value, "a time near that of the record")


_YEARS_TO_LEAP_DAY = 9


def _read_time(field: Field, value: object, pattern: TimePattern, zone: ZoneInfo, written: object | None = None) -> int:
    found = read_local(value, pattern) if isinstance(value, str) else None
    shown = show(value if written is None else written)
    if found is None:
        accepted = f"a time such as {field.pattern}"
        raise RecordError(RejectCode.BAD_TIMESTAMP, f"field {field.label}: found {shown}; accepted is {accepted}")
    moment = datetime(1970, 1, 1) + timedelta(milliseconds=found.ms)
    own = zone if found.zone is None else timestamps.load_zone(found.zone)
    epoch_ms = found.ms - (timestamps.zone_offset_ms(own, moment) if found.offset_ms is None else found.offset_ms)
    if not timestamps.MIN_MS <= epoch_ms <= timestamps.MAX_MS:
        raise _out_of_range(field, value, "a time in the years 1970 to 9999")
    return epoch_ms


def _from_unit(number: str, unit: TimeUnit) -> int:
    """Return milliseconds, rounded down. Seconds may have a fraction."""
    match unit:
        case TimeUnit.SECONDS:
            found = Decimal(number)
            return math.floor(found.scaleb(3)) if abs(found.adjusted()) < _MOST_TIME_DIGITS else -1
        case TimeUnit.MICROSECONDS:
            return int(number) // 1_000
        case TimeUnit.NANOSECONDS:
            return int(number) // 1_000_000
    return int(number)


def _to_array(field: Field, value: object, zone: ZoneInfo) -> list[Any]:
    if not isinstance(value, list):
        raise _wrong_type(field, value, "an array")
    element = field.type.items
    return [convert(inner_field(field, f"[{i}]", element), item, zone) for i, item in enumerate(value)]


def _to_struct(field: Field, value: object, zone: ZoneInfo) -> dict[str, Any]:
    """Convert an object. A member that it lacks is null, and names that the type does not have are left out."""
    found = _unique_members(field, value, {name for name, _ in field.type.members})
    return {
        name: convert(inner_field(field, f".{quote_name(name)}", kind), found.get(name), zone)
        for name, kind in field.type.members
    }


def _to_map(field: Field, value: object, zone: ZoneInfo) -> list[Any]:
    """Convert an object to the entries of a map, in the order of the record."""
    return [
        {KEY: name, VALUE: convert(inner_field(field, f"[{show_name(name)}]", field.type.items), item, zone)}
        for name, item in _unique_members(field, value, None).items()
    ]


def _unique_members(field: Field, value: object, names: set[str] | None) -> dict[str, object]:
    """Return the members of an object that have these names, or any; reject a name that is there twice."""
    if not isinstance(value, ObjectValue):
        raise _wrong_type(field, value, "an object")
    found: dict[str, object] = {}
    for name, item in value.pairs:
        if name in found:
            raise RecordError(
                RejectCode.DUPLICATE_FIELD,
                f"field {field.label}: {show_name(name)} occurs more than once; accepted is once",
            )
        if names is None or name in names:
            found[name] = item
    return found


def inner_field(field: Field, step: str, kind: Type) -> Field:
    """Return the field of a value inside another, for messages: ``items[2].price``."""
    return Field(f"{field.label}{step}", kind)


_CONVERTERS: dict[Kind, _Converter] = {
    Kind.BOOLEAN: _to_boolean,
    Kind.LONG: _to_long,
    Kind.DOUBLE: _to_double,
    Kind.DECIMAL: _to_decimal,
    Kind.STRING: _to_string,
    Kind.TIMESTAMP: _to_timestamp,
    Kind.ARRAY: _to_array,
    Kind.STRUCT: _to_struct,
    Kind.MAP: _to_map,
}
