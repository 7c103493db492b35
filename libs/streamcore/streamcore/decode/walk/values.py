"""Reads values of any type out of the bytes of records, to columns: nested ones level by level.

The walk reads the fields of an object, and of an array, a struct or a map where its bytes are. These bytes are walked
again, as the records of a smaller schema: the elements of all arrays of a batch in one call. So the compiled walk knows
no recursion, and a value inside ``n`` others is passed over ``n`` times.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol
from zoneinfo import ZoneInfo

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamcore.columnar.local_timestamps import local_to_utc
from streamcore.decode.reject_codes import DecodeLimits
from streamcore.decode.walk.batch import walk_batch
from streamcore.decode.walk.elements import split_values
from streamcore.decode.walk.fields import ABSENT, LOCAL
from streamcore.decode.walk.grammar import OPEN_ARRAY, OPEN_OBJECT
from streamcore.decode.walk.texts import copy_texts
from streamcore.decode.walk.tree import Int64s, build_nodes
from streamcore.decode.walk.words import VECTOR, Bytes
from streamcore.schema import STRING, Field, Kind, Type
from streamcore.schema.field_paths import PathTree, build_tree
from streamcore.timestamps import MAX_MS, MIN_MS
from streamcore.wire.map_entries import VALUE

Bools = npt.NDArray[np.bool_]
UTC = ZoneInfo("UTC")


@dataclass(frozen=True, slots=True)
class StoredTexts:
    """Where strings are: in the records, or, if they have escape sequences there, in ``resolved`` without these."""

    source: Bytes
    resolved: Bytes


class ValueReader(Protocol):
    """Reads values of one type."""

    def read(self, source: Bytes, starts: Int64s, ends: Int64s) -> tuple[Bools, pa.Array]:
        """Return for each of these values whether it is read, and the column; one that is not read is arbitrary."""
        ...


class FieldWalk:
    """Reads the fields of objects, or values as one field. It remembers the order of names: it is for one thread."""

    def __init__(
        self,
        tree: PathTree | int,
        fields: Sequence[Field],
        zone: ZoneInfo,
        limits: DecodeLimits,
        *,
        only_declared: bool = False,
    ) -> None:
        self._fields, self._zone, self._limits = fields, zone, limits
        self._only_declared = only_declared
        self._table = build_nodes(tree, fields)
        self._record = np.empty(limits.max_record_bytes + self._table.pad, np.uint8)
        self._required = np.array([i for i, f in enumerate(fields) if not f.nullable], np.int64)
        self._nested = {i: _reader(f.type, zone, limits) for i, f in enumerate(fields) if f.type.is_nested}

    @property
    def has_nested(self) -> bool:
        """Whether a field is an array, a struct or a map. Then bytes must exist behind the source (``PAD``)."""
        return bool(self._nested)

    def walk(self, source: Bytes, starts: Int64s, ends: Int64s) -> WalkedFields:
        """Walk through the values between these positions of ``source``."""
        count, table = len(starts), self._table
        fields = len(self._fields)
        resolved = np.empty(int((ends - starts).sum()) + VECTOR, np.uint8)  # most pages of it are never used
        values, lengths = np.zeros((fields, count), np.int64), np.zeros((fields, count), np.int64)
        found, sure = np.zeros((fields, count), np.uint8), np.zeros(count, np.bool_)
        walk_batch(
            source,
            starts,
            ends,
            self._record,
            table.nodes,
            table.names,
            table.scratch,
            table.guesses,
            np.zeros(len(table.nodes), np.int64),
            self._required,
            self._limits.max_record_bytes,
            self._limits.max_depth,
            self._only_declared,
            values,
            lengths,
            found,
            resolved,
            np.zeros(1, np.int64),
            sure,  # type: ignore[arg-type]
        )
        return self.finish(StoredTexts(source, resolved), values, lengths, found, sure)

    def finish(self, texts: StoredTexts, values: Int64s, lengths: Int64s, found: Bytes, sure: Bools) -> WalkedFields:
        """Return the fields of what a walk has found (``read_field``): with local times converted, and nested values
        read."""
        walked = WalkedFields([f.type for f in self._fields], texts, values, lengths, found, sure, {})
        for number, field in enumerate(self._fields):
            if field.type.kind is Kind.TIMESTAMP:
                self._to_utc(values[number], found[number], sure)
        for number, reader in self._nested.items():
            walked.read_nested(number, reader)
        return walked

    def _to_utc(self, times: Int64s, found: Bytes, sure: Bools) -> None:
        """Convert local times; leave records with times that are out of range then to the reference."""
        local = sure & (found == LOCAL)
        if not local.any():
            return
        if self._zone.key != UTC.key:
            times[local] = local_to_utc(self._zone, times[local])
        sure &= ~local | ((times >= MIN_MS) & (times <= MAX_MS))


@dataclass(frozen=True, slots=True)
class WalkedFields:
    """The values of fields, as ``read_field`` leaves them; ``nested``: the columns that are read from their bytes."""

    types: Sequence[Type]
    texts: StoredTexts
    values: Int64s
    lengths: Int64s
    found: Bytes
    sure: Bools
    nested: dict[int, pa.Array]

    def read_nested(self, number: int, reader: ValueReader) -> None:
        """Read the column of a nested field; a record in which it cannot be read is not sure."""
        present = np.flatnonzero(self.sure & (self.found[number] != ABSENT))
        starts = self.values[number][present]
        read, column = reader.read(self.texts.source, starts, starts + self.lengths[number][present])
        self.sure[present[~read]] = False
        self.nested[number] = _spread(column, present, len(self.sure))

    def column(self, number: int, rows: Int64s | None) -> pa.Array:
        """Return the column of a field. ``rows``: those that it has; None for all."""
        if number in self.nested:
            return self.nested[number] if rows is None else self.nested[number].take(pa.array(rows))
        kind = self.types[number].arrow
        values, lengths, found = self.values[number], self.lengths[number], self.found[number]
        values, found = (values.copy(), found) if rows is None else (values[rows], found[rows])
        count = len(values)
        present = found != ABSENT
        validity = None if present.all() else pa.py_buffer(np.packbits(present, bitorder="little"))
        if pa.types.is_large_string(kind):
            offsets = np.zeros(count + 1, np.int64)
            np.cumsum(lengths if rows is None else lengths[rows], out=offsets[1:])
            target = np.empty(int(offsets[-1]) + VECTOR, np.uint8)
            copy_texts(self.texts.source, self.texts.resolved, values, offsets, target)
            return pa.Array.from_buffers(kind, count, [validity, pa.py_buffer(offsets), pa.py_buffer(target)])
        stored = np.packbits(values.astype(np.bool_), bitorder="little") if pa.types.is_boolean(kind) else values
        return pa.Array.from_buffers(kind, count, [validity, pa.py_buffer(stored)])


class ScalarReader:
    """Reads booleans, numbers, strings and times."""

    def __init__(self, kind: Type, zone: ZoneInfo, limits: DecodeLimits) -> None:
        self._walk = FieldWalk(0, [Field(VALUE, kind)], zone, limits)

    def read(self, source: Bytes, starts: Int64s, ends: Int64s) -> tuple[Bools, pa.Array]:
        walked = self._walk.walk(source, starts, ends)
        walked.lengths[:, ~walked.sure] = 0  # of a string that is not read, the bytes are not copied
        return walked.sure, walked.column(0, None)


class _StructReader:
    """Reads objects as structs."""

    def __init__(self, kind: Type, zone: ZoneInfo, limits: DecodeLimits) -> None:
        fields = [Field(name, member) for name, member in kind.members]
        self._walk = FieldWalk(build_tree((f.name,) for f in fields), fields, zone, limits)
        self._kind = kind.arrow

    def read(self, source: Bytes, starts: Int64s, ends: Int64s) -> tuple[Bools, pa.Array]:
        walked = self._walk.walk(source, starts, ends)
        walked.lengths[:, ~walked.sure] = 0
        columns = [walked.column(number, None) for number in range(len(walked.types))]
        return walked.sure, pa.StructArray.from_arrays(columns, fields=[*self._kind])


class _ListReader:
    """Reads arrays as lists of their elements, and objects as lists of the entries of a map."""

    def __init__(self, kind: Type, zone: ZoneInfo, limits: DecodeLimits) -> None:
        self._keys = ScalarReader(STRING, zone, limits) if kind.kind is Kind.MAP else None
        self._items = _reader(kind.items, zone, limits)
        self._kind = kind.arrow
        self._opens = OPEN_ARRAY if kind.kind is Kind.ARRAY else OPEN_OBJECT

    def read(self, source: Bytes, starts: Int64s, ends: Int64s) -> tuple[Bools, pa.Array]:
        sure = source[starts] == self._opens
        sizes = np.where(sure, ends - starts, 0)
        room = int(sizes.sum()) // 2 + 1  # an element has a comma or a bracket of its own
        key_starts, key_ends, item_starts, item_ends = np.empty((4, room), np.int64)
        nulls, behind = np.zeros(room, np.bool_), np.zeros(len(starts) + 1, np.int64)
        count = split_values(
            source,
            starts,
            sizes,
            key_starts,
            key_ends,
            item_starts,
            item_ends,
            behind[1:],
            nulls,  # type: ignore[arg-type]
        )
        owners = np.repeat(np.arange(len(starts)), np.diff(behind))
        present = np.flatnonzero(~nulls[:count])
        read, items = self._items.read(source, item_starts[present], item_ends[present])
        sure[owners[present[~read]]] = False
        items = _spread(items, present, count)
        if self._keys is not None:
            read, keys = self._keys.read(source, key_starts[:count], key_ends[:count])
            sure[owners[~read]] = False
            sure[owners[_repeated(keys, owners)]] = False
            items = pa.StructArray.from_arrays([keys, items], fields=[*self._kind.value_type])
        return sure, pa.LargeListArray.from_arrays(pa.array(behind), items, type=self._kind)


def _reader(kind: Type, zone: ZoneInfo, limits: DecodeLimits) -> ValueReader:
    if kind.kind in (Kind.ARRAY, Kind.MAP):
        return _ListReader(kind, zone, limits)
    return (_StructReader if kind.kind is Kind.STRUCT else ScalarReader)(kind, zone, limits)


def _spread(column: pa.Array, rows: Int64s, count: int) -> pa.Array:
    """Return a column of ``count`` rows that has these values in ``rows`` and is null elsewhere."""
    if len(rows) == count:
        return column
    sources = np.zeros(count, np.int64)
    sources[rows] = np.arange(len(rows))
    missing = np.ones(count, np.bool_)
    missing[rows] = False
    return column.take(pa.array(sources, mask=missing))


def _repeated(keys: pa.Array, owners: Int64s) -> Int64s:
    """Return entries whose key their map has another time."""
    ids = keys.dictionary_encode().indices.to_numpy(zero_copy_only=False)
    order = np.lexsort((ids, owners))
    same = (np.diff(owners[order]) == 0) & (np.diff(ids[order]) == 0)
    repeated: Int64s = order[1:][same]
    return repeated
