"""The signature of a function, and the checks of arguments that the tables of functions share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rulecore.errors import ExpressionTypeError
from rulecore.language import types
from rulecore.language.types import Operand
from streamcore.schema import BOOLEAN, LONG, STRING, TIMESTAMP, Kind, Type

Operands = tuple[Operand, ...]
UNBOUNDED = 1_000_000  # arguments; ``ExpressionLimits`` bounds them


@dataclass(frozen=True, slots=True)
class FunctionSignature:
    """The signature of a function.

    ``usage``: an example for error messages. ``min_arguments``, ``max_arguments``: inclusive. ``result``: checks the
    operands and returns the type of the call; it gets the function's name for messages.
    """

    usage: str
    min_arguments: int
    max_arguments: int
    result: Callable[[str, Operands], Type]


def constant(name: str, operands: Operands, index: int, kind: Kind) -> object:
    """Return the value of an operand; raise ``ExpressionTypeError`` unless it is a constant of that kind."""
    operand = operands[index]
    if not operand.constant or operand.type.kind is not kind or operand.value is None:
        raise ExpressionTypeError(f"{name}: argument {index + 1} must be a constant {kind.value}", "", index)
    return operand.value


def constant_text(name: str, operands: Operands, index: int) -> str:
    """Return the text of a constant operand."""
    return str(constant(name, operands, index, Kind.STRING))


def whole_between(name: str, operands: Operands, index: int, low: int, high: int) -> int:
    """Return a constant whole number in these bounds, inclusive; raise ``ExpressionTypeError`` for another operand."""
    value = constant(name, operands, index, Kind.LONG)
    assert isinstance(value, int)
    if not low <= value <= high:
        raise ExpressionTypeError(f"{name}: {value} is not between {low} and {high}", "", index)
    return value


def check_texts(name: str, operands: Operands) -> None:
    """Raise ``ExpressionTypeError`` unless all operands are text."""
    for index, operand in enumerate(operands):
        types.check_text(operand, name, index)


def check_timestamp(name: str, operand: Operand, index: int) -> None:
    """Raise ``ExpressionTypeError`` unless the operand is a timestamp."""
    if operand.type != TIMESTAMP:
        raise ExpressionTypeError(f"{name} takes a timestamp, not {operand.type}", "", index)


def text_to_text(name: str, operands: Operands) -> Type:
    """Return the type of a function of texts that is text."""
    check_texts(name, operands)
    return STRING


def text_to_boolean(name: str, operands: Operands) -> Type:
    """Return the type of a condition on texts."""
    check_texts(name, operands)
    return BOOLEAN


def text_to_long(name: str, operands: Operands) -> Type:
    """Return the type of a number of texts."""
    check_texts(name, operands)
    return LONG
