"""The functions of the language as Polars formulas, but for those that search in arrays and maps (``compiler``)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import polars as pl

from rulecore.language.ast import Call, Literal
from rulecore.language.cidr import in_network, read_network
from rulecore.language.columnar import conversions
from rulecore.language.columnar import timestamps as moments
from rulecore.language.columnar.casts import cast
from rulecore.language.columnar.measures import MEASURES
from rulecore.language.columnar.operators import (
    ComputedOperand,
    absolute,
    comparison,
    let,
    let_columns,
    to_digits,
    to_long,
)
from rulecore.language.columnar.texts import TEXT_CALLS
from rulecore.language.time_formats import ISO
from rulecore.language.time_signatures import NUMBER_UNITS
from streamcore.schema import DOUBLE, LONG, TIMESTAMP, Kind
from streamcore.wire.map_entries import KEY, VALUE

Operands = list[ComputedOperand]

_MIN_MS, _MAX_MS = -62_135_596_800_000, 253_402_300_799_999  # the years 1 to 9999
_MINUTE_MS, _HOUR_MS, _DAY_MS = 60_000, 3_600_000, 86_400_000
#: No array has more elements. Polars panics at the smallest number of 64 bits as an index.
MAX_ELEMENTS = 2**31
_MONDAY_MS = 4 * _DAY_MS  # 1970-01-05
_FIXED_MS = {"second": 1_000, "minute": _MINUTE_MS, "hour": _HOUR_MS, "day": _DAY_MS}
_CALENDAR = {"month": "1mo", "quarter": "1q", "year": "1y"}


def compile_call(expr: Call, operands: Operands) -> pl.Expr:
    """Compile a call. ``operands``: its compiled arguments."""
    return _CALLS[expr.function](expr, operands)


def _constant(expr: Call, index: int, default: object = None) -> object:
    """Return the value of a constant argument; ``default`` if the argument is left out."""
    if index >= len(expr.arguments):
        return default
    argument = expr.arguments[index]
    if not isinstance(argument, Literal):
        raise ValueError(f"{expr.function}: argument {index + 1} must be a constant")
    return argument.value


def _int(expr: Call, index: int, default: int = 0) -> int:
    value = _constant(expr, index, default)
    assert isinstance(value, int)
    return value


def _substr(expr: Call, operands: Operands) -> pl.Expr:
    start = _int(expr, 1)
    length = max(0, _int(expr, 2)) if len(operands) > 2 else None
    return operands[0].expr.str.slice(start - 1 if start > 0 else start, length)


def _replace(expr: Call, operands: Operands) -> pl.Expr:
    old, new = str(_constant(expr, 1)), str(_constant(expr, 2))
    return operands[0].expr.str.replace_all(old, new, literal=True)


def _cidr(expr: Call, operands: Operands) -> pl.Expr:
    network = read_network(str(_constant(expr, 1)))
    return let(operands[:1], lambda text: in_network(text, network))


def _round(expr: Call, operands: Operands) -> pl.Expr:
    """Compile ``round``: half away from zero."""
    operand, places = operands[0], _int(expr, 1)
    if operand.type == DOUBLE:
        return let_columns([operand.expr, pl.lit(10.0**places)], _round_double)
    drop = operand.type.scale - places
    if operand.type == LONG or drop <= 0:
        return operand.expr
    unit = pl.lit(10**drop, dtype=pl.Int64)
    half = pl.lit(10**drop // 2, dtype=pl.Int64)
    return let([operand], lambda v: (v.abs() + half) // unit * v.sign())


def _round_double(value: pl.Expr, unit: pl.Expr) -> pl.Expr:
    scaled = value * unit
    rounded = scaled.round(0, mode="half_away_from_zero") / unit
    return pl.when(scaled.is_finite()).then(rounded).otherwise(value)


def _floor(_expr: Call, operands: Operands) -> pl.Expr:
    operand = operands[0]
    if operand.type == DOUBLE:
        return operand.expr.floor().cast(pl.Int64, strict=False)
    return operand.expr // 10**operand.type.scale if operand.type.scale else operand.expr


def _ceil(_expr: Call, operands: Operands) -> pl.Expr:
    operand = operands[0]
    if operand.type == DOUBLE:
        return operand.expr.ceil().cast(pl.Int64, strict=False)
    return -(-operand.expr // 10**operand.type.scale) if operand.type.scale else operand.expr


def _ln(_expr: Call, operands: Operands) -> pl.Expr:
    """Compile the natural logarithm; NULL for zero and negative numbers."""
    value = ComputedOperand(operands[0].to_double(), DOUBLE, operands[0].leaf)
    return let([value], lambda v: pl.when(v > 0).then(v.log()))


def _power(_expr: Call, operands: Operands) -> pl.Expr:
    """Compile the power so that Polars computes it on columns of at least two rows.

    With a single exponent, even that of a frame of one row, Polars multiplies or takes a root, and rounds differently
    than ``pow``: the result would depend on the division into cuts. So a row is added in front and dropped again.
    """
    base, exponent = (operand.to_double() for operand in operands)
    record = pl.struct(base.alias("_0"), exponent.alias("_1"), pl.repeat(0, pl.len()).alias("_2"))
    first = pl.struct(pl.lit(1.0).alias("_0"), pl.lit(1.0).alias("_1"), pl.lit(0, dtype=pl.Int32).alias("_2"))
    result = pl.field("_0").pow(pl.field("_1")).alias("_result")
    return first.append(record).struct.with_fields(result).struct.field("_result").slice(1)


def _extreme(expr: Call, operands: Operands) -> pl.Expr:
    """Compile ``greatest`` or ``least``, which ignore NULL. NaN is the greatest double, while Polars ignores it."""
    values = [operand.convert(expr.type) for operand in operands]
    greatest = expr.function == "greatest"
    if expr.type != DOUBLE:
        return pl.max_horizontal(values) if greatest else pl.min_horizontal(values)
    return let(
        [ComputedOperand(value, DOUBLE, operand.leaf) for value, operand in zip(values, operands, strict=True)],
        _greatest_double if greatest else _least_double,
    )


def _greatest_double(*values: pl.Expr) -> pl.Expr:
    found = pl.any_horizontal([value.is_nan().fill_null(value=False) for value in values])
    return pl.when(found).then(pl.lit(float("nan"))).otherwise(pl.max_horizontal(values))


def _least_double(*values: pl.Expr) -> pl.Expr:
    """Return the smallest number; NaN if there is no other value."""
    return pl.coalesce(pl.min_horizontal([value.fill_nan(None) for value in values]), *values)


def _coalesce(expr: Call, operands: Operands) -> pl.Expr:
    return pl.coalesce([operand.convert(expr.type) for operand in operands])


def _nullif(_expr: Call, operands: Operands) -> pl.Expr:
    left, right = operands

    def formula(a: pl.Expr, b: pl.Expr) -> pl.Expr:
        equal = comparison("=", replace(left, expr=a), replace(right, expr=b))
        return pl.when(~equal.fill_null(value=False)).then(a)

    return let(operands, formula)


def _date_trunc(expr: Call, operands: Operands) -> pl.Expr:
    """Truncate a time; NULL outside of the years 1 to 9999, where Polars would panic."""
    unit = str(_constant(expr, 0)).lower()

    def formula(ms: pl.Expr) -> pl.Expr:
        if unit in _CALENDAR:
            safe = ms.clip(_MIN_MS, _MAX_MS).cast(pl.Datetime("ms"))
            cut = safe.dt.truncate(_CALENDAR[unit]).cast(pl.Int64)
        elif unit == "week":
            cut = ms - (ms - _MONDAY_MS) % (7 * _DAY_MS)
        else:
            cut = ms - ms % _FIXED_MS[unit]
        return pl.when(ms.is_between(_MIN_MS, _MAX_MS)).then(cut)

    return let([operands[1]], formula)


def _extract(expr: Call, operands: Operands) -> pl.Expr:
    """Compile the text of a group; NULL if the pattern or that group does not match."""
    return operands[0].expr.str.extract(str(_constant(expr, 1)), _int(expr, 2, 1))


def _local(expr: Call, operands: Operands) -> pl.Expr:
    """Return the time, or its local time in the zone that is the second argument."""
    zone = str(_constant(expr, 1, "UTC"))
    return operands[0].expr if zone == "UTC" else moments.to_local(operands[0], zone)


def _to_timestamp(expr: Call, operands: Operands) -> pl.Expr:
    return moments.to_timestamp(operands[0], str(_constant(expr, 1, ISO)), str(_constant(expr, 2, "UTC")))


def _array(expr: Call, operands: Operands) -> pl.Expr:
    values = [operand.convert(expr.type.items) for operand in operands]
    if expr.type.items.is_nested:  # Polars would join lists, not make a list of them
        boxes = pl.concat_list([pl.struct(value.alias(VALUE)) for value in values])
        return boxes.list.eval(pl.element().struct.field(VALUE))
    return pl.concat_list(values)


def _map(expr: Call, operands: Operands) -> pl.Expr:
    values = [operand.convert(expr.type.items) for operand in operands[1::2]]
    pairs = zip(operands[::2], values, strict=True)
    return pl.concat_list([pl.struct(key.expr.alias(KEY), value.alias(VALUE)) for key, value in pairs])


def _get(_expr: Call, operands: Operands) -> pl.Expr:
    index = let(operands[1:], lambda i: pl.when(i.is_between(0, MAX_ELEMENTS)).then(i))
    return operands[0].expr.list.get(index, null_on_oob=True)


def _array_extreme(expr: Call, operands: Operands) -> pl.Expr:
    """Compile the smallest or largest element that is not NULL; sorting puts NaN behind all numbers."""
    ordered = pl.element().drop_nulls().sort()
    return operands[0].expr.list.agg(ordered.last() if expr.function == "array_max" else ordered.first())


def _array_sum(expr: Call, operands: Operands) -> pl.Expr:
    """Compile the sum of the elements that are not NULL: NULL if there is none, or if it does not fit."""
    array = operands[0]
    if expr.type == DOUBLE:  # from the first element to the last, so that the result has one value
        return array.expr.list.agg(pl.element().drop_nulls().cum_sum().last())

    def sum_exactly(values: pl.Expr) -> pl.Expr:
        counted = values.list.eval(pl.element().is_not_null()).list.sum()
        return pl.when(counted > 0).then(values.list.eval(pl.element().cast(pl.Int128)).list.sum())

    wide = let([array], sum_exactly)
    return to_digits(wide) if expr.type.kind is Kind.DECIMAL else to_long(wide)


def _unit(expr: Call) -> int:
    return NUMBER_UNITS[expr.function.rpartition("_")[2]]


def _from_unixtime(expr: Call, operands: Operands) -> pl.Expr:
    moment = ComputedOperand(moments.from_number(operands[0], NUMBER_UNITS["seconds"]), TIMESTAMP)
    return moments.format_time(moment, str(_constant(expr, 1, "yyyy-MM-dd HH:mm:ss")), "UTC")


_CALLS: Mapping[str, Callable[[Call, Operands], pl.Expr]] = {
    "lower": lambda _, o: o[0].expr.str.to_lowercase(),
    "upper": lambda _, o: o[0].expr.str.to_uppercase(),
    "trim": lambda _, o: o[0].expr.str.strip_chars(" "),
    "length": lambda _, o: o[0].expr.str.len_chars().cast(pl.Int64),
    "substr": _substr,
    "concat": lambda _, o: pl.concat_str([operand.expr for operand in o], ignore_nulls=False),
    "starts_with": lambda _, o: o[0].expr.str.starts_with(o[1].expr),
    "ends_with": lambda _, o: o[0].expr.str.ends_with(o[1].expr),
    "contains": lambda _, o: o[0].expr.str.contains(o[1].expr, literal=True),
    "replace": _replace,
    "regexp_like": lambda e, o: o[0].expr.str.contains(str(_constant(e, 1))),
    "cidr_match": _cidr,
    "abs": lambda _, o: absolute(o[0]),
    "round": _round,
    "floor": _floor,
    "ceil": _ceil,
    "sqrt": lambda _, o: o[0].to_double().sqrt(),
    "ln": _ln,
    "exp": lambda _, o: o[0].to_double().exp(),
    "power": _power,
    "greatest": _extreme,
    "least": _extreme,
    "coalesce": _coalesce,
    "nullif": _nullif,
    "hour": lambda e, o: _local(e, o) % _DAY_MS // _HOUR_MS,
    "minute": lambda _, o: o[0].expr % _HOUR_MS // _MINUTE_MS,
    "dayofweek": lambda e, o: (_local(e, o) // _DAY_MS + 4) % 7 + 1,
    "weekday": lambda e, o: (_local(e, o) // _DAY_MS + 3) % 7,
    "date_trunc": _date_trunc,
    "regexp_extract": _extract,
    "to_long": lambda _, o: conversions.to_long(o[0]),
    "to_double": lambda _, o: conversions.to_double(o[0]),
    "to_decimal": lambda e, o: conversions.to_decimal(o[0], e.type),
    "to_text": lambda _, o: conversions.to_text(o[0]),
    "to_timestamp": _to_timestamp,
    "to_utc_timestamp": lambda e, o: moments.to_utc(o[0], str(_constant(e, 1))),
    "array": _array,
    "map": _map,
    "cardinality": lambda _, o: o[0].expr.list.len().cast(pl.Int64),
    "get": _get,
    "map_keys": lambda _, o: o[0].expr.list.eval(pl.element().struct.field(KEY)),
    "map_values": lambda _, o: o[0].expr.list.eval(pl.element().struct.field(VALUE)),
    "array_min": _array_extreme,
    "array_max": _array_extreme,
    "array_sum": _array_sum,
    **{name: lambda e, o: moments.part(o[0], e.function) for name in moments.PARTS},
    **{f"timestamp_{name}": lambda e, o: moments.from_number(o[0], _unit(e)) for name in NUMBER_UNITS},
    **{f"unix_{name}": lambda e, o: moments.to_number(o[0], _unit(e)) for name in NUMBER_UNITS},
    "second": lambda _, o: o[0].expr % _MINUTE_MS // 1_000,
    "date_format": lambda e, o: moments.format_time(o[0], str(_constant(e, 1)), str(_constant(e, 2, "UTC"))),
    "from_utc_timestamp": lambda e, o: moments.to_local(o[0], str(_constant(e, 1))),
    "from_unixtime": _from_unixtime,
    "cast": cast,
    "try_cast": cast,
    **TEXT_CALLS,
    **MEASURES,
}
