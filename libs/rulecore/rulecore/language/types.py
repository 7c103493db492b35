"""The typing rules of the expression language: which types go together, and the type of the result.

Pure functions over ``streamcore.schema.Type``. Implicit conversion goes one way only, long -> decimal -> double;
text is never converted. A decimal has at most 18 digits: a value that needs more is NULL, and an expression whose
*scale* needs more is rejected. The functions raise ``ExpressionTypeError``; the type checker adds the position.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Context, Decimal

from rulecore.errors import ExpressionTypeError
from streamcore.schema import BOOLEAN, DOUBLE, LONG, MAX_DECIMAL_DIGITS, STRING, TIMESTAMP, Kind, Type, array_of

Value = bool | int | float | Decimal | str | None

LONG_DIGITS = 19
_WIDE = Context(prec=100)
MAX_LONG = 2**63 - 1
MIN_LONG = -(2**63)

ACCEPTED: dict[Kind, str] = {
    Kind.BOOLEAN: "true, false or a condition",
    Kind.LONG: "a number, such as 100 or 10.5",
    Kind.DECIMAL: "a number, such as 100 or 10.5",
    Kind.DOUBLE: "a number, such as 100 or 10.5",
    Kind.STRING: "text in quotes, such as 'abc', or a string column",
    Kind.TIMESTAMP: "a timestamp, such as timestamp '2011-01-31 12:00:00'",
    Kind.ARRAY: "an array",
    Kind.STRUCT: "a struct",
    Kind.MAP: "a map",
}


@dataclass(frozen=True, slots=True)
class Operand:
    """The properties of a sub-expression that typing needs.

    ``value``: of a constant. ``secret``: a key, whose value no expression contains.
    """

    type: Type
    constant: bool = False
    value: Value = None
    interval: bool = False
    secret: bool = False


def decimal(precision: int, scale: int) -> Type:
    """Return the decimal type, its precision cut to 18; raise ``ExpressionTypeError`` for a scale above 18."""
    if scale > MAX_DECIMAL_DIGITS:
        raise ExpressionTypeError(
            f"the exact result needs {scale} digits after the point, at most {MAX_DECIMAL_DIGITS} can be kept",
            "round(...) an operand first",
        )
    return Type(Kind.DECIMAL, max(1, min(MAX_DECIMAL_DIGITS, precision), scale), scale)


def is_numeric(kind: Type) -> bool:
    """Return whether the type is long, decimal or double."""
    return kind.kind in (Kind.LONG, Kind.DECIMAL, Kind.DOUBLE)


def digits(operand: Operand) -> tuple[int, int]:
    """Return (precision, scale) of a long or decimal. The precision of a constant long is the number of its digits."""
    if operand.type.kind is Kind.DECIMAL:
        return operand.type.precision, operand.type.scale
    if operand.constant and isinstance(operand.value, int):
        return len(str(abs(operand.value))), 0
    return LONG_DIGITS, 0


def negate(operand: Operand) -> Type:
    """Return the type of ``-x``."""
    if not is_numeric(operand.type):
        raise ExpressionTypeError(f"- takes a number, not {operand.type}", _accepted_hint(Kind.LONG), 0)
    return operand.type


def arithmetic(op: str, left: Operand, right: Operand) -> Type:
    """Return the type of ``left op right`` for + - * / %."""
    if Kind.TIMESTAMP in (left.type.kind, right.type.kind):
        return _time_arithmetic(op, left, right)
    for index, operand in enumerate((left, right)):
        if not is_numeric(operand.type):
            raise ExpressionTypeError(f"{op} takes numbers, not {operand.type}", _accepted_hint(Kind.LONG), index)
    if op == "/":
        return DOUBLE
    if DOUBLE in (left.type, right.type):
        if op == "%":
            raise ExpressionTypeError(
                "% takes long and decimal, not double",
                "accepted here: a long or decimal",
                0 if left.type == DOUBLE else 1,
            )
        return DOUBLE
    if left.type == LONG and right.type == LONG:
        return LONG
    return _decimal_arithmetic(op, digits(left), digits(right))


def _decimal_arithmetic(op: str, left: tuple[int, int], right: tuple[int, int]) -> Type:
    (p1, s1), (p2, s2) = left, right
    if op == "*":
        return decimal(p1 + p2, s1 + s2)
    scale = max(s1, s2)
    if op == "%":
        return decimal(min(p1 - s1, p2 - s2) + scale, scale)
    return decimal(max(p1 - s1, p2 - s2) + scale + 1, scale)


def _time_arithmetic(op: str, left: Operand, right: Operand) -> Type:
    if op == "-" and left.type == right.type == TIMESTAMP:
        return LONG
    if left.type == TIMESTAMP and right.interval and op in "+-":
        return TIMESTAMP
    if right.type == TIMESTAMP and left.interval and op == "+":
        return TIMESTAMP
    other = 1 if left.type == TIMESTAMP else 0
    other_type = (left, right)[other].type
    accepted = "an interval, such as interval 5 minutes"
    if op == "-" and other == 1:
        accepted += ", or a timestamp"
    if op not in "+-" or (op == "-" and other == 0):
        raise ExpressionTypeError(f"{op} does not take a timestamp", _accepted_hint(Kind.LONG), 1 - other)
    if other_type == TIMESTAMP:
        raise ExpressionTypeError("two timestamps cannot be added", f"accepted here: {accepted}", 1)
    raise ExpressionTypeError(
        f"{other_type} cannot be added to or taken from a timestamp", f"accepted here: {accepted}", other
    )


def comparison(op: str, left: Operand, right: Operand) -> Type:
    """Return the type of ``left op right`` for = <> < <= > >= <=>."""
    check_comparable(left, right)
    if left.type == BOOLEAN and op not in ("=", "<>", "<=>"):
        raise ExpressionTypeError(f"{op} does not take boolean", "accepted here: =, <> or <=>")
    return BOOLEAN


def check_comparable(left: Operand, right: Operand) -> None:
    """Reject two types whose values cannot be compared with each other."""
    for index, operand in enumerate((left, right)):
        if operand.type.is_nested:
            raise ExpressionTypeError(f"{operand.type} cannot be compared", _NESTED_HINT[operand.type.kind], index)
    if is_numeric(left.type) and is_numeric(right.type):
        return
    if left.type.kind is right.type.kind:
        return
    blame = 0 if left.constant and not right.constant else 1
    kept = (left, right)[1 - blame].type
    other = (left, right)[blame].type
    raise ExpressionTypeError(f"{kept} cannot be compared with {other}", _accepted_hint(kept.kind), blame)


_NESTED_HINT = {
    Kind.ARRAY: "compare an element or a count: items[0], cardinality(items), exists(items, x -> x = 1)",
    Kind.STRUCT: "compare a member: customer.id",
    Kind.MAP: "compare a value: labels['env']",
}


def member(kind: Type, name: str) -> tuple[str, Type]:
    """Return the declared name and the type of ``x.name``, of a struct or of an array of structs."""
    struct = kind.items if kind.kind is Kind.ARRAY else kind
    if struct.kind is Kind.MAP:
        raise ExpressionTypeError(f"{struct} has no members", f"a value of a map: x['{name}']")
    if struct.kind is not Kind.STRUCT:
        raise ExpressionTypeError(f".{name} takes a struct, not {kind}")
    found = struct.member(name)
    if found is None:
        names = ", ".join(one for one, _ in struct.members[:20])
        raise ExpressionTypeError(f"the struct has no member {name}", f"accepted here: {names}")
    return found[0], array_of(found[1]) if kind.kind is Kind.ARRAY else found[1]


def elements(kind: Type, what: str, index: int | None = 0) -> Type:
    """Return the type of an array's elements; reject another type. ``what`` names the construct in the message."""
    if kind.kind is not Kind.ARRAY:
        hint = "of a map, use map_keys(x) or map_values(x)" if kind.kind is Kind.MAP else ""
        raise ExpressionTypeError(f"{what} takes an array, not {kind}", hint, index)
    return kind.items


def higher_order(function: str, array: Type, body: Type) -> Type:
    """Return the type of ``function(array, x -> body)``."""
    elements(array, function)
    if function == "transform":
        return array_of(body)
    if body != BOOLEAN:
        message = f"{function} takes a condition on an element, not {body}"
        raise ExpressionTypeError(message, f"accepted here: {function}(items, x -> x > 100)", 1)
    return array if function == "filter" else BOOLEAN


def unify(operands: Sequence[Operand], what: str) -> Type:
    """Return the type that all operands convert to; ``what`` names the construct in the message."""
    first = operands[0]
    if any(operand.type.is_nested for operand in operands):
        other = next((i for i, operand in enumerate(operands) if operand.type != first.type), None)
        if other is not None:
            raise ExpressionTypeError(
                f"{what} of {first.type} and {operands[other].type}: one type is needed", "", other
            )
        return first.type
    for index, operand in enumerate(operands[1:], 1):
        numbers = is_numeric(first.type) and is_numeric(operand.type)
        if not numbers and operand.type.kind is not first.type.kind:
            raise ExpressionTypeError(
                f"{what} of {first.type} and {operand.type}: one type is needed", _accepted_hint(first.type.kind), index
            )
    types = {operand.type for operand in operands}
    if len(types) == 1:
        return first.type
    if DOUBLE in types:
        return DOUBLE
    pairs = [digits(operand) for operand in operands]
    scale = max(s for _, s in pairs)
    return decimal(max(p - s for p, s in pairs) + scale, scale)


#: The types of list entries. Doubles are not among them, since they are not exact.
LIST_ENTRY_KINDS = (Kind.STRING, Kind.LONG, Kind.DECIMAL, Kind.TIMESTAMP)


def check_list_member(operand: Operand, name: str, of: Type) -> None:
    """Reject a value that no entry of the list can equal, such as text for numbers, and inexact doubles."""
    exact = (Kind.LONG, Kind.DECIMAL)
    if operand.type.kind is of.kind or (operand.type.kind in exact and of.kind in exact):
        return
    hint = f"accepted here: {ACCEPTED[of.kind]}"
    if operand.type == DOUBLE and of.kind in exact:
        hint = "a double is not exact: accepted here is a long or a decimal"
    raise ExpressionTypeError(f"the list {name} holds {of}, this is {operand.type}", hint, 0)


def check_condition(operand: Operand, what: str, index: int | None = None) -> None:
    """Reject anything but boolean."""
    if operand.type != BOOLEAN:
        raise ExpressionTypeError(f"{what} takes a condition, not {operand.type}", _accepted_hint(Kind.BOOLEAN), index)


def check_text(operand: Operand, what: str, index: int | None = None) -> None:
    """Reject anything but string."""
    if operand.type != STRING:
        raise ExpressionTypeError(f"{what} takes string, not {operand.type}", _accepted_hint(Kind.STRING), index)


def aggregate(function: str, argument: Operand | None) -> Type:
    """Return the type of an aggregate; ``argument`` is None for ``count(*)``."""
    if function == "time_decayed_count":
        return DOUBLE
    if argument is None or function == "count":  # or `time_since_last()`, in milliseconds
        return LONG
    kind = argument.type
    if kind.is_nested:
        hint = f"of all elements together: {function}(array_sum(x))" if kind.kind is Kind.ARRAY else ""
        raise ExpressionTypeError(f"{function} takes no {kind.kind}", hint, 0)
    if function in ("count_distinct", "approx_count_distinct"):
        return LONG
    if function == "seen":
        return BOOLEAN
    if function in ("first", "last"):
        return kind
    if function in ("min", "max") and kind == TIMESTAMP:
        return TIMESTAMP
    if not is_numeric(kind):
        more = " or a timestamp" if function in ("min", "max") else ""
        raise ExpressionTypeError(f"{function} takes a number{more}, not {kind}", _accepted_hint(Kind.LONG), 0)
    if function in ("avg", "stddev", "time_decayed_sum"):
        return DOUBLE
    if function == "sum" and kind.kind is Kind.DECIMAL:
        return Type(Kind.DECIMAL, MAX_DECIMAL_DIGITS, kind.scale)
    return kind


def literal(value: Value, default: Type) -> Type:
    """Return the type of a constant; ``default`` for NULL, and for a whole number if ``default`` is timestamp."""
    match value:
        case bool():
            return BOOLEAN
        case Decimal():
            return _decimal_literal(value)
        case float():
            return DOUBLE
        case str():
            return STRING
        case int():
            return TIMESTAMP if default == TIMESTAMP else LONG
    return default


def is_number(value: Value) -> bool:
    """Return whether a value is a long, decimal or double. Booleans are not, although they are ``int``."""
    return isinstance(value, int | float | Decimal) and not isinstance(value, bool)


def rescale(value: Decimal, scale: int) -> Decimal | None:
    """Return the number with exactly ``scale`` fraction digits; None if it has more, or needs more than 18 digits."""
    scaled = value.scaleb(scale, _WIDE)
    if scaled != scaled.to_integral_value() or abs(scaled) >= 10**MAX_DECIMAL_DIGITS:
        return None
    return Decimal(int(scaled)).scaleb(-scale, _WIDE)


def as_double(value: int | float | Decimal) -> float:
    """Return a number as a double. For a decimal: its digits as a double, divided by ten to its scale."""
    if not isinstance(value, Decimal):
        return float(value)
    exponent = value.as_tuple().exponent
    scale = -exponent if isinstance(exponent, int) else 0
    return float(int(value.scaleb(scale, _WIDE))) / 10.0**scale


def _decimal_literal(value: Decimal) -> Type:
    parts = value.as_tuple()
    if not isinstance(parts.exponent, int) or parts.exponent > 0:
        raise ExpressionTypeError(f"{value} is no plain decimal number")
    scale = -parts.exponent
    if max(len(parts.digits), scale) > MAX_DECIMAL_DIGITS:
        raise ExpressionTypeError(f"a decimal has at most {MAX_DECIMAL_DIGITS} digits", "1.5e0 is a double")
    return decimal(max(len(parts.digits), scale), scale)


def _accepted_hint(kind: Kind) -> str:
    return f"accepted here: {ACCEPTED[kind]}"
