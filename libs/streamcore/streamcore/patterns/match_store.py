"""The partial matches of an operator or group, in columns: one row per partial match, one per event that it has taken.

The events of a partial match are a chain of *nodes*: a node has an event, its step and the node before. Partial matches
with an equal beginning share its nodes, so a branch costs one node. (Flink's shared buffer keeps one entry for a state
and event with edges to several predecessors, and needs versions to distinguish the edges of different matches. A node
has one predecessor, so a chain of nodes is one partial match, and a node is over when nothing refers to it.)

A *run* is the partial matches of one pattern and key, in order of their first events. Rows of a run lie side by side
(an extent); a cut that changes a run appends its rows anew, and space is reclaimed when more than half is unused.

Stored are two tables. A partial match is identified by its key, pattern and place in the run; a node by the hash of its
key and a serial number. What is gone is stored once as a tombstone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import chain, pairwise
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from streamcore.columnar.grouping import expand_counts, run_starts, sorted_distinct, with_capacity
from streamcore.columnar.hash_table import HashTable
from streamcore.columnar.key_slots import KeySlots
from streamcore.schema import EVENT_MS
from streamcore.state.table import HASH

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

#: Columns of stored rows.
PATTERN: Final = "__pattern"
PLACE: Final = "__place"
STATE: Final = "__state"
NODE: Final = "__node"
FIRST_EVENT: Final = "__first_event"
STARTED_MS: Final = "__started_ms"
STEP_MS: Final = "__step_ms"
LENGTH: Final = "__length"
MEMBERS: Final = "__members"
SERIAL: Final = "__serial"
BEFORE: Final = "__before"
STEP: Final = "__step"
EVENT: Final = "__event"
#: In ``STATE`` and ``STEP``: the row is gone.
GONE: Final = -1
NEVER: Final = 2**62
NO_NODE: Final = -1
#: In ``MEMBERS``: all members of a family.
ALL_MEMBERS: Final = -1

#: The types of values that are arrays, too.
_ARRAYS: Final[Mapping[pl.DataType, Any]] = {pl.Int64(): np.int64, pl.Float64(): np.float64}
_NODE_COLUMNS: Final = ("before", "step", "event", "event_ms", "serial", "slot", "users", "_place")
_SLOT_BITS: Final = 32
_SLOT: Final = (1 << _SLOT_BITS) - 1
_MIN_ROWS: Final = 4096


class PartialMatch(NamedTuple):
    """A partial match, or a complete one that is not emitted yet (in the automaton's final state).

    ``node``: that of its last event. ``first``: the number of its first event. ``started_ms``: the time of that event.
    ``step_ms``: the time of the last event of the step before the one that took the last event (of the first step: of
    its first event). ``length``: its events. ``members``: those of a family whose partial match it is, as bits.
    ``deadline_ms``: when its time is over, ``NEVER`` for no limit.
    """

    state: int
    node: int
    first: int
    started_ms: int
    step_ms: int
    length: int
    members: int
    deadline_ms: int


_FIELDS: Final = len(PartialMatch._fields)
_STORED: Final = (STATE, NODE, FIRST_EVENT, STARTED_MS, STEP_MS, LENGTH, MEMBERS)


def value_column(column: str) -> str:
    """Return the name of the table's column for the values of a column of events."""
    return f"value:{column}"


def run_code(patterns: Ints, key_slots: Ints) -> Ints:
    """Return the code of a pattern (its number) and a key (its key slot), ascending by pattern, then by key slot."""
    return patterns << _SLOT_BITS | key_slots


class Nodes:
    """The nodes, by index: the node before, the step, the event's number and time, and the place of its values.

    Nodes of one event share its values.
    """

    def __init__(self, values: Mapping[str, pl.DataType]) -> None:
        self.dtypes = dict(values)
        #: Columns of numbers are arrays until there is a null.
        self._arrays = {name: np.empty(0, _ARRAYS[dtype]) for name, dtype in values.items() if dtype in _ARRAYS}
        self._values: dict[str, list[Any]] = {name: [] for name in values if name not in self._arrays}
        self._place = np.empty(0, np.int64)
        self._places = 0
        self.before = np.empty(0, np.int64)
        self.step = np.empty(0, np.int64)
        self.event = np.empty(0, np.int64)
        self.event_ms = np.empty(0, np.int64)
        self.serial = np.empty(0, np.int64)
        self.slot = np.empty(0, np.int64)
        self.users = np.empty(0, np.int64)
        self.size = 0
        self.live = 0
        self.text_bytes = 0  # of all nodes, those that are over and not removed yet included

    def append(
        self,
        before: Ints,
        step: Ints,
        event: Ints,
        event_ms: Ints,
        serial: Ints,
        key_slots: Ints,
        place: Ints,
        values: Mapping[str, pl.Series],
    ) -> None:
        """Append nodes. No partial match or node uses them yet. ``place``: that of each in ``values``, all of which
        are used."""
        size = self.size + len(before)
        for name in _NODE_COLUMNS:
            setattr(self, name, with_capacity(getattr(self, name), size))
        added = slice(self.size, size)
        self.before[added], self.step[added], self.event[added] = before, step, event
        self.event_ms[added], self.serial[added], self.slot[added] = event_ms, serial, key_slots
        self.users[added] = 0
        self._place[added] = self._places + place
        for name in [name for name in self._arrays if values[name].null_count()]:
            self._values[name] = self._arrays.pop(name)[: self._places].tolist()
        new_places = slice(self._places, self._places + int(place.max(initial=-1)) + 1)
        self._places = new_places.stop
        for name, array in self._arrays.items():
            self._arrays[name] = with_capacity(array, self._places)
            self._arrays[name][new_places] = values[name].to_numpy()
        for name, column in self._values.items():
            new = values[name].to_list()
            column.extend(new)
            if self.dtypes[name] == pl.String:
                self.text_bytes += sum(map(len, filter(None, new)))
        self.size = size
        self.live += len(before)

    def value(self, column: str, node: int) -> Any:
        """Return a value of the event of a node."""
        array, place = self._arrays.get(column), self._place[node]
        return self._values[column][place] if array is None else array[place].item()

    def take(self, column: str, nodes: Ints) -> list[Any]:
        """Return a value of the event of each node."""
        array = self.take_array(column, nodes)
        places = self._place[nodes]
        return [*map(self._values[column].__getitem__, places.tolist())] if array is None else array.tolist()

    def take_array(self, column: str, nodes: Ints) -> npt.NDArray[Any] | None:
        """Return a value of the event of each node; None for a column that is no number or may have nulls."""
        found = self._arrays.get(column)
        return None if found is None else found[self._place[nodes]]

    def take_series(self, column: str, nodes: Ints) -> pl.Series:
        """Return a value of the event of each node, under the name of the table's column."""
        array, name = self.take_array(column, nodes), value_column(column)
        return pl.Series(name, self.take(column, nodes) if array is None else array, dtype=self.dtypes[column])

    def chain(self, node: int) -> list[int]:
        """Return the nodes of a chain, first event first."""
        before, found = self.before, []
        while node >= 0:
            found.append(node)
            node = int(before[node])
        found.reverse()
        return found

    def chains(self, last: Ints, lengths: Ints) -> list[tuple[int, ...]]:
        """Return the chains that end with these nodes, first event first; ``lengths``: of each, its nodes."""
        ends = np.cumsum(lengths)
        found, node, place = np.empty(int(lengths.sum()), np.int64), last, ends - 1
        while len(node):
            found[place] = node
            node = self.before[node]
            kept = node >= 0
            node, place = node[kept], place[kept] - 1
        nodes = found.tolist()
        return [tuple(nodes[start:end]) for start, end in pairwise([0, *ends.tolist()])]

    def use(self, nodes: Ints) -> None:
        """Count one user for each node; repeated ones count as often."""
        np.add.at(self.users, nodes, 1)

    def release(self, nodes: Ints) -> Ints:
        """Remove one user from each node. Return the nodes that are over: without users, and with released ones."""
        over = []
        np.subtract.at(self.users, nodes, 1)
        while len(nodes):
            ended = sorted_distinct(nodes[self.users[nodes] == 0])
            self.users[ended] = -1
            over.append(ended)
            before = self.before[ended]
            nodes = before[before >= 0]
            np.subtract.at(self.users, nodes, 1)
        ended = np.concatenate(over) if over else np.empty(0, np.int64)
        self.live -= len(ended)
        return ended

    def keep_values(self, dtypes: Mapping[str, pl.DataType]) -> None:
        """Keep the values of these columns from now on; a column that was not kept before is null."""
        kept = {name: array for name, array in self._arrays.items() if self.dtypes[name] == dtypes.get(name)}
        lists = {name: array[: self._places].tolist() for name, array in self._arrays.items() if name not in kept}
        lists |= self._values
        self._arrays, self._values, self.dtypes = kept, {}, dict(dtypes)
        for name in dtypes.keys() - kept.keys():
            if not self._places and dtypes[name] in _ARRAYS:
                self._arrays[name] = np.empty(0, _ARRAYS[dtypes[name]])
            else:
                self._values[name] = lists.get(name) or [None] * self._places

    def compact(self) -> Ints:
        """Remove the nodes that are over; return the new index of each node by the old one."""
        held = np.flatnonzero(self.users[: self.size] >= 0)
        new = np.full(self.size + 1, -1)
        new[held] = np.arange(len(held))
        for name in _NODE_COLUMNS:
            setattr(self, name, getattr(self, name)[held])
        self.size = self.live = len(held)
        self.before = new[self.before]
        is_used = np.zeros(self._places, bool)
        is_used[self._place] = True
        self._place = (np.cumsum(is_used) - 1)[self._place]
        used_places = np.flatnonzero(is_used)
        self._arrays = {name: array[used_places] for name, array in self._arrays.items()}
        used = used_places.tolist()
        self._places = len(used)
        self._values = {name: [column[i] for i in used] for name, column in self._values.items()}
        texts = [self._values[name] for name, dtype in self.dtypes.items() if dtype == pl.String]
        self.text_bytes = sum(len(text) for column in texts for text in column if text)
        return new


class MatchStore:
    """The runs and nodes, and their two tables. ``keys``: the types of the key columns. ``values``: those of events."""

    def __init__(self, keys: Mapping[str, pl.DataType], values: Mapping[str, pl.DataType]) -> None:
        self.keys = KeySlots(keys)
        self.nodes = Nodes(values)
        self._runs = HashTable()  # from code to run
        self._free = np.empty(0, np.int64)
        self._code = np.empty(0, np.int64)
        self._start = np.empty(0, np.int64)
        self._count = np.empty(0, np.int64)
        self._wake = np.empty(0, np.int64)
        self._size = 0
        self._rows = np.empty((_FIELDS, 0), np.int64)
        self._used = 0
        self._held = 0
        self.next_event = 0
        self._next_serial = 0
        #: Of each write: the codes, and for each the rows that were stored before, and the first one that differs.
        self._changed: list[tuple[Ints, Ints, Ints]] = []
        self._new_from = 0  # nodes from this index on have never been stored
        self._over: list[tuple[Ints, Ints]] = []  # stored nodes that are over: key slots and serials
        self._loaded_partials: list[pl.DataFrame] = []
        self._loaded_nodes: list[pl.DataFrame] = []
        #: Computes the deadline of loaded partial matches: pattern, rows (in ``_FIELDS`` columns).
        self.deadlines: Callable[[Ints, Ints], Ints] = lambda patterns, _rows: np.full(len(patterns), NEVER)
        self.partials = PartialTable(self)
        self.events = NodeTable(self)

    def __len__(self) -> int:
        """Return the number of partial matches."""
        self.resolve()
        return self._held

    @property
    def run_count(self) -> int:
        """The number of runs."""
        return len(self._runs)

    def lengths(self) -> tuple[Ints, Ints, Ints, Ints]:
        """Return the pattern and the key slot of each partial match, the number of its events, and its members."""
        self.resolve()
        runs = np.flatnonzero(self._count[: self._size] > 0)
        counts = self._count[runs]
        codes = np.repeat(self._code[runs], counts)
        rows = expand_counts(self._start[runs], counts)
        lengths, members = (self._rows[PartialMatch._fields.index(name)][rows] for name in ("length", "members"))
        return codes >> _SLOT_BITS, codes & _SLOT, lengths, members

    # --- runs ---------------------------------------------------------------------------------------------------

    def find(self, codes: Ints) -> Ints:
        """Return the run of each code, -1 for none."""
        return self._runs.find(codes.view(np.uint64))

    def codes(self) -> Ints:
        """Return the codes of all runs."""
        return self._code[: self._size][self._count[: self._size] > 0]

    def due(self, until_ms: int, without: Ints) -> Ints:
        """Return the codes of the runs that have a deadline up to this time, in order, but for these codes."""
        due = self._wake[: self._size] <= until_ms
        if due.any() and len(without):
            others = self.find(without)
            due[others[others >= 0]] = False
        return np.sort(self._code[: self._size][due])

    def read(self, runs: Ints) -> list[list[PartialMatch]]:
        """Return the partial matches of each run; none for run -1."""
        known = runs[runs >= 0]
        counts = self._count[known]
        rows = map(PartialMatch, *self._gather(expand_counts(self._start[known], counts)).tolist())
        sizes = np.zeros(len(runs), np.int64)
        sizes[runs >= 0] = counts
        return [[next(rows) for _ in range(size)] for size in sizes.tolist()]

    def read_rows(self, runs: Ints, room: int = 0) -> tuple[Ints, Ints]:
        """Return the rows of the partial matches of runs, in columns, and the index in ``runs`` of each.

        There are none for run -1. ``room``: how many rows without a value follow at least; there are as many as rows,
        too, for memory that is never touched costs nothing, and a larger copy does.
        """
        known = np.flatnonzero(runs >= 0)
        counts = self._count[runs[known]] if len(known) else known
        index = expand_counts(self._start[runs[known]], counts)
        return self._gather(index, room + len(index) if room else 0), np.repeat(known, counts)

    def _gather(self, index: Ints, room: int = 0) -> Ints:
        found = np.empty((_FIELDS, len(index) + room), np.int64)
        _take_rows(self._rows, index, found[:, : len(index)])
        return found

    def write(
        self, codes: Sequence[int], before: Sequence[Sequence[PartialMatch]], after: Sequence[Sequence[PartialMatch]]
    ) -> None:
        """Replace the partial matches of runs. New nodes must have been appended."""
        changed = [i for i, (old, new) in enumerate(zip(before, after, strict=True)) if old != new]
        self.write_rows(
            np.array([codes[i] for i in changed], np.int64),
            np.array([partial.node for i in changed for partial in before[i]], np.int64),
            rows := _to_rows([partial for i in changed for partial in after[i]]),
            np.stack([np.repeat(np.arange(len(changed)), [len(after[i]) for i in changed]), np.arange(rows.shape[1])]),
            np.array([_equal_rows(before[i], after[i]) for i in changed], np.int64),
        )

    def write_rows(self, codes: Ints, nodes: Ints, rows: Ints, after: Ints, equal: Ints | None = None) -> None:
        """Replace the partial matches of distinct runs.

        ``nodes``: the last nodes of those that are replaced. ``after``: for each that is there now the index of its run
        in ``codes``, ascending, and its place in ``rows`` (in columns). ``equal``: how many first ones of each run have
        not changed; by default none.
        """
        owner, places = after
        counts = np.bincount(owner, minlength=len(codes))
        added = len(places)
        self.nodes.use(rows[1, places])
        self._held += added - len(nodes)
        self._end_nodes(nodes)
        if self._used + added > self._rows.shape[1]:
            self._compact_rows(added)
        new = self._rows[:, self._used : self._used + added]
        _take_rows(rows, places, new)
        firsts = np.cumsum(counts) - counts
        wakes = np.full(len(codes), NEVER)
        held = np.flatnonzero(counts)
        if len(held):
            wakes[held] = np.minimum.reduceat(new[-1], firsts[held])
        runs = self.find(codes)
        known = runs >= 0
        stored = np.zeros(len(codes), np.int64)
        stored[known] = self._count[runs[known]]
        self._changed.append((codes, stored, np.zeros(len(codes), np.int64) if equal is None else equal))
        self._drop_runs(codes[known & (counts == 0)], runs[known & (counts == 0)])
        runs[~known & (counts > 0)] = self._new_runs(codes[~known & (counts > 0)])
        at = runs[held]
        self._start[at], self._count[at], self._wake[at] = self._used + firsts[held], counts[held], wakes[held]
        self._used += added

    def _drop_runs(self, codes: Ints, runs: Ints) -> None:
        if len(codes):
            self._runs.remove(codes.view(np.uint64))
            self._count[runs], self._wake[runs] = 0, NEVER
            self._free = np.concatenate([self._free, runs])

    def _new_runs(self, codes: Ints) -> Ints:
        if not len(codes):
            return codes
        reused = min(len(self._free), len(codes))
        room = len(self._free) - reused
        size = self._size + len(codes) - reused
        runs = np.concatenate([self._free[room:], np.arange(self._size, size)])
        self._free = self._free[:room]
        if size > len(self._code):
            for name in ("_code", "_start", "_count", "_wake"):
                setattr(self, name, with_capacity(getattr(self, name), size))
            self._count[self._size :], self._wake[self._size :] = 0, NEVER
        self._size = size
        self._code[runs] = codes
        self._runs.add(codes.view(np.uint64), runs)
        return runs

    def _compact_rows(self, room: int) -> None:
        """Move the extents together, with room for as many rows again."""
        live = np.flatnonzero(self._count[: self._size] > 0)
        counts = self._count[live]
        held = expand_counts(self._start[live], counts)
        self._rows, self._used = self._gather(held, max(_MIN_ROWS, len(held) + 2 * room)), len(held)
        self._start[live] = np.cumsum(counts) - counts

    # --- nodes --------------------------------------------------------------------------------------------------

    def add_nodes(
        self,
        before: Ints,
        step: Ints,
        event: Ints,
        event_ms: Ints,
        key_slots: Ints,
        place: Ints,
        values: Mapping[str, pl.Series],
    ) -> None:
        """Append nodes, in the order in which partial matches were promised their indexes (see ``Nodes.append``)."""
        serial = np.arange(self._next_serial, self._next_serial + len(before))
        self._next_serial += len(before)
        self.nodes.append(before, step, event, event_ms, serial, key_slots, place, values)
        self.nodes.use(before[before >= 0])

    def drop_unused(self, from_node: int) -> None:
        """End the nodes from this index on that no partial match uses."""
        unused = from_node + np.flatnonzero(self.nodes.users[from_node : self.nodes.size] == 0)
        if len(unused):
            self.nodes.use(unused)
            self._end_nodes(unused)

    def _end_nodes(self, released: Ints) -> None:
        over = self.nodes.release(released)
        stored = over[over < self._new_from]
        if len(stored):
            self._over.append((self.nodes.slot[stored], self.nodes.serial[stored]))

    # --- patterns -----------------------------------------------------------------------------------------------

    def keep_values(self, dtypes: Mapping[str, pl.DataType]) -> None:
        """Keep the values of these columns of events from now on; a column that was not kept before is null."""
        self.nodes.keep_values(dtypes)
        self.resolve()  # afterwards, so that loaded events keep theirs

    def keep(self, patterns: Collection[int]) -> None:
        """Drop the runs of all other patterns."""
        self.resolve()
        runs = np.flatnonzero(self._count[: self._size] > 0)
        runs = runs[~np.isin(self._code[runs] >> _SLOT_BITS, list(patterns))]
        rows, _ = self.read_rows(runs)
        self.write_rows(self._code[runs], rows[1], rows, np.empty((2, 0), np.int64))

    # --- state --------------------------------------------------------------------------------------------------

    def partial_changes(self) -> pl.DataFrame:
        """Return the rows of partial matches that changed, with tombstones, and reset the list.

        Called before ``node_changes``, which forgets keys.
        """
        self.resolve()
        codes, stored, same = self._take_changed()
        runs = self.find(codes)
        counts = np.zeros(len(codes), np.int64)
        counts[runs >= 0] = self._count[runs[runs >= 0]]
        same = np.minimum(same, counts)
        live = np.repeat(np.arange(len(codes)), counts - same)
        places = expand_counts(same, counts - same)
        frame = self._frame(codes[live], places, self._start[runs[live]] + places)
        gone_counts = np.maximum(stored - counts, 0)
        gone = np.repeat(np.arange(len(codes)), gone_counts)
        if len(gone):
            tombstones = self._frame(codes[gone], expand_counts(counts, gone_counts), None)
            frame = pl.concat([frame, tombstones])
        return frame

    def _take_changed(self) -> tuple[Ints, Ints, Ints]:
        """Return the changed runs in order of their codes, with the counts of ``_changed``."""
        if not self._changed:
            return (np.empty(0, np.int64),) * 3
        codes, stored, same = (np.concatenate(part) for part in zip(*self._changed, strict=True))
        self._changed = []
        order = np.argsort(codes, kind="stable")  # of several writes of a code, the first one knows what was stored
        codes, same = codes[order], same[order]
        starts = run_starts(codes)
        return codes[starts], stored[order[starts]], np.minimum.reduceat(same, starts) if len(starts) else same

    def partial_rows(self, bucket: int, buckets: int) -> pl.DataFrame:
        """Return the rows of partial matches of a bucket."""
        self.resolve()
        live = np.flatnonzero(self._count[: self._size] > 0)
        live = live[self.keys.in_bucket(self._code[live] & _SLOT, bucket, buckets)] if len(live) else live
        live = live[np.argsort(self._code[live])]
        counts = self._count[live]
        places = expand_counts(np.zeros(len(live), np.int64), counts)
        of_row = np.repeat(live, counts)
        return self._frame(self._code[of_row], places, self._start[of_row] + places)

    def _frame(self, codes: Ints, places: Ints, rows: Ints | None) -> pl.DataFrame:
        """Return rows as stored; tombstones without ``rows``."""
        slots = codes & _SLOT
        columns = [
            pl.Series(HASH, self.keys.hashes[slots]),
            pl.Series(PATTERN, codes >> _SLOT_BITS),
            pl.Series(PLACE, places),
        ]
        if rows is None:
            zeros = np.zeros(len(codes), np.int64)
            columns += [pl.Series(name, zeros + GONE if name == STATE else zeros) for name in _STORED]
        else:
            values = self._gather(rows)
            values[1] = np.where(values[1] >= 0, self.nodes.serial[values[1]] if self.nodes.size else 0, NO_NODE)
            columns += [pl.Series(name, column) for name, column in zip(_STORED, values, strict=False)]
        return pl.DataFrame([*self.keys.frame(slots).get_columns(), *columns])

    def node_changes(self) -> pl.DataFrame:
        """Return the nodes that are new or over, and reset the list. Forgets keys and nodes without users."""
        self.resolve()
        nodes = self.nodes
        new = self._new_from + np.flatnonzero(nodes.users[self._new_from : nodes.size] >= 0)
        frame = self._node_frame(new)
        if self._over:
            slots, serials = (np.concatenate(part) for part in zip(*self._over, strict=True))
            zeros = np.zeros(len(serials), np.int64)
            columns = {HASH: self.keys.hashes[slots], SERIAL: serials, BEFORE: zeros, STEP: zeros + GONE}
            tombstones = pl.DataFrame(
                [
                    *self.keys.frame(slots).get_columns(),
                    *(pl.Series(name, column) for name, column in {**columns, EVENT: zeros, EVENT_MS: zeros}.items()),
                    *(pl.Series(value_column(name), [None] * len(zeros), t) for name, t in nodes.dtypes.items()),
                ]
            )
            frame = pl.concat([frame, tombstones])
            self._over = []
        if nodes.size > 2 * nodes.live + _MIN_ROWS:
            new_index = nodes.compact()
            used = self._rows[1, : self._used]
            used[:] = new_index[np.minimum(used, len(new_index) - 1)]
        self._new_from = nodes.size
        self.forget_keys()
        return frame

    def node_rows(self, bucket: int, buckets: int) -> pl.DataFrame:
        """Return the live nodes of a bucket."""
        self.resolve()
        nodes = self.nodes
        live = np.flatnonzero(nodes.users[: nodes.size] >= 0)
        return self._node_frame(live[self.keys.in_bucket(nodes.slot[live], bucket, buckets)] if len(live) else live)

    def _node_frame(self, nodes: Ints) -> pl.DataFrame:
        columns = self.nodes
        before = columns.before[nodes]
        serials = np.where(before >= 0, columns.serial[before] if columns.size else 0, NO_NODE)
        slots = columns.slot[nodes]
        frame = [
            *self.keys.frame(slots).get_columns(),
            pl.Series(HASH, self.keys.hashes[slots]),
            pl.Series(SERIAL, columns.serial[nodes]),
            pl.Series(BEFORE, serials),
            pl.Series(STEP, columns.step[nodes]),
            pl.Series(EVENT, columns.event[nodes]),
            pl.Series(EVENT_MS, columns.event_ms[nodes]),
        ]
        frame += [columns.take_series(name, nodes) for name in columns.dtypes]
        return pl.DataFrame(frame)

    def forget_keys(self) -> None:
        """Forget the keys that have no partial match; called when a cut is over."""
        used = np.zeros(self.keys.size, bool)  # far quicker than to sort the slots of all runs
        used[self.codes() & _SLOT] = True
        self.keys.keep(np.flatnonzero(used))

    # --- loading ------------------------------------------------------------------------------------------------

    def load(self, partials: pl.DataFrame | None = None, nodes: pl.DataFrame | None = None) -> None:
        """Keep stored rows, oldest first, until ``resolve``."""
        if partials is not None:
            self._loaded_partials.append(partials)
        if nodes is not None:
            self._loaded_nodes.append(nodes)

    def resolve(self) -> None:
        """Build the columns from what was loaded, over what was there; called before every use."""
        if not self._loaded_partials and not self._loaded_nodes:
            return
        partials, nodes = self._loaded_partials, self._loaded_nodes
        self._loaded_partials, self._loaded_nodes = [], []
        all_partials = pl.concat([self.partial_rows(0, 1), *partials], how="diagonal")
        all_nodes = pl.concat([self.node_rows(0, 1), *nodes], how="diagonal_relaxed")  # a value may be wider now
        key = [*self.keys.dtypes, HASH, PATTERN, PLACE]
        all_partials = all_partials.with_columns(pl.col(MEMBERS).fill_null(ALL_MEMBERS))  # of a row without: all
        all_partials = all_partials.unique(subset=key, keep="last", maintain_order=True).filter(pl.col(STATE) != GONE)
        all_nodes = all_nodes.unique(subset=[HASH, SERIAL], keep="last", maintain_order=True)
        all_nodes = all_nodes.filter(pl.col(STEP) != GONE)
        self._rebuild(all_partials, all_nodes)

    def _rebuild(self, partials: pl.DataFrame, nodes: pl.DataFrame) -> None:
        next_event, next_serial = self.next_event, self._next_serial
        old_deadlines, tables = self.deadlines, (self.partials, self.events)
        dtypes = self.keys.dtypes
        values = self.nodes.dtypes
        self.__init__(dtypes, values)  # type: ignore[misc]  # begins anew
        self.deadlines, (self.partials, self.events) = old_deadlines, tables
        nodes = nodes.sort(SERIAL, maintain_order=True).with_row_index("__index")
        index = nodes.select(HASH, SERIAL, pl.col("__index").cast(pl.Int64))
        before = (
            nodes.select(HASH, pl.col(BEFORE).alias(SERIAL))
            .join(index, on=[HASH, SERIAL], how="left", maintain_order="left")["__index"]
            .fill_null(NO_NODE)
            .to_numpy()
        )
        missing = [
            pl.lit(None, t).alias(value_column(n)) for n, t in values.items() if value_column(n) not in nodes.columns
        ]
        nodes = nodes.with_columns(missing)
        # Each shard numbers its events by itself, so nodes of one event have the same number and the same key.
        shared = nodes.select(pl.col("__index").first().over(HASH, EVENT)).to_series().to_numpy()
        _, first, place = np.unique(shared, return_index=True, return_inverse=True)
        self.nodes.append(
            before,
            nodes[STEP].to_numpy(),
            nodes[EVENT].to_numpy(),
            nodes[EVENT_MS].to_numpy(),
            nodes[SERIAL].to_numpy(),
            self.keys.assign(nodes),
            place,
            {name: nodes[value_column(name)].gather(first) for name in values},
        )
        self.nodes.use(before[before >= 0])
        self._new_from = self.nodes.size
        self._next_serial = max(next_serial, 1 + int(self.nodes.serial[: self.nodes.size].max(initial=-1)))
        self.next_event = max(next_event, 1 + int(self.nodes.event[: self.nodes.size].max(initial=-1)))
        self._load_partials(partials, index)

    def _load_partials(self, partials: pl.DataFrame, index: pl.DataFrame) -> None:
        slots = self.keys.assign(partials)
        codes = run_code(partials[PATTERN].to_numpy(), slots)
        order = np.lexsort((partials[PLACE].to_numpy(), codes))
        partials, codes = partials[order], codes[order]
        node = (
            partials.select(HASH, pl.col(NODE).alias(SERIAL))
            .join(index, on=[HASH, SERIAL], how="left", maintain_order="left")["__index"]
            .fill_null(NO_NODE)
            .to_numpy()
        )
        columns = [partials[name].to_numpy() for name in _STORED]
        columns[1] = node
        rows = np.array([*columns, np.full(len(codes), NEVER)], np.int64)
        rows[-1] = self.deadlines(codes >> _SLOT_BITS, rows)
        starts = np.flatnonzero(np.diff(codes, prepend=-1))
        bounds = [*starts.tolist(), len(codes)]
        partial_matches = [*map(PartialMatch, *rows.tolist())]
        lists = [partial_matches[a:b] for a, b in pairwise(bounds)]
        self.write(codes[starts].tolist(), [()] * len(lists), lists)
        self._changed = []
        self.drop_unused(0)
        self._over = []


def _take_rows(rows: Ints, index: Ints, out: Ints) -> None:
    """Write these of the rows (in columns) to ``out``."""
    for column, values in zip(rows, out, strict=True):
        np.take(column, index, out=values, mode="clip")  # which writes to ``out`` at once


def _to_rows(partials: Sequence[PartialMatch]) -> Ints:
    flat = np.fromiter(chain.from_iterable(partials), np.int64, _FIELDS * len(partials))
    return np.ascontiguousarray(flat.reshape(-1, _FIELDS).T)


def _equal_rows(before: Sequence[PartialMatch], after: Sequence[PartialMatch]) -> int:
    """Return how many first partial matches are equal."""
    equal = 0
    for one, other in zip(before, after, strict=False):
        if one != other:
            break
        equal += 1
    return equal


class PartialTable:
    """The ``StateTable`` of partial matches."""

    def __init__(self, store: MatchStore) -> None:
        self._store = store

    def changes(self) -> pl.DataFrame:
        return self._store.partial_changes()

    def rows(self, bucket: int, buckets: int) -> pl.DataFrame:
        return self._store.partial_rows(bucket, buckets)

    def load(self, rows: pl.DataFrame) -> None:
        self._store.load(partials=rows)


class NodeTable:
    """The ``StateTable`` of the events that partial matches have taken."""

    def __init__(self, store: MatchStore) -> None:
        self._store = store

    def changes(self) -> pl.DataFrame:
        return self._store.node_changes()

    def rows(self, bucket: int, buckets: int) -> pl.DataFrame:
        return self._store.node_rows(bucket, buckets)

    def load(self, rows: pl.DataFrame) -> None:
        self._store.load(nodes=rows)


__all__ = ["Iterable", "MatchStore", "NodeTable", "Nodes", "PartialMatch", "PartialTable", "run_code"]
