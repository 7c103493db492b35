"""State that is one value a key: how it is read and written in memory, and the table that makes it durable.

In memory a state is a list of Python objects, indexed by the slot of the key; None is "nothing there". The table holds
one row a key with a column a state, so a key whose states are all empty is its own tombstone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import polars as pl

from streamcore.keyed.call_scope import CallScope
from streamcore.keyed.key_registry import KeyRegistry
from streamcore.keyed.ttl import Refresh, Ttl
from streamcore.keyed.value_codec import ValueTypeMismatch, decode, encode
from streamcore.keyed.value_types import ValueType

#: Columns of a state in the table: its value, and when it was last refreshed (with a time to live only).
VALUE = "state."
AT = "at."


class ValueCell:
    """One state of all keys. ``get`` and ``set`` are about the current key."""

    __slots__ = ("_coerce", "_put_back", "dirty", "name", "scope", "stamps", "ttl", "value_type", "values")

    def __init__(self, name: str, value_type: ValueType, ttl: Ttl | None, scope: CallScope, dirty: set[int]) -> None:
        self.name = name
        self.value_type = value_type
        self.ttl = ttl
        self.scope = scope
        self.dirty = dirty
        self.values: list[object] = []  # grows in place, for its method is kept
        self._coerce = value_type.coerce
        self._put_back = self.values.__setitem__
        self.stamps: list[int | None] = []

    def get(self) -> object:
        """Return the value, or None."""
        return self.values[self.scope.slot]

    def set(self, value: object) -> None:
        """Write; None clears. ``ValueTypeMismatch`` if the state does not take the value."""
        scope = self.scope
        slot, values = scope.slot, self.values
        before = values[slot]
        if value is None:
            scope.emptied.add(slot)
        try:
            values[slot] = self._coerce(value)
        except ValueTypeMismatch as error:
            raise ValueTypeMismatch(f"state {self.name}: {error}") from None
        scope.journal.append((self._put_back, slot, before))
        self.dirty.add(slot)

    def coerce(self, value: object) -> object:
        """Return the value as it will read back; ``ValueTypeMismatch`` names the state."""
        try:
            return self._coerce(value)
        except ValueTypeMismatch as error:
            raise ValueTypeMismatch(f"state {self.name}: {error}") from None

    def grow(self, slots: int) -> None:
        """Make room for so many keys."""
        self.values.extend([None] * (slots - len(self.values)))

    def expire(self, slots: Iterable[int]) -> None:
        """Forget values that have expired."""

    def start_expiry(self) -> None:
        """Begin to measure the time of values that came without one."""

    def restore(self, slot: int, value: object, stamp: int | None) -> None:  # noqa: ARG002  # only with a time to live
        """Return a stored value, as it was; None: it is gone."""
        self.values[slot] = value
        if value is None:
            self.scope.emptied.add(slot)

    def columns(self, slots: Sequence[int]) -> list[pl.Series]:
        """Return the values of these slots, as stored."""
        values = [self.values[slot] for slot in slots]
        if self.value_type.binary:
            values = [None if v is None else encode(self.value_type.pack(v)) for v in values]
        return [pl.Series(VALUE + self.name, values, dtype=self.value_type.dtype)]


class ExpiringValueCell(ValueCell):
    """A state with a time to live. A stamp is when a value was last refreshed; None: as soon as there is a time."""

    __slots__ = ("_after_ms", "_domain", "_on_read", "_unstamped")

    def __init__(self, name: str, value_type: ValueType, ttl: Ttl, scope: CallScope, dirty: set[int]) -> None:
        super().__init__(name, value_type, ttl, scope, dirty)
        self._after_ms = ttl.after_ms
        self._domain = ttl.domain
        self._on_read = ttl.refresh is Refresh.ON_READ
        self._unstamped: list[int] = []

    def get(self) -> object:
        slot = self.scope.slot
        value, stamp = self.values[slot], self.stamps[slot]
        if value is None or stamp is None:
            return None
        now = self.scope.now(self._domain)
        if stamp + self._after_ms <= now:
            return None
        if self._on_read and stamp < now:
            self._stamp(slot, now)
            self.dirty.add(slot)
        return value

    def set(self, value: object) -> None:
        super().set(value)
        self._stamp(self.scope.slot, self.scope.now(self._domain))

    def _stamp(self, slot: int, now: int) -> None:
        """Return a stamp never goes back: an event out of order does not shorten a life."""
        before = self.stamps[slot]
        self.scope.journal.append((self.stamps.__setitem__, slot, before))
        if self.values[slot] is None:
            self.stamps[slot] = None  # nothing of what was cleared may outlive it: it is not stored either
        else:
            self.stamps[slot] = now if before is None else max(before, now)

    def grow(self, slots: int) -> None:
        super().grow(slots)
        self.stamps.extend([None] * (slots - len(self.stamps)))

    def expire(self, slots: Iterable[int]) -> None:
        limit = self.scope.now(self._domain) - self._after_ms
        for slot in slots:
            stamp = self.stamps[slot]
            if stamp is not None and stamp <= limit:
                if self.values[slot] is not None:
                    self.scope.emptied.add(slot)
                    self.scope.counts["expired"] += 1
                self.values[slot] = self.stamps[slot] = None

    def start_expiry(self) -> None:
        now = self.scope.now(self._domain)
        for slot in self._unstamped:
            if self.values[slot] is not None and self.stamps[slot] is None:
                self.stamps[slot] = now
                self.dirty.add(slot)
        self._unstamped = []

    def restore(self, slot: int, value: object, stamp: int | None) -> None:
        super().restore(slot, value, stamp)
        self.stamps[slot] = stamp
        if value is not None and stamp is None:
            self._unstamped.append(slot)

    def columns(self, slots: Sequence[int]) -> list[pl.Series]:
        stamps = [self.stamps[slot] for slot in slots]
        return [*super().columns(slots), pl.Series(AT + self.name, stamps, dtype=pl.Int64)]


class ValueRows:
    """The rows of all single-valued states of a function: one a key."""

    def __init__(self, keys: KeyRegistry, cells: Mapping[str, ValueCell], dirty: set[int]) -> None:
        self._keys = keys
        self._cells = cells
        self.dirty = dirty

    def holds(self, slot: int) -> bool:
        """Return whether any state of the key has a value."""
        return any(cell.values[slot] is not None for cell in self._cells.values())

    def changes(self) -> pl.DataFrame:
        slots = sorted(self.dirty)
        self.dirty.clear()
        return self._frame(slots)

    def rows(self, bucket: int, buckets: int) -> pl.DataFrame:
        if not self._cells:
            return pl.DataFrame()
        slots = self._keys.in_bucket(bucket, buckets)
        for cell in self._cells.values():
            cell.expire(slots)
        columns = [cell.values for cell in self._cells.values()]
        return self._frame([s for s in slots if any(values[s] is not None for values in columns)])

    def take(self, slots: Sequence[int], rows: pl.DataFrame) -> None:
        """Load stored rows of the current layout."""
        for name, cell in self._cells.items():
            values = decode_column(rows, VALUE + name)
            stamps = rows[AT + name].to_list() if AT + name in rows.columns else [None] * len(slots)
            for slot, value, stamp in zip(slots, values, stamps, strict=True):
                cell.restore(slot, None if value is None else cell.value_type.unpack(value), stamp)

    def _frame(self, slots: Sequence[int]) -> pl.DataFrame:
        if not slots:
            return pl.DataFrame()
        columns = self._keys.stored_columns(slots)
        for cell in self._cells.values():
            columns += cell.columns(slots)
        return pl.DataFrame(columns)


def decode_column(rows: pl.DataFrame, name: str) -> list[object]:
    """Return a stored column as values; nulls where there is no such column."""
    if name not in rows.columns:
        return [None] * rows.height
    values: list[object] = rows[name].to_list()
    if rows[name].dtype != pl.Binary:
        return values
    return [None if blob is None else decode(blob) for blob in values if blob is None or isinstance(blob, bytes)]
