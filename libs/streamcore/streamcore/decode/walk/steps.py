"""The steps of a walk through a binary record (Avro, Protobuf), as rows of an array for compiled functions.

Makers of steps need no compiler, so they import this module only.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from streamcore.schema import Field, Kind, TimeUnit

Int64s = npt.NDArray[np.int64]

#: The columns of a step. P, Q, R: arguments of the conversion. S: an argument of the operation. NUMBER, WIRE,
#: PRESENCE, FIRST_CHILD, CHILDREN: of a field of a Protobuf message, whose children are beside each other.
OP, CONVERSION, FIELD, P, Q, R, S, NUMBER, WIRE, PRESENCE, FIRST_CHILD, CHILDREN = range(12)
COLUMNS: Final = 12
#: Operations. S: SKIP_BYTES and READ_FIXED a count of bytes; JUMP, ARRAY and ARRAY_END a step; UNION the number of its
#: branches, each of which is a JUMP behind it; READ_ENUM the first row of ``symbols``. ARRAY has in P whether items are
#: without bytes, and READ_ENUM in P the number of its symbols.
END, DOUBT, SKIP_BYTES, SKIP_INT, SKIP_LONG, SKIP_PREFIXED, SKIP_TRUTH, UNION, JUMP, ARRAY, ARRAY_END = range(11)
READ_INT, READ_LONG, READ_TEXT, READ_DOUBLE, READ_FLOAT, READ_TRUTH, READ_ENUM, READ_BYTES, READ_FIXED = range(11, 20)
#: Operations of Protobuf alone. S of READ_VARINT: how the number is coded; of READ_FIXED32 and READ_FIXED64: whether it
#: has no sign.
MESSAGE, READ_VARINT, READ_FIXED32, READ_FIXED64, READ_STAMP = range(20, 25)
SIGNED_32, SIGNED_64, UNSIGNED_32, UNSIGNED_64, ZIGZAG_32, ZIGZAG_64 = range(6)
#: Conversions of whole numbers and of texts to the physical value of a field. AS_DECIMAL: P the scale that a number
#: has, Q and R precision and scale of the field. AS_TIME and AS_LOCAL: a number times P, divided by Q, is milliseconds.
AS_IT_IS, AS_DOUBLE, AS_DECIMAL, AS_TIME, AS_LOCAL = range(5)

_TO_MILLIS = {
    TimeUnit.SECONDS: (1_000, 1),
    TimeUnit.MILLISECONDS: (1, 1),
    TimeUnit.MICROSECONDS: (1, 1_000),
    TimeUnit.NANOSECONDS: (1, 1_000_000),
}


@dataclass(frozen=True, slots=True)
class Conversion:
    """A conversion with its arguments."""

    kind: int = AS_IT_IS
    p: int = 1
    q: int = 1
    r: int = 0

    @classmethod
    def of(cls, field: Field, scale: int = 0) -> Conversion:
        """Return the conversion of whole numbers and of texts to a field. ``scale``: that of a decimal."""
        match field.type.kind:
            case Kind.DOUBLE:
                return cls(AS_DOUBLE)
            case Kind.DECIMAL:
                return cls(AS_DECIMAL, scale, field.type.precision, field.type.scale)
            case Kind.TIMESTAMP:
                return cls(AS_TIME, *_TO_MILLIS[field.unit])
        return cls()


@dataclass(slots=True)
class StepsBuilder:
    """Collects steps, and the symbols of enums: their number, and where their name is in ``names``."""

    steps: list[list[int]] = field(default_factory=list)
    symbols: list[tuple[int, int, int]] = field(default_factory=list)
    names: bytearray = field(default_factory=bytearray)

    def add(self, op: int, s: int = 0, field_number: int = 0, conversion: Conversion | None = None) -> int:
        """Add a step; return its number."""
        found = conversion or Conversion()
        step = [0] * COLUMNS
        step[OP], step[FIELD], step[S] = op, field_number, s
        step[CONVERSION], step[P], step[Q], step[R] = found.kind, found.p, found.q, found.r
        self.steps.append(step)
        return len(self.steps) - 1

    def add_symbols(self, symbols: dict[int, str]) -> int:
        """Add the symbols of an enum by their numbers; return the first row."""
        first = len(self.symbols)
        for number, name in symbols.items():
            raw = name.encode()
            self.symbols.append((number, len(self.names), len(raw)))
            self.names += raw
        return first

    def build(self) -> Steps:
        """Return the steps as arrays."""
        symbols = np.array(self.symbols or [(0, 0, 0)], np.int64)
        return Steps(np.array(self.steps, np.int64), symbols, bytes(self.names))


@dataclass(frozen=True, slots=True)
class Steps:
    """Steps as arrays (``StepsBuilder``)."""

    steps: Int64s
    symbols: Int64s
    names: bytes
