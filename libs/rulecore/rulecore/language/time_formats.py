"""The formats of ``to_timestamp`` and ``date_format``, which are checked when an expression is parsed.

The symbols are those of Spark (``streamcore.schema.time_patterns``).
"""

from __future__ import annotations

from rulecore.errors import ExpressionTypeError
from streamcore.errors import ConfigError
from streamcore.schema.time_patterns import TimePattern
from streamcore.timestamps import load_zone

ISO = "iso"


def check_format(function: str, text: str, *, reads: bool = True) -> None:
    """Raise ``ExpressionTypeError`` unless the text is a pattern of times. ``reads``: texts are read with it."""
    try:
        if reads:
            TimePattern.parse_input(text)
        else:
            TimePattern.parse(text)
    except ConfigError as error:
        message, _, hint = str(error).partition("; ")
        raise ExpressionTypeError(f"{function}: {message}", hint, 1) from None


def check_zone(name: str) -> None:
    """Raise ``ExpressionTypeError`` if there is no time zone of that name."""
    try:
        load_zone(name)
    except ConfigError as error:
        raise ExpressionTypeError(str(error)) from None
