"""Regular expressions for literals whose value every parser reads alike and exactly.

The columnar decoders use them to find the values that a parser in columns may read. They match fewer literals than the
reference accepts: it decides on a text that they do not match.
"""

from __future__ import annotations

from dataclasses import dataclass

#: A whole number that fits in an int64.
WHOLE = "(?:0|-?[1-9][0-9]{0,17})"
_EXPONENT = "[eE][+-]?[0-9]{1,2}"
#: A number for a double. "-0" does not match: a parser that reads it as a whole number loses the sign.
REAL = rf"(?:{WHOLE}|-?(?:0|[1-9][0-9]{{0,17}})(?:\.[0-9]{{1,18}}(?:{_EXPONENT})?|{_EXPONENT}))"
#: Milliseconds since 1970 that are not negative.
EPOCH_MS = "(?:0|[1-9][0-9]{0,13})"
#: A date and time from 1970 on without a zone; ``%s`` is replaced by the pattern of the separator.
LOCAL_TIME = r"(?:19[7-9][0-9]|[2-9][0-9]{3})-[01][0-9]-[0-3][0-9]%s[0-2][0-9]:[0-5][0-9]:[0-5][0-9](?:\.[0-9]{1,9})?"
#: An offset from UTC.
UTC_OFFSET = r"[+-](?:[01][0-9]|2[0-3]):[0-5][0-9]"


@dataclass(frozen=True, slots=True)
class TimeText:
    """A timestamp in ISO 8601: a date, the separator (``T`` or a space), a time and a zone.

    ``zone_chars``: the length of the zone: 1 for ``Z``, 6 for ``+HH:MM``, 0 for none.
    """

    separator: str
    zone_chars: int


def decimal_pattern(digits: int, scale: int) -> str:
    """Return the pattern of a decimal of at most ``digits`` digits, at most ``scale`` of them after the point."""
    integer_part = f"(?:0|[1-9][0-9]{{0,{digits - scale - 1}}})" if digits > scale else "0"
    return f"-?{integer_part}" + (rf"(?:\.[0-9]{{1,{scale}}})?" if scale else "")
