"""How a rule writes times as text: the formats of ``to_timestamp``, checked when an expression is written.

``yyyy``, ``MM``, ``dd``, ``HH``, ``mm``, ``ss`` with two digits, ``M``, ``d``, ``H`` with one or two, ``SSS``;
everything else stands for itself.
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
    """A part of a time, such as ``month``, and the regular expression of its digits."""

    name: str
    digits: str


@dataclass(frozen=True, slots=True)
class TimeFormat:
    """The elements of a text, in order: parts of a time, each at most once, and literal text."""

    pieces: tuple[TimeField | str, ...]

    @property
    def parts(self) -> tuple[TimeField, ...]:
        """The parts of a time."""
        return tuple(piece for piece in self.pieces if isinstance(piece, TimeField))

    @classmethod
    def parse(cls, text: str) -> TimeFormat:
        """Parse a format; raise ``ExpressionTypeError`` for an unknown symbol, or if year, month or day is missing."""
        pieces, there = list[TimeField | str](), set[str]()
        for match in _LETTERS.finditer(text):
            run = match[0]
            if match[1] is None:
                pieces.append(run)
                continue
            part = _PARTS.get(run)
            if part is None or part.name in there:
                wrong = "means nothing in a format of times" if part is None else "is there twice"
                raise ExpressionTypeError(f"to_timestamp: {run} {wrong}", _HINT)
            there.add(part.name)
            pieces.append(part)
        if missing := [name for name in ("year", "month", "day") if name not in there]:
            raise ExpressionTypeError(f"to_timestamp: the format has no {missing[0]}", _HINT)
        return cls(tuple(pieces))


_PARTS = {
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
_HINT = "accepted here: 'iso', or a format of " + ", ".join(_PARTS)


def check_zone(name: str) -> None:
    """Raise ``ExpressionTypeError`` when there is no such zone."""
    try:
        load_zone(name)
    except ConfigError as error:
        raise ExpressionTypeError(str(error)) from None
