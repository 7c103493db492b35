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
                       ``Z``; ``xxx``: ``+01:00``
``VV``                 zone by its IANA name, ``Europe/Berlin``, or as an offset, ``Z`` or ``+01:00``
``z``, ``zz``, ``zzz`` zone by an abbreviation of ``ABBREVIATIONS``, ``CEST``, or by its IANA name
``E``, ``EEE``         day of the week, ``Mon``; ``EEEE``: ``Monday``. It is read, and not compared with the date
``[ ]``                what is inside may be missing: ``HH:mm[:ss[.SSS]]``. It is always written
``'text'``             the text itself; ``''``: a quote
=====================  =============================================================================================

Names of months and days are English, in any case; ``AM`` and ``PM`` as well. All characters but letters, quotes and
square brackets stand for themselves.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from streamcore.errors import ConfigError
from streamcore.timestamps import is_zone

MONTHS = ("January", "February", "March", "April", "May", "June", "July", "August", "September", "October",
          "November", "December")  # fmt: skip
DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
MAX_PATTERN_CHARACTERS = 100

#: The offsets of abbreviations, in minutes, as PostgreSQL has them: of those with several meanings the American one.
ABBREVIATIONS: Mapping[str, int] = {
    "UTC": 0, "GMT": 0, "WET": 0, "WEST": 60, "BST": 60, "CET": 60, "CEST": 120, "EET": 120, "EEST": 180, "MSK": 180,
    "EST": -300, "EDT": -240, "CST": -360, "CDT": -300, "MST": -420, "MDT": -360, "PST": -480, "PDT": -420,
    "AKST": -540, "AKDT": -480, "HST": -600, "JST": 540, "KST": 540, "AEST": 600, "AEDT": 660, "NZST": 720,
    "NZDT": 780,
}  # fmt: skip
_PARTS = re.compile(r"([A-Za-z])\1*|'(?:[^']|'')*'|[\[\]]|[^A-Za-z'\[\]]+")
_ZONE_NAME = "[A-Za-z][A-Za-z0-9_+/-]{0,49}"
_TWO, _ONE_OR_TWO = "[0-9]{2}", "[0-9]{1,2}"
_HOURS, _MINUTES = "(?:[01][0-9]|2[0-3])", "[0-5][0-9]"


@dataclass(frozen=True, slots=True)
class TimeField:
    """A field of a time, such as ``month``, its symbol, and the regular expression of its text."""

    name: str
    symbol: str
    text: str


def _names(names: tuple[str, ...]) -> str:
    # Spelled out: with (?i) some engines take the long s for an s, and the Kelvin sign for a k.
    return f"(?:{'|'.join(''.join(f'[{c.upper()}{c.lower()}]' for c in name) for name in names)})"


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
        TimeField("zone", "VV", f"(?:{_ZONE_NAME}|[+-]{_HOURS}:{_MINUTES})"),
        *(TimeField("zone", "z" * count, _ZONE_NAME) for count in (1, 2, 3)),
        TimeField("day of the week", "E", _names(tuple(name[:3] for name in DAYS))),
        TimeField("day of the week", "EEE", _names(tuple(name[:3] for name in DAYS))),
        TimeField("day of the week", "EEEE", _names(DAYS)),
    )
}
HINT = "accepted here: 'iso', or a pattern of " + ", ".join(s for s in _SYMBOLS if not 1 < s.count("S") < 9)


@dataclass(frozen=True, slots=True)
class OptionalPart:
    """A part of a pattern that a text may lack."""

    elements: tuple[Element, ...]


Element = TimeField | str | OptionalPart


@dataclass(frozen=True, slots=True)
class TimePattern:
    """The elements of a pattern, in order: fields of a time, literal text and optional parts.

    A field is there once, or in several optional parts, of which a text has one.
    """

    elements: tuple[Element, ...]

    @property
    def fields(self) -> tuple[TimeField, ...]:
        """The fields of a time, in the order of the pattern."""
        return tuple(one for one in self.written if isinstance(one, TimeField))

    @property
    def written(self) -> tuple[TimeField | str, ...]:
        """The fields and the literal texts, those of optional parts too, in order."""
        return tuple(_flatten(self.elements))

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
        outer: list[list[Element]] = [[]]
        names = dict[str, bool]()  # whether all fields of the name are in optional parts
        for match in _PARTS.finditer(text):
            run = match[0]
            if run == "[":
                outer.append([])
            elif run == "]":
                inside = outer.pop()
                if not outer or not inside:
                    raise ConfigError(
                        f"the square brackets in the pattern {text!r} do not match; text stands in quotes"
                    )
                outer[-1].append(OptionalPart(tuple(inside)))
            elif match[1] is None:
                outer[-1].append("'" if run == "''" else run[1:-1].replace("''", "'") if run[0] == "'" else run)
            else:
                outer[-1].append(_read_symbol(run, names, is_optional=len(outer) > 1))
        if len(outer) > 1:
            raise ConfigError(f"the square brackets in the pattern {text!r} do not match; text stands in quotes")
        return cls(tuple(outer[0]))

    @classmethod
    @functools.cache
    def parse_input(cls, text: str, *, needs_year: bool = True) -> TimePattern:
        """Parse a pattern of texts that are read; raise ``ConfigError`` if one could be two times, or none."""
        pattern = cls.parse(text)
        needed = ("year", "month", "day") if needs_year else ("month", "day")
        sure = {element.name for element in pattern.elements if isinstance(element, TimeField)}
        if missing := [name for name in needed if name not in sure]:
            where = ", or only in brackets" if pattern.has(missing[0]) else ""
            raise ConfigError(f"the pattern has no {missing[0]}{where}; {HINT}")
        if not _pairs_match(pattern.elements) or (pattern.has("hour") and pattern.has("half of the day")):
            raise ConfigError("hh (or h) and a (AM or PM) belong together; HH is the hour of the whole day")
        return pattern

    def regex(self, escape: str = r"\{}") -> str:
        """Return the regular expression of a whole text, with a group for each field. It is of Rust and of Python.

        ``escape``: how a character that is neither letter nor digit is written.
        """
        return rf"\A{_build_regex(self.elements, escape)}"


def _read_symbol(run: str, names: dict[str, bool], *, is_optional: bool) -> TimeField:
    """Return the field of a symbol, and note its name; raise ``ConfigError``."""
    found = _SYMBOLS.get(run)
    if found is None or (found.name in names and not (is_optional and names[found.name])):
        wrong = "is no symbol of a pattern" if found is None else f"is a second symbol for the {found.name}"
        raise ConfigError(f"{run} {wrong}; text stands in quotes, as 'T'; {HINT}")
    names[found.name] = is_optional
    return found


def _flatten(elements: tuple[Element, ...]) -> Iterator[TimeField | str]:
    for element in elements:
        if isinstance(element, OptionalPart):
            yield from _flatten(element.elements)
        else:
            yield element


def _pairs_match(elements: tuple[Element, ...]) -> bool:
    """Whether each part has the hour of half a day and the half of the day, or neither."""
    names = {element.name for element in elements if isinstance(element, TimeField)}
    inner = all(_pairs_match(element.elements) for element in elements if isinstance(element, OptionalPart))
    return inner and ("hour of half a day" in names) is ("half of the day" in names)


def _build_regex(elements: tuple[Element, ...], escape: str) -> str:
    parts = []
    for element in elements:
        if isinstance(element, OptionalPart):
            parts.append(f"(?:{_build_regex(element.elements, escape)})?")
        elif isinstance(element, TimeField):
            parts.append(f"({element.text})")
        else:
            plain = (c if c.isalnum() or ord(c) > 127 or c in " _<>" else escape.format(c) for c in element)
            parts.append("".join(plain))
    return "".join(parts)


def find_zone(text: str, symbol: str) -> int | str | None:
    """Return the zone that a text of the symbol names: an IANA name, or the milliseconds ahead of UTC; None if none."""
    if symbol == "VV" and (text == "Z" or text[0] in "+-"):
        return _value("offset", symbol, text)
    if symbol != "VV" and text in ABBREVIATIONS:
        return ABBREVIATIONS[text] * 60_000
    return text if is_zone(text) else None


@functools.cache
def with_year(text: str) -> tuple[TimePattern, bool]:
    """Return the pattern of a field, and whether its texts have a year. If not, the pattern has it in front."""
    if TimePattern.parse(text).has("year"):
        return TimePattern.parse_input(text), True
    TimePattern.parse_input(text, needs_year=False)
    return TimePattern.parse_input(f"yyyy {text}"), False


#: The texts of a time without a year are of the year in which they are not this much later than their record.
AHEAD_OF_RECORD_MS = 86_400_000


@dataclass(frozen=True, slots=True)
class LocalTime:
    """A time that was read: epoch milliseconds of its local time, and the offset or zone that the text has, if any.

    ``offset_ms``: how far the local time is ahead of UTC. ``zone``: an IANA name.
    """

    ms: int
    offset_ms: int | None = None
    zone: str | None = None


def read_local(text: str, pattern: TimePattern) -> LocalTime | None:
    """Return the time of a text; None for a text that does not follow the pattern, or names no zone.

    This is what the pattern means, for one text. An offset counts before the zone.
    """
    match = _compiled(pattern).fullmatch(text)
    if match is None:
        return None
    values: dict[str, int] = {}
    zone: int | str | None = None
    for one, part in zip(pattern.fields, match.groups(), strict=True):
        if part is None or one.name in values:
            continue
        if one.name == "zone":
            zone = zone if zone is not None else find_zone(part, one.symbol)
            if zone is None:
                return None
        else:
            values[one.name] = _value(one.name, one.symbol, part)
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
    ms = (moment - _EPOCH) // timedelta(milliseconds=1) + values.get("fraction", 0)
    offset = values.get("offset", zone if isinstance(zone, int) else None)
    return LocalTime(ms, offset, zone if isinstance(zone, str) and offset is None else None)


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
