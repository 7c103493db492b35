"""Reads values of any type out of the bytes of records, to columns: nested ones level by level.

The walk reads the fields of an object, and of an array, a struct or a map where its bytes are. These bytes are walked
again, as the records of a smaller schema: the elements of all arrays of a batch in one call. So the compiled walk knows
no recursion, and a value inside ``n`` others is passed over ``n`` times. Where the elements of an array begin is found
while it is passed over; of arrays right in arrays it is found in a pass of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa

from streamcore.columnar.local_timestamps import local_to_utc
from streamcore.decode.reject_codes import DecodeLimits
from streamcore.decode.scalar.value_counts import values_of_element
from streamcore.decode.walk.arrays import (
    Bools,
    StoredTexts,
    entries_array,
    have_repeated_keys,
    list_array,
    scalar_array,
    spread,
    struct_array,
)
from streamcore.decode.walk.batch import walk_batch
from streamcore.decode.walk.elements import (
    END,
    KEY_END,
    KEY_START,
    START,
    Elements,
    find_elements,
    gather_elements,
    make_items,
)
from streamcore.decode.walk.fields import ABSENT, LOCAL
from streamcore.decode.walk.grammar import OPEN_ARRAY, OPEN_OBJECT
from streamcore.decode.walk.tree import Int64s, build_nodes
from streamcore.decode.walk.words import VECTOR, Bytes
from streamcore.schema import STRING, Field, Kind, Type
from streamcore.schema.field_paths import PathTree, build_tree
from streamcore.timestamps import MAX_MS, MIN_MS
from streamcore.wire.map_entries import VALUE

UTC = ZoneInfo("UTC")


@dataclass(frozen=True, slots=True)
class ValuesLeft:
    """How many values the arrays and maps of the records of a batch may still have (``scalar.value_counts``).

    ``of_record``: of each record; less than 0 if it has too many. ``records``: the record of each value that is read.
    ``limits``: of each record and of all.
    """

    of_record: Int64s
    records: Int64s
    limits: DecodeLimits

    def select(self, rows: Int64s) -> ValuesLeft:
        """Return this for some of the values that are read."""
        return ValuesLeft(self.of_record, self.records[rows], self.limits)

    def take(self, counts: Int64s) -> Bools:
        """Count values of the record of each value; return of which ones it may have them.

        Raises ``TooManyBatchValues`` before there are columns of them.
        """
        np.subtract.at(self.of_record, self.records, counts)
        if self.limits.max_batch_values is not None:
            taken = self.limits.max_record_values - self.of_record
            self.limits.check_batch(int(taken[self.of_record >= 0].sum()), len(self.of_record))
        return self.of_record[self.records] >= 0


class ValueReader(Protocol):
    """Reads values of one type."""

    def read(self, source: Bytes, starts: Int64s, ends: Int64s, left: ValuesLeft) -> tuple[Bools, pa.Array]:
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
        self._has_lists = any(isinstance(reader, _ListReader) for reader in self._nested.values())

    @property
    def has_nested(self) -> bool:
        """Whether a field is an array, a struct or a map. Then bytes must exist behind the source (``PAD``)."""
        return bool(self._nested)

    def walk(self, source: Bytes, starts: Int64s, ends: Int64s, left: ValuesLeft | None = None) -> WalkedFields:
        """Walk through the values between these positions of ``source``. ``left``: None if they are the records."""
        count, table = len(starts), self._table
        fields = len(self._fields)
        size = int((ends - starts).sum())
        resolved = np.empty(size + VECTOR, np.uint8)  # most pages of it are never used
        items = make_items(size if self._has_lists else 0)
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
            items,
            np.zeros(1, np.int64),
            sure,  # type: ignore[arg-type]
        )
        texts = StoredTexts(source, resolved)
        walked = WalkedFields([f.type for f in self._fields], texts, values, lengths, found, sure, {}, items)
        for number, one in enumerate(self._fields):
            if one.type.kind is Kind.TIMESTAMP:
                sure &= to_utc(self._zone, values[number], found[number], sure)
        if self._nested and left is None:
            left = ValuesLeft(np.full(count, self._limits.max_record_values), np.arange(count), self._limits)
        for number, reader in self._nested.items():
            assert left is not None
            walked.read_nested(number, reader, left)
        return walked


@dataclass(frozen=True, slots=True)
class WalkedFields:
    """The values of fields, as ``read_field`` leaves them; ``nested``: the columns that are read from their bytes, or
    from ``items``."""

    types: Sequence[Type]
    texts: StoredTexts
    values: Int64s
    lengths: Int64s
    found: Bytes
    sure: Bools
    nested: dict[int, pa.Array]
    items: Int64s = field(default_factory=lambda: make_items(0))

    def read_nested(self, number: int, reader: ValueReader, left: ValuesLeft) -> None:
        """Read the column of a nested field; a record in which it cannot be read is not sure."""
        present = np.flatnonzero(self.sure & (self.found[number] != ABSENT))
        values, lengths, source = self.values[number][present], self.lengths[number][present], self.texts.source
        if isinstance(reader, _ListReader):
            read, column = reader.read_elements(
                source, gather_elements(self.items, values, lengths), left.select(present)
            )
        else:
            read, column = reader.read(source, values, values + lengths, left.select(present))
        self.sure[present[~read]] = False
        self.nested[number] = spread(column, present, len(self.sure))

    def column(self, number: int, rows: Int64s | None) -> pa.Array:
        """Return the column of a field. ``rows``: those that it has; None for all."""
        if number in self.nested:
            return self.nested[number] if rows is None else self.nested[number].take(pa.array(rows))
        kind = self.types[number].arrow
        values, lengths, found = self.values[number], self.lengths[number], self.found[number]
        values, found = (values.copy(), found) if rows is None else (values[rows], found[rows])
        return scalar_array(kind, self.texts, values, lengths if rows is None else lengths[rows], found)


class ScalarReader:
    """Reads booleans, numbers, strings and times."""

    def __init__(self, kind: Type, zone: ZoneInfo, limits: DecodeLimits) -> None:
        self._walk = FieldWalk(0, [Field(VALUE, kind)], zone, limits)

    def read(
        self,
        source: Bytes,
        starts: Int64s,
        ends: Int64s,
        left: ValuesLeft | None = None,  # noqa: ARG002 - it has no arrays
    ) -> tuple[Bools, pa.Array]:
        walked = self._walk.walk(source, starts, ends)
        walked.lengths[:, ~walked.sure] = 0  # of a string that is not read, the bytes are not copied
        return walked.sure, walked.column(0, None)


class _StructReader:
    """Reads objects as structs."""

    def __init__(self, kind: Type, zone: ZoneInfo, limits: DecodeLimits) -> None:
        fields = [Field(name, member) for name, member in kind.members]
        self._walk = FieldWalk(build_tree((f.name,) for f in fields), fields, zone, limits)
        self._kind = kind.arrow

    def read(self, source: Bytes, starts: Int64s, ends: Int64s, left: ValuesLeft) -> tuple[Bools, pa.Array]:
        walked = self._walk.walk(source, starts, ends, left)
        walked.lengths[:, ~walked.sure] = 0
        columns = [walked.column(number, None) for number in range(len(walked.types))]
        return walked.sure, struct_array(self._kind, columns, np.ones(len(walked.sure), np.uint8))


class _ListReader:
    """Reads arrays as lists of their elements, and objects as lists of the entries of a map."""

    def __init__(self, kind: Type, zone: ZoneInfo, limits: DecodeLimits) -> None:
        self._keys = ScalarReader(STRING, zone, limits) if kind.kind is Kind.MAP else None
        self._items = _reader(kind.items, zone, limits)
        self._kind, self._values_of_element = kind.arrow, values_of_element(kind)
        self._opens = OPEN_ARRAY if kind.kind is Kind.ARRAY else OPEN_OBJECT

    def read(self, source: Bytes, starts: Int64s, ends: Int64s, left: ValuesLeft) -> tuple[Bools, pa.Array]:
        opened = source[starts] == self._opens
        elements = find_elements(source, starts, np.where(opened, ends - starts, 0))
        read, column = self.read_elements(source, elements, left)
        return read & opened, column

    def read_elements(self, source: Bytes, elements: Elements, left: ValuesLeft) -> tuple[Bools, pa.Array]:
        """Read the values with these elements, as ``read`` does."""
        sure = left.take(elements.counts * self._values_of_element)
        if not sure.all():  # the elements of the others must not become columns
            elements = elements.select(sure)
        owners, nulls = np.repeat(np.arange(len(sure)), elements.counts), elements.find_nulls(source)
        present = np.flatnonzero(~nulls)
        starts, ends = elements.items[START][present], elements.items[END][present]
        read, items = self._items.read(source, starts, ends, left.select(owners[present]))
        sure[owners[present[~read]]] = False
        items = spread(items, present, len(nulls))
        if self._keys is not None:
            read, keys = self._keys.read(source, elements.items[KEY_START], elements.items[KEY_END])
            sure[owners[~read]] = False
            sure[have_repeated_keys(keys, elements.behind)] = False
            items = entries_array(self._kind, keys, items)
        return sure, list_array(self._kind, elements.behind, items, np.ones(len(sure), np.uint8))


def _reader(kind: Type, zone: ZoneInfo, limits: DecodeLimits) -> ValueReader:
    if kind.kind in (Kind.ARRAY, Kind.MAP):
        return _ListReader(kind, zone, limits)
    return (_StructReader if kind.kind is Kind.STRUCT else ScalarReader)(kind, zone, limits)


def to_utc(zone: ZoneInfo, times: Int64s, found: Bytes, sure: Bools | None = None) -> Bools | np.bool_:
    """Convert the local times among the values of a column; return which values are in the range of times.

    ``sure``: only these are looked at.
    """
    local = found == LOCAL if sure is None else sure & (found == LOCAL)
    if not local.any():
        return np.True_
    if zone.key != UTC.key:
        times[local] = local_to_utc(zone, times[local])
    in_range: Bools = ~local | ((times >= MIN_MS) & (times <= MAX_MS))
    return in_range
