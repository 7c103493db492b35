"""The formats of ``to_timestamp``, which are checked when an expression is parsed.

The symbols are ``yyyy`` (four digits), ``MM``, ``dd``, ``HH``, ``mm`` and ``ss`` (two), ``M``, ``d`` and ``H`` (one or
two) and ``SSS`` (three: milliseconds). Any other symbol from A to Z or a to z is rejected; all other characters stand
for themselves.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from rulecore.errors import ExpressionTypeError
from streamcore.errors import ConfigError
from streamcore.timestamps import load_zone

ISO = "iso"
_LETTERS = re.compile(r"([A-Za-z])\1*|[^A-Za-z]+")


@dataclass(frozen=True, slots=True)
class TimeField:
    """A field of a time, such as ``month``, and the regular expression of its digits."""

    name: str
    digits: str


@dataclass(frozen=True, slots=True)
class TimeFormat:
    """The elements of a format, in order: fields of a time, each at most once, and literal text."""

    elements: tuple[TimeField | str, ...]

    @property
    def fields(self) -> tuple[TimeField, ...]:
        """The fields of a time, in the order of the format."""
        return tuple(element for element in self.elements if isinstance(element, TimeField))

    @classmethod
    def parse(cls, text: str) -> TimeFormat:
        """Parse a format; raise ``ExpressionTypeError`` for an unknown symbol, or if year, month or day is missing."""
        elements, names = list[TimeField | str](), set[str]()
        for match in _LETTERS.finditer(text):
            run = match[0]
            if match[1] is None:
                elements.append(run)
                continue
            found = _SYMBOLS.get(run)
            if found is None or found.name in names:
                wrong = "is no symbol of a format" if found is None else f"is a second symbol for the {found.name}"
                raise ExpressionTypeError(f"to_timestamp: {run} {wrong}", _HINT)
            names.add(found.name)
            elements.append(found)
        if missing := [name for name in ("year", "month", "day") if name not in names]:
            raise ExpressionTypeError(f"to_timestamp: the format has no {missing[0]}", _HINT)
        return cls(tuple(elements))


_SYMBOLS = {
    "yyyy": TimeField("year", "[0-9]{4}"),
    "MM": TimeField("month", "[0-9]{2}"),
    "M": TimeField("month", "[0-9]{1,2}"),
    "dd": TimeField("day", "[0-9]{2}"),
    "d": TimeField("day", "[0-9]{1,2}"),
    "HH": TimeField("hour", "[0-9]{2}"),
    "H": TimeField("hour", "[0-9]{1,2}"),
    "mm": TimeField("minute", "[0-9]{2}"),
    "ss": TimeField("second", "[0-9]{2}"),
    "SSS": TimeField("fraction", "[0-9]{3}"),
}
_HINT = "accepted here: 'iso', or a format of " + ", ".join(_SYMBOLS)


def check_zone(name: str) -> None:
    """Raise ``ExpressionTypeError`` if there is no time zone of that name."""
    try:
        load_zone(name)
    except ConfigError as error:
        raise ExpressionTypeError(str(error)) from None
