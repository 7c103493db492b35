"""Makes Arrow arrays of the results of walks: values, structs, and lists with their elements."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamcore.decode.walk.compiler import entry
from streamcore.decode.walk.elements import offsets_of
from streamcore.decode.walk.fields import ABSENT
from streamcore.decode.walk.texts import copy_texts
from streamcore.decode.walk.tree import Int64s
from streamcore.decode.walk.words import VECTOR, Bytes, byte

Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class StoredTexts:
    """Where strings are: in the records, or, if they are not there as they are, in ``resolved``."""

    source: Bytes
    resolved: Bytes


def scalar_array(kind: pa.DataType, texts: StoredTexts, values: Int64s, lengths: Int64s, found: Bytes) -> pa.Array:
    """Return the array of the values of a type that is not nested (``read_field``). It keeps the memory of
    ``values``."""
    count, validity = len(values), _validity(found)
    if pa.types.is_large_string(kind):
        offsets = offsets_of(lengths)
        target = np.empty(int(offsets[-1]) + VECTOR, np.uint8)
        copy_texts(texts.source, texts.resolved, values, offsets, target)
        return pa.Array.from_buffers(kind, count, [validity, pa.py_buffer(offsets), pa.py_buffer(target)])
    stored = np.packbits(values.astype(np.bool_), bitorder="little") if pa.types.is_boolean(kind) else values
    return pa.Array.from_buffers(kind, count, [validity, pa.py_buffer(stored)])


def struct_array(kind: pa.StructType, members: Sequence[pa.Array], found: Bytes) -> pa.Array:
    """Return the array of structs with these members; ``found``: those that are there."""
    return pa.Array.from_buffers(kind, len(found), [_validity(found)], children=[*members])


def list_array(kind: pa.LargeListType, offsets: Int64s, items: pa.Array, found: Bytes) -> pa.Array:
    """Return the array of lists whose elements begin at these offsets; ``found``: those that are there."""
    return pa.Array.from_buffers(
        kind, len(found), [_validity(found), pa.py_buffer(np.ascontiguousarray(offsets))], children=[items]
    )


def entries_array(kind: pa.LargeListType, keys: pa.Array, values: pa.Array) -> pa.Array:
    """Return the array of the entries of maps of this type."""
    return pa.Array.from_buffers(kind.value_type, len(keys), [None], children=[keys, values])


def spread(column: pa.Array, rows: Int64s, count: int) -> pa.Array:
    """Return a column of ``count`` rows that has these values in ``rows`` and is null elsewhere."""
    if len(rows) == count:
        return column
    sources = np.zeros(count, np.int64)
    sources[rows] = np.arange(len(rows))
    missing = np.ones(count, np.bool_)
    missing[rows] = False
    return column.take(pa.array(sources, mask=missing))


def have_repeated_keys(keys: pa.LargeStringArray, offsets: Int64s) -> Bools:
    """Return which maps have a key twice. ``offsets``: where the entries of each map begin."""
    repeated = np.zeros(len(offsets) - 1, np.bool_)
    if not len(keys):
        return repeated
    _, key_offsets, stored = keys.buffers()
    text = np.frombuffer(stored, np.uint8) if stored else np.zeros(VECTOR, np.uint8)
    places = np.frombuffer(key_offsets, np.int64, len(keys) + 1, 8 * keys.offset)
    find_repeated(text, places, np.ascontiguousarray(offsets), repeated)  # type: ignore[arg-type]
    long = np.flatnonzero(np.diff(offsets) > _MAX_COMPARED)
    for row in long.tolist():
        part = keys.slice(offsets[row], offsets[row + 1] - offsets[row])
        repeated[row] = len(part.unique()) < len(part)
    return repeated


#: The keys of larger maps are not compared one by one.
_MAX_COMPARED = 32


@entry("void(Array(uint8, 1, 'C', readonly=True), Array(int64, 1, 'C', readonly=True), int64[::1], boolean[::1])")
def find_repeated(text: Bytes, places: Int64s, offsets: Int64s, repeated: Bytes) -> None:
    """Set ``repeated`` of the maps of up to ``_MAX_COMPARED`` entries that have a key twice.

    ``places``: where each key begins in ``text``.
    """
    for row in range(len(offsets) - 1):
        begin, end = offsets[row], offsets[row + 1]
        if end - begin > _MAX_COMPARED:
            continue
        for i in range(begin + 1, end):
            length = places[i + 1] - places[i]
            for j in range(begin, i):
                if places[j + 1] - places[j] == length:
                    same = 0
                    while same < length and byte(text, places[i] + same) == byte(text, places[j] + same):
                        same += 1
                    if same == length:
                        repeated[row] = True


def _validity(found: Bytes) -> pa.Buffer | None:
    present = found != ABSENT
    return None if present.all() else pa.py_buffer(np.packbits(present, bitorder="little"))
