"""Migrates the stored state of an older version of a function to the current version, key by key.

A migration takes the state of one key and returns it for the next version: a dictionary from the names of states to
plain values. A list state is a list, a map state a dictionary, a reducing or aggregating state its accumulator; a state
without a value is absent. A NamedTuple of the old version arrives as a tuple.

The stored rows of a key are loaded oldest first, so their versions only rise: when the first row of a new version
arrives, the old version's rows are complete. The key is migrated then, or after the last row, and the rows of the new
version change the migrated state, exactly as when they were written. This needs a migration to be a pure function. The
time to live continues for values that keep their state's name, and for map items that also keep their key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from streamcore.errors import ConfigError
from streamcore.keyed.collection_table import CollectionItem
from streamcore.state.row_versions import Versions

#: The states of one key by name, as plain values.
Row = dict[str, object]
Migration = Callable[[Row], Row]
K = TypeVar("K")


@dataclass(slots=True)
class KeyRow:
    """The state of one key in one version. ``lists``: items by number; ``maps``: items by map key."""

    version: int
    values: dict[str, CollectionItem] = field(default_factory=dict)
    lists: dict[str, dict[object, CollectionItem]] = field(default_factory=dict)
    maps: dict[str, dict[object, CollectionItem]] = field(default_factory=dict)

    def to_plain_values(self) -> Row:
        """Return the plain values that a migration receives."""
        row: Row = {name: item.value for name, item in self.values.items()}
        row |= {name: [item.value for _, item in _sort_by_order(items)] for name, items in self.lists.items() if items}
        return row | {
            name: {key: item.value for key, item in _sort_by_order(items)} for name, items in self.maps.items() if items
        }

    def upgrade(self, versions: Versions[Row], to_version: int) -> KeyRow:
        """Return the state migrated to a later version; ``ConfigError`` if a migration returns no dictionary."""
        row = versions.upgrade(self.to_plain_values(), self.version, to_version)
        if not isinstance(row, dict):
            raise ConfigError(f"{versions.what}: a migration returned {type(row).__name__}; return a dictionary")
        result = KeyRow(to_version)
        for name, value in row.items():
            if isinstance(value, list):
                old = self.lists.get(name, {})
                result.lists[name] = _items(enumerate(value), old if len(old) == len(value) else {})
            elif isinstance(value, Mapping):
                result.maps[name] = _items(value.items(), self.maps.get(name, {}))
            elif value is not None:
                result.values[name] = CollectionItem(value, 0, _refreshed_ms(self.values, name))
        return result


class StateMigration:
    """Collects the rows of older versions by key, until the key can be migrated.

    ``write`` receives the key slot and the migrated state.
    """

    def __init__(self, versions: Versions[Row], write: Callable[[int, KeyRow], None]) -> None:
        self._versions = versions
        self._write = write
        self._rows: dict[int, KeyRow] = {}

    def row_for(self, key_slot: int, version: int) -> KeyRow:
        """Return the collected state of a key, migrated to ``version``; the caller adds stored rows of that version."""
        row = self._rows.get(key_slot, KeyRow(version))
        if row.version < version:
            row = row.upgrade(self._versions, version)
        self._rows[key_slot] = row
        return row

    def migrate(self, key_slots: Iterable[int]) -> None:
        """Migrate these keys to the current version and write them, because rows of the current version follow."""
        for key_slot in key_slots:
            if (row := self._rows.pop(key_slot, None)) is not None:
                self._write(key_slot, row.upgrade(self._versions, self._versions.current))

    def migrate_all(self) -> None:
        """Migrate the keys that are left, after the last stored row."""
        self.migrate(list(self._rows))


def _sort_by_order(items: Mapping[object, CollectionItem]) -> list[tuple[object, CollectionItem]]:
    return sorted(items.items(), key=lambda pair: pair[1].order)


def _items(
    pairs: Iterable[tuple[object, object]], old: Mapping[object, CollectionItem]
) -> dict[object, CollectionItem]:
    """Return items numbered from 0, with the ``refreshed_ms`` of the items that existed before."""
    return {key: CollectionItem(value, n, _refreshed_ms(old, key)) for n, (key, value) in enumerate(pairs)}


def _refreshed_ms(old: Mapping[K, CollectionItem], name: K) -> int | None:
    item = old.get(name)
    return None if item is None else item.refreshed_ms
