"""The tables of the values kept for the keys of a function.

====================  ==========================================================================================
table                 rows
====================  ==========================================================================================
``values``            one a key: a column for each value, reducing and aggregating state; all null: gone
``entries``           one an element of a list or entry of a map, in binary form; value null: gone
``timers``            one a timer; order null: gone
``broadcast``         one an entry of the broadcast state
====================  ==========================================================================================

The names are the same for every function, so that a new version finds the values that an older one stored. Rows of
``values`` and ``entries`` hold the version of the function that wrote them.
"""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from streamcore.keyed.collection_table import CollectionItem, CollectionTable
from streamcore.keyed.keyed_store import KeyedStore
from streamcore.keyed.migration import Row, StateMigration
from streamcore.keyed.value_codec import decode, encode
from streamcore.keyed.value_state import AT, VALUE, decode_column
from streamcore.state.row_versions import Versions, split_by_version, with_version
from streamcore.state.table import StateTable

_STATE = "__state"
_ENTRY = "__entry"
_ORDER = "__order"
_VALUE = "__value"
_AT = "__at"


def build_tables(store: KeyedStore) -> dict[str, StateTable]:
    """Return the tables of a store by name."""
    return {
        "values": ValueStateTable(store),
        "entries": CollectionStateTable(store),
        "timers": store.timers,
        "broadcast": store.broadcast,
    }


class ValueStateTable:
    """The table ``values``."""

    def __init__(self, store: KeyedStore) -> None:
        self._store = store

    @property
    def versions(self) -> Versions[Row]:
        """Return the versions of its rows' layout."""
        return self._store.versions

    def changes(self) -> pl.DataFrame:
        return _with_version(self._store.values.changes(), self._store)

    def rows(self, bucket: int, buckets: int) -> pl.DataFrame:
        return _with_version(self._store.values.rows(bucket, buckets), self._store)

    def load(self, rows: pl.DataFrame) -> None:
        store = self._store
        for version, group in split_by_version(rows).items():
            store.versions.check(version)
            slots = store.slots_for(group)
            if version == store.versions.current:
                store.check_columns(group)
                store.migration.migrate(slots)
                store.values.take(slots, group)
            else:
                _stage_values(store.migration, version, slots, group)


class CollectionStateTable:
    """The table ``entries``."""

    def __init__(self, store: KeyedStore) -> None:
        self._store = store

    @property
    def versions(self) -> Versions[Row]:
        """Return the versions of its rows' layout."""
        return self._store.versions

    def changes(self) -> pl.DataFrame:
        return self._frame({e: e.take_dirty() for e in self._store.entries.values()})

    def rows(self, bucket: int, buckets: int) -> pl.DataFrame:
        if not self._store.entries:
            return pl.DataFrame()
        slots = self._store.keys.in_bucket(bucket, buckets)
        for entries in self._store.entries.values():
            entries.expire(slots)
        return self._frame({e: list(e.iter_rows(slots)) for e in self._store.entries.values()})

    def load(self, rows: pl.DataFrame) -> None:
        store = self._store
        for version, group in split_by_version(rows).items():
            store.versions.check(version)
            slots = store.slots_for(group)
            old = version < store.versions.current
            if not old:
                store.migration.migrate(slots)
            for slot, name, entry, order, value, stamp in zip(slots, *_entry_columns(group), strict=True):
                item = None if value is None else CollectionItem(decode(value), order, stamp)
                found_by = order if entry is None else decode(entry)
                if old:
                    row = store.migration.row_for(slot, version)
                    _keep((row.lists if entry is None else row.maps).setdefault(name, {}), found_by, item)
                elif item is None:
                    store.declared_entries(name).restore(slot, found_by, None)
                else:
                    store.restore(store.declared_entries(name), slot, None if entry is None else found_by, item)

    def _frame(
        self, written: Mapping[CollectionTable, list[tuple[int, object, CollectionItem | None]]]
    ) -> pl.DataFrame:
        rows = [(s, e.name, *_pack_entry(e, entry, item)) for e, items in written.items() for s, entry, item in items]
        if not rows:
            return pl.DataFrame()
        slots, names, entries, orders, values, stamps = zip(*rows, strict=True)
        columns = [
            *self._store.keys.stored_columns(slots),
            pl.Series(_STATE, names, pl.String),
            pl.Series(_ENTRY, entries, pl.Binary),
            pl.Series(_ORDER, orders, pl.Int64),
            pl.Series(_VALUE, values, pl.Binary),
            pl.Series(_AT, stamps, pl.Int64),
        ]
        return _with_version(pl.DataFrame(columns), self._store)


def _pack_entry(
    table: CollectionTable, entry: object, item: CollectionItem | None
) -> tuple[bytes | None, int | None, bytes | None, int | None]:
    """Return entry, order, value and stamp as stored."""
    if table.entry_type is None:
        assert isinstance(entry, int), "elements of a list have numbers"
        return None, entry, None if item is None else encode(table.value_type.pack(item.value)), item and item.stamp
    found_by = encode(table.entry_type.pack(entry))
    if item is None:
        return found_by, None, None, None
    return found_by, item.order, encode(table.value_type.pack(item.value)), item.stamp


def _entry_columns(rows: pl.DataFrame) -> list[list[object]]:
    return [rows[name].to_list() for name in (_STATE, _ENTRY, _ORDER, _VALUE, _AT)]


def _keep(items: dict[object, CollectionItem], found_by: object, item: CollectionItem | None) -> None:
    if item is None:
        items.pop(found_by, None)
    else:
        items[found_by] = item


def _stage_values(migration: StateMigration, version: int, slots: list[int], rows: pl.DataFrame) -> None:
    """Stage the stored values of an older version; the types of the columns are those declared then."""
    names = [column.removeprefix(VALUE) for column in rows.columns if column.startswith(VALUE)]
    columns = {name: decode_column(rows, VALUE + name) for name in names}
    stamps = {name: decode_column(rows, AT + name) for name in names}
    for n, slot in enumerate(slots):
        migration.row_for(slot, version).values = {
            name: CollectionItem(values[n], 0, stamps[name][n])  # type: ignore[arg-type]  # whole numbers, or null
            for name, values in columns.items()
            if values[n] is not None
        }


def _with_version(rows: pl.DataFrame, store: KeyedStore) -> pl.DataFrame:
    return with_version(rows, store.versions.current) if rows.height else rows
