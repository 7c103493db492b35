"""Evaluates one expression on one row in plain Python.

Values are logical: decimals are ``Decimal``, timestamps are epoch milliseconds. A column that the row lacks is NULL.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from types import MappingProxyType
from typing import Any

from rulecore.language.ast import (
    And,
    Arithmetic,
    Between,
    Call,
    Case,
    ColumnRef,
    Compare,
    Expr,
    HigherOrderCall,
    In,
    InList,
    IntervalLiteral,
    IsNull,
    LambdaParameter,
    Like,
    Literal,
    Lookup,
    MemberOf,
    Negate,
    Not,
    Or,
    SecretRef,
)
from rulecore.language.limits import MAX_TRANSFORMED
from rulecore.language.reference.functions import call
from rulecore.language.reference.values import WIDE, Number, coerce, coerce_number, compare, double, order
from rulecore.language.traversal import repeats_outside
from rulecore.language.types import Value
from streamcore.schema import DOUBLE, STRING, Kind, Type

Row = Mapping[str, object]
#: Lists by name, each a mapping of its entries to their values, which are None in a list without values.
Lists = Mapping[str, Mapping[Value, Value]]

#: Begins the name of a parameter of a lambda in a row; no column has such a name.
_PARAMETER = "->"
_NO_LISTS: Lists = MappingProxyType({})


def evaluate(expr: Expr, row: Row, lists: Lists = _NO_LISTS) -> Any:  # noqa: PLR0912 - one line per node
    """Return the value of ``expr`` for ``row`` (column name to logical value). Raise ``ValueError`` for an aggregate.

    The value of an array is a list, that of a struct or a map a dict. ``lists``: the valid entries and their values, as
    logical values.
    """
    match expr:
        case Literal():
            return expr.value
        case IntervalLiteral():
            return expr.ms
        case ColumnRef():
            return _column(row.get(expr.name), expr.type)
        case And() | Or():
            return _kleene([evaluate(term, row, lists) for term in expr.terms], decisive=isinstance(expr, Or))
        case Not():
            value = evaluate(expr.operand, row, lists)
            return None if value is None else not value
        case IsNull():
            return evaluate(expr.operand, row, lists) is None
        case Compare():
            return compare(
                expr.op, evaluate(expr.left, row, lists), evaluate(expr.right, row, lists), expr.left, expr.right
            )
        case Between():
            operand, low, high = (evaluate(part, row, lists) for part in expr.children)
            lower = compare("<=", low, operand, expr.low, expr.operand)
            return _kleene([lower, compare("<=", operand, high, expr.operand, expr.high)], decisive=False)
        case In():
            operand = evaluate(expr.operand, row, lists)
            return None if operand is None else any(order(operand, v.value) == 0 for v in expr.values)
        case InList():
            operand, listed = evaluate(expr.operand, row, lists), lists.get(expr.list)
            return None if operand is None or listed is None else operand in listed
        case Lookup():
            return _column(lists.get(expr.list, {}).get(evaluate(expr.key, row, lists)), expr.type)
        case Like():
            text = evaluate(expr.operand, row, lists)
            return _like(text, expr.pattern, expr.escape) if isinstance(text, str) else None
        case Case():
            return _case(expr, row, lists)
        case Negate():
            return coerce_number(_negate(evaluate(expr.operand, row, lists)), expr.type)
        case Arithmetic():
            return _arithmetic(expr, evaluate(expr.left, row, lists), evaluate(expr.right, row, lists))
        case MemberOf():
            return _member(evaluate(expr.operand, row, lists), expr.name)
        case LambdaParameter():
            return row[_PARAMETER + expr.name]
        case SecretRef():
            return expr.file
        case HigherOrderCall():
            return _apply(expr, evaluate(expr.array, row, lists), row, lists)
        case Call():
            return call(expr, [evaluate(argument, row, lists) for argument in expr.arguments])
        case _:
            raise ValueError("an aggregate has no value for one row; replace_aggregates first")


def _column(value: Any, kind: Type) -> Any:
    if value is None:
        return None
    match kind.kind:
        case Kind.ARRAY:
            return [_column(item, kind.items) for item in value]
        case Kind.MAP:
            return {key: _column(item, kind.items) for key, item in value.items()}
        case Kind.STRUCT:
            return {name: _column(value.get(name), member) for name, member in kind.members}
    if kind == DOUBLE and isinstance(value, int | float):
        return float(value)
    if kind.kind is Kind.DECIMAL and isinstance(value, int | Decimal):
        return coerce_number(Decimal(value), kind)
    if isinstance(value, bool | int | str):
        return value
    raise ValueError(f"{value!r} is no {kind}")


def _member(value: Any, name: str) -> Any:
    if isinstance(value, list):
        return [_member(item, name) for item in value]
    return None if value is None else value[name]


def _apply(expr: HigherOrderCall, array: list[Any] | None, row: Row, lists: Lists) -> Any:
    if array is None:
        return None
    name = _PARAMETER + expr.parameter
    found = [evaluate(expr.body, {**row, name: item}, lists) for item in array]
    match expr.function:
        case "exists":
            return _kleene(found, decisive=True)
        case "forall":
            return _kleene(found, decisive=False)
        case "filter":
            return [item for item, holds in zip(array, found, strict=True) if holds is True]
    too_large = repeats_outside(expr) and sum(_size(item, expr.body.type) for item in found) > MAX_TRANSFORMED
    return None if too_large else found


def _size(value: Any, kind: Type) -> int:
    """Return the number of values in a value, and the bytes of its texts."""
    match kind.kind:
        case Kind.ARRAY:
            return 1 + sum(_size(item, kind.items) for item in value or ())
        case Kind.MAP:
            return 1 + sum(1 + _size(key, STRING) + _size(item, kind.items) for key, item in (value or {}).items())
        case Kind.STRUCT:
            return 1 + sum(_size(None if value is None else value[name], member) for name, member in kind.members)
        case Kind.STRING:
            return 1 + len((value or "").encode())
    return 1


def _kleene(values: Sequence[Value], *, decisive: bool) -> bool | None:
    """Return the ``and`` (``decisive`` is False) or ``or`` (True) of truth values: NULL only if none is decisive."""
    if any(value is decisive for value in values):
        return decisive
    return None if None in values else not decisive


def _negate(value: Value) -> Number | None:
    if value is None:
        return None
    assert not isinstance(value, str)
    return WIDE.minus(value) if isinstance(value, Decimal) else -value


def _case(expr: Case, row: Row, lists: Lists) -> Any:
    for when in expr.whens:
        if evaluate(when.condition, row, lists) is True:
            return coerce(evaluate(when.result, row, lists), expr.type)
    return None if expr.otherwise is None else coerce(evaluate(expr.otherwise, row, lists), expr.type)


def _arithmetic(expr: Arithmetic, left: Value, right: Value) -> Value:
    if left is None or right is None:
        return None
    assert not isinstance(left, str)
    assert not isinstance(right, str)
    if expr.type == DOUBLE:
        return _double_arithmetic(expr.op, double(left), double(right))
    if isinstance(left, Decimal) or isinstance(right, Decimal):
        result = _decimal_arithmetic(expr.op, Decimal(left), Decimal(right))
        return coerce_number(result, expr.type)
    assert isinstance(left, int)
    assert isinstance(right, int)
    return coerce_number(_long_arithmetic(expr.op, left, right), expr.type)


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
            return WIDE.add(left, right)
        case "-":
            return WIDE.subtract(left, right)
        case "*":
            return WIDE.multiply(left, right)
    return None if right == 0 else WIDE.remainder(left, right)


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
    """Match without backtracking: ``reached[i]`` is whether ``text[:i]`` matches the pattern up to ``position``."""
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
