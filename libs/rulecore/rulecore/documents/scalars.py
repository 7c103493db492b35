"""The small values inside a rule's document: durations, names of columns, the value of one field of an event.

Each is a pydantic type that reports one error for one fault; the error names the accepted form.
"""

from __future__ import annotations

import contextlib
import datetime
import math
from typing import Annotated, Any, Final

from pydantic import BeforeValidator, Field, PlainSerializer, WithJsonSchema

from rulecore.streams import MAX_STREAMS
from streamcore import durations
from streamcore.durations import render_duration
from streamcore.schema import UNION
from streamcore.schema.field_paths import MAX_DEPTH
from streamcore.schema.types import ACCEPTED_NAMES, NAME_PATTERN, is_field_name

MAX_TEXT: Final = 2_000

_INT64: Final = 2**63
_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_MS: Final = datetime.timedelta(milliseconds=1)
FIRST_MS: Final = -62_135_596_800_000  # 0001-01-01T00:00:00Z
LAST_MS: Final = 253_402_300_799_999  # 9999-12-31T23:59:59.999Z


def parse_duration_ms(value: object) -> int:
    """Convert ``500ms``, ``30s``, ``5m``, ``1h``, ``7d`` to milliseconds; raise ``ValueError`` for anything else.

    A duration in a rule is positive, and begins with no zero.
    """
    if isinstance(value, str) and not value.startswith("0"):
        with contextlib.suppress(ValueError):
            return durations.parse_duration_ms(value)
    raise ValueError(f"{abbreviate(value)} is no duration; write a whole number and a unit: 500ms, 30s, 5m, 1h, 7d")


def abbreviate(value: object) -> str:
    """Return the ``repr`` of a value for a message, cut to 60 characters."""
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


Duration = Annotated[
    int,
    BeforeValidator(parse_duration_ms),
    PlainSerializer(render_duration, return_type=str),
    WithJsonSchema({"type": "string", "pattern": "^[1-9][0-9]{0,11}(ms|s|m|h|d)$", "examples": ["30s", "5m", "1h"]}),
]


def parse_time_ms(value: object) -> int:
    """Convert ISO 8601 with a zone, such as ``2026-12-01T08:00:00Z``, to epoch milliseconds.

    Raise ``ValueError`` for other text, and if the UTC time is not in the years 1 to 9999: ``render_time`` could not
    write it.
    """
    if isinstance(value, str) and len(value) <= _MAX_TIME_CHARACTERS:
        try:
            time = datetime.datetime.fromisoformat(value)
        except ValueError:
            time = None
        if time is not None and time.tzinfo is not None:
            time_ms = (time - _EPOCH) // _MS
            if FIRST_MS <= time_ms <= LAST_MS:
                return time_ms
    raise ValueError(f"{abbreviate(value)} is no time; write a date, a time and its zone: 2026-12-01T08:00:00Z")


def render_time(time_ms: int) -> str:
    """Return the text, in UTC, that ``parse_time_ms`` reads back."""
    time = _EPOCH + time_ms * _MS
    return time.isoformat(timespec="milliseconds").replace("+00:00", "Z").replace(".000Z", "Z")


_MAX_TIME_CHARACTERS: Final = 40
Time = Annotated[
    int,
    BeforeValidator(parse_time_ms),
    PlainSerializer(render_time, return_type=str),
    WithJsonSchema({"type": "string", "format": "date-time", "examples": ["2026-12-01T08:00:00Z"]}),
]
_STREAM_NAME = r"[a-z_][a-z0-9_]{0,62}"


def _join_streams(value: object) -> object:
    """Return the name of the union of a list of streams."""
    if isinstance(value, list | tuple) and value and all(isinstance(name, str) for name in value):
        return UNION.join(sorted({*value}))
    return value


#: The name of a stream, or the names of several: a list, or joined by ``+``.
StreamNames = Annotated[
    str,
    BeforeValidator(_join_streams),
    Field(pattern=rf"^{_STREAM_NAME}(\+{_STREAM_NAME}){{0,{MAX_STREAMS - 1}}}$"),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string", "pattern": f"^{_STREAM_NAME}(\\+{_STREAM_NAME})*$"},
                {
                    "type": "array",
                    "items": {"type": "string", "pattern": f"^{_STREAM_NAME}$"},
                    "minItems": 1,
                    "maxItems": MAX_STREAMS,
                },
            ]
        }
    ),
]
StepName = Annotated[str, Field(pattern=r"^[a-z_][a-z0-9_]{0,62}$")]


def _check_column_name(value: object) -> object:
    if isinstance(value, str) and not is_field_name(value):
        raise ValueError(f"{abbreviate(value)} is no name of a column: {ACCEPTED_NAMES}")
    return value


#: Expressions ignore upper and lower case in it.
ColumnName = Annotated[
    str, BeforeValidator(_check_column_name), WithJsonSchema({"type": "string", "pattern": f"^{NAME_PATTERN}$"})
]
#: Its length has one limit, that of the language (``ExpressionLimits``), which names its unit and its place.
Expression = Annotated[str, Field(min_length=1)]


def _check_value(value: object, depth: int = MAX_DEPTH) -> object:
    """Return the value if a field can hold it. Raise one error, not one per member of the union."""
    if isinstance(value, int) and not -_INT64 <= value < _INT64:
        raise ValueError("a whole number of more than 64 bits")
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError("no finite number")
    if isinstance(value, str) and len(value) > MAX_TEXT:
        raise ValueError(f"text of more than {MAX_TEXT} characters")
    if isinstance(value, list | dict):
        if depth == 0:
            raise ValueError(f"arrays and objects more than {MAX_DEPTH} deep")
        for name, inner in value.items() if isinstance(value, dict) else enumerate(value):
            if isinstance(value, dict) and not isinstance(name, str):
                raise ValueError(f"{abbreviate(name)} is no text")
            _check_value(inner, depth - 1)
    elif value is not None and not isinstance(value, bool | int | float | str):
        raise ValueError(f"{abbreviate(value)} is neither text, number, true, false, null, array nor object")
    return value


FieldValue = bool | int | float | str | list[Any] | dict[str, Any] | None
CheckedValue = Annotated[FieldValue, BeforeValidator(_check_value)]
