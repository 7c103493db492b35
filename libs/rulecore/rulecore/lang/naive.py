"""The naive evaluator: one expression, one row, plain Python. Slow, and obviously right.

It says what the language means; every faster way of running a rule is tested against it and shares no code with it.
Values are logical (``Decimal``, not scaled digits); timestamps are whole milliseconds. A column that the row does not
have is NULL. The one thing that is not plain Python is ``regexp_like``: Python's own engine backtracks, so the Rust
engine of Polars answers here too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import ROUND_HALF_UP, Context, Decimal

import polars as pl

from rulecore.lang.tree import (
    And,
    Arithmetic,
    Between,
    Call,
    Case,
    Column,
    Compare,
    Expr,
    In,
    Interval,
    IsNull,
    Like,
    Literal,
    Negate,
    Not,
    Or,
)
from rulecore.lang.types import Value
from streamcore.schema import DOUBLE, LONG, Kind, Type

Row = Mapping[str, object]
Number = int | float | Decimal

_WIDE = Context(prec=100)
_DAY_MS = 86_400_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def evaluate(expr: Expr, row: Row) -> Value:  # noqa: PLR0912 - one line per node
    """The value of ``expr`` for ``row`` (column name to logical value). ``ValueError`` for an aggregate."""
    match expr:
        case Literal():
            return expr.value
        case Interval():
            return expr.ms
        case Column():
            return _column(row.get(expr.name), expr.type)
        case And() | Or():
            return _kleene([evaluate(term, row) for term in expr.terms], decisive=isinstance(expr, Or))
        case Not():
            value = evaluate(expr.operand, row)
            return None if value is None else not value
        case IsNull():
            return evaluate(expr.operand, row) is None
        case Compare():
            return _compare(expr.op, evaluate(expr.left, row), evaluate(expr.right, row), expr.left, expr.right)
        case Between():
            operand, low, high = (evaluate(part, row) for part in expr.children)
            lower = _compare("<=", low, operand, expr.low, expr.operand)
            return _kleene([lower, _compare("<=", operand, high, expr.operand, expr.high)], decisive=False)
        case In():
            operand = evaluate(expr.operand, row)
            return None if operand is None else any(_order(operand, v.value) == 0 for v in expr.values)
        case Like():
            text = evaluate(expr.operand, row)
            return _like(text, expr.pattern, expr.escape) if isinstance(text, str) else None
        case Case():
            return _case(expr, row)
        case Negate():
            return _fit(_negated(evaluate(expr.operand, row)), expr.type)
        case Arithmetic():
            return _arithmetic(expr, evaluate(expr.left, row), evaluate(expr.right, row))
        case Call():
            return _call(expr, [evaluate(argument, row) for argument in expr.arguments])
        case _:
            raise ValueError("an aggregate has no value for one row; replace_aggregates first")


def _column(value: object, kind: Type) -> Value:
    if value is None:
        return None
    if kind == DOUBLE and isinstance(value, int | float):
        return float(value)
    if kind.kind is Kind.DECIMAL and isinstance(value, int | Decimal):
        return _fit(Decimal(value), kind)
    if isinstance(value, bool | int | str):
        return value
    raise ValueError(f"{value!r} is no {kind}")


def _kleene(values: Sequence[Value], *, decisive: bool) -> bool | None:
    """``and`` is decided by a false, ``or`` by a true; otherwise any NULL makes it NULL."""
    if any(value is decisive for value in values):
        return decisive
    return None if None in values else not decisive


def _order(left: Value, right: Value) -> int:
    """-1, 0 or 1. NaN equals itself and is greater than everything else; text goes by code point."""
    if isinstance(left, float) and math.isnan(left):
        return 0 if isinstance(right, float) and math.isnan(right) else 1
    if isinstance(right, float) and math.isnan(right):
        return -1
    return (left > right) - (left < right)  # type: ignore[operator]


def _compare(op: str, left: Value, right: Value, left_expr: Expr, right_expr: Expr) -> bool | None:
    if op == "<=>" and (left is None or right is None):
        return left is right
    if left is None or right is None:
        return None
    if DOUBLE in (left_expr.type, right_expr.type):
        left, right = _double(left), _double(right)
    order = _order(left, right)
    return {
        "=": order == 0,
        "<=>": order == 0,
        "<>": order != 0,
        "<": order < 0,
        "<=": order <= 0,
        ">": order > 0,
        ">=": order >= 0,
    }[op]


def _double(value: Value) -> float:
    """Of a decimal: its digits as a double, divided by the power of ten."""
    if isinstance(value, Decimal):
        _, _, exponent = value.as_tuple()
        assert isinstance(exponent, int)
        return float(int(value.scaleb(-exponent, _WIDE))) / 10.0**-exponent
    assert isinstance(value, int | float)
    return float(value)


def _fit(value: Number | None, kind: Type) -> Value:
    """The value in that type: a double, an exact decimal of its scale, or NULL where it does not fit."""
    if value is None:
        return None
    if kind == DOUBLE:
        return _double(value)
    if kind.kind is not Kind.DECIMAL:
        assert isinstance(value, int)
        return value if -(2**63) <= value < 2**63 else None
    exact = Decimal(value).quantize(Decimal(1).scaleb(-kind.scale), context=_WIDE)
    return exact if abs(exact.scaleb(kind.scale, _WIDE)) < 10**18 else None


def _negated(value: Value) -> Number | None:
    if value is None:
        return None
    assert not isinstance(value, str)
    return _WIDE.minus(value) if isinstance(value, Decimal) else -value


def _case(expr: Case, row: Row) -> Value:
    for when in expr.whens:
        if evaluate(when.condition, row) is True:
            return _converted(evaluate(when.result, row), expr.type)
    return None if expr.otherwise is None else _converted(evaluate(expr.otherwise, row), expr.type)


def _converted(value: Value, kind: Type) -> Value:
    if isinstance(value, bool | str) or value is None:
        return value
    return _fit(value, kind)


def _arithmetic(expr: Arithmetic, left: Value, right: Value) -> Value:
    if left is None or right is None:
        return None
    assert not isinstance(left, str)
    assert not isinstance(right, str)
    if expr.type == DOUBLE:
        return _double_arithmetic(expr.op, _double(left), _double(right))
    if isinstance(left, Decimal) or isinstance(right, Decimal):
        result = _decimal_arithmetic(expr.op, Decimal(left), Decimal(right))
        return _fit(result, expr.type)
    assert isinstance(left, int)
    assert isinstance(right, int)
    return _fit(_long_arithmetic(expr.op, left, right), expr.type)


def _double_arithmetic(op: str, left: float, right: float) -> float | None:
    match op:
        case "+":
            return left + right
        case "-":
            return left - right
        case "*":
            return left * right
    return None if right == 0 else left / right


def _decimal_arithmetic(op: str, left: Decimal, right: Decimal) -> Decimal | None:
    match op:
        case "+":
            return _WIDE.add(left, right)
        case "-":
            return _WIDE.subtract(left, right)
        case "*":
            return _WIDE.multiply(left, right)
    return None if right == 0 else _WIDE.remainder(left, right)


def _long_arithmetic(op: str, left: int, right: int) -> int | None:
    match op:
        case "+":
            return left + right
        case "-":
            return left - right
        case "*":
            return left * right
    if right == 0:
        return None
    rest = abs(left) % abs(right)
    return -rest if left < 0 else rest


def _like(text: str, pattern: str, escape: str) -> bool:
    """Row by row of the table "does text[:i] match pattern[:j]": time is their product, whatever they are."""
    reached = [True] + [False] * len(text)
    position = 0
    while position < len(pattern):
        character = pattern[position]
        if character == "%" and character != escape:
            reached = [any(reached[: i + 1]) for i in range(len(text) + 1)] if any(reached) else reached
        else:
            wild = character == "_" and character != escape
            position += character == escape
            wanted = pattern[position]
            reached = [False] + [reached[i] and (wild or text[i] == wanted) for i in range(len(text))]
        position += 1
    return reached[-1]


def _call(expr: Call, values: list[Value]) -> Value:
    if expr.function in _WITH_NULLS:
        return _WITH_NULLS[expr.function](expr, values)
    if None in values:
        return None
    return _FUNCTIONS[expr.function](expr, *values)


def _coalesce(expr: Call, values: list[Value]) -> Value:
    return next((v for value in values if (v := _converted(value, expr.type)) is not None), None)


def _nullif(expr: Call, values: list[Value]) -> Value:
    left, right = expr.arguments
    return None if _compare("=", values[0], values[1], left, right) is True else values[0]


def _greatest(expr: Call, values: list[Value], sign: int = 1) -> Value:
    best: Value = None
    for value in values:
        converted = _converted(value, expr.type)
        if converted is not None and (best is None or _order(converted, best) * sign > 0):
            best = converted
    return best


def _substr(_expr: Call, text: str, start: int, length: int | None = None) -> str:
    """From 1; a negative start counts from the end, and may lie before the beginning."""
    first = start - 1 if start > 0 else start + len(text) if start < 0 else 0
    last = len(text) if length is None else first + length
    return text[max(0, first) : max(0, last)]


def _abs(expr: Call, value: Number) -> Value:
    return _fit(value.copy_abs() if isinstance(value, Decimal) else abs(value), expr.type)


def _round(expr: Call, value: Number, places: int = 0) -> Value:
    """Half away from zero. Of a double: of the product with the power of ten, which is itself rounded."""
    if isinstance(value, float):
        scaled = value * 10.0**places
        if not math.isfinite(scaled):
            return value
        whole = math.floor(abs(scaled))
        whole += abs(scaled) - whole >= 0.5
        return math.copysign(float(whole), scaled) / 10.0**places
    if isinstance(value, Decimal):
        rounded = value.quantize(Decimal(1).scaleb(-expr.type.scale), rounding=ROUND_HALF_UP, context=_WIDE)
        return _fit(rounded, expr.type)
    return value


def _whole(value: Number, function: Callable[[Number], int]) -> Value:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return _fit(function(value), LONG)


def _ln(value: float) -> float | None:
    return None if value <= 0 else math.log(value)


def _exp(value: float) -> float:
    try:
        return math.exp(value)
    except OverflowError:
        return math.inf


def _power(base: float, exponent: float) -> float:
    """As C's ``pow``, which never raises: a pole and an overflow are infinite, a negative base may give NaN."""
    odd = math.isfinite(exponent) and exponent % 2 == 1
    negative = math.copysign(1.0, base) < 0 and odd
    try:
        return math.pow(base, exponent)
    except OverflowError:
        return -math.inf if negative else math.inf
    except ValueError:
        return math.nan if base != 0 else -math.inf if negative else math.inf


def _moment(ms: int) -> datetime | None:
    try:
        return _EPOCH + timedelta(milliseconds=ms)
    except OverflowError:
        return None


def _date_trunc(_expr: Call, unit: str, ms: int) -> Value:
    """NULL outside of the years 1 to 9999."""
    moment = _moment(ms)
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
    return (cut - _EPOCH) // timedelta(milliseconds=1)


_WITH_NULLS: Mapping[str, Callable[[Call, list[Value]], Value]] = {
    "coalesce": _coalesce,
    "nullif": _nullif,
    "greatest": _greatest,
    "least": lambda e, values: _greatest(e, values, sign=-1),
}
_FUNCTIONS: Mapping[str, Callable[..., Value]] = {
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
    "regexp_like": lambda _, s, pattern: bool(pl.Series([s]).str.contains(pattern)[0]),
    "abs": _abs,
    "round": _round,
    "floor": lambda _, value: _whole(value, math.floor),
    "ceil": lambda _, value: _whole(value, math.ceil),
    "sqrt": lambda _, value: math.nan if _double(value) < 0 else math.sqrt(_double(value)),
    "ln": lambda _, value: _ln(_double(value)),
    "exp": lambda _, value: _exp(_double(value)),
    "power": lambda _, base, exponent: _power(_double(base), _double(exponent)),
    "hour": lambda _, ms: ms // 3_600_000 % 24,
    "minute": lambda _, ms: ms // 60_000 % 60,
    "dayofweek": lambda _, ms: (ms // _DAY_MS + 4) % 7 + 1,
    "date_trunc": _date_trunc,
}
