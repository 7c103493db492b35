"""The state tables of a keyed function: the stored form of ``KeyedStore``.

====================  ==========================================================================================
table                 one row
====================  ==========================================================================================
``values``            per key: a column for each value, reducing and aggregating state; all null: deleted
``entries``           per element of a list or item of a map, in binary form; value null: deleted
``timers``            per timer; order null: deleted
``broadcast``         per entry of the broadcast state
====================  ==========================================================================================

The names are the same for every function, so that a new version finds the values that an older one stored. Rows of
``values`` and ``entries`` hold the version of the function that wrote them.

The columns of ``entries``: the state's name, the map key (null for a list), the item's order, its value, and the time
from which its time to live is counted.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import polars as pl

from streamcore.keyed.collection_table import CollectionItem, CollectionTable
from streamcore.keyed.keyed_store import KeyedStore
from streamcore.keyed.migration import Row, StateMigration
from streamcore.keyed.ttl import Ttl
from streamcore.keyed.value_codec import decode, encode
from streamcore.keyed.value_state import AT, VALUE, decode_column
from streamcore.state.row_versions import VERSION, Versions, split_by_version, with_version
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
    """The table ``values``: the single-value states."""

    def __init__(self, store: KeyedStore) -> None:
        self._store = store

    @property
    def versions(self) -> Versions[Row]:
        """Return the versions of the function: each row holds the version that wrote it."""
        return self._store.versions

    def changes(self) -> pl.DataFrame:
        return _with_version(self._store.values.changes(), self._store)

    def rows(self, bucket: int, buckets: int) -> pl.DataFrame:
        return _with_version(self._store.values.rows(bucket, buckets), self._store)

    def rows_for(self, key_slots: Sequence[int]) -> pl.DataFrame:
        """Return the rows of those of these keys that have values."""
        if not self._store.cells:
            return pl.DataFrame()
        return _with_version(self._store.values.rows_for(key_slots), self._store)

    def load(self, rows: pl.DataFrame) -> None:
        store = self._store
        for version, group in split_by_version(rows).items():
            store.versions.check(version)
            key_slots = store.key_slots_for(group)
            if version == store.versions.current:
                store.check_columns(group)
                store.migration.migrate(key_slots)
                store.values.load(key_slots, group)
            else:
                _collect_old_values(store.migration, version, key_slots, group)


class CollectionStateTable:
    """The table ``entries``: the lists and maps."""

    def __init__(self, store: KeyedStore) -> None:
        self._store = store

    @property
    def versions(self) -> Versions[Row]:
        """Return the versions of the function: each row holds the version that wrote it."""
        return self._store.versions

    def changes(self) -> pl.DataFrame:
        return self._frame({table: table.take_dirty() for table in self._store.collections.values()})

    def rows(self, bucket: int, buckets: int) -> pl.DataFrame:
        if not self._store.collections:
            return pl.DataFrame()
        return self.rows_for(self._store.keys.in_bucket(bucket, buckets))

    def rows_for(self, key_slots: Sequence[int]) -> pl.DataFrame:
        """Return the items of these keys, after freeing expired ones."""
        for table in self._store.collections.values():
            table.purge_expired(key_slots)
        return self._frame({table: list(table.iter_rows(key_slots)) for table in self._store.collections.values()})

    def load(self, rows: pl.DataFrame) -> None:
        store = self._store
        for version, group in split_by_version(rows).items():
            store.versions.check(version)
            key_slots = store.key_slots_for(group)
            is_old = version < store.versions.current
            if not is_old:
                store.migration.migrate(key_slots)
            for key_slot, name, map_key, order, value, refreshed_ms in zip(
                key_slots, *_item_columns(group), strict=True
            ):
                item = None if value is None else CollectionItem(decode(value), order, refreshed_ms)
                user_key = order if map_key is None else decode(map_key)
                if is_old:
                    row = store.migration.row_for(key_slot, version)
                    _keep_item((row.lists if map_key is None else row.maps).setdefault(name, {}), user_key, item)
                elif item is None:
                    store.declared_collection(name).restore(key_slot, user_key, None)
                else:
                    store.restore(
                        store.declared_collection(name), key_slot, None if map_key is None else user_key, item
                    )

    def _frame(
        self, written: Mapping[CollectionTable, list[tuple[int, object, CollectionItem | None]]]
    ) -> pl.DataFrame:
        rows = [
            (key_slot, table.name, *_encode_item(table, user_key, item))
            for table, items in written.items()
            for key_slot, user_key, item in items
        ]
        if not rows:
            return pl.DataFrame()
        key_slots, names, map_keys, orders, values, refreshed_times = zip(*rows, strict=True)
        columns = [
            *self._store.keys.stored_columns(key_slots),
            pl.Series(_STATE, names, pl.String),
            pl.Series(_ENTRY, map_keys, pl.Binary),
            pl.Series(_ORDER, orders, pl.Int64),
            pl.Series(_VALUE, values, pl.Binary),
            pl.Series(_AT, refreshed_times, pl.Int64),
        ]
        return _with_version(pl.DataFrame(columns), self._store)


def live_values(store: KeyedStore, rows: pl.DataFrame) -> pl.DataFrame:
    """Return stored values without those whose time to live has ended. Rows of an older version stay."""
    expiring = [cell for cell in store.cells.values() if cell.ttl is not None and AT + cell.name in rows.columns]
    if not expiring:
        return rows
    is_current = pl.col(VERSION) == store.versions.current
    rows = rows.with_columns(
        pl.when(is_current & (pl.col(AT + cell.name) <= _limit_ms(store, cell.ttl)))
        .then(None)
        .otherwise(pl.col(VALUE + cell.name))
        .alias(VALUE + cell.name)
        for cell in expiring
    )
    return rows.filter(~is_current | pl.any_horizontal(pl.col(f"^{re.escape(VALUE)}.*$").is_not_null()))


def live_entries(store: KeyedStore, rows: pl.DataFrame) -> pl.DataFrame:
    """Return stored items without those whose time to live has ended. Rows of an older version stay."""
    expired = pl.lit(value=False)
    for name, table in store.collections.items():
        if table.ttl is not None:
            ended = pl.col(_AT).is_not_null() & (pl.col(_AT) <= _limit_ms(store, table.ttl))
            expired |= (pl.col(_STATE) == name) & ended
    return rows.filter(~((pl.col(VERSION) == store.versions.current) & expired))


def _limit_ms(store: KeyedStore, ttl: Ttl | None) -> int:
    assert ttl is not None, "only a state with a time to live expires"
    return store.scope.now(ttl.domain) - ttl.after_ms


def _encode_item(
    table: CollectionTable, user_key: object, item: CollectionItem | None
) -> tuple[bytes | None, int | None, bytes | None, int | None]:
    """Return the stored map key (None for a list), order, value and ``refreshed_ms`` of an item; None where deleted."""
    if table.user_key_type is None:
        assert isinstance(user_key, int), "the user key of a list's element is its number"
        value = None if item is None else encode(table.value_type.pack(item.value))
        return None, user_key, value, item and item.refreshed_ms
    map_key = encode(table.user_key_type.pack(user_key))
    if item is None:
        return map_key, None, None, None
    return map_key, item.order, encode(table.value_type.pack(item.value)), item.refreshed_ms


def _item_columns(rows: pl.DataFrame) -> list[list[object]]:
    return [rows[name].to_list() for name in (_STATE, _ENTRY, _ORDER, _VALUE, _AT)]


def _keep_item(items: dict[object, CollectionItem], user_key: object, item: CollectionItem | None) -> None:
    if item is None:
        items.pop(user_key, None)
    else:
        items[user_key] = item


def _collect_old_values(migration: StateMigration, version: int, key_slots: list[int], rows: pl.DataFrame) -> None:
    """Collect the stored values of an older version for its migration. The columns have that version's types."""
    names = [column.removeprefix(VALUE) for column in rows.columns if column.startswith(VALUE)]
    columns = {name: decode_column(rows, VALUE + name) for name in names}
    refreshed_times = {name: decode_column(rows, AT + name) for name in names}
    for n, key_slot in enumerate(key_slots):
        migration.row_for(key_slot, version).values = {
            name: CollectionItem(values[n], 0, refreshed_times[name][n])  # type: ignore[arg-type]  # whole numbers, or null
            for name, values in columns.items()
            if values[n] is not None
        }


def _with_version(rows: pl.DataFrame, store: KeyedStore) -> pl.DataFrame:
    return with_version(rows, store.versions.current) if rows.height else rows
