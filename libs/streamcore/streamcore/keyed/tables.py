"""The tables of what is kept for the keys of a function.

====================  ==========================================================================================
table                 rows
====================  ==========================================================================================
``values``            one a key: a column for each value, reducing and aggregating state; all null: gone
``entries``           one an element of a list or entry of a map, in binary form; value null: gone
``timers``            one a timer; order null: gone
``broadcast``         one an entry of the broadcast state
====================  ==========================================================================================

The names are the same for every function, so that a new version finds what an older one stored. Rows of ``values`` and
``entries`` say the version of the function that wrote them.
"""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from streamcore.keyed.cells import AT, VALUE, unpacked
from streamcore.keyed.entries import Entries, Item
from streamcore.keyed.migration import Row, Staged
from streamcore.keyed.plain import decode, encode
from streamcore.keyed.store import KeyedStore
from streamcore.state.table import StateTable
from streamcore.state.versions import Versions, by_version, stamped

_STATE = "__state"
_ENTRY = "__entry"
_ORDER = "__order"
_VALUE = "__value"
_AT = "__at"


def tables_of(store: KeyedStore) -> dict[str, StateTable]:
    """By name."""
    return {
        "values": ValueTable(store),
        "entries": EntryTable(store),
        "timers": store.timers,
        "broadcast": store.broadcast,
    }


class ValueTable:
    """The table ``values``."""

    def __init__(self, store: KeyedStore) -> None:
        self._store = store

    @property
    def versions(self) -> Versions[Row]:
        """Of its rows' layout."""
        return self._store.versions

    def changes(self) -> pl.DataFrame:
        return _versioned(self._store.values.changes(), self._store)

    def rows(self, bucket: int, buckets: int) -> pl.DataFrame:
        return _versioned(self._store.values.rows(bucket, buckets), self._store)

    def load(self, rows: pl.DataFrame) -> None:
        store = self._store
        for version, group in by_version(rows).items():
            store.versions.check(version)
            slots = store.slots_of(group)
            if version == store.versions.current:
                store.check_columns(group)
                store.staged.settle(slots)
                store.values.take(slots, group)
            else:
                _stage_values(store.staged, version, slots, group)


class EntryTable:
    """The table ``entries``."""

    def __init__(self, store: KeyedStore) -> None:
        self._store = store

    @property
    def versions(self) -> Versions[Row]:
        """Of its rows' layout."""
        return self._store.versions

    def changes(self) -> pl.DataFrame:
        return self._frame({e: e.take_dirty() for e in self._store.entries.values()})

    def rows(self, bucket: int, buckets: int) -> pl.DataFrame:
        if not self._store.entries:
            return pl.DataFrame()
        slots = self._store.keys.in_bucket(bucket, buckets)
        for entries in self._store.entries.values():
            entries.expire(slots)
        return self._frame({e: list(e.rows_of(slots)) for e in self._store.entries.values()})

    def load(self, rows: pl.DataFrame) -> None:
        store = self._store
        for version, group in by_version(rows).items():
            store.versions.check(version)
            slots = store.slots_of(group)
            old = version < store.versions.current
            if not old:
                store.staged.settle(slots)
            for slot, name, entry, order, value, stamp in zip(slots, *_entry_columns(group), strict=True):
                item = None if value is None else Item(decode(value), order, stamp)
                found_by = order if entry is None else decode(entry)
                if old:
                    row = store.staged.at(slot, version)
                    _keep((row.lists if entry is None else row.maps).setdefault(name, {}), found_by, item)
                elif item is None:
                    store.declared_entries(name).restore(slot, found_by, None)
                else:
                    store.restore(store.declared_entries(name), slot, None if entry is None else found_by, item)

    def _frame(self, written: Mapping[Entries, list[tuple[int, object, Item | None]]]) -> pl.DataFrame:
        rows = [(s, e.name, *_packed(e, entry, item)) for e, items in written.items() for s, entry, item in items]
        if not rows:
            return pl.DataFrame()
        slots, names, entries, orders, values, stamps = zip(*rows, strict=True)
        columns = [
            *self._store.keys.stored(slots),
            pl.Series(_STATE, names, pl.String),
            pl.Series(_ENTRY, entries, pl.Binary),
            pl.Series(_ORDER, orders, pl.Int64),
            pl.Series(_VALUE, values, pl.Binary),
            pl.Series(_AT, stamps, pl.Int64),
        ]
        return _versioned(pl.DataFrame(columns), self._store)


def _packed(of: Entries, entry: object, item: Item | None) -> tuple[bytes | None, int | None, bytes | None, int | None]:
    """Entry, order, value and stamp as stored."""
    if of.entry_kind is None:
        assert isinstance(entry, int), "elements of a list have numbers"
        return None, entry, None if item is None else encode(of.kind.pack(item.value)), item and item.stamp
    found_by = encode(of.entry_kind.pack(entry))
    if item is None:
        return found_by, None, None, None
    return found_by, item.order, encode(of.kind.pack(item.value)), item.stamp


def _entry_columns(rows: pl.DataFrame) -> list[list[object]]:
    return [rows[name].to_list() for name in (_STATE, _ENTRY, _ORDER, _VALUE, _AT)]


def _keep(items: dict[object, Item], found_by: object, item: Item | None) -> None:
    if item is None:
        items.pop(found_by, None)
    else:
        items[found_by] = item


def _stage_values(staged: Staged, version: int, slots: list[int], rows: pl.DataFrame) -> None:
    """Stored values of an older version; what they were declared as is in the types of the columns."""
    names = [column.removeprefix(VALUE) for column in rows.columns if column.startswith(VALUE)]
    columns = {name: unpacked(rows, VALUE + name) for name in names}
    stamps = {name: unpacked(rows, AT + name) for name in names}
    for n, slot in enumerate(slots):
        staged.at(slot, version).values = {
            name: Item(values[n], 0, stamps[name][n])  # type: ignore[arg-type]  # whole numbers, or null
            for name, values in columns.items()
            if values[n] is not None
        }


def _versioned(rows: pl.DataFrame, store: KeyedStore) -> pl.DataFrame:
    return stamped(rows, store.versions.current) if rows.height else rows
