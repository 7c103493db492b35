"""State of an older version of a function, on its way to the current one.

A migration sees all that is kept for one key: a dictionary from the names of states to plain values (the accumulator of
reducing and aggregating states; a list for lists, a dictionary for maps; a state without a value is not there) and
answers the same for the next version. Plain values: a NamedTuple of the old version comes as a tuple.

Stored rows of one key come oldest first, and only ever of rising versions: what was written before the upgrade is
complete when the first row written after it comes. So a key is migrated when that row comes, or at the end, and the
rows after the upgrade change what the migration made, exactly as they did when they were written. That holds as long
as a migration is a pure function. A time to live goes on for values and entries that keep their names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from streamcore.errors import ConfigError
from streamcore.keyed.collection_table import CollectionItem
from streamcore.state.row_versions import Versions

#: States of one key by name, as plain values.
Row = dict[str, object]
Migration = Callable[[Row], Row]
K = TypeVar("K")


@dataclass(slots=True)
class KeyRow:
    """Everything kept for one key. ``lists``: items by number; ``maps``: items by entry."""

    version: int
    values: dict[str, CollectionItem] = field(default_factory=dict)
    lists: dict[str, dict[object, CollectionItem]] = field(default_factory=dict)
    maps: dict[str, dict[object, CollectionItem]] = field(default_factory=dict)

    def to_plain_values(self) -> Row:
        """Return the plain values that a migration receives."""
        row: Row = {name: item.value for name, item in self.values.items()}
        row |= {name: [item.value for _, item in _sort_by_order(items)] for name, items in self.lists.items() if items}
        return row | {
            name: {entry: item.value for entry, item in _sort_by_order(items)}
            for name, items in self.maps.items()
            if items
        }

    def upgrade(self, versions: Versions[Row], to: int) -> KeyRow:
        """Return the same of a later version."""
        row = versions.upgrade(self.to_plain_values(), self.version, to)
        if not isinstance(row, dict):
            raise ConfigError(f"{versions.what}: a migration answered {type(row).__name__}; return a dictionary")
        result = KeyRow(to)
        for name, value in row.items():
            if isinstance(value, list):
                old = self.lists.get(name, {})
                result.lists[name] = _items(enumerate(value), old if len(old) == len(value) else {})
            elif isinstance(value, Mapping):
                result.maps[name] = _items(value.items(), self.maps.get(name, {}))
            elif value is not None:
                result.values[name] = CollectionItem(value, 0, _stamp(self.values, name))
        return result


class StateMigration:
    """Keys of older versions, until nothing more can come for them."""

    def __init__(self, versions: Versions[Row], write: Callable[[int, KeyRow], None]) -> None:
        self._versions = versions
        self._write = write
        self._rows: dict[int, KeyRow] = {}

    def row_for(self, slot: int, version: int) -> KeyRow:
        """Return the state of a key so far, for adding stored rows of that (older) version."""
        row = self._rows.get(slot, KeyRow(version))
        if row.version < version:
            row = row.upgrade(self._versions, version)
        self._rows[slot] = row
        return row

    def migrate(self, slots: Iterable[int]) -> None:
        """Bring these keys to the current version, for rows of it follow."""
        for slot in slots:
            if (row := self._rows.pop(slot, None)) is not None:
                self._write(slot, row.upgrade(self._versions, self._versions.current))

    def migrate_all(self) -> None:
        """Return no rows follow."""
        self.migrate(list(self._rows))


def _sort_by_order(items: Mapping[object, CollectionItem]) -> list[tuple[object, CollectionItem]]:
    return sorted(items.items(), key=lambda pair: pair[1].order)


def _items(
    pairs: Iterable[tuple[object, object]], old: Mapping[object, CollectionItem]
) -> dict[object, CollectionItem]:
    """Return items numbered from 0, with the stamps of the entries that existed before."""
    return {entry: CollectionItem(value, n, _stamp(old, entry)) for n, (entry, value) in enumerate(pairs)}


def _stamp(old: Mapping[K, CollectionItem], name: K) -> int | None:
    item = old.get(name)
    return None if item is None else item.stamp
