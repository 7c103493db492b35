"""The steps of a walk through a binary record (Avro, Protobuf), as rows of an array for compiled functions.

Makers of steps need no compiler, so they import this module and ``layout`` only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from streamcore.schema import Field, Kind, TimeUnit, Type

Int64s = npt.NDArray[np.int64]

#: The columns of a step. COLUMN: the column of its values (``layout``), or -1; BASE: where the values of the column
#: begin, which is known when records are walked. P, Q, R: arguments of the conversion. S: an argument of the operation.
#: LEVEL: of a list, that of its elements. NUMBER, WIRE, PRESENCE, FIRST_CHILD, CHILDREN, IMPLICIT: of a field of a
#: Protobuf message, whose children are beside each other, in the order of their numbers. ONEOF: the column that says
#: which member of a oneof was last, or -1; ONEOF_BASE: where its values begin.
OP, CONVERSION, COLUMN, BASE, P, Q, R, S, LEVEL, NUMBER, WIRE, PRESENCE, FIRST_CHILD, CHILDREN = range(14)
IMPLICIT, ONEOF, ONEOF_BASE = range(14, 17)
COLUMNS: Final = 17
#: Operations of both formats. S of READ_FIXED: a count of bytes; of READ_ENUM the first row of ``symbols``, in P the
#: number of its symbols. LIST: the elements of an array, or the entries of a map.
READ_TEXT, READ_LONG, READ_INT, READ_ENUM, READ_BYTES, LIST = range(6)
#: Operations of Avro. S: of UNION the number of its branches, each of which is a JUMP behind it; of OPTION, a union of
#: two branches whose branch P is null, the step behind it; of JUMP, CALL, LIST, ARRAY and their ends a step; of
#: SKIP_BYTES a count of bytes. ARRAY is a list that is skipped: P the bytes of an item, or -1 if they vary. LIST: P the
#: least bytes of an item. CALL: P the nesting around the called steps, Q the deepest inside of them.
UNION, OPTION, SKIP_INT, SKIP_LONG, SKIP_PREFIXED, ARRAY = range(6, 12)
#: The operations up to here begin with a number in Avro.
LAST_WITH_NUMBER: Final = ARRAY
END, DOUBT, SKIP_BYTES, SKIP_TRUTH, JUMP, ARRAY_END, LIST_END, STRUCT, CALL, RETURN = range(12, 22)
READ_DOUBLE, READ_FLOAT, READ_TRUTH, READ_FIXED = range(22, 26)
#: Operations of Protobuf. S of READ_VARINT: how the number is coded; of READ_FIXED32 and READ_FIXED64: whether it has
#: no sign. R of READ_ENUM: the row of the symbol that is the default, or -1. OTHER: a oneof's member that is skipped.
MESSAGE, READ_VARINT, READ_FIXED32, READ_FIXED64, READ_STAMP, OTHER = range(26, 32)
SIGNED_32, SIGNED_64, UNSIGNED_32, UNSIGNED_64, ZIGZAG_32, ZIGZAG_64 = range(6)
#: What a message has of a field that is absent: nothing, its default, or it leaves the record to the reference.
EXPLICIT, DEFAULT, NEEDED = range(3)
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
    """Collects steps, the symbols of enums (their number, and where their name is in ``names``), and the levels of
    columns beyond those of the layout, which begin at ``next_column``. ``keys``: the types of columns of keys that are
    no text in the records, and become it."""

    next_column: int
    steps: list[list[int]] = field(default_factory=list)
    symbols: list[tuple[int, int, int]] = field(default_factory=list)
    names: bytearray = field(default_factory=bytearray)
    more_levels: list[int] = field(default_factory=list)
    keys: dict[int, Type] = field(default_factory=dict)

    def add(self, op: int, s: int = 0, column: int = -1, conversion: Conversion | None = None) -> int:
        """Add a step; return its number."""
        found = conversion or Conversion()
        step = [0] * COLUMNS
        step[OP], step[COLUMN], step[S], step[ONEOF], step[ONEOF_BASE] = op, column, s, -1, -1
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

    def add_column(self, level: int) -> int:
        """Add a column for the walk alone; return its number."""
        self.more_levels.append(level)
        return self.next_column + len(self.more_levels) - 1

    def build(self) -> Steps:
        """Return the steps as arrays."""
        symbols = np.array(self.symbols or [(0, 0, 0)], np.int64)
        return Steps(np.array(self.steps, np.int64), symbols, bytes(self.names), tuple(self.more_levels), self.keys)


@dataclass(frozen=True, slots=True)
class Steps:
    """Steps as arrays (``StepsBuilder``)."""

    steps: Int64s
    symbols: Int64s
    names: bytes
    more_levels: tuple[int, ...]
    keys: Mapping[int, Type]
