"""Regular expressions for literals that every parser reads alike and exactly, so that a fast path may accept them.

They accept less than the reference. A text that they do not match is not wrong; the reference decides.
"""

from __future__ import annotations

from dataclasses import dataclass

WHOLE = "(?:0|-?[1-9][0-9]{0,17})"
_EXPONENT = "[eE][+-]?[0-9]{1,2}"
# "-0" is left out: read as a whole number it loses its sign.
REAL = rf"(?:{WHOLE}|-?(?:0|[1-9][0-9]{{0,17}})(?:\.[0-9]{{1,18}}(?:{_EXPONENT})?|{_EXPONENT}))"
EPOCH_MS = "(?:0|[1-9][0-9]{0,13})"
LOCAL = r"(?:19[7-9][0-9]|[2-9][0-9]{3})-[01][0-9]-[0-3][0-9]%s[0-2][0-9]:[0-5][0-9]:[0-5][0-9](?:\.[0-9]{1,9})?"
OFFSET = r"[+-](?:[01][0-9]|2[0-3]):[0-5][0-9]"
#: Significant digits that a double keeps whatever they are.
EXACT_DIGITS = 15


@dataclass(frozen=True, slots=True)
class PlainLiteral:
    """The usual literal of the type: a number for numbers, decimals and timestamps."""


@dataclass(frozen=True, slots=True)
class DecimalText:
    """A decimal as text."""


@dataclass(frozen=True, slots=True)
class TimeText:
    """A timestamp as text: ``T`` or a space in the middle; at the end ``Z``, an offset of six characters or nothing."""

    separator: str
    zone_chars: int


Form = PlainLiteral | DecimalText | TimeText


def decimal(digits: int, scale: int) -> str:
    """Return a decimal of so many digits, ``scale`` of them after the point."""
    whole = f"(?:0|[1-9][0-9]{{0,{digits - scale - 1}}})" if digits > scale else "0"
    return f"-?{whole}" + (rf"(?:\.[0-9]{{1,{scale}}})?" if scale else "")
