"""How a rule writes times as text: the formats of ``to_timestamp``, checked when an expression is written.

``yyyy``, ``MM``, ``dd``, ``HH``, ``mm``, ``ss`` with two digits, ``M``, ``d``, ``H`` with one or two, ``SSS``;
everything else stands for itself.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from rulecore.errors import TypeMismatch
from streamcore.errors import ConfigError
from streamcore.times import zone_of

ISO = "iso"
_LETTERS = re.compile(r"([A-Za-z])\1*|[^A-Za-z]+")


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a time, such as ``month``, and the regular expression of its digits."""

    name: str
    digits: str


@dataclass(frozen=True, slots=True)
class Format:
    """What a text is made of, in order: parts of a time, each at most once, and what stands for itself."""

    pieces: tuple[Part | str, ...]

    @property
    def parts(self) -> tuple[Part, ...]:
        """The parts of a time."""
        return tuple(piece for piece in self.pieces if isinstance(piece, Part))

    @classmethod
    def parse(cls, text: str) -> Format:
        """``TypeMismatch`` for letters that mean nothing, and where year, month or day is missing."""
        pieces, there = list[Part | str](), set[str]()
        for match in _LETTERS.finditer(text):
            run = match[0]
            if match[1] is None:
                pieces.append(run)
                continue
            part = _PARTS.get(run)
            if part is None or part.name in there:
                wrong = "means nothing in a format of times" if part is None else "is there twice"
                raise TypeMismatch(f"to_timestamp: {run} {wrong}", _HINT)
            there.add(part.name)
            pieces.append(part)
        if missing := [name for name in ("year", "month", "day") if name not in there]:
            raise TypeMismatch(f"to_timestamp: the format has no {missing[0]}", _HINT)
        return cls(tuple(pieces))


_PARTS = {
    "yyyy": Part("year", "[0-9]{4}"),
    "MM": Part("month", "[0-9]{2}"),
    "M": Part("month", "[0-9]{1,2}"),
    "dd": Part("day", "[0-9]{2}"),
    "d": Part("day", "[0-9]{1,2}"),
    "HH": Part("hour", "[0-9]{2}"),
    "H": Part("hour", "[0-9]{1,2}"),
    "mm": Part("minute", "[0-9]{2}"),
    "ss": Part("second", "[0-9]{2}"),
    "SSS": Part("fraction", "[0-9]{3}"),
}
_HINT = "accepted here: 'iso', or a format of " + ", ".join(_PARTS)


def check_zone(name: str) -> None:
    """``TypeMismatch`` when there is no such zone."""
    try:
        zone_of(name)
    except ConfigError as error:
        raise TypeMismatch(str(error)) from None
