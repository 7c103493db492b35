"""The logical types of values, their text, and the physical column type of each.

=================  ==========================  =====================================================
logical            Arrow / Polars              meaning
=================  ==========================  =====================================================
``boolean``        bool / Boolean
``long``           int64 / Int64               a whole number of 64 bits
``double``         double / Float64            NaN and infinities never come out of JSON
``decimal(p,s)``   int64 / Int64               exact: the number times 10**scale, at most 18 digits
``string``         large_string / String       Unicode text
``timestamp``      int64 / Int64               epoch milliseconds, UTC
``array<T>``       large_list / List           values of one type, each of which may be null
``struct<a: T>``   struct / Struct             named values, each of which may be null
``map<string,T>``  large_list of structs       entries ``@map_key`` and ``@map_value`` in the order of the
                                               record; no key occurs twice
=================  ==========================  =====================================================
"""

from __future__ import annotations

import enum
import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from streamcore.errors import ConfigError
from streamcore.schema.field_paths import MAX_DEPTH
from streamcore.wire.map_entries import KEY, VALUE

if TYPE_CHECKING:  # a schema is read, and a record checked against it, without Arrow
    import pyarrow as pa

MAX_DECIMAL_DIGITS = 18
MAX_FIELDS = 1_000

#: The names of fields and of members of structs. Braces would end a placeholder of a message, backquotes a quoted name;
#: # marks columns of the engine.
NAME_PATTERN = r"[\w@$][^`{}#\x00-\x1f\x7f]{0,126}"
_NAME = re.compile(NAME_PATTERN)
_TOKEN = re.compile(r"\s*(?:([A-Za-z_][A-Za-z0-9_]*)|([0-9]+)|`((?:[^`]|``)+)`|([<>():,]))")
_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


class Kind(enum.StrEnum):
    """The logical type of a value, without its parameters."""

    BOOLEAN = "boolean"
    LONG = "long"
    DOUBLE = "double"
    DECIMAL = "decimal"
    STRING = "string"
    TIMESTAMP = "timestamp"
    ARRAY = "array"
    STRUCT = "struct"
    MAP = "map"


#: The kinds that have no parameters.
_SIMPLE = (Kind.BOOLEAN, Kind.LONG, Kind.DOUBLE, Kind.STRING, Kind.TIMESTAMP)


@dataclass(frozen=True, slots=True)
class Type:
    """A logical type.

    ``precision`` and ``scale`` are digits, and zero unless ``kind`` is ``DECIMAL``. ``element``: the type of an array's
    elements, or of a map's values; a map's keys are strings. ``members``: names and types of a struct.
    """

    kind: Kind
    precision: int = 0
    scale: int = 0
    element: Type | None = None
    members: tuple[tuple[str, Type], ...] = ()

    def __str__(self) -> str:
        match self.kind:
            case Kind.DECIMAL:
                return f"decimal({self.precision},{self.scale})"
            case Kind.ARRAY:
                return f"array<{self.element}>"
            case Kind.MAP:
                return f"map<string,{self.element}>"
            case Kind.STRUCT:
                return f"struct<{', '.join(f'{quote_name(name)}:{kind}' for name, kind in self.members)}>"
        return self.kind.value

    @property
    def is_nested(self) -> bool:
        """Whether it is an array, a struct or a map."""
        return self.kind in (Kind.ARRAY, Kind.STRUCT, Kind.MAP)

    @property
    def items(self) -> Type:
        """The type of the elements of an array, or of the values of a map."""
        if self.element is None:
            raise ValueError(f"{self} has no elements")
        return self.element

    def member(self, name: str) -> tuple[str, Type] | None:
        """Return the declared name and the type of a struct's member: the exact name, else one ignoring case."""
        exact = next((one for one in self.members if one[0] == name), None)
        return exact or next((one for one in self.members if one[0].lower() == name.lower()), None)

    @classmethod
    def parse(cls, text: str) -> Type:
        """Read ``long``, ``decimal(12,2)``, ``array<struct<a: long>>`` and so on; ``ConfigError`` for anything else."""
        return _TypeReader(text).read()

    @property
    def arrow(self) -> pa.DataType:
        """The physical Arrow type (see the table at the top of this module)."""
        return _arrow_type(self)


@functools.cache
def _arrow_type(kind: Type) -> pa.DataType:
    import pyarrow as pa

    match kind.kind:
        case Kind.ARRAY:
            return pa.large_list(kind.items.arrow)
        case Kind.MAP:
            return pa.large_list(pa.struct([(KEY, pa.large_string()), (VALUE, kind.items.arrow)]))
        case Kind.STRUCT:
            return pa.struct([(name, member.arrow) for name, member in kind.members])
        case Kind.BOOLEAN:
            return pa.bool_()
        case Kind.DOUBLE:
            return pa.float64()
        case Kind.STRING:
            return pa.large_string()
    return pa.int64()


ACCEPTED_NAMES = (
    "a name begins with a letter, a digit, _, @ or $, has no backquote, brace, # or control character,"
    " at most 127 characters, and does not begin with __"
)


def is_field_name(name: str) -> bool:
    """Return whether a field, or a member of a struct, may have this name."""
    return _NAME.fullmatch(name) is not None and not name.startswith("__")


def quote_name(name: str) -> str:
    """Return a name as a type or an expression has it: in backquotes unless it is letters, digits and ``_``."""
    return name if _PLAIN_NAME.match(name) else f"`{name.replace('`', '``')}`"


class _TypeReader:
    """Reads the text of one type, token by token."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def read(self) -> Type:
        kind = self._type(1)
        if rest := self._text[self._at :].strip():
            raise self._error(f"{rest!r} is too much")
        return kind

    def _error(self, message: str) -> ConfigError:
        return ConfigError(f"type {self._text.strip()!r}: {message}")

    def _next(self) -> re.Match[str]:
        match = _TOKEN.match(self._text, self._at)
        if match is None:
            rest = self._text[self._at :].strip()
            raise self._error(f"{rest!r} is not accepted" if rest else "it ends too early")
        self._at = match.end()
        return match

    def _expect(self, sign: str) -> None:
        match = _TOKEN.match(self._text, self._at)
        if match is None or match[4] != sign:
            raise self._error(f"{sign} is needed at character {self._at + 1}")
        self._at = match.end()

    def _accept(self, sign: str) -> bool:
        match = _TOKEN.match(self._text, self._at)
        if match is None or match[4] != sign:
            return False
        self._at = match.end()
        return True

    def _type(self, depth: int) -> Type:
        if depth > MAX_DEPTH:
            raise self._error(f"more than {MAX_DEPTH} types inside each other")
        word = self._next()[1]
        if word in _SIMPLE:
            return Type(Kind(word))
        if word == Kind.DECIMAL and self._accept("("):
            return self._decimal()
        if word in (Kind.ARRAY, Kind.MAP, Kind.STRUCT):
            self._expect("<")
            kind = (
                Type(Kind.STRUCT, members=self._members(depth)) if word == Kind.STRUCT else self._elements(word, depth)
            )
            self._expect(">")
            return kind
        names = ", ".join(_SIMPLE)
        raise ConfigError(
            f"unknown type {self._text!r}; one of {names}, decimal(precision,scale), array<T>, map<string, T>,"
            " struct<name: T, ...>"
        )

    def _decimal(self) -> Type:
        precision = self._digits()
        self._expect(",")
        scale = self._digits()
        self._expect(")")
        if not 1 <= precision <= MAX_DECIMAL_DIGITS or scale > precision:
            raise ConfigError(
                f"decimal({precision},{scale}): at most {MAX_DECIMAL_DIGITS} digits, scale at most the digits"
            )
        return Type(Kind.DECIMAL, precision, scale)

    def _digits(self) -> int:
        digits = self._next()[2]
        if digits is None or len(digits) > 2:
            raise self._error("a decimal is written decimal(12,2)")
        return int(digits)

    def _elements(self, word: str, depth: int) -> Type:
        if word == Kind.MAP:
            if self._type(depth + 1) != STRING:
                raise self._error("the keys of a map are strings: map<string, T>")
            self._expect(",")
        return Type(Kind(word), element=self._type(depth + 1))

    def _members(self, depth: int) -> tuple[tuple[str, Type], ...]:
        members: dict[str, Type] = {}
        lower: set[str] = set()
        while True:
            token = self._next()
            name = token[1] or (token[3] or "").replace("``", "`")
            if not name:
                raise self._error("a struct has names and types: struct<id: long, name: string>")
            self._expect(":")
            if not is_field_name(name) or name in (KEY, VALUE):
                raise self._error(f"{name!r} is no name of a member; {ACCEPTED_NAMES}")
            if name.lower() in lower:
                raise self._error(f"{name} is there twice; upper and lower case do not differ")
            lower.add(name.lower())
            members[name] = self._type(depth + 1)
            if len(members) > MAX_FIELDS:
                raise self._error(f"more than {MAX_FIELDS} members")
            if not self._accept(","):
                return tuple(members.items())


BOOLEAN = Type(Kind.BOOLEAN)
LONG = Type(Kind.LONG)
DOUBLE = Type(Kind.DOUBLE)
STRING = Type(Kind.STRING)
TIMESTAMP = Type(Kind.TIMESTAMP)


def array_of(element: Type) -> Type:
    """Return the type of arrays of these elements."""
    return Type(Kind.ARRAY, element=element)


def map_of(value: Type) -> Type:
    """Return the type of maps from strings to these values."""
    return Type(Kind.MAP, element=value)


def struct_of(members: Mapping[str, Type]) -> Type:
    """Return the type of structs with these members."""
    return Type(Kind.STRUCT, members=tuple(members.items()))
