"""The tree of the paths of a stream's fields, as arrays for compiled functions.

A node is a name on a path: an object on the way, or a field. ``nodes`` has a row for each; the children of a node are
beside each other. ``names`` has the bytes of their names.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from streamcore.decode.walk.words import PAD, Bytes
from streamcore.schema import Field, Kind, TimeUnit
from streamcore.schema.field_paths import PathTree

Int64s = npt.NDArray[np.int64]

#: The columns of ``nodes``. WORD: the first eight bytes of the name; MASK: those of its bytes that are of the name.
#: ESCAPED: whether a record cannot have the name without an escape sequence. PRECISION and SCALE of a time: a number
#: times the one, divided by the other, is milliseconds.
KIND, FIELD, PARENT, FIRST_CHILD, CHILDREN, NAME, LENGTH, WORD, MASK, ESCAPED, PRECISION, SCALE = range(12)
_COLUMNS: Final = 12
#: Kinds of nodes: an object on the way, fields of one value, and fields that are read from their bytes afterwards.
OBJECT, TEXT, WHOLE, DOUBLE, DECIMAL, TIME, TRUTH, WHOLE_ARRAY, WHOLE_OBJECT, WHOLE_MAP = range(10)
_KINDS = {
    Kind.STRING: TEXT,
    Kind.LONG: WHOLE,
    Kind.DOUBLE: DOUBLE,
    Kind.DECIMAL: DECIMAL,
    Kind.TIMESTAMP: TIME,
    Kind.BOOLEAN: TRUTH,
    Kind.ARRAY: WHOLE_ARRAY,
    Kind.STRUCT: WHOLE_OBJECT,
    Kind.MAP: WHOLE_MAP,
}
_TO_MILLIS = {
    TimeUnit.SECONDS: (1_000, 1),
    TimeUnit.MILLISECONDS: (1, 1),
    TimeUnit.MICROSECONDS: (1, 1_000),
    TimeUnit.NANOSECONDS: (1, 1_000_000),
}
#: The columns of ``guesses``: the child that the last record had first, and the one that it had after this one.
FIRST, NEXT = 0, 1
#: A character as an escape sequence has up to so many bytes for each byte of the character.
_ESCAPE_BYTES: Final = 6


@dataclass(frozen=True, slots=True)
class PathNodes:
    """The tree as arrays. ``guesses`` and ``scratch`` are written, so a table is for one thread."""

    nodes: Int64s
    names: Bytes
    guesses: Int64s
    scratch: Bytes
    #: Bytes that must exist behind a record.
    pad: int


def build_nodes(tree: PathTree | int, fields: Sequence[Field]) -> PathNodes:
    """Return the tree of the paths of these fields; a number is the field that is the whole value."""
    found = [*_breadth_first(tree)]
    nodes = np.zeros((len(found), _COLUMNS), np.int64)
    names = bytearray()
    longest, child = 0, 1
    for node, (parent, name, what) in zip(nodes, found, strict=True):
        raw = name.encode("utf-8", "surrogatepass")
        longest = max(longest, len(raw))
        node[PARENT], node[NAME], node[LENGTH] = parent, len(names), len(raw)
        node[WORD] = int.from_bytes(raw[:8], "little", signed=len(raw) >= 8)
        node[MASK] = -1 if len(raw) >= 8 else (1 << 8 * len(raw)) - 1
        node[ESCAPED] = any(char in b'"\\' or char < 0x20 for char in raw)
        names += raw
        if isinstance(what, PathTree):
            node[KIND], node[FIRST_CHILD], node[CHILDREN] = OBJECT, child, len(what.inside)
            child += len(what.inside)
        else:
            kind = fields[what].type
            node[KIND], node[FIELD] = _KINDS[kind.kind], what
            node[PRECISION], node[SCALE] = kind.precision, kind.scale
            if kind.kind is Kind.TIMESTAMP:
                node[PRECISION], node[SCALE] = _TO_MILLIS[fields[what].unit]
    return PathNodes(
        nodes,
        np.frombuffer(bytes(names) + bytes(PAD), np.uint8).copy(),
        _declared_order(nodes),
        np.zeros(_ESCAPE_BYTES * longest + PAD, np.uint8),
        longest + PAD,
    )


def _breadth_first(root: PathTree | int) -> Iterator[tuple[int, str, int | PathTree]]:
    """Return the number of the parent of each node, its name, and what it is."""
    queue: list[tuple[int, str, PathTree | int]] = [(0, "", root)]
    for number, entry in enumerate(queue):
        yield entry
        if isinstance(entry[2], PathTree):
            queue += [(number, name, what) for name, what in entry[2].inside.items()]


def _declared_order(nodes: Int64s) -> Int64s:
    """Return the guesses before the first record: the order of the schema."""
    guesses = np.zeros((len(nodes), 2), np.int64)
    guesses[:, FIRST] = nodes[:, FIRST_CHILD]
    for first, count in nodes[:, [FIRST_CHILD, CHILDREN]]:
        for child in range(first, first + count):
            guesses[child, NEXT] = child + 1 if child + 1 < first + count else first
    return guesses
