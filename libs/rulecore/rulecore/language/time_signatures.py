"""The functions of times: their parts, their texts and their numbers."""

from __future__ import annotations

from collections.abc import Mapping

from rulecore.errors import ExpressionTypeError
from rulecore.language import types
from rulecore.language.signatures import FunctionSignature, Operands, check_timestamp, constant, constant_text
from rulecore.language.time_formats import ISO, check_format, check_zone
from streamcore.schema import LONG, STRING, TIMESTAMP, Kind, Type

TRUNC_UNITS = ("second", "minute", "hour", "day", "week", "month", "quarter", "year")
#: How many milliseconds a unit has; negative: how many of the unit are a millisecond.
NUMBER_UNITS = {"seconds": 1_000, "millis": 1, "micros": -1_000}


def _part(name: str, operands: Operands) -> Type:
    check_timestamp(name, operands[0], 0)
    return LONG


def _local_part(name: str, operands: Operands) -> Type:
    if len(operands) > 1:
        check_zone(constant_text(name, operands, 1))
    return _part(name, operands)


def _date_trunc(name: str, operands: Operands) -> Type:
    unit = constant(name, operands, 0, Kind.STRING)
    if str(unit).lower() not in TRUNC_UNITS:
        raise ExpressionTypeError(f"{name}: unknown unit {unit!r}", f"accepted here: {', '.join(TRUNC_UNITS)}", 0)
    check_timestamp(name, operands[1], 1)
    return TIMESTAMP


def _to_timestamp(name: str, operands: Operands) -> Type:
    types.check_text(operands[0], name, 0)
    if len(operands) > 1 and (written := constant_text(name, operands, 1)) != ISO:
        check_format(name, written)
    if len(operands) > 2:
        check_zone(constant_text(name, operands, 2))
    return TIMESTAMP


def _date_format(name: str, operands: Operands) -> Type:
    check_timestamp(name, operands[0], 0)
    check_format(name, constant_text(name, operands, 1), reads=False)
    if len(operands) > 2:
        check_zone(constant_text(name, operands, 2))
    return STRING


def _of_zone(name: str, operands: Operands) -> Type:
    check_timestamp(name, operands[0], 0)
    check_zone(constant_text(name, operands, 1))
    return TIMESTAMP


def _of_number(name: str, operands: Operands) -> Type:
    if operands[0].type != LONG:
        raise ExpressionTypeError(f"{name} takes a whole number, not {operands[0].type}", "write: to_long(...)", 0)
    return TIMESTAMP


def _from_unixtime(name: str, operands: Operands) -> Type:
    _of_number(name, operands[:1])
    if len(operands) > 1:
        check_format(name, constant_text(name, operands, 1), reads=False)
    return STRING


_PARTS = {"minute": "", "second": "", "year": "", "quarter": "", "month": "", "day": "",
          "dayofyear": "", "weekofyear": ""}  # fmt: skip
_LOCAL_PARTS = {"hour": "", "dayofweek": ", 1 is Sunday", "weekday": ", 0 is Monday"}

TIME_FUNCTIONS: Mapping[str, FunctionSignature] = {
    **{name: FunctionSignature(f"{name}(timestamp){more}", 1, 1, _part) for name, more in _PARTS.items()},
    **{
        name: FunctionSignature(f"{name}(timestamp) or {name}(timestamp, 'zone'){more}", 1, 2, _local_part)
        for name, more in _LOCAL_PARTS.items()
    },
    "date_trunc": FunctionSignature("date_trunc('hour', timestamp)", 2, 2, _date_trunc),
    "to_timestamp": FunctionSignature(
        "to_timestamp(text), (text, 'format') or (text, 'format', 'zone')", 1, 3, _to_timestamp
    ),
    "date_format": FunctionSignature("date_format(timestamp, 'format') or (..., 'zone')", 2, 3, _date_format),
    "to_utc_timestamp": FunctionSignature("to_utc_timestamp(timestamp, 'zone')", 2, 2, _of_zone),
    "from_utc_timestamp": FunctionSignature("from_utc_timestamp(timestamp, 'zone')", 2, 2, _of_zone),
    **{f"timestamp_{unit}": FunctionSignature(f"timestamp_{unit}(number)", 1, 1, _of_number) for unit in NUMBER_UNITS},
    **{f"unix_{unit}": FunctionSignature(f"unix_{unit}(timestamp)", 1, 1, _part) for unit in NUMBER_UNITS},
    "from_unixtime": FunctionSignature("from_unixtime(seconds) or (seconds, 'format')", 1, 2, _from_unixtime),
}
