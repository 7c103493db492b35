"""State with one value per key: its values in memory, and the rows of its table.

In memory a state is a list of Python objects, indexed by key slot (``streamcore.columnar.key_slots``); None means that
the key has no value. The table has one row per key and one column per state, so a row of nulls is the key's tombstone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import polars as pl

from streamcore.keyed.call_scope import CallScope
from streamcore.keyed.key_registry import KeyRegistry
from streamcore.keyed.ttl import Refresh, Ttl
from streamcore.keyed.value_codec import ValueTypeMismatch, decode, encode
from streamcore.keyed.value_types import ValueType

#: Prefixes of a state's columns in the table: its value, and the epoch milliseconds from which its time to live is
#: counted (only with a time to live).
VALUE = "state."
AT = "at."


class ValueCell:
    """One single-value state, for all keys of a shard. ``get`` and ``set`` work on the current key."""

    __slots__ = ("_coerce", "_set_value", "dirty", "name", "refreshed_times", "scope", "ttl", "value_type", "values")

    def __init__(self, name: str, value_type: ValueType, ttl: Ttl | None, scope: CallScope, dirty: set[int]) -> None:
        self.name = name
        self.value_type = value_type
        self.ttl = ttl
        self.scope = scope
        self.dirty = dirty
        self.values: list[object] = []  # grows in place: ``_set_value`` is bound to this list
        self._coerce = value_type.coerce
        self._set_value = self.values.__setitem__
        self.refreshed_times: list[int | None] = []

    def get(self) -> object:
        """Return the value, or None."""
        return self.values[self.scope.key_slot]

    def is_live(self, key_slot: int) -> bool:
        """Return whether the key has a value that has not expired."""
        return self.values[key_slot] is not None

    def set(self, value: object) -> None:
        """Write a value; None clears. ``ValueTypeMismatch`` if the value has the wrong type."""
        scope = self.scope
        key_slot, values = scope.key_slot, self.values
        before = values[key_slot]
        if value is None:
            scope.emptied.add(key_slot)
        try:
            values[key_slot] = self._coerce(value)
        except ValueTypeMismatch as error:
            raise ValueTypeMismatch(f"state {self.name}: {error}") from None
        scope.journal.append((self._set_value, key_slot, before))
        self.dirty.add(key_slot)

    def coerce(self, value: object) -> object:
        """Return the value as a later read returns it; ``ValueTypeMismatch`` names the state."""
        try:
            return self._coerce(value)
        except ValueTypeMismatch as error:
            raise ValueTypeMismatch(f"state {self.name}: {error}") from None

    def grow(self, key_count: int) -> None:
        """Make room for ``key_count`` keys."""
        self.values.extend([None] * (key_count - len(self.values)))

    def drop(self, key_slots: Iterable[int]) -> None:
        """Forget the values of these keys, which are written."""
        for key_slot in key_slots:
            self.values[key_slot] = None

    def purge_expired(self, key_slots: Iterable[int]) -> None:
        """Free the memory of expired values, between two calls of the function."""

    def start_expiry(self) -> None:
        """Start the time to live of restored values that were stored without one."""

    def restore(self, key_slot: int, value: object, refreshed_ms: int | None) -> None:  # noqa: ARG002  # only with a time to live
        """Load one stored value, or delete it if ``value`` is None."""
        self.values[key_slot] = value
        if value is None:
            self.scope.emptied.add(key_slot)

    def columns(self, key_slots: Sequence[int]) -> list[pl.Series]:
        """Return the stored columns of these keys."""
        values = [self.values[key_slot] for key_slot in key_slots]
        if self.value_type.binary:
            values = [None if v is None else encode(self.value_type.pack(v)) for v in values]
        return [pl.Series(VALUE + self.name, values, dtype=self.value_type.dtype)]


class ExpiringValueCell(ValueCell):
    """A single-value state with a time to live.

    ``refreshed_times``: by key slot, the epoch milliseconds from which the time to live is counted. None: the key has
    no value, or a loaded value whose time to live ``start_expiry`` has not started yet.
    """

    __slots__ = ("_after_ms", "_domain", "_on_read", "_restored_without_stamp")

    def __init__(self, name: str, value_type: ValueType, ttl: Ttl, scope: CallScope, dirty: set[int]) -> None:
        super().__init__(name, value_type, ttl, scope, dirty)
        self._after_ms = ttl.after_ms
        self._domain = ttl.domain
        self._on_read = ttl.refresh is Refresh.ON_READ
        self._restored_without_stamp: list[int] = []

    def get(self) -> object:
        key_slot = self.scope.key_slot
        value, refreshed_ms = self.values[key_slot], self.refreshed_times[key_slot]
        if value is None or refreshed_ms is None:
            return None
        now = self.scope.now(self._domain)
        if refreshed_ms + self._after_ms <= now:
            return None
        if self._on_read and refreshed_ms < now:
            self._set_refreshed(key_slot, now)
            self.dirty.add(key_slot)
        return value

    def is_live(self, key_slot: int) -> bool:
        refreshed_ms = self.refreshed_times[key_slot]
        is_unexpired = refreshed_ms is not None and refreshed_ms + self._after_ms > self.scope.now(self._domain)
        return is_unexpired and self.values[key_slot] is not None

    def set(self, value: object) -> None:
        super().set(value)
        self._set_refreshed(self.scope.key_slot, self.scope.now(self._domain))

    def _set_refreshed(self, key_slot: int, now: int) -> None:
        """Restart the time to live at ``now``, but never earlier than before: a late event does not shorten it."""
        before = self.refreshed_times[key_slot]
        self.scope.journal.append((self.refreshed_times.__setitem__, key_slot, before))
        if self.values[key_slot] is None:
            self.refreshed_times[key_slot] = None  # as stored: the row of a cleared value has no time
        else:
            self.refreshed_times[key_slot] = now if before is None else max(before, now)

    def grow(self, key_count: int) -> None:
        super().grow(key_count)
        self.refreshed_times.extend([None] * (key_count - len(self.refreshed_times)))

    def drop(self, key_slots: Iterable[int]) -> None:
        for key_slot in key_slots:
            self.values[key_slot] = self.refreshed_times[key_slot] = None

    def purge_expired(self, key_slots: Iterable[int]) -> None:
        limit = self.scope.now(self._domain) - self._after_ms
        for key_slot in key_slots:
            refreshed_ms = self.refreshed_times[key_slot]
            if refreshed_ms is not None and refreshed_ms <= limit:
                if self.values[key_slot] is not None:
                    self.scope.emptied.add(key_slot)
                    self.scope.counts["expired"] += 1
                self.values[key_slot] = self.refreshed_times[key_slot] = None

    def start_expiry(self) -> None:
        now = self.scope.now(self._domain)
        for key_slot in self._restored_without_stamp:
            if self.values[key_slot] is not None and self.refreshed_times[key_slot] is None:
                self.refreshed_times[key_slot] = now
                self.dirty.add(key_slot)
        self._restored_without_stamp = []

    def restore(self, key_slot: int, value: object, refreshed_ms: int | None) -> None:
        super().restore(key_slot, value, refreshed_ms)
        self.refreshed_times[key_slot] = refreshed_ms
        if value is not None and refreshed_ms is None:
            self._restored_without_stamp.append(key_slot)

    def columns(self, key_slots: Sequence[int]) -> list[pl.Series]:
        refreshed_times = [self.refreshed_times[key_slot] for key_slot in key_slots]
        return [*super().columns(key_slots), pl.Series(AT + self.name, refreshed_times, dtype=pl.Int64)]


class ValueRows:
    """The rows of all single-value states of a function, one per key."""

    def __init__(self, keys: KeyRegistry, cells: Mapping[str, ValueCell], dirty: set[int]) -> None:
        self._keys = keys
        self._cells = cells
        self.dirty = dirty

    def has_values(self, key_slot: int) -> bool:
        """Return whether any state of the key has a value."""
        return any(cell.values[key_slot] is not None for cell in self._cells.values())

    def changes(self) -> pl.DataFrame:
        key_slots = sorted(self.dirty)
        self.dirty.clear()
        return self._frame(key_slots)

    def rows(self, bucket: int, buckets: int) -> pl.DataFrame:
        if not self._cells:
            return pl.DataFrame()
        return self.rows_for(self._keys.in_bucket(bucket, buckets))

    def rows_for(self, key_slots: Sequence[int]) -> pl.DataFrame:
        """Return the rows of those of these keys that have values, after freeing expired ones."""
        for cell in self._cells.values():
            cell.purge_expired(key_slots)
        columns = [cell.values for cell in self._cells.values()]
        return self._frame([s for s in key_slots if any(values[s] is not None for values in columns)])

    def load(self, key_slots: Sequence[int], rows: pl.DataFrame) -> None:
        """Load stored rows of the current version of the function."""
        for name, cell in self._cells.items():
            values = decode_column(rows, VALUE + name)
            refreshed_times = rows[AT + name].to_list() if AT + name in rows.columns else [None] * len(key_slots)
            for key_slot, value, refreshed_ms in zip(key_slots, values, refreshed_times, strict=True):
                cell.restore(key_slot, None if value is None else cell.value_type.unpack(value), refreshed_ms)

    def _frame(self, key_slots: Sequence[int]) -> pl.DataFrame:
        if not key_slots:
            return pl.DataFrame()
        columns = self._keys.stored_columns(key_slots)
        for cell in self._cells.values():
            columns += cell.columns(key_slots)
        return pl.DataFrame(columns)


def decode_column(rows: pl.DataFrame, name: str) -> list[object]:
    """Return the values of a stored column; all None if the rows have no such column."""
    if name not in rows.columns:
        return [None] * rows.height
    values: list[object] = rows[name].to_list()
    if rows[name].dtype != pl.Binary:
        return values
    return [None if blob is None else decode(blob) for blob in values if blob is None or isinstance(blob, bytes)]
