"""State with many values per key: the elements of a list, the values of a map. Both are called items.

The items of a key are kept and numbered in the order in which they were last written, or refreshed by a single read.
The order is stored, so the output does not depend on when a process was restarted. It is also the order of expiry: an
item expires no earlier than the items before it. So expired items, and items dropped from a full list, always come
first.

A *user key* (as in Flink) finds an item within the key of the stream: the key of a map, or the number of a list's
element. A *key slot* (``streamcore.columnar.key_slots``) is the index at which all state of one stream key is kept.
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
    """What happens when an item is added to a full list or map. Both outcomes are counted.

    DROP_OLDEST: the first item in the order of writing is dropped. REJECT: the new item is not stored.
    """

    DROP_OLDEST = "drop_oldest"
    REJECT = "reject"


class CollectionItem(NamedTuple):
    """A value and its place in the order of its key.

    ``refreshed_ms``: the time from which the time to live is counted, in epoch milliseconds of its domain. None if the
    state has no time to live, or had none when the item was stored.
    """

    value: object
    order: int
    refreshed_ms: int | None


#: Items by user key, in order.
CollectionItems = OrderedDict[object, CollectionItem]


class CollectionTable:
    """One list state or map state, for all keys of a shard. Methods without ``key_slot`` work on the current key.

    ``user_key_type``: the type of a map's keys; None for a list. ``max_items``: per key.
    """

    def __init__(
        self,
        name: str,
        value_type: ValueType,
        user_key_type: ValueType | None,
        max_items: int,
        when_full: WhenFull,
        ttl: Ttl | None,
        scope: CallScope,
    ) -> None:
        self.name = name
        self.value_type = value_type
        self.user_key_type = user_key_type
        self.ttl = ttl
        self.cells: list[CollectionItems | None] = []
        self.dirty: dict[tuple[int, object], None] = {}
        self._max_items = max_items
        self._when_full = when_full
        self._scope = scope
        self._keys_to_sort: set[int] = set()
        self._restored_keys: set[int] = set()
        self._restored_without_stamp: list[tuple[int, object]] = []
        scope.after_undo.append(self._sort_after_undo)

    # --- the current key ----------------------------------------------------------------------------------------

    def unexpired_items(self) -> CollectionItems:
        """Drop the expired items of the current key and return the rest. The caller must not change the result."""
        key_slot = self._scope.key_slot
        items = self.cells[key_slot]
        if items is None:
            return _EMPTY
        if self.ttl is not None:
            self._drop_expired_in_call(key_slot, items)
        return items

    def read_all(self) -> list[tuple[object, object]]:
        """Return user keys and values in order. With ``Refresh.ON_READ`` this refreshes every item."""
        items = self.unexpired_items()
        if items and self.ttl is not None and self.ttl.refresh is Refresh.ON_READ:
            self._refresh_all(items)
        return [(user_key, item.value) for user_key, item in items.items()]

    def read(self, user_key: object) -> object:
        """Return the value of a user key, or None.

        With ``Refresh.ON_READ`` this restarts the item's time to live and moves it to the end.
        """
        item = self.unexpired_items().get(user_key)
        if item is None:
            return None
        if self.ttl is not None and self.ttl.refresh is Refresh.ON_READ:
            self._refresh_and_move_last(user_key, item, self.ttl)
        return item.value

    def put(self, user_key: object, value: object) -> None:
        """Write an item as the newest. In a full collection, first drop the oldest, or reject the new one."""
        value = self.coerce(value)
        items = self.unexpired_items()
        if user_key not in items and len(items) >= self._max_items:
            if self._when_full is WhenFull.REJECT:
                self._scope.count("entries_rejected")
                return
            self._scope.count("entries_dropped")
            self.remove(next(iter(items)))
        self._write_last(user_key, value)

    def append(self, value: object) -> None:
        """Add an element at the end of a list."""
        items = self.unexpired_items()
        self.put(next(reversed(items.values())).order + 1 if items else 0, value)

    def remove(self, user_key: object) -> None:
        """Remove an item, which must exist."""
        key_slot = self._scope.key_slot
        items = self.cells[key_slot]
        assert items is not None, "remove() of an item that does not exist"
        self._scope.journal.append((self._undo_change, key_slot, user_key, items.pop(user_key)))
        self.dirty[key_slot, user_key] = None
        self._drop_if_empty(key_slot)

    def clear(self) -> None:
        """Remove all items."""
        key_slot = self._scope.key_slot
        items = self.cells[key_slot]
        if items is not None:
            self._scope.journal.append((self.cells.__setitem__, key_slot, items))
            self.cells[key_slot] = None
            self.dirty.update(dict.fromkeys((key_slot, user_key) for user_key in items))
            self._scope.emptied.add(key_slot)

    def coerce(self, value: object) -> object:
        """Return the value as a later read returns it.

        Raise ``ValueTypeMismatch``, naming the state, if the value is None or has the wrong type.
        """
        if value is None:
            raise ValueTypeMismatch(
                f"state {self.name}: None cannot be stored; remove the item, or store None inside a tuple"
            )
        try:
            return self.value_type.coerce(value)
        except ValueTypeMismatch as error:
            raise ValueTypeMismatch(f"state {self.name}: {error}") from None

    def coerce_user_key(self, user_key: object) -> object:
        """Return a map key as a later read returns it.

        Raise ``ValueTypeMismatch``, naming the state, if the key has the wrong type.
        """
        assert self.user_key_type is not None, "only a map has user keys"
        try:
            return self.user_key_type.coerce(user_key)
        except ValueTypeMismatch as error:
            raise ValueTypeMismatch(f"key of state {self.name}: {error}") from None

    def _write_last(self, user_key: object, value: object) -> None:
        key_slot = self._scope.key_slot
        items = self.cells[key_slot]
        if items is None:
            items = self.cells[key_slot] = OrderedDict()
        last = next(reversed(items.values())) if items else None
        before = items.pop(user_key, None)
        items[user_key] = CollectionItem(value, 0 if last is None else last.order + 1, self._next_stamp(last))
        if self.user_key_type is None:
            items[user_key] = items[user_key]._replace(order=int(user_key))  # type: ignore[call-overload]  # a list
        self._scope.journal.append((self._undo_change, key_slot, user_key, before))
        self.dirty[key_slot, user_key] = None

    def _next_stamp(self, last: CollectionItem | None) -> int | None:
        if self.ttl is None:
            return None
        now = self._now(self.ttl)
        return now if last is None or last.refreshed_ms is None else max(now, last.refreshed_ms)

    def _refresh_and_move_last(self, user_key: object, item: CollectionItem, ttl: Ttl) -> None:
        if item.refreshed_ms is None or item.refreshed_ms < self._now(ttl):
            self._write_last(user_key, item.value)

    def _refresh_all(self, items: CollectionItems) -> None:
        """Restart the time to live of all items, keeping their order."""
        key_slot, refreshed_ms = self._scope.key_slot, self._next_stamp(next(reversed(items.values())))
        for user_key, item in items.items():
            if item.refreshed_ms != refreshed_ms:
                self._scope.journal.append((self._undo_change, key_slot, user_key, item))
                items[user_key] = item._replace(refreshed_ms=refreshed_ms)
                self.dirty[key_slot, user_key] = None

    # --- undo ---------------------------------------------------------------------------------------------------

    def _undo_change(self, key_slot: int, user_key: object, before: CollectionItem | None) -> None:
        """Restore the item that a change replaced, or delete the one that it added (``before`` is None)."""
        items = self.cells[key_slot]
        if items is None:
            items = self.cells[key_slot] = OrderedDict()
        if before is None:
            del items[user_key]
            self._drop_if_empty(key_slot)
        else:
            items[user_key] = before
            self._keys_to_sort.add(key_slot)

    def _sort_after_undo(self) -> None:
        """Sort the items that an undo restored at the end of their key."""
        for key_slot in self._keys_to_sort:
            self._sort(key_slot)
        self._keys_to_sort.clear()

    def _sort(self, key_slot: int) -> None:
        items = self.cells[key_slot]
        if items is not None:
            self.cells[key_slot] = OrderedDict(sorted(items.items(), key=lambda pair: pair[1].order))

    # --- all keys -----------------------------------------------------------------------------------------------

    def has_items(self, key_slot: int) -> bool:
        """Return whether the key has items."""
        return self.cells[key_slot] is not None

    @property
    def items_a_key(self) -> float:
        """Return about how many items a key slot has: the mean over some hundreds of them."""
        sample = self.cells[:: len(self.cells) // _SAMPLE + 1]
        return sum(len(items) for items in sample if items is not None) / max(1, len(sample))

    def drop(self, key_slots: Iterable[int]) -> None:
        """Forget the items of these keys, which are written."""
        for key_slot in key_slots:
            self.cells[key_slot] = None

    def is_live(self, key_slot: int) -> bool:
        """Return whether the key has an item that has not expired. The last item expires last."""
        items = self.cells[key_slot]
        return items is not None and not self._is_expired(next(reversed(items)), items)

    def grow(self, key_count: int) -> None:
        """Make room for ``key_count`` keys."""
        self.cells.extend([None] * (key_count - len(self.cells)))

    def purge_expired(self, key_slots: Iterable[int]) -> None:
        """Free the memory of expired items, between two calls of the function.

        No undo and no tombstone is needed: the caller rewrites these keys' bucket of the state log without the items.
        """
        for key_slot in key_slots:
            items = self.cells[key_slot]
            while items and self._is_expired(user_key := next(iter(items)), items):
                del items[user_key]
                self._scope.counts["expired"] += 1
            self._drop_if_empty(key_slot)

    def start_expiry(self) -> None:
        """Start the time to live of restored items that were stored without one."""
        if self.ttl is None:
            return
        now = self._now(self.ttl)
        for key_slot, user_key in self._restored_without_stamp:
            items = self.cells[key_slot]
            if items is not None and user_key in items and items[user_key].refreshed_ms is None:
                items[user_key] = items[user_key]._replace(refreshed_ms=now)
                self.dirty[key_slot, user_key] = None
        self._restored_without_stamp = []

    def restore(self, key_slot: int, user_key: object, item: CollectionItem | None) -> None:
        """Load one stored item, or delete it if ``item`` is None. Call ``finish_restore`` after the last one."""
        self._restored_keys.add(key_slot)
        items = self.cells[key_slot]
        if items is None:
            items = self.cells[key_slot] = OrderedDict()
        if item is None:
            items.pop(user_key, None)
            return
        items[user_key] = item
        if self.ttl is not None and item.refreshed_ms is None:
            self._restored_without_stamp.append((key_slot, user_key))

    def finish_restore(self) -> None:
        """Sort the items of every restored key. Call it after the last ``restore``."""
        for key_slot in self._restored_keys:
            self._drop_if_empty(key_slot)
            self._sort(key_slot)
        self._restored_keys = set()

    def iter_rows(self, key_slots: Sequence[int]) -> Iterator[tuple[int, object, CollectionItem]]:
        """Yield key slot, user key and item of every item of these keys."""
        for key_slot in key_slots:
            for user_key, item in (self.cells[key_slot] or _EMPTY).items():
                yield key_slot, user_key, item

    def take_dirty(self) -> list[tuple[int, object, CollectionItem | None]]:
        """Return key slot, user key and item (None: deleted) of everything written since the last call."""
        dirty, self.dirty = self.dirty, {}
        return [(key_slot, user_key, (self.cells[key_slot] or _EMPTY).get(user_key)) for key_slot, user_key in dirty]

    def _now(self, ttl: Ttl) -> int:
        return self._scope.now(ttl.domain)

    def _drop_expired_in_call(self, key_slot: int, items: CollectionItems) -> None:
        """Drop expired items as a change of the current call: undone if the call fails, written to the state log."""
        while items and self._is_expired(user_key := next(iter(items)), items):
            self._scope.journal.append((self._undo_change, key_slot, user_key, items.pop(user_key)))
            self.dirty[key_slot, user_key] = None
            self._scope.count("expired")
        self._drop_if_empty(key_slot)

    def _is_expired(self, user_key: object, items: CollectionItems) -> bool:
        refreshed_ms = items[user_key].refreshed_ms
        return (
            self.ttl is not None
            and refreshed_ms is not None
            and refreshed_ms + self.ttl.after_ms <= self._now(self.ttl)
        )

    def _drop_if_empty(self, key_slot: int) -> None:
        """Clear the cell of a key that has no items left, and report the key as emptied."""
        if self.cells[key_slot] is not None and not self.cells[key_slot]:
            self.cells[key_slot] = None
            self._scope.emptied.add(key_slot)


_EMPTY: CollectionItems = OrderedDict()
_SAMPLE = 256
