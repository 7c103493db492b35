"""The columns that a walk fills as Python has them: their memory, and the Arrow arrays that are made of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa

from streamcore.decode.walk.arrays import (
    Bools,
    StoredTexts,
    entries_array,
    have_repeated_keys,
    list_array,
    scalar_array,
    struct_array,
)
from streamcore.decode.walk.binary.columns import (
    CAPACITY,
    COLUMN_BASE,
    COLUMN_LEVEL,
    COUNT,
    LEVEL_COLUMNS,
    WANTED,
    WIDTH,
)
from streamcore.decode.walk.binary.layout import Place
from streamcore.decode.walk.binary.primitives import FLOAT_BITS, WHOLE_DOUBLE
from streamcore.decode.walk.binary.steps import Int64s
from streamcore.decode.walk.elements import offsets_of
from streamcore.decode.walk.fields import PRESENT
from streamcore.decode.walk.values import WalkedFields, to_utc
from streamcore.decode.walk.words import Bytes
from streamcore.schema import Kind, Type


class WalkedColumns:
    """The columns of a batch. ``columns``, ``levels``: as of the module ``columns``. ``values``, ``lengths`` and
    ``found``: those of all columns, one column behind the other. ``widths``: of the levels (``WIDTH``)."""

    def __init__(self, column_levels: Int64s, widths: Int64s, capacities: Int64s) -> None:
        rooms = capacities[column_levels]
        self.columns = np.zeros((len(column_levels), 2), np.int64)
        self.columns[:, COLUMN_LEVEL] = column_levels
        self.columns[1:, COLUMN_BASE] = np.cumsum(rooms)[:-1]
        self.levels = np.zeros((len(capacities), LEVEL_COLUMNS), np.int64)
        self.levels[:, WIDTH], self.levels[:, CAPACITY] = widths, capacities
        size = int(rooms.sum())
        self.values, self.lengths = np.zeros(size, np.int64), np.zeros(size, np.int64)
        self.found = np.zeros(size, np.uint8)

    def bases_of(self, columns: Int64s) -> Int64s:
        """Return where columns begin; -1 for column -1."""
        bases: Int64s = self.columns[columns, COLUMN_BASE]  # -1 gives that of the last column
        bases[columns < 0] = -1
        return bases

    @property
    def inner_values(self) -> int:
        """The number of values in all columns inside of arrays and maps, without those of the record that is walked."""
        return int((self.levels[1:, COUNT] * self.levels[1:, WIDTH]).sum())

    def grow(self) -> WalkedColumns:
        """Return larger columns with the same content: with the room that a record needs, and twice what was there."""
        old = self.levels[:, CAPACITY]
        wanted = self.levels[:, WANTED]
        rooms = np.where(wanted > old, np.maximum(2 * old, wanted), old)
        grown = WalkedColumns(self.columns[:, COLUMN_LEVEL], self.levels[:, WIDTH], rooms)
        grown.levels[:, COUNT] = self.levels[:, COUNT]
        for column, (level, base) in enumerate(self.columns):
            used = old[0] if level == 0 else self.levels[level, COUNT]
            target = grown.columns[column, COLUMN_BASE]
            for name in ("values", "lengths", "found"):
                getattr(grown, name)[target : target + used] = getattr(self, name)[base : base + used]
        return grown


class ColumnReader:
    """Makes Arrow arrays of walked columns.

    ``keys``: the types of columns of keys that become text. ``sure``: of each record, whether it is; the reader clears
    it where a value inside of an array, a struct or a map is left to the reference.
    """

    def __init__(
        self, walked: WalkedColumns, texts: StoredTexts, keys: Mapping[int, Type], zone: ZoneInfo, sure: Bools
    ) -> None:
        self._columns, self._texts, self._keys, self._zone, self._sure = walked, texts, keys, zone, sure

    def read_fields(self, types: Sequence[Type], places: Sequence[Place]) -> WalkedFields:
        """Return the fields of the records."""
        fields, count, walked = len(types), len(self._sure), self._columns
        size, shape = fields * count, (fields, count)
        values, lengths = walked.values[:size].reshape(shape), walked.lengths[:size].reshape(shape)
        found = walked.found[:size].reshape(shape)
        nested: dict[int, pa.Array] = {}
        owners = np.arange(count)
        for number, place in enumerate(places):
            if place.inside:
                nested[number] = self._read(place, owners)
            else:
                self._sure &= self._finish_values(place.field.type.kind, values[number], found[number])
        return WalkedFields(types, self._texts, values, lengths, found, self._sure, nested)

    def _finish_values(self, kind: Kind, values: Int64s, found: Bytes) -> Bools | np.bool_:
        """Make values as those of JSON; return which are sure."""
        if kind is Kind.DOUBLE:
            _to_doubles(values, found)
        return to_utc(self._zone, values, found) if kind is Kind.TIMESTAMP else np.True_

    def _read(self, place: Place, owners: Int64s) -> pa.Array:
        """Return the array of a place. ``owners``: the record of each row of its level."""
        kind, arrow = place.field.type.kind, place.field.type.arrow
        base, count, walked = self._columns.columns[place.column, COLUMN_BASE], len(owners), self._columns
        found = walked.found[base : base + count]
        if kind is Kind.STRUCT:
            return struct_array(arrow, [self._read(member, owners) for member in place.inside], found)
        lengths = walked.lengths[base : base + count]
        if kind in (Kind.ARRAY, Kind.MAP):
            inside = [self._read(one, np.repeat(owners, lengths)) for one in place.inside]
            offsets = offsets_of(lengths)
            if kind is Kind.MAP:
                self._sure[owners[have_repeated_keys(inside[0], offsets)]] = False
                inside = [entries_array(arrow, *inside)]
            return list_array(arrow, offsets, inside[0], found)
        values = walked.values[base : base + count].copy()  # the array is not to keep the memory of all columns
        in_range = self._finish_values(kind, values, found)
        if not np.all(in_range):
            self._sure[owners[~in_range]] = False
        if key := self._keys.get(place.column):
            return scalar_array(key.arrow, self._texts, values, lengths, found).cast(arrow)
        return scalar_array(arrow, self._texts, values, lengths, found)


def _to_doubles(values: Int64s, found: Bytes) -> None:
    """Replace whole numbers and the bits of floats by the bits of doubles."""
    whole, floats = found == WHOLE_DOUBLE, found == FLOAT_BITS
    if whole.any():
        values[whole] = values[whole].astype(np.float64).view(np.int64)
    if floats.any():
        singles = values[floats].astype(np.uint32).view(np.float32)
        values[floats] = singles.astype(np.float64).view(np.int64)
    found[whole | floats] = PRESENT
