"""The functions of the language: names, arguments and result types.

The parser rejects a call of any other function. A new function needs an entry here and in each of the two evaluators
(``columnar.functions``, ``reference.functions``). Aggregates are not in the table ``FUNCTIONS``.
"""

from __future__ import annotations

from collections.abc import Mapping

from rulecore.errors import ExpressionTypeError
from rulecore.language import types
from rulecore.language.cidr import read_network
from rulecore.language.patterns import check_regex, count_capture_groups, like_tokens
from rulecore.language.signatures import (
    UNBOUNDED,
    FunctionSignature,
    Operands,
    constant,
    text_to_boolean,
    text_to_long,
    text_to_text,
)
from rulecore.language.text_signatures import TEXT_FUNCTIONS
from rulecore.language.time_signatures import TIME_FUNCTIONS, TRUNC_UNITS
from rulecore.language.types import Operand
from streamcore.schema import (
    BOOLEAN,
    DOUBLE,
    LONG,
    MAX_DECIMAL_DIGITS,
    STRING,
    Kind,
    Type,
    array_of,
    map_of,
)

__all__ = [
    "AGGREGATES",
    "ALIASES",
    "DECAYED_AGGREGATES",
    "FEATURE_AGGREGATES",
    "FUNCTIONS",
    "HIGHER_ORDER",
    "OF_ARRAYS",
    "SESSION_AGGREGATES",
    "TRUNC_UNITS",
    "FunctionSignature",
    "call_type",
    "like_tokens",
]

AGGREGATES = ("avg", "count", "count_distinct", "max", "min", "stddev", "sum")
#: Aggregates of sessions, which are accepted where ``Scope.more_aggregates`` names them.
SESSION_AGGREGATES = ("approx_count_distinct", "first", "last")
#: Aggregates of features, accepted likewise.
FEATURE_AGGREGATES = ("first", "last", "seen", "time_decayed_count", "time_decayed_sum", "time_since_last")
#: Those of them whose last argument is the time after which an event counts half.
DECAYED_AGGREGATES = frozenset({"time_decayed_count", "time_decayed_sum"})
MAX_ROUND_DOUBLE = 15
_MAX_POSITION = 1_000_000  # in a text


def call_type(name: str, operands: Operands) -> Type:
    """Return the type of a call; raise ``ExpressionTypeError``, with the index of the argument, if it is wrong."""
    function = FUNCTIONS.get(name)
    if function is None:
        raise ExpressionTypeError(f"unknown function {name}")
    if not function.min_arguments <= len(operands) <= function.max_arguments:
        raise ExpressionTypeError(f"{name} does not take {len(operands)} arguments", f"accepted here: {function.usage}")
    try:
        return function.result(name, operands)
    except ExpressionTypeError as error:
        raise ExpressionTypeError(error.message, error.hint or _usage(name), error.operand) from None


def _check_number(name: str, operand: Operand, index: int = 0) -> None:
    if not types.is_numeric(operand.type):
        raise ExpressionTypeError(f"{name} takes a number, not {operand.type}", _usage(name), index)


def _usage(name: str) -> str:
    return f"accepted here: {FUNCTIONS[name].usage}"


def _substr(name: str, operands: Operands) -> Type:
    types.check_text(operands[0], name, 0)
    for index in range(1, len(operands)):
        value = constant(name, operands, index, Kind.LONG)
        if not isinstance(value, int) or abs(value) > _MAX_POSITION:
            message = f"{name}: {value} is not between {-_MAX_POSITION} and {_MAX_POSITION}"
            raise ExpressionTypeError(message, _usage(name), index)
    return STRING


def _replace(name: str, operands: Operands) -> Type:
    types.check_text(operands[0], name, 0)
    if constant(name, operands, 1, Kind.STRING) == "":
        raise ExpressionTypeError(f"{name}: the text to look for is empty", _usage(name), 1)
    constant(name, operands, 2, Kind.STRING)
    return STRING


def _regexp(name: str, operands: Operands) -> Type:
    types.check_text(operands[0], name, 0)
    pattern = constant(name, operands, 1, Kind.STRING)
    try:
        check_regex(str(pattern))
    except ExpressionTypeError as error:
        raise ExpressionTypeError(f"{name}: {error.message}", error.hint, 1) from None
    return BOOLEAN


def _extract(name: str, operands: Operands) -> Type:
    _regexp(name, operands[:2])
    group = constant(name, operands, 2, Kind.LONG) if len(operands) > 2 else 1
    groups = count_capture_groups(str(operands[1].value))
    if not isinstance(group, int) or not 0 <= group <= groups:
        message = f"{name}: the pattern has {groups} groups, there is no group {group}"
        hint = "0 is the text of the whole match: regexp_extract(text, 'pattern', 0)" if groups == 0 else _usage(name)
        raise ExpressionTypeError(message, hint, 1)
    return STRING


def _network(name: str, operands: Operands) -> Type:
    types.check_text(operands[0], name, 0)
    read_network(str(constant(name, operands, 1, Kind.STRING)))
    return BOOLEAN


def _same_number(name: str, operands: Operands) -> Type:
    _check_number(name, operands[0])
    return operands[0].type


def _whole(name: str, operands: Operands) -> Type:
    _check_number(name, operands[0])
    return LONG


def _round(name: str, operands: Operands) -> Type:
    _check_number(name, operands[0])
    kind = operands[0].type
    places = constant(name, operands, 1, Kind.LONG) if len(operands) > 1 else 0
    most = MAX_ROUND_DOUBLE if kind == DOUBLE else MAX_DECIMAL_DIGITS
    if not isinstance(places, int) or not 0 <= places <= most:
        raise ExpressionTypeError(f"{name}: between 0 and {most} places, not {places}", _usage(name), 1)
    if kind.kind is not Kind.DECIMAL or places >= kind.scale:
        return kind
    return types.decimal(kind.precision - kind.scale + places + 1, places)


def _doubles(name: str, operands: Operands) -> Type:
    for index, operand in enumerate(operands):
        _check_number(name, operand, index)
    return DOUBLE


def _extreme(name: str, operands: Operands) -> Type:
    kind = types.unify(operands, name)
    if kind == BOOLEAN:
        raise ExpressionTypeError(f"{name} does not take boolean", _usage(name), 0)
    return kind


def _coalesce(name: str, operands: Operands) -> Type:
    return types.unify(operands, name)


def _nullif(_name: str, operands: Operands) -> Type:
    types.check_comparable(operands[0], operands[1])
    return operands[0].type


def _to_long(name: str, operands: Operands) -> Type:
    _check_convertible(name, operands[0])
    return LONG


def _to_double(name: str, operands: Operands) -> Type:
    _check_convertible(name, operands[0])
    return DOUBLE


def _to_decimal(name: str, operands: Operands) -> Type:
    _check_convertible(name, operands[0])
    precision, scale = (constant(name, operands, index, Kind.LONG) for index in (1, 2))
    assert isinstance(precision, int)
    assert isinstance(scale, int)
    if not 1 <= precision <= MAX_DECIMAL_DIGITS or not 0 <= scale <= precision:
        wrong = f"{name}: at most {MAX_DECIMAL_DIGITS} digits, and no more places than digits"
        raise ExpressionTypeError(wrong, _usage(name), 1)
    return types.decimal(precision, scale)


def _check_convertible(name: str, operand: Operand) -> None:
    if operand.type != STRING and not types.is_numeric(operand.type):
        raise ExpressionTypeError(f"{name} takes text or a number, not {operand.type}", _usage(name), 0)


def _to_text(name: str, operands: Operands) -> Type:
    if operands[0].type == DOUBLE:
        raise ExpressionTypeError(f"{name}: a double has no exact text", "make it a decimal: to_decimal(x, 12, 2)", 0)
    return STRING


def _array(name: str, operands: Operands) -> Type:
    return array_of(types.unify(operands, name))


def _map(name: str, operands: Operands) -> Type:
    if len(operands) % 2:
        raise ExpressionTypeError(f"{name}: each key needs a value", _usage(name))
    keys = [constant(name, operands, index, Kind.STRING) for index in range(0, len(operands), 2)]
    if len({*keys}) < len(keys):
        raise ExpressionTypeError(f"{name}: a key is there twice", _usage(name))
    return map_of(types.unify(operands[1::2], name))


def _cardinality(name: str, operands: Operands) -> Type:
    if operands[0].type.kind is not Kind.MAP:
        types.elements(operands[0].type, name)
    return LONG


def _array_contains(name: str, operands: Operands) -> Type:
    types.check_comparable(Operand(types.elements(operands[0].type, name)), operands[1])
    return BOOLEAN


def _arrays_overlap(name: str, operands: Operands) -> Type:
    left, right = (types.elements(operand.type, name, index) for index, operand in enumerate(operands))
    types.check_comparable(Operand(left), Operand(right))
    return BOOLEAN


def _element_at(name: str, operands: Operands) -> Type:
    kind, key = operands[0].type, operands[1]
    if kind.kind is Kind.MAP:
        types.check_text(key, name, 1)
        return kind.items
    return _get(name, operands, first=1)


def _get(name: str, operands: Operands, first: int = 0) -> Type:
    element = types.elements(operands[0].type, name)
    if operands[1].type != LONG:
        raise ExpressionTypeError(f"{name} takes a whole number, not {operands[1].type}", _usage(name), 1)
    if first and operands[1].constant and operands[1].value == 0:
        raise ExpressionTypeError(f"{name}: the first element is number 1, the last one -1", _usage(name), 1)
    return element


def _map_part(name: str, operands: Operands) -> Type:
    kind = operands[0].type
    if kind.kind is not Kind.MAP:
        raise ExpressionTypeError(f"{name} takes a map, not {kind}", _usage(name), 0)
    return array_of(kind.items if name == "map_values" else STRING)


def _map_contains_key(name: str, operands: Operands) -> Type:
    _map_part(name, operands)
    types.check_text(operands[1], name, 1)
    return BOOLEAN


def _array_extreme(name: str, operands: Operands) -> Type:
    element = types.elements(operands[0].type, name)
    if element.is_nested:
        raise ExpressionTypeError(f"{name} takes an array of values, not {operands[0].type}", _usage(name), 0)
    return element


def _array_sum(name: str, operands: Operands) -> Type:
    element = types.elements(operands[0].type, name)
    if not types.is_numeric(element):
        raise ExpressionTypeError(f"{name} takes an array of numbers, not {operands[0].type}", _usage(name), 0)
    return Type(Kind.DECIMAL, MAX_DECIMAL_DIGITS, element.scale) if element.kind is Kind.DECIMAL else element


#: The functions by name.
FUNCTIONS: Mapping[str, FunctionSignature] = {
    "lower": FunctionSignature("lower(text)", 1, 1, text_to_text),
    "upper": FunctionSignature("upper(text)", 1, 1, text_to_text),
    "trim": FunctionSignature("trim(text)", 1, 1, text_to_text),
    "length": FunctionSignature("length(text)", 1, 1, text_to_long),
    "substr": FunctionSignature("substr(text, start) or substr(text, start, length), start from 1", 2, 3, _substr),
    "concat": FunctionSignature("concat(text, text, ...)", 2, UNBOUNDED, text_to_text),
    "starts_with": FunctionSignature("starts_with(text, start)", 2, 2, text_to_boolean),
    "ends_with": FunctionSignature("ends_with(text, end)", 2, 2, text_to_boolean),
    "contains": FunctionSignature("contains(text, part)", 2, 2, text_to_boolean),
    "replace": FunctionSignature("replace(text, 'old', 'new')", 3, 3, _replace),
    "regexp_like": FunctionSignature("regexp_like(text, 'pattern')", 2, 2, _regexp),
    "cidr_match": FunctionSignature("cidr_match(ip, '10.0.0.0/8')", 2, 2, _network),
    "abs": FunctionSignature("abs(number)", 1, 1, _same_number),
    "round": FunctionSignature("round(number) or round(number, places)", 1, 2, _round),
    "floor": FunctionSignature("floor(number)", 1, 1, _whole),
    "ceil": FunctionSignature("ceil(number)", 1, 1, _whole),
    "sqrt": FunctionSignature("sqrt(number)", 1, 1, _doubles),
    "ln": FunctionSignature("ln(number)", 1, 1, _doubles),
    "exp": FunctionSignature("exp(number)", 1, 1, _doubles),
    "power": FunctionSignature("power(number, number)", 2, 2, _doubles),
    "greatest": FunctionSignature("greatest(a, b, ...)", 2, UNBOUNDED, _extreme),
    "least": FunctionSignature("least(a, b, ...)", 2, UNBOUNDED, _extreme),
    "coalesce": FunctionSignature("coalesce(a, b, ...)", 2, UNBOUNDED, _coalesce),
    "nullif": FunctionSignature("nullif(a, b)", 2, 2, _nullif),
    "regexp_extract": FunctionSignature("regexp_extract(text, 'pattern') or with a group's number", 2, 3, _extract),
    "to_long": FunctionSignature("to_long(text or number)", 1, 1, _to_long),
    "to_double": FunctionSignature("to_double(text or number)", 1, 1, _to_double),
    "to_decimal": FunctionSignature("to_decimal(text or number, digits, places)", 3, 3, _to_decimal),
    "to_text": FunctionSignature("to_text(number, boolean or timestamp)", 1, 1, _to_text),
    "array": FunctionSignature("array(a, b, ...)", 1, UNBOUNDED, _array),
    "map": FunctionSignature("map('key', value, 'key', value, ...)", 2, UNBOUNDED, _map),
    "cardinality": FunctionSignature("cardinality(array or map)", 1, 1, _cardinality),
    "array_contains": FunctionSignature("array_contains(array, value)", 2, 2, _array_contains),
    "arrays_overlap": FunctionSignature("arrays_overlap(array, array)", 2, 2, _arrays_overlap),
    "element_at": FunctionSignature("element_at(array, number from 1) or element_at(map, key)", 2, 2, _element_at),
    "get": FunctionSignature("get(array, number from 0), or array[number]", 2, 2, _get),
    "map_keys": FunctionSignature("map_keys(map)", 1, 1, _map_part),
    "map_values": FunctionSignature("map_values(map)", 1, 1, _map_part),
    "map_contains_key": FunctionSignature("map_contains_key(map, key)", 2, 2, _map_contains_key),
    "array_min": FunctionSignature("array_min(array)", 1, 1, _array_extreme),
    "array_max": FunctionSignature("array_max(array)", 1, 1, _array_extreme),
    "array_sum": FunctionSignature("array_sum(array)", 1, 1, _array_sum),
    **TIME_FUNCTIONS,
    **TEXT_FUNCTIONS,
}

#: Functions of an array and a lambda. ``ast.HigherOrderCall`` is their node.
HIGHER_ORDER = ("exists", "forall", "filter", "transform")
#: Functions that mean another one if their argument is an array, where no aggregate is accepted.
OF_ARRAYS: Mapping[str, str] = {
    "contains": "array_contains",
    "max": "array_max",
    "min": "array_min",
    "sum": "array_sum",
}

#: Other names of functions, which Spark accepts too; `previous` is that of `last` in a feature.
ALIASES: Mapping[str, str] = {
    "all": "forall",
    "any": "exists",
    "ceiling": "ceil",
    "char_length": "length",
    "endswith": "ends_with",
    "ifnull": "coalesce",
    "lcase": "lower",
    "nvl": "coalesce",
    "pow": "power",
    "previous": "last",
    "regexp": "regexp_like",
    "rlike": "regexp_like",
    "size": "cardinality",
    "startswith": "starts_with",
    "stddev_samp": "stddev",
    "substring": "substr",
    "ucase": "upper",
    "dayofmonth": "day",
    "json_value": "get_json_object",
    "sha": "sha1",
    "unix_timestamp": "unix_seconds",
}
