"""All that is kept for the keys of one function: its states, timers and broadcast state, and their tables.

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
from dataclasses import dataclass
from typing import TypeVar

import polars as pl

from streamcore.errors import ConfigError
from streamcore.keyed.broadcast import Broadcast
from streamcore.keyed.cells import AT, VALUE, Cell, CellRows, ExpiringCell, unpacked
from streamcore.keyed.entries import Entries, Item
from streamcore.keyed.keys import Keys
from streamcore.keyed.kinds import Kind, reads_as
from streamcore.keyed.migration import KeyRow, Row, Staged
from streamcore.keyed.plain import Misfit, decode, encode
from streamcore.keyed.records import Inputs
from streamcore.keyed.scope import Scope
from streamcore.keyed.states import ManyState, State
from streamcore.keyed.timers import TimerRows
from streamcore.state.table import StateTable
from streamcore.state.versions import Versions, by_version, stamped

_STATE = "__state"
_ENTRY = "__entry"
_ORDER = "__order"
_VALUE = "__value"
_AT = "__at"

S = TypeVar("S")


@dataclass(frozen=True, slots=True)
class KeyedLimits:
    """Bounds on one shard.

    ``keys``: keys with anything kept; an event of one more fails. ``timers_per_key``: in each time domain; setting one
    more fails the call. ``chained_timers``: firings in one cut of timers that were set by timers of the same cut; the
    rest fire in the next. ``broadcast_entries``: one more is refused. (How many entries a list or map holds for a key
    is said where it is declared.)
    """

    keys: int = 5_000_000
    timers_per_key: int = 10_000
    chained_timers: int = 100_000
    broadcast_entries: int = 100_000

    def __post_init__(self) -> None:
        for name in ("keys", "timers_per_key", "chained_timers", "broadcast_entries"):
            if getattr(self, name) < 1:
                raise ConfigError(f"KeyedLimits: {name} must be positive, not {getattr(self, name)}")


class KeyedStore:
    """What is kept, by slot of the key. ``what`` names the function in messages."""

    def __init__(
        self,
        what: str,
        key: Mapping[str, pl.DataType],
        states: Mapping[str, State],
        versions: Versions[Row],
        limits: KeyedLimits,
    ) -> None:
        self.what = what
        self.limits = limits
        self.scope = Scope()
        self.keys = Keys(key)
        dirty: set[int] = set()
        self.cells = {n: _cell(s, self.scope, dirty) for n, s in states.items() if not isinstance(s, ManyState)}
        self.entries = {n: _entries(s, self.scope) for n, s in states.items() if isinstance(s, ManyState)}
        self.kept: list[Cell | Entries] = [*self.cells.values(), *self.entries.values()]
        self.values = CellRows(self.keys, self.cells, dirty)
        self.timers = TimerRows(self.keys, self.scope, limits.timers_per_key)
        self.broadcast = Broadcast(self.scope, limits.broadcast_entries)
        self.versions = versions
        self.staged = Staged(versions, self._write)
        self._unused: set[int] = set()

    def admit(self, rows: Inputs) -> list[int]:
        """The slot of each row's key; -1 where there are too many keys."""
        slots = self.keys.admit([rows.values[name] for name in self.keys.dtypes], len(rows.times), self.limits.keys)
        self._unused.update(self.keys.take_added())
        self.grow()
        return slots

    def grow(self) -> None:
        """Make room for all keys."""
        for kept in self.kept:
            kept.grow(self.keys.slots)

    def sweep(self) -> None:
        """Between two cuts: forget the keys that have nothing left, as soon as that has been written."""
        candidates = self._unused | self.scope.loosened
        waiting = {slot for slot, _ in self.timers.unwritten()} | {s for e in self.entries.values() for s, _ in e.dirty}
        waiting |= self.values.dirty
        self._unused = candidates & waiting
        self.scope.loosened.clear()
        self.keys.forget(slot for slot in candidates - waiting if not self._holds(slot))

    def _holds(self, slot: int) -> bool:
        return self.values.holds(slot) or any(e.holds(slot) for e in self.entries.values()) or self.timers.holds(slot)

    def settle(self) -> None:
        """Begin to measure the time of what came without one, when there is a time."""
        for kept in self.kept:
            kept.settle()

    # --- durable ------------------------------------------------------------------------------------------------

    def tables(self) -> dict[str, StateTable]:
        """By name, the same for every function."""
        return {
            "values": ValueTable(self),
            "entries": EntryTable(self),
            "timers": self.timers,
            "broadcast": self.broadcast,
        }

    def loaded(self) -> None:
        """After the last stored row."""
        self.staged.settle_all()
        self.grow()
        for entries in self.entries.values():
            entries.finish()
        self.broadcast.loaded()
        self._unused.update(self.keys.take_added())
        self.sweep()

    def slots_of(self, rows: pl.DataFrame) -> list[int]:
        """The slots of stored rows."""
        slots = self.keys.restore(rows, self.what)
        self.grow()
        return slots

    def _write(self, slot: int, row: KeyRow) -> None:
        """What a migration made of a key."""
        for name, item in row.values.items():
            cell = self._declared(self.cells, name, "a single value")
            cell.restore(slot, self.fitted(name, cell.kind, item.value), item.stamp)
        for of_list, states in ((True, row.lists), (False, row.maps)):
            for name, items in states.items():
                entries = self._declared(self.entries, name, "a list" if of_list else "a map")
                for entry, item in items.items():
                    self.restore(entries, slot, entry if entries.entry_kind else None, item)

    def restore(self, entries: Entries, slot: int, entry: object, item: Item) -> None:
        """A stored entry of a map, or element of a list (``entry`` None)."""
        if (entries.entry_kind is None) is not (entry is None):
            raise ConfigError(f"{self.what}: state {entries.name} was a list and is a map, or the other way round")
        value = self.fitted(entries.name, entries.kind, item.value)
        found_by = item.order if entries.entry_kind is None else self.fitted(entries.name, entries.entry_kind, entry)
        entries.restore(slot, found_by, item._replace(value=value))

    def fitted(self, name: str, kind: Kind, value: object) -> object:
        """A plain value as the state holds it; ``ConfigError`` if it does not take it."""
        try:
            return kind.fit(kind.unpack(value))
        except (Misfit, TypeError) as error:
            raise ConfigError(
                f"{self.what}: stored state {name} does not fit its declaration: {error}; raise the function's version "
                "and give a migration"
            ) from None

    def _declared(self, states: Mapping[str, S], name: str, what: str) -> S:
        if name not in states:
            raise ConfigError(
                f"{self.what}: there is stored state for {name!r}, {what}, and no such state in version "
                f"{self.versions.current}; declare it, or raise the version and drop it in a migration"
            )
        return states[name]

    def declared_entries(self, name: str) -> Entries:
        """The list or map of that name."""
        return self._declared(self.entries, name, "a list or map")

    def check_columns(self, rows: pl.DataFrame) -> None:
        """``ConfigError`` if stored values are not what is declared."""
        for column in rows.columns:
            if column.startswith(VALUE):
                name = column.removeprefix(VALUE)
                wanted = self._declared(self.cells, name, "a single value").kind.dtype
                if not reads_as(rows[column].dtype, wanted):
                    raise ConfigError(
                        f"{self.what}: state {name} is stored as {rows[column].dtype} and declared as {wanted}; raise "
                        "the function's version and give a migration"
                    )


class ValueTable:
    """The table ``values``."""

    def __init__(self, store: KeyedStore) -> None:
        self._store = store

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


def _cell(state: State, scope: Scope, dirty: set[int]) -> Cell:
    if state.ttl is None:
        return Cell(state.name, state.kind, None, scope, dirty)
    return ExpiringCell(state.name, state.kind, state.ttl, scope, dirty)


def _entries(state: ManyState, scope: Scope) -> Entries:
    return Entries(state.name, state.kind, state.entry_kind, state.most, state.when_full, state.ttl, scope)
