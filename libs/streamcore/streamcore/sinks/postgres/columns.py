"""The types of a lane's columns, and which types of PostgreSQL hold them without loss.

A value that does not fit its column (a long in an integer, a text in ``varchar(10)``) makes the server reject its row.
A column type that would change values silently (a decimal with fewer digits, a time in seconds) is rejected at start.
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
#: Types that text does not become by assignment: they need an explicit cast.
_PARSED = ("uuid", "json", "jsonb")
_TIME_DIGITS = {"s": 0, "ms": 3, "us": 6}


@dataclass(frozen=True, slots=True)
class ColumnType:
    """The types of a lane's column. ``create``: in a CREATE TABLE statement. ``staged``: in the staging table, which
    takes every value of the lane."""

    arrow: pa.DataType
    create: str
    staged: str

    def is_compatible(self, theirs: str, *, key: bool) -> bool:
        """Return whether a column of type ``theirs`` (spelled as by ``format_type``) never changes a value silently.

        The type of a key column must also distinguish all values that the lane distinguishes; ``uuid``, for example,
        does not: it ignores case.
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
        """Return the SQL cast that turns the staged column into ``theirs``; empty if none is needed."""
        return f"::{theirs}" if theirs in _PARSED else ""


def column_type(lane: str, field: pa.Field) -> ColumnType:
    """Return the types of a lane's column. Raise ``ConfigError`` for a type that no table holds."""
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
    """Return how many digits after the point the type ``theirs`` keeps; -1 if it does not match ``pattern``."""
    match = pattern.fullmatch(theirs)
    if match is None:
        return -1
    if match[1] is None:  # without bounds: numeric keeps all, a timestamp microseconds
        return 1_000 if group == 2 else 6
    return int(match[group])
