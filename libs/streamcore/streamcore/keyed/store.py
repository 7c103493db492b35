"""All that is kept for the keys of one function: its states, timers and broadcast state.

Its durable form is said by ``streamcore.keyed.tables``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

import polars as pl

from streamcore.errors import ConfigError
from streamcore.keyed.broadcast import Broadcast
from streamcore.keyed.cells import VALUE, Cell, CellRows, ExpiringCell
from streamcore.keyed.collections import ManyState
from streamcore.keyed.entries import Entries, Item
from streamcore.keyed.keys import Keys
from streamcore.keyed.kinds import Kind, reads_as
from streamcore.keyed.migration import KeyRow, Row, Staged
from streamcore.keyed.plain import Misfit
from streamcore.keyed.records import Inputs
from streamcore.keyed.scope import Scope
from streamcore.keyed.states import State
from streamcore.keyed.timers import TimerRows
from streamcore.state.versions import Versions

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


def _cell(state: State, scope: Scope, dirty: set[int]) -> Cell:
    if state.ttl is None:
        return Cell(state.name, state.kind, None, scope, dirty)
    return ExpiringCell(state.name, state.kind, state.ttl, scope, dirty)


def _entries(state: ManyState, scope: Scope) -> Entries:
    return Entries(state.name, state.kind, state.entry_kind, state.most, state.when_full, state.ttl, scope)
