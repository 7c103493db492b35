"""The sessions that have not ended, one entry each: bounds, partials, fired bits of rules, and distinct values.

A stored row is identified by its key and the session's *anchor*, the event time of the session's event that arrived
first. The bounds of a session change and its anchor does not; two sessions of a key never have an anchor in common,
since the time between a session's bounds stays in that session. A session that was joined to an earlier one is written
once without bounds, and ``load`` then deletes it. Ended sessions are not written: the watermark shows that they ended.

Each distinct value is a row of its own, with the event time of the first event that had it. It belongs to the session
whose bounds include that time, also after the session was joined to another.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import polars as pl

from rulecore.groups.windows import Aggregation, Combine, Partial
from rulecore.groups.windows.aggregation import Array
from rulecore.state_size import NUMBER_BYTES, StateSize, ValueCount, key_bytes, key_bytes_at_most
from streamcore.columnar.key_slots import KeySlots
from streamcore.state.table import HASH

Ints = npt.NDArray[np.int64]

ANCHOR = "__anchor"
START = "__start"
LAST = "__last"
FIRED = "__fired"
AT = "__at"
VALUE = "__value"
#: A session without its key and aggregates.
SESSION_BYTES = 250
_FREE = -(2**63)
_FIXED = (HASH, ANCHOR, START, LAST, FIRED)


class SessionTable:
    """A ``StateTable`` of the sessions of one subgroup.

    ``key_slot``, ``anchor``, ``start``, ``last``: by entry, the key slot, the anchor, and the event times of the first
    and the last event in ms. ``columns``: the partials by name. ``loaded``: whether rows were loaded since the group
    reset it, so that the distinct values must be assigned to sessions.
    """

    def __init__(self, dtypes: Mapping[str, pl.DataType], gap_ms: int) -> None:
        self.keys = KeySlots(dtypes)
        self.gap_ms = gap_ms
        self.partials: dict[str, Partial] = {}
        self.columns: dict[str, Array] = {}
        self.key_slot, self.anchor, self.start, self.last = (np.full(64, _FREE) for _ in range(4))
        self.entries_by_key_slot: dict[int, list[int]] = {}
        self.fired: dict[int, int] = {}  # fired bits of rules by entry; 0 is left out
        self.sets: dict[str, dict[int, dict[object, int]]] = {}  # by column and entry: distinct values, event times
        self.counts: dict[str, ValueCount] = {}  # by column: the size of ``sets``
        self.loaded = False
        self._size = 0
        self._free: list[int] = []
        self._dirty: list[int] = []
        self._deleted: list[tuple[int, int]] = []  # key slot and anchor of absorbed sessions, not yet written

    # --- columns ------------------------------------------------------------------------------------------------

    def keep_columns(self, aggregations: Sequence[Aggregation], distinct: Sequence[str]) -> None:
        """Keep exactly the columns of these aggregates, and the ``distinct`` columns. A new one starts empty."""
        wanted = {a.column(p): p for a in aggregations for p in a.partials}
        room = len(self.key_slot)
        self.columns = {
            name: self.columns[name].astype(p.dtype) if name in self.columns else np.full(room, p.identity, p.dtype)
            for name, p in wanted.items()
        }
        for aggregation in aggregations:
            counter, *others = aggregation.partials
            empty = self.columns[aggregation.column(counter)] == 0
            for partial in others:
                self.columns[aggregation.column(partial)][empty] = partial.identity
        self.partials = wanted
        self.sets = {name: self.sets.get(name, {}) for name in distinct}
        self.counts = {name: self.counts.get(name, ValueCount()) for name in distinct}

    def clear_fired(self, bit: int) -> None:
        """Clear this fired bit in all sessions, before another rule gets the bit."""
        for entry in [e for e, bits in self.fired.items() if bits >> bit & 1]:
            self.fired[entry] &= ~(1 << bit)
            self._dirty.append(entry)

    # --- size ---------------------------------------------------------------------------------------------------

    def state_size(self) -> StateSize:
        """Return the size of all sessions, or more, without distinct values; keys without a session may count."""
        sessions = self._size - len(self._free)
        return StateSize(sessions, sessions * self._session_bytes + key_bytes_at_most(self.keys))

    def exact_state_size(self) -> StateSize:
        """Return the size of the sessions without distinct values."""
        sessions = self._size - len(self._free)
        key_slots = np.fromiter(self.entries_by_key_slot, np.int64, len(self.entries_by_key_slot))
        return StateSize(sessions, sessions * self._session_bytes + int(key_bytes(self.keys, key_slots).sum()))

    @property
    def _session_bytes(self) -> int:
        return SESSION_BYTES + NUMBER_BYTES * len(self.columns)

    # --- writing ------------------------------------------------------------------------------------------------

    def new_entries(self, key_slots: Ints, anchors: Ints) -> Ints:
        """Allocate entries of new sessions, and return them. Call ``write`` to set their bounds and partials."""
        reused = min(len(self._free), len(key_slots))
        entries = np.empty(len(key_slots), np.int64)
        entries[:reused] = [self._free.pop() for _ in range(reused)]
        entries[reused:] = self._grow(len(key_slots) - reused)
        self.key_slot[entries], self.anchor[entries] = key_slots, anchors
        for key_slot, entry in zip(key_slots.tolist(), entries.tolist(), strict=True):
            self.entries_by_key_slot.setdefault(key_slot, []).append(entry)
        return entries

    def write(self, entries: Ints, start: Ints, last: Ints, partials: Mapping[str, Array]) -> None:
        """Set the bounds and partials of distinct entries."""
        self.start[entries], self.last[entries] = start, last
        for name, values in partials.items():
            self.columns[name][entries] = values
        self._dirty += entries.tolist()

    def put_values(self, column: str, entry: int, event_times: Mapping[object, int]) -> None:
        """Add distinct values to a session, or set their event times in ms."""
        count, values = self.counts[column], self.sets[column].get(entry)
        if values is None:
            values = self.sets[column][entry] = {}
            count.sets += 1
        count.add_values(event_times.keys() - values.keys())
        values.update(event_times)

    def absorb(self, entries: Sequence[int]) -> None:
        """Remove sessions that were joined to earlier ones."""
        self._deleted += [(int(self.key_slot[e]), int(self.anchor[e])) for e in entries]
        self._remove(entries)

    def ended_sessions(self, watermark_ms: int) -> Ints:
        """Return the entries of the sessions that have ended at this watermark, by entry."""
        in_use = self.key_slot[: self._size] != _FREE
        ended: Ints = np.flatnonzero(in_use & (self.last[: self._size] <= watermark_ms - self.gap_ms))
        return ended

    def drop(self, entries: Ints) -> None:
        """Remove these sessions, which have ended, and free the key slots of the keys without sessions."""
        if len(entries):
            self._remove(entries.tolist())
            self._deleted = [
                (key_slot, anchor) for key_slot, anchor in self._deleted if key_slot in self.entries_by_key_slot
            ]
            self.keys.keep(np.fromiter(self.entries_by_key_slot, np.int64, len(self.entries_by_key_slot)))

    def _remove(self, entries: Sequence[int]) -> None:
        at = np.array(entries, np.int64)
        removed = set(entries)
        for key_slot in np.unique(self.key_slot[at]).tolist():
            self.entries_by_key_slot[key_slot] = [e for e in self.entries_by_key_slot[key_slot] if e not in removed]
            if not self.entries_by_key_slot[key_slot]:
                del self.entries_by_key_slot[key_slot]
        self.key_slot[at] = _FREE
        for name, partial in self.partials.items():
            self.columns[name][at] = partial.identity
        for entry in self.fired.keys() & removed:
            del self.fired[entry]
        for name, sets in self.sets.items():
            for entry in sets.keys() & removed:
                self.counts[name].remove_set(sets.pop(entry))
        self._free += entries

    def _grow(self, count: int) -> Ints:
        """Return new entries after the last one, in larger columns if they are full."""
        first, self._size = self._size, self._size + count
        if self._size > len(self.key_slot):
            room = max(2 * len(self.key_slot), self._size)
            self.key_slot, self.anchor, self.start, self.last = (
                _resize(column, room, _FREE) for column in (self.key_slot, self.anchor, self.start, self.last)
            )
            self.columns = {n: _resize(c, room, self.partials[n].identity) for n, c in self.columns.items()}
        return np.arange(first, self._size)

    # --- StateTable ---------------------------------------------------------------------------------------------

    def changes(self) -> pl.DataFrame:
        dirty = np.unique(np.array(self._dirty, np.int64))
        dirty = dirty[self.key_slot[dirty] != _FREE]
        changed_rows = self._frame(dirty)
        deleted, self._dirty, self._deleted = self._deleted, [], []
        if not deleted:
            return changed_rows
        key_slots = np.array([key_slot for key_slot, _ in deleted], np.int64)
        anchors = pl.Series(ANCHOR, [anchor for _, anchor in deleted])
        deleted_rows = self.keys.frame(key_slots).with_columns(pl.Series(HASH, self.keys.hashes[key_slots]), anchors)
        return pl.concat([changed_rows, deleted_rows], how="diagonal")

    def rows(self, bucket: int, buckets: int) -> pl.DataFrame:
        entries = np.flatnonzero(self.key_slot[: self._size] != _FREE)
        return self._frame(entries[self.keys.in_bucket(self.key_slot[entries], bucket, buckets)])

    def load(self, rows: pl.DataFrame) -> None:
        for name in [c for c in rows.columns if c not in _FIXED and c not in self.keys.dtypes]:
            if name not in self.columns:  # unknown until ``keep_columns``, which keeps or drops the column
                whole = rows[name].dtype == pl.Int64
                self.partials[name] = Partial(name.rsplit(".", 1)[1], Combine.SUM, whole)
                self.columns[name] = np.zeros(len(self.key_slot), self.partials[name].dtype)
        self.loaded = True
        key_slots = self.keys.assign(rows).tolist()
        has_bounds = rows[LAST].is_not_null()
        known = {
            (key_slot, int(self.anchor[e])): e
            for key_slot in set(key_slots)
            for e in self.entries_by_key_slot.get(key_slot, ())
        }
        names = list(zip(key_slots, rows[ANCHOR].to_list(), strict=True))
        deleted = [name for name, bounds in zip(names, has_bounds.to_list(), strict=True) if not bounds]
        self._remove([known[name] for name in deleted if name in known])
        present = [name for name, bounds in zip(names, has_bounds.to_list(), strict=True) if bounds]
        entries = np.array([known.get(name, -1) for name in present], np.int64)
        fresh = np.array([name for name in present if name not in known], np.int64).reshape(-1, 2)
        entries[entries < 0] = self.new_entries(fresh[:, 0], fresh[:, 1])
        self._load_entries(rows.filter(has_bounds), entries)

    def _load_entries(self, rows: pl.DataFrame, at: Ints) -> None:
        """Load stored rows into these entries, one each."""
        self.start[at], self.last[at] = rows[START].to_numpy(), rows[LAST].to_numpy()
        for name in self.columns:
            if name in rows.columns:
                self.columns[name][at] = rows[name].fill_null(self.partials[name].identity).to_numpy()
        for entry, bits in zip(at.tolist(), rows[FIRED].to_list(), strict=True):
            self.fired.pop(entry, None)
            if bits:
                self.fired[entry] = int.from_bytes(bits, "little")

    def _frame(self, entries: Ints) -> pl.DataFrame:
        """Return the stored rows of these entries."""
        key_slots = self.key_slot[entries]
        fired = [_bytes(self.fired.get(e, 0)) for e in entries.tolist()] if self.fired else [b""] * len(entries)
        columns = [
            pl.Series(HASH, self.keys.hashes[key_slots]),
            pl.Series(ANCHOR, self.anchor[entries]),
            pl.Series(START, self.start[entries]),
            pl.Series(LAST, self.last[entries]),
            pl.Series(FIRED, fired, dtype=pl.Binary),
            *(pl.Series(name, column[entries]) for name, column in self.columns.items()),
        ]
        return pl.DataFrame([*self.keys.frame(key_slots).get_columns(), *columns])


class SessionSets:
    """A ``StateTable`` of the distinct values of one ``count_distinct`` in all sessions of ``sessions``."""

    def __init__(self, sessions: SessionTable, column: str, dtype: pl.DataType) -> None:
        self.sessions = sessions
        self.column = column
        self.dtype = dtype
        self._dirty: list[tuple[int, int, object]] = []
        self._loaded: list[pl.DataFrame] = []

    def put(self, entry: int, fresh: Mapping[object, int]) -> None:
        """Add new values to a session, with their event times in ms."""
        if fresh:
            self.sessions.put_values(self.column, entry, fresh)
            key_slot = int(self.sessions.key_slot[entry])
            self._dirty += [(key_slot, at, value) for value, at in fresh.items()]

    def apply_loaded(self) -> None:
        """Assign the loaded values to the sessions whose bounds include their event times.

        Call after all sessions were loaded. Values of ended sessions are dropped.
        """
        loaded, self._loaded = self._loaded, []
        held, sessions = self.sessions.sets[self.column], self.sessions
        by_start: dict[int, list[int]] = {}
        for rows in loaded:
            key_slots = sessions.keys.assign(rows).tolist()
            for key_slot, at, value in zip(key_slots, rows[AT].to_list(), rows[VALUE].to_list(), strict=True):
                if key_slot not in by_start:
                    by_start[key_slot] = sorted(
                        sessions.entries_by_key_slot.get(key_slot, ()), key=sessions.start.__getitem__
                    )
                index = bisect_right(by_start[key_slot], at, key=sessions.start.__getitem__) - 1
                if index >= 0 and at <= sessions.last[by_start[key_slot][index]]:
                    entry = by_start[key_slot][index]
                    if value not in held.get(entry, ()):
                        sessions.put_values(self.column, entry, {value: at})

    def changes(self) -> pl.DataFrame:
        dirty, self._dirty = self._dirty, []
        return self._frame([d for d in dirty if d[0] in self.sessions.entries_by_key_slot])

    def rows(self, bucket: int, buckets: int) -> pl.DataFrame:
        self.apply_loaded()
        held, sessions = self.sessions.sets[self.column], self.sessions
        entries = np.array(sorted(held), np.int64)
        in_bucket = entries[sessions.keys.in_bucket(sessions.key_slot[entries], bucket, buckets)]
        key_slots = sessions.key_slot[in_bucket].tolist()
        key_slot_entries = zip(key_slots, in_bucket.tolist(), strict=True)
        return self._frame(
            [(key_slot, at, value) for key_slot, entry in key_slot_entries for value, at in held[entry].items()]
        )

    def load(self, rows: pl.DataFrame) -> None:
        self._loaded.append(rows)
        self.sessions.loaded = True

    def _frame(self, triples: Sequence[tuple[int, int, object]]) -> pl.DataFrame:
        """Return the stored rows of triples of key slot, event time and value."""
        keys = self.sessions.keys
        key_slots = np.array([key_slot for key_slot, _, _ in triples], np.int64)
        columns = [
            pl.Series(HASH, keys.hashes[key_slots]),
            pl.Series(AT, [at for _, at, _ in triples], dtype=pl.Int64),
            pl.Series(VALUE, [value for _, _, value in triples], dtype=self.dtype),
        ]
        return pl.DataFrame([*keys.frame(key_slots).get_columns(), *columns])


def _resize(column: Array, room: int, fill: float) -> Array:
    """Return a copy of the column with ``room`` values, the new ones ``fill``."""
    result = np.full(room, fill, column.dtype)
    result[: len(column)] = column
    return result


def _bytes(bits: int) -> bytes:
    return bits.to_bytes((bits.bit_length() + 7) // 8, "little")
