"""The types of a lane's columns, and which types of PostgreSQL hold them without loss.

What does not fit by value (a long in an integer, a text in ``varchar(10)``) is refused row by row by the server; what
would be changed silently (a decimal rounded to fewer digits, a time cut to seconds) is refused at start.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import pyarrow as pa

from streamcore.errors import ConfigError

_NUMERIC = re.compile(r"numeric(?:\((\d+),(-?\d+)\))?")
_TIMESTAMP = re.compile(r"timestamp(?:\((\d)\))? with time zone")
_VARCHAR = re.compile(r"character varying(?:\(\d+\))?")
_INTEGERS = ("bigint", "integer", "smallint")
#: Types that text becomes by their own input function, which is no assignment and must be asked for.
_PARSED = ("uuid", "json", "jsonb")
_TIME_DIGITS = {"s": 0, "ms": 3, "us": 6}


@dataclass(frozen=True, slots=True)
class ColumnType:
    """A column of a lane. ``create``: its type in a table that is to be made. ``staged``: in the staging table, which
    takes any value of the lane."""

    arrow: pa.DataType
    create: str
    staged: str

    def is_compatible(self, theirs: str, *, key: bool) -> bool:
        """Return whether a column of type ``theirs`` (``format_type``'s words) holds every value as it is, or
        refuses it.

        A key's type must also take two values for equal only if they are equal here, so it is never a ``uuid``.
        """
        match self.staged:
            case "numeric":
                return _digits(_NUMERIC, theirs, 2) >= int(self.arrow.scale)
            case "timestamptz":
                return _digits(_TIMESTAMP, theirs, 1) >= _TIME_DIGITS[self.arrow.unit]
            case "text":
                return theirs == "text" or bool(_VARCHAR.fullmatch(theirs)) or (theirs in _PARSED and not key)
            case "bigint":
                return theirs in _INTEGERS or _digits(_NUMERIC, theirs, 2) >= 0
            case "double precision":
                return theirs == self.staged and not key
            case _:
                return theirs == self.staged

    @staticmethod
    def cast(theirs: str) -> str:
        """Return what must follow the staged column's name for it to become ``theirs``."""
        return f"::{theirs}" if theirs in _PARSED else ""


def column_type(lane: str, field: pa.Field) -> ColumnType:
    """``ConfigError`` for a type that no lane of a topology has."""
    arrow = field.type
    if pa.types.is_boolean(arrow):
        return ColumnType(arrow, "boolean", "boolean")
    if pa.types.is_integer(arrow) and not pa.types.is_uint64(arrow):
        return ColumnType(arrow, "bigint", "bigint")
    if pa.types.is_floating(arrow):
        return ColumnType(arrow, "double precision", "double precision")
    if pa.types.is_decimal(arrow):
        return ColumnType(arrow, f"numeric({arrow.precision},{arrow.scale})", "numeric")
    if pa.types.is_large_string(arrow) or pa.types.is_string(arrow):
        return ColumnType(arrow, "text", "text")
    if pa.types.is_timestamp(arrow) and arrow.tz == "UTC" and arrow.unit in _TIME_DIGITS:
        return ColumnType(arrow, "timestamp with time zone", "timestamptz")
    raise ConfigError(
        f"postgres lane {lane}: column {field.name!r} is {arrow}, which no table holds; select another form"
    )


def _digits(pattern: re.Pattern[str], theirs: str, group: int) -> int:
    """Digits after the point that a type keeps; -1 when it is another type."""
    match = pattern.fullmatch(theirs)
    if match is None:
        return -1
    if match[1] is None:  # without bounds: numeric keeps all, a timestamp microseconds
        return 1_000 if group == 2 else 6
    return int(match[group])
