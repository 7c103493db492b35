"""Patterns of times, with the symbols of Spark and Java: ``MM/dd/yyyy hh:mm:ss a``.

=====================  =============================================================================================
``yyyy``, ``uuuu``     year of four digits; ``yy``: of two, 2000 to 2099
``MM``, ``M``          month of two digits, of one or two; ``MMM``: ``Jan``; ``MMMM``: ``January``
``dd``, ``d``          day of two digits, of one or two
``HH``, ``H``          hour 00 to 23, of two digits, of one or two
``hh``, ``h``          hour 01 to 12, with ``a``: ``AM`` or ``PM``
``mm``, ``m``          minute; ``ss``, ``s``: second
``S`` to ``SSSSSSSSS`` fraction of a second, as many digits as symbols
``Z``                  offset ``+0100``; ``XXX``: ``+01:00`` or ``Z``; ``XX``: ``+0100`` or ``Z``; ``X``: ``+01`` or
                       ``Z``; ``xxx``: ``+01:00``; ``z``: ``UTC`` or ``GMT``
``E``, ``EEE``         day of the week, ``Mon``; ``EEEE``: ``Monday``. It is read, and not compared with the date
``'text'``             the text itself; ``''``: a quote
=====================  =============================================================================================

Names of months and days are English, in any case; ``AM`` and ``PM`` as well. All characters but letters and quotes
stand for themselves, brackets too.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from datetime import datetime, timedelta

from streamcore.errors import ConfigError

MONTHS = ("January", "February", "March", "April", "May", "June", "July", "August", "September", "October",
          "November", "December")  # fmt: skip
DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
MAX_PATTERN_CHARACTERS = 100

_PARTS = re.compile(r"([A-Za-z])\1*|'(?:[^']|'')*'|[^A-Za-z']+")
_TWO, _ONE_OR_TWO = "[0-9]{2}", "[0-9]{1,2}"
_HOURS, _MINUTES = "(?:[01][0-9]|2[0-3])", "[0-5][0-9]"


@dataclass(frozen=True, slots=True)
class TimeField:
    """A field of a time, such as ``month``, its symbol, and the regular expression of its text."""

    name: str
    symbol: str
    text: str


def _names(names: tuple[str, ...]) -> str:
    return f"(?i:{'|'.join(names)})"


_SYMBOLS = {
    field.symbol: field
    for field in (
        TimeField("year", "yyyy", "[0-9]{4}"),
        TimeField("year", "uuuu", "[0-9]{4}"),
        TimeField("year", "yy", _TWO),
        TimeField("month", "MM", _TWO),
        TimeField("month", "M", _ONE_OR_TWO),
        TimeField("month", "MMM", _names(tuple(name[:3] for name in MONTHS))),
        TimeField("month", "MMMM", _names(MONTHS)),
        TimeField("day", "dd", _TWO),
        TimeField("day", "d", _ONE_OR_TWO),
        TimeField("hour", "HH", _TWO),
        TimeField("hour", "H", _ONE_OR_TWO),
        TimeField("hour of half a day", "hh", _TWO),
        TimeField("hour of half a day", "h", _ONE_OR_TWO),
        TimeField("half of the day", "a", "(?i:AM|PM)"),
        TimeField("minute", "mm", _TWO),
        TimeField("minute", "m", _ONE_OR_TWO),
        TimeField("second", "ss", _TWO),
        TimeField("second", "s", _ONE_OR_TWO),
        *(TimeField("fraction", "S" * count, f"[0-9]{{{count}}}") for count in range(1, 10)),
        TimeField("offset", "Z", f"[+-]{_HOURS}{_MINUTES}"),
        TimeField("offset", "XXX", f"(?:Z|[+-]{_HOURS}:{_MINUTES})"),
        TimeField("offset", "XX", f"(?:Z|[+-]{_HOURS}{_MINUTES})"),
        TimeField("offset", "X", f"(?:Z|[+-]{_HOURS}(?:{_MINUTES})?)"),
        TimeField("offset", "xxx", f"[+-]{_HOURS}:{_MINUTES}"),
        TimeField("offset", "z", "(?:UTC|GMT)"),
        TimeField("day of the week", "E", _names(tuple(name[:3] for name in DAYS))),
        TimeField("day of the week", "EEE", _names(tuple(name[:3] for name in DAYS))),
        TimeField("day of the week", "EEEE", _names(DAYS)),
    )
}
HINT = "accepted here: 'iso', or a pattern of " + ", ".join(s for s in _SYMBOLS if not 1 < s.count("S") < 9)


@dataclass(frozen=True, slots=True)
class TimePattern:
    """The elements of a pattern, in order: fields of a time, each at most once, and literal text."""

    elements: tuple[TimeField | str, ...]

    @property
    def fields(self) -> tuple[TimeField, ...]:
        """The fields of a time, in the order of the pattern."""
        return tuple(element for element in self.elements if isinstance(element, TimeField))

    def has(self, name: str) -> bool:
        """Whether the pattern has a field."""
        return any(field.name == name for field in self.fields)

    @classmethod
    @functools.cache
    def parse(cls, text: str) -> TimePattern:
        """Parse a pattern for output; raise ``ConfigError`` for an unknown symbol."""
        if len(text) > MAX_PATTERN_CHARACTERS:
            raise ConfigError(f"the pattern of a time has more than {MAX_PATTERN_CHARACTERS} characters")
        if text.count("'") % 2:
            raise ConfigError(f"the quotes in the pattern {text!r} do not match")
        elements, names = list[TimeField | str](), set[str]()
        for match in _PARTS.finditer(text):
            run = match[0]
            if match[1] is None:
                elements.append("'" if run == "''" else run[1:-1].replace("''", "'") if run[0] == "'" else run)
                continue
            found = _SYMBOLS.get(run)
            if found is None or found.name in names:
                wrong = "is no symbol of a pattern" if found is None else f"is a second symbol for the {found.name}"
                raise ConfigError(f"{run} {wrong}; text stands in quotes, as 'T'; {HINT}")
            names.add(found.name)
            elements.append(found)
        return cls(tuple(elements))

    @classmethod
    @functools.cache
    def parse_input(cls, text: str, *, needs_year: bool = True) -> TimePattern:
        """Parse a pattern of texts that are read; raise ``ConfigError`` if one could be two times, or none."""
        pattern = cls.parse(text)
        needed = ("year", "month", "day") if needs_year else ("month", "day")
        if missing := [name for name in needed if not pattern.has(name)]:
            raise ConfigError(f"the pattern has no {missing[0]}; {HINT}")
        if pattern.has("hour of half a day") is not pattern.has("half of the day") or (
            pattern.has("hour") and pattern.has("half of the day")
        ):
            raise ConfigError("hh (or h) and a (AM or PM) belong together; HH is the hour of the whole day")
        return pattern

    def regex(self, escape: str = r"\{}") -> str:
        """Return the regular expression of a whole text, with a group for each field. It is of Rust and of Python.

        ``escape``: how a character that is neither letter nor digit is written.
        """
        parts = []
        for element in self.elements:
            if isinstance(element, TimeField):
                parts.append(f"({element.text})")
            else:
                plain = (c if c.isalnum() or ord(c) > 127 or c in " _" else escape.format(c) for c in element)
                parts.append("".join(plain))
        return rf"\A{''.join(parts)}"


@functools.cache
def with_year(text: str) -> tuple[TimePattern, bool]:
    """Return the pattern of a field, and whether its texts have a year. If not, the pattern has it in front."""
    if TimePattern.parse(text).has("year"):
        return TimePattern.parse_input(text), True
    TimePattern.parse_input(text, needs_year=False)
    return TimePattern.parse_input(f"yyyy {text}"), False


#: The texts of a time without a year are of the year in which they are not this much later than their record.
AHEAD_OF_RECORD_MS = 86_400_000


def read_local(text: str, pattern: TimePattern) -> tuple[int, int | None] | None:
    """Return the local time in epoch milliseconds and its offset in milliseconds, or None without one, of a text.

    None for a text that does not follow the pattern: this is what the pattern means, for one text.
    """
    match = _compiled(pattern).fullmatch(text)
    if match is None:
        return None
    found = dict(zip(((field.name, field.symbol) for field in pattern.fields), match.groups(), strict=True))
    values = {name: _value(name, symbol, part) for (name, symbol), part in found.items()}
    hour = values.get("hour", 0)
    if "half of the day" in values:
        if not 1 <= (of_half := values["hour of half a day"]) <= 12:
            return None
        hour = of_half % 12 + values["half of the day"]
    try:
        day = datetime(values["year"], values["month"], values["day"])
        moment = day.replace(hour=hour, minute=values.get("minute", 0), second=values.get("second", 0))
    except ValueError:
        return None
    return (moment - _EPOCH) // timedelta(milliseconds=1) + values.get("fraction", 0), values.get("offset")


def _value(name: str, symbol: str, text: str) -> int:
    """Return the number that a text of a field stands for; of an offset, its milliseconds."""
    match name:
        case "year" if symbol == "yy":
            return 2000 + int(text)
        case "month" if not text.isdigit():
            return [month[:3].lower() for month in MONTHS].index(text[:3].lower()) + 1
        case "fraction":
            return int(text[:3].ljust(3, "0"))
        case "half of the day":
            return 12 * (text.lower() == "pm")
        case "day of the week":
            return 0
        case "offset":
            if not text[1:3].isdigit():
                return 0
            ahead = int(text[1:3]) * 3_600_000 + int(text[3:].strip(":") or "0") * 60_000
            return -ahead if text[0] == "-" else ahead
    return int(text)


@functools.cache
def _compiled(pattern: TimePattern) -> re.Pattern[str]:
    return re.compile(pattern.regex(), re.ASCII)


_EPOCH = datetime(1970, 1, 1)
