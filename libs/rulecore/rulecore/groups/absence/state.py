"""The state of a group of absence rules: the expected keys, their last events, and the alerts of their absence.

An *entry* is a key of a population (see ``rule_matrix``). The data of all entries is in arrays by entry number, so that
scanning a million of them takes less than a millisecond. In the state log an entry is one row:

==============  ====================================================================================================
``__last_ms``   the last event that the watermark has passed, or the time of the arming; null for neither
``__seen``      whether ``__last_ms`` is an event
``__ahead``     intervals of events that the watermark has not passed: start, end, ... (``out_of_order``)
``__given``     alerts since ``__last_ms``: rule number, number of alerts, ...
``__gone``      the entry was deleted
==============  ====================================================================================================

The module knows neither events nor rules.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from rulecore.groups.absence.out_of_order import Intervals, OutOfOrderEvents
from rulecore.groups.absence.rule_matrix import NO_EVENT, NO_RULES, NOT_DUE, RuleMatrix
from rulecore.state_size import NUMBER_BYTES, StateSize, key_bytes_at_most, size_by_group
from streamcore.columnar.hash_table import HashTable
from streamcore.columnar.key_slots import KeySlots
from streamcore.state import StateTable
from streamcore.state.table import HASH

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

POPULATION: Final = "__population"
LAST: Final = "__last_ms"
SEEN: Final = "__seen"
AHEAD: Final = "__ahead"
GIVEN: Final = "__given"
GONE: Final = "__gone"

#: An entry without its key and lanes; an interval ahead of the watermark.
ENTRY_BYTES: Final = 80
INTERVAL_BYTES: Final = 3 * NUMBER_BYTES

_SHIFT: Final = 24  # bits of a population number
_FREE: Final = -1


class ExpectedKeys(StateTable):
    """A ``StateTable`` of the entries of one group. ``dtypes``: the types of the key columns.

    By entry: ``key_slot`` (of the key), ``population``, ``last`` and ``seen``. By lane and entry: ``due``, the next
    deadline, and ``times``, the alerts since ``last``.
    """

    def __init__(self, dtypes: Mapping[str, pl.DataType]) -> None:
        self.keys = KeySlots(dtypes)
        self.matrix = NO_RULES
        self.ahead = OutOfOrderEvents()
        self.size = 0
        self.key_slot = np.empty(0, np.int64)
        self.population = np.empty(0, np.int64)
        self.last = np.empty(0, np.int64)
        self.seen = np.empty(0, np.bool_)
        self.due = np.empty((0, 0), np.int64)
        self.times = np.empty((0, 0), np.int64)
        self.population_sizes: dict[int, int] = {}
        self._index = HashTable()
        self._free = np.empty(0, np.int64)
        self._dirty = np.empty(0, np.bool_)
        self._gone: list[pl.DataFrame] = []
        self._loaded: list[tuple[Ints, Ints, Ints, Ints]] = []  # entries; given: entry, rule, times

    # --- entries ------------------------------------------------------------------------------------------------

    def find(self, key_slots: Ints, population: Ints) -> Ints:
        """Return the entry of each pair of a key and a population, -1 for a pair without an entry."""
        return self._index.find(_code(key_slots, population))

    def live(self) -> Ints:
        """Return all entries."""
        return np.flatnonzero(self.population[: self.size] != _FREE)

    def add(self, key_slots: Ints, population: Ints) -> Ints:
        """Add entries without an event, and return their numbers. The pairs must be distinct and new."""
        again = min(len(self._free), len(key_slots))
        reused, self._free = self._free[len(self._free) - again :], self._free[: len(self._free) - again]
        entries = np.concatenate([reused, np.arange(self.size, self.size + len(key_slots) - again)])
        self.size += len(key_slots) - again
        self._make_room()
        self.key_slot[entries], self.population[entries] = key_slots, population
        self.last[entries], self.seen[entries] = NO_EVENT, False
        self.times[:, entries], self.due[:, entries] = 0, NOT_DUE
        self.keys.hold(key_slots)
        self._index.add(_code(key_slots, population), entries)
        self._count(population, 1)
        self._dirty[entries] = True
        return entries

    def drop(self, entries: Ints) -> None:
        """Delete entries, also from the state log."""
        if not entries.size:
            return
        self.ahead.pull(self.as_mask(entries))
        self._gone.append(self._frame(entries, gone=True))
        key_slots, population = self.key_slot[entries], self.population[entries]
        self._index.remove(_code(key_slots, population))
        self.keys.release(key_slots)
        self._count(population, -1)
        self.population[entries], self.due[:, entries] = _FREE, NOT_DUE
        self._dirty[entries] = False
        self._free = np.concatenate([self._free, entries])

    def set_last_seen(self, entries: Ints, last_ms: Ints | int, *, seen: bool) -> None:
        """Set the last event (or arming) of each entry, and reset its alert counts."""
        self.last[entries], self.seen[entries] = last_ms, seen
        self.times[:, entries] = 0
        self.renew(entries)

    def renew(self, entries: Ints) -> None:
        """Recompute the next deadlines of entries, and mark the entries as changed."""
        population, last = self.population[entries], self.last[entries]
        for lane in range(self.matrix.width):
            self.due[lane, entries] = self.matrix.due(lane, population, last, self.times[lane, entries])
        self._dirty[entries] = True

    def touch(self, entries: Ints) -> None:
        """Mark entries as changed."""
        self._dirty[entries] = True

    def as_mask(self, entries: Ints) -> Mask:
        """Return a mask that is true at these entries."""
        mask = np.zeros(self.size, dtype=bool)
        mask[entries] = True
        return mask

    def _make_room(self) -> None:
        if self.size <= len(self.key_slot):
            return
        room = max(64, self.size + self.size // 2)
        self.key_slot, self.population = _longer(self.key_slot, room), _longer(self.population, room, _FREE)
        self.last, self.seen = _longer(self.last, room), np.resize(self.seen, room)
        dirty = np.zeros(room, dtype=bool)
        dirty[: len(self._dirty)] = self._dirty
        self._dirty = dirty
        due, times = self.due, self.times
        self.due, self.times = np.full((len(due), room), NOT_DUE), np.zeros((len(times), room), np.int64)
        self.due[:, : due.shape[1]], self.times[:, : times.shape[1]] = due, times

    def _count(self, population: Ints, by: int) -> None:
        for number, count in zip(*(a.tolist() for a in np.unique(population, return_counts=True)), strict=True):
            self.population_sizes[number] = self.population_sizes.get(number, 0) + by * count

    # --- size ---------------------------------------------------------------------------------------------------

    @property
    def state_size(self) -> StateSize:
        """The size of all entries, or more; keys without an entry may count."""
        entries, intervals = sum(self.population_sizes.values()), len(self.ahead.held.entry)
        entry_bytes = entries * self._entry_bytes + intervals * INTERVAL_BYTES
        return StateSize(entries, entry_bytes + key_bytes_at_most(self.keys))

    @property
    def _entry_bytes(self) -> int:
        return ENTRY_BYTES + 2 * NUMBER_BYTES * self.matrix.width

    def state_use(self) -> tuple[StateSize, Mapping[int, StateSize]]:
        """Return the size of all entries and that of the entries of each population; populations share keys."""
        live = self.live()
        intervals = np.bincount(self.ahead.held.entry, minlength=self.size)[live]
        entry_bytes = intervals * INTERVAL_BYTES + self._entry_bytes
        return size_by_group(self.population[live], entry_bytes, self.keys, self.key_slot[live])

    # --- rules --------------------------------------------------------------------------------------------------

    def set_matrix(self, matrix: RuleMatrix) -> None:
        """Replace the rules. A remaining rule keeps its alert counts."""
        entry, rule, times = self._alerts_by_entry(self.live())
        self._loaded.insert(0, (self.live(), entry, rule, times))
        self.matrix = matrix
        self.due = np.full((matrix.width, len(self.key_slot)), NOT_DUE)
        self.times = np.zeros((matrix.width, len(self.key_slot)), np.int64)
        self.apply_loaded()

    def apply_loaded(self) -> None:
        """Set the alert counts of loaded rows or changed rules. Called before the entries are used."""
        loaded, self._loaded = self._loaded, []
        for entries, given, rule, times in loaded:
            there, population, lane = self.matrix.place(rule)
            entry = given[there]
            mine = self.population[entry] == population
            self.times[:, entries] = 0  # an older row no longer holds
            self.times[lane[mine], entry[mine]] = times[there][mine]
            written = self._dirty.copy()
            self.renew(entries[self.population[entries] != _FREE])
            self._dirty = written  # renewed entries are not different from the stored ones

    def _alerts_by_entry(self, entries: Ints) -> tuple[Ints, Ints, Ints]:
        """Return the alert counts as entry, rule number and count, sorted by entry."""
        lane, place = np.nonzero(self.times[:, entries])
        order = np.argsort(place, kind="stable")
        lane, entry = lane[order], entries[place[order]]
        rule = self.matrix.rule[self.population[entry], lane]
        times = self.times[lane, entry]
        known = rule >= 0
        return entry[known], rule[known], times[known]

    # --- StateTable ---------------------------------------------------------------------------------------------

    def changes(self) -> pl.DataFrame:
        dirty = np.flatnonzero(self._dirty)
        self._dirty[dirty] = False
        gone, self._gone = self._gone, []
        return pl.concat([*gone, self._frame(dirty, gone=False)])

    def rows(self, bucket: int, buckets: int) -> pl.DataFrame:
        live = self.live()
        return self._frame(live[self.keys.in_bucket(self.key_slot[live], bucket, buckets)], gone=False)

    def load(self, rows: pl.DataFrame) -> None:
        rows = rows.unique([*self.keys.dtypes, POPULATION], keep="last", maintain_order=True)
        key_slots, population = self.keys.assign(rows), rows[POPULATION].to_numpy()
        entries = self.find(key_slots, population)
        gone = rows[GONE].to_numpy()
        self.drop(entries[gone & (entries >= 0)])
        self._gone.clear()
        new = ~gone & (entries < 0)
        entries[new] = self.add(key_slots[new], population[new])
        self._take(entries[~gone], rows.filter(~pl.col(GONE)))

    def _take(self, entries: Ints, rows: pl.DataFrame) -> None:
        self.last[entries] = rows[LAST].fill_null(NO_EVENT).to_numpy()
        self.seen[entries] = rows[SEEN].to_numpy()
        self.times[:, entries] = 0  # the loaded alert counts replace them
        self.ahead.pull(self.as_mask(entries))
        entry, start, end = _pairs(entries, rows[AHEAD])
        self.ahead.put(Intervals(entry, start, end))
        self._loaded.append((entries, *_pairs(entries, rows[GIVEN])))
        self._dirty[entries] = False

    def _frame(self, entries: Ints, *, gone: bool) -> pl.DataFrame:
        key_slots = self.key_slot[entries]
        last = pl.Series(LAST, self.last[entries]).replace(NO_EVENT, None)
        stretches = self.ahead.held.take(self.as_mask(entries)[self.ahead.held.entry])
        order = np.argsort(entries)  # lists are made in the order of entries, and put back
        ranked, back = entries[order], np.argsort(order)
        lists = [_lists(ranked, *stretches), _lists(ranked, *self._alerts_by_entry(ranked))]
        return pl.DataFrame(
            [
                pl.Series(HASH, self.keys.hashes[key_slots]),
                *self.keys.frame(key_slots).get_columns(),
                pl.Series(POPULATION, self.population[entries]),
                last.cast(pl.Int64),
                pl.Series(SEEN, self.seen[entries]),
                *(one[back].alias(name) for one, name in zip(lists, (AHEAD, GIVEN), strict=True)),
                pl.Series(GONE, np.full(len(entries), gone)),
            ]
        )


def _code(key_slots: Ints, population: Ints) -> npt.NDArray[np.uint64]:
    code: npt.NDArray[np.uint64] = ((key_slots << _SHIFT) | population).astype(np.uint64)
    return code


def _longer(column: Ints, room: int, fill: int = 0) -> Ints:
    longer = np.full(room, fill, dtype=np.int64)
    longer[: len(column)] = column
    return longer


def _lists(ranked: Ints, entry: Ints, one: Ints, other: Ints) -> pl.Series:
    """Return the list of pairs (one, other) of each entry in ``ranked``. ``entry``: that of each pair; both ascend."""
    edges = np.append(np.searchsorted(entry, ranked), len(entry)) * 2 if len(ranked) else np.zeros(1, np.int64)
    flat = np.stack([one, other], axis=1).reshape(-1)
    return pl.Series(pa.LargeListArray.from_arrays(pa.array(edges, pa.int64()), pa.array(flat, pa.int64())))


def _pairs(entries: Ints, lists: pl.Series) -> tuple[Ints, Ints, Ints]:
    """Return entry, first and second number of each pair in the lists: the inverse of ``_lists``."""
    lengths = lists.list.len().to_numpy().astype(np.int64) // 2
    flat = lists.explode().drop_nulls().to_numpy().astype(np.int64)
    return np.repeat(entries, lengths), flat[::2], flat[1::2]
