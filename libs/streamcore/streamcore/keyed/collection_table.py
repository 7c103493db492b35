"""State that is many values a key: the elements of a list, the entries of a map.

Elements and entries are kept in the order in which they were last written, numbered within their key, so the output
does not depend on when a process was restarted. The order is also that of expiry: an entry lives at least as long as
those written before it. So expired entries, and those that make room in a full list, are always at the front.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from typing import NamedTuple

from streamcore.keyed.call_scope import CallScope
from streamcore.keyed.ttl import Refresh, Ttl
from streamcore.keyed.value_codec import ValueTypeMismatch
from streamcore.keyed.value_types import ValueType


class WhenFull(StrEnum):
    """The treatment of one entry more than a list or map may hold. Either way it is counted.

    DROP_OLDEST: the entry that was written longest ago makes room. REFUSE: the new one is not kept.
    """

    DROP_OLDEST = "drop_oldest"
    REFUSE = "refuse"


class CollectionItem(NamedTuple):
    """A value, its number within the key, and when it was last refreshed (None without a time to live)."""

    value: object
    order: int
    stamp: int | None


#: Items by entry; in a list, by their number.
CollectionItems = OrderedDict[object, CollectionItem]


class CollectionTable:
    """One list or map state of all keys. Methods without a slot are about the current key."""

    def __init__(
        self,
        name: str,
        value_type: ValueType,
        entry_type: ValueType | None,
        most: int,
        when_full: WhenFull,
        ttl: Ttl | None,
        scope: CallScope,
    ) -> None:
        self.name = name
        self.value_type = value_type
        self.entry_type = entry_type
        self.ttl = ttl
        self.cells: list[CollectionItems | None] = []
        self.dirty: dict[tuple[int, object], None] = {}
        self._most = most
        self._when_full = when_full
        self._scope = scope
        self._unordered: set[int] = set()
        self._restored: set[int] = set()
        self._unstamped: list[tuple[int, object]] = []
        scope.repairs.append(self._repair)

    # --- the current key ----------------------------------------------------------------------------------------

    def live(self) -> CollectionItems:
        """Return the items of the current key, without those that have expired. Read only."""
        slot = self._scope.slot
        items = self.cells[slot]
        if items is None:
            return _NONE
        if self.ttl is not None:
            self._drop_expired(slot, items)
        return items

    def read_all(self) -> list[tuple[object, object]]:
        """Return entries and values in order; this counts as a read of each."""
        items = self.live()
        if items and self.ttl is not None and self.ttl.refresh is Refresh.ON_READ:
            self._refresh_all(items)
        return [(entry, item.value) for entry, item in items.items()]

    def read(self, entry: object) -> object:
        """Return one value, or None."""
        item = self.live().get(entry)
        if item is None:
            return None
        if self.ttl is not None and self.ttl.refresh is Refresh.ON_READ:
            self._refresh(entry, item, self.ttl)
        return item.value

    def put(self, entry: object, value: object) -> None:
        """Write an entry, which becomes the last."""
        value = self.coerce(value)
        items = self.live()
        if entry not in items and len(items) >= self._most:
            if self._when_full is WhenFull.REFUSE:
                self._scope.count("entries_refused")
                return
            self._scope.count("entries_dropped")
            self.remove(next(iter(items)))
        self._write(entry, value)

    def append(self, value: object) -> None:
        """Write an element under the next number."""
        items = self.live()
        self.put(next(reversed(items.values())).order + 1 if items else 0, value)

    def remove(self, entry: object) -> None:
        """Remove an entry, which must be there."""
        slot = self._scope.slot
        items = self.cells[slot]
        assert items is not None, "an entry that is there has a cell"
        self._scope.journal.append((self._put_back, slot, entry, items.pop(entry)))
        self.dirty[slot, entry] = None
        self._drop_if_empty(slot)

    def clear(self) -> None:
        """Remove all entries."""
        slot = self._scope.slot
        items = self.cells[slot]
        if items is not None:
            self._scope.journal.append((self.cells.__setitem__, slot, items))
            self.cells[slot] = None
            self.dirty.update(dict.fromkeys((slot, entry) for entry in items))
            self._scope.emptied.add(slot)

    def coerce(self, value: object) -> object:
        """Return the value as it will read back; ``ValueTypeMismatch`` names the state."""
        if value is None:
            raise ValueTypeMismatch(f"state {self.name}: None is no value; remove the entry, or keep a tuple")
        try:
            return self.value_type.coerce(value)
        except ValueTypeMismatch as error:
            raise ValueTypeMismatch(f"state {self.name}: {error}") from None

    def coerce_entry(self, entry: object) -> object:
        """Return the same for the entry of a map."""
        assert self.entry_type is not None, "only maps have entries of their own"
        try:
            return self.entry_type.coerce(entry)
        except ValueTypeMismatch as error:
            raise ValueTypeMismatch(f"entry of state {self.name}: {error}") from None

    def _write(self, entry: object, value: object) -> None:
        slot = self._scope.slot
        items = self.cells[slot]
        if items is None:
            items = self.cells[slot] = OrderedDict()
        last = next(reversed(items.values())) if items else None
        before = items.pop(entry, None)
        items[entry] = CollectionItem(value, 0 if last is None else last.order + 1, self._stamp(last))
        if self.entry_type is None:
            items[entry] = items[entry]._replace(order=int(entry))  # type: ignore[call-overload]  # a list's number
        self._scope.journal.append((self._put_back, slot, entry, before))
        self.dirty[slot, entry] = None

    def _stamp(self, last: CollectionItem | None) -> int | None:
        if self.ttl is None:
            return None
        now = self._now(self.ttl)
        return now if last is None or last.stamp is None else max(now, last.stamp)

    def _refresh(self, entry: object, item: CollectionItem, ttl: Ttl) -> None:
        if item.stamp is None or item.stamp < self._now(ttl):
            self._write(entry, item.value)

    def _refresh_all(self, items: CollectionItems) -> None:
        slot, stamp = self._scope.slot, self._stamp(next(reversed(items.values())))
        for entry, item in items.items():
            if item.stamp != stamp:
                self._scope.journal.append((self._put_back, slot, entry, item))
                items[entry] = item._replace(stamp=stamp)
                self.dirty[slot, entry] = None

    # --- taking back --------------------------------------------------------------------------------------------

    def _put_back(self, slot: int, entry: object, before: CollectionItem | None) -> None:
        items = self.cells[slot]
        if items is None:
            items = self.cells[slot] = OrderedDict()
        if before is None:
            del items[entry]
            self._drop_if_empty(slot)
        else:
            items[entry] = before
            self._unordered.add(slot)

    def _repair(self) -> None:
        """Restore the order after an undo, which put entries back at the end."""
        for slot in self._unordered:
            self._sort(slot)
        self._unordered.clear()

    def _sort(self, slot: int) -> None:
        items = self.cells[slot]
        if items is not None:
            self.cells[slot] = OrderedDict(sorted(items.items(), key=lambda pair: pair[1].order))

    # --- all keys -----------------------------------------------------------------------------------------------

    def holds(self, slot: int) -> bool:
        """Return whether the key has entries."""
        return self.cells[slot] is not None

    def grow(self, slots: int) -> None:
        """Make room for so many keys."""
        self.cells.extend([None] * (slots - len(self.cells)))

    def expire(self, slots: Iterable[int]) -> None:
        """Forget values that have expired."""
        for slot in slots:
            items = self.cells[slot]
            while items and self._is_expired(entry := next(iter(items)), items):
                del items[entry]
                self._scope.counts["expired"] += 1
            self._drop_if_empty(slot)

    def start_expiry(self) -> None:
        """Begin to measure the time of entries that came without one."""
        if self.ttl is None:
            return
        now = self._now(self.ttl)
        for slot, entry in self._unstamped:
            items = self.cells[slot]
            if items is not None and entry in items and items[entry].stamp is None:
                items[entry] = items[entry]._replace(stamp=now)
                self.dirty[slot, entry] = None
        self._unstamped = []

    def restore(self, slot: int, entry: object, item: CollectionItem | None) -> None:
        """Return a stored entry, or that it is gone. ``finish`` puts them into order."""
        self._restored.add(slot)
        items = self.cells[slot]
        if items is None:
            items = self.cells[slot] = OrderedDict()
        if item is None:
            items.pop(entry, None)
            return
        items[entry] = item
        if self.ttl is not None and item.stamp is None:
            self._unstamped.append((slot, entry))

    def finish(self) -> None:
        """Sort the restored keys' entries after the last ``restore``."""
        for slot in self._restored:
            self._drop_if_empty(slot)
            self._sort(slot)
        self._restored = set()

    def iter_rows(self, slots: Sequence[int]) -> Iterator[tuple[int, object, CollectionItem]]:
        """Yield slot, entry and item of everything under these slots."""
        for slot in slots:
            for entry, item in (self.cells[slot] or _NONE).items():
                yield slot, entry, item

    def take_dirty(self) -> list[tuple[int, object, CollectionItem | None]]:
        """Return slot, entry and item (None: deleted) of everything written since the last call."""
        dirty, self.dirty = self.dirty, {}
        return [(slot, entry, (self.cells[slot] or _NONE).get(entry)) for slot, entry in dirty]

    def _now(self, ttl: Ttl) -> int:
        return self._scope.now(ttl.domain)

    def _drop_expired(self, slot: int, items: CollectionItems) -> None:
        while items and self._is_expired(entry := next(iter(items)), items):
            self._scope.journal.append((self._put_back, slot, entry, items.pop(entry)))
            self.dirty[slot, entry] = None
            self._scope.count("expired")
        self._drop_if_empty(slot)

    def _is_expired(self, entry: object, items: CollectionItems) -> bool:
        stamp = items[entry].stamp
        return self.ttl is not None and stamp is not None and stamp + self.ttl.after_ms <= self._now(self.ttl)

    def _drop_if_empty(self, slot: int) -> None:
        """Return a key without entries has no cell."""
        if self.cells[slot] is not None and not self.cells[slot]:
            self.cells[slot] = None
            self._scope.emptied.add(slot)


_NONE: CollectionItems = OrderedDict()
