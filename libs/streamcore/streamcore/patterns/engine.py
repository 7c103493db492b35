"""Runs patterns over the events of keys, in order, on the partial matches of a ``MatchStore``.

The order of a key's events is given; results depend on nothing else: neither on how the events are divided into calls,
nor on calls without events in between, if no event before ``until_ms`` follows. For this, what ends by time ends in the
order of the deadlines, each at its own time, however far time advances at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from streamcore.calls import CALL_ERRORS, failure_reason
from streamcore.columnar.grouping import expand_counts, run_starts
from streamcore.limits import PatternLimits
from streamcore.patterns.automaton import Automaton
from streamcore.patterns.column_run import (
    ColumnInput,
    ColumnMatches,
    ColumnResult,
    ColumnRuns,
    Questions,
    TakenEvents,
    run_columns,
)
from streamcore.patterns.column_tables import (
    DEADLINE,
    MEMBERS,
    NODE,
    STATE,
    ColumnTables,
    Family,
    build_tables,
    project,
)
from streamcore.patterns.condition_arrays import READS, NullableArray, hold_arrays, read_groups
from streamcore.patterns.expressions import Groups, IterativeCondition, MatchExpression, MatchRead, MatchValues
from streamcore.patterns.family_bits import NO_PARTS, divide_bits
from streamcore.patterns.graph import StateKind
from streamcore.patterns.match_store import ALL_MEMBERS, NEVER, NO_NODE, Ints, Mask, MatchStore, PartialMatch, run_code
from streamcore.patterns.pattern import SkipKind, WithinType

#: From how many runs on columns cost less than running each by itself.
FEWEST_RUNS: Final = 48
#: The bits of a condition that fails: below 0, whichever others hold.
_FAILS: Final = -(1 << 62)
_FINAL: Final = 0  # the number of the state of matches that are not emitted yet


class Match(NamedTuple):
    """A match, or a partial match whose time was over. ``nodes``: its events, valid until the next ``run``.

    ``time_ms``: the event time at which it is certain: that of its last event, or the deadline that made it so.
    """

    pattern: int
    key_slot: int
    time_ms: int
    nodes: tuple[int, ...]
    timed_out: bool = False


@dataclass(frozen=True, slots=True)
class PatternEvents:
    """Events in order of key slot, then in the order in which their key's events are looked at.

    ``key_slots``, ``event_ms``: by event. ``values``: a row for each event. For event ``events[i]`` the conditions of
    pattern or family ``patterns[i]`` give ``bits[i]``; these are in order of pattern, then event. A pattern that is a
    member of a family has none of its own.
    """

    key_slots: Ints
    event_ms: Ints
    values: pl.DataFrame
    patterns: Ints
    events: Ints
    bits: Ints


class MatchEngine:
    """The partial matches of several patterns over one stream and key. ``values``: the columns of events to keep."""

    def __init__(
        self, keys: Mapping[str, pl.DataType], values: Mapping[str, pl.DataType], limits: PatternLimits
    ) -> None:
        self.store = MatchStore(keys, values)
        self.store.deadlines = self._deadlines
        self.limits = limits
        self.automata: Mapping[int, Automaton] = {}
        self.tables: ColumnTables = build_tables({})
        #: From how many runs on patterns are run in columns.
        self.fewest_runs = FEWEST_RUNS
        self.timed_out: frozenset[int] = frozenset()
        self.dropped = 0
        #: Of the last run: the pattern, the row of the batch, and why a condition over earlier events fails for it.
        self.failed: dict[tuple[int, int], str] = {}

    def set_patterns(
        self,
        automata: Mapping[int, Automaton],
        timed_out: frozenset[int] = frozenset(),
        families: Mapping[int, Family] | None = None,
    ) -> None:
        """Run these patterns, by number, from now on. ``timed_out``: those whose timed-out partial matches are emitted.

        ``families``: by number, which no pattern has. A number means one structure for ever. Partial matches of other
        patterns are dropped by ``store.keep``; those of other families must have been divided by ``divide``.
        """
        self.automata = automata
        self.timed_out = timed_out
        self.tables = build_tables(automata, timed_out, families)

    def divide(self, families: Mapping[int, Family]) -> None:
        """Give each member of these families partial matches of its own; called after ``set_patterns``."""
        self.store.resolve()
        codes = self.store.codes()
        for number, family in families.items():
            self.divide_codes(family, codes[codes >> 32 == number])

    def divide_codes(self, family: Family, codes: Ints) -> None:
        """Replace runs of a family by runs of those of its members that are there. These have none."""
        store = self.store
        rows, owner = store.read_rows(store.find(codes))
        states = np.array(family.states, np.int64)
        all_codes, all_rows, all_owners = [codes], [rows[:, :0]], [owner[:0]]
        for index, member in enumerate(family.members):
            if member not in self.automata:
                continue
            its = np.flatnonzero(rows[MEMBERS] >> index & 1)
            own = rows[:, its]
            own[STATE] = states[own[STATE], index]
            own[MEMBERS] = ALL_MEMBERS
            own[DEADLINE] = self._deadlines(np.full(len(its), member), own)
            all_owners.append(owner[its] + len(codes) * len(all_codes))
            all_codes.append(run_code(np.full(len(codes), member), codes & 0xFFFFFFFF))
            all_rows.append(own)
        new, owners = np.concatenate(all_rows, 1), np.concatenate(all_owners)
        store.write_rows(np.concatenate(all_codes), rows[NODE], new, np.stack([owners, np.arange(len(owners))]))

    def run(self, batch: PatternEvents | None, until_ms: int) -> list[Match]:
        """Take the events, then advance time to ``until_ms``, and return what is certain then.

        The order is that of the patterns and key slots, then of time. No event before ``until_ms`` may follow. A
        condition over earlier events that fails does not hold, and is in ``failed``.
        """
        self.failed = {}
        self.store.resolve()
        return _Pass(self, batch, min(until_ms, NEVER - 1)).run()

    def _deadlines(self, patterns: Ints, rows: Ints) -> Ints:
        """Return the deadlines of partial matches (see ``MatchStore.deadlines``)."""
        deadlines, nodes, tables = np.full(len(patterns), NEVER), self.store.nodes, self.tables
        if not len(patterns):
            return deadlines
        steps, times = nodes.step[rows[NODE]], nodes.event_ms[rows[NODE]]
        machine = tables.machine(patterns)
        known = machine >= 0
        deadlines[known] = tables.deadlines(machine[known], rows[:, known], steps[known], times[known])
        for i in np.flatnonzero(~known).tolist():
            automaton, row = self.automata.get(int(patterns[i])), rows[:, i].tolist()
            if automaton is not None and row[0] < len(automaton.states):
                deadlines[i] = _deadline(automaton, row[0], row[3], int(times[i]), row[4], int(steps[i]))
        return deadlines


def _deadline(automaton: Automaton, state: int, started_ms: int, last_ms: int, step_ms: int, last_step: int) -> int:
    """Return when the time of a partial match in this state is over; ``NEVER`` without a limit.

    ``last_ms``: the time of its last event. ``step_ms``: see ``PartialMatch``. ``last_step``: that of its last event.
    """
    waiting = automaton.states[state]
    if waiting.kind is StateKind.FINAL:
        return NEVER
    limit_ms, within_ms = waiting.limit_ms, automaton.within_ms
    if waiting.kind is StateKind.PENDING and waiting.limit is WithinType.SINCE_STEP_BEFORE:
        within_ms = None  # what must not follow has a time of its own, behind that of the match
    deadline = NEVER if within_ms is None else started_ms + within_ms
    if limit_ms is None or (waiting.limit is WithinType.BETWEEN_TIMES and waiting.step != last_step):
        return deadline
    since_ms = step_ms if waiting.limit is WithinType.SINCE_STEP_BEFORE and waiting.step == last_step else last_ms
    return min(deadline, since_ms + limit_ms)


class _Runs(NamedTuple):
    """Runs: their codes, and the bounds of their events in ``pair_events`` and ``pair_bits``."""

    codes: Ints
    lows: Ints
    highs: Ints

    def take(self, index: Ints) -> _Runs:
        """Return some of the runs."""
        return _Runs(self.codes[index], self.lows[index], self.highs[index])

    def join(self, other: _Runs) -> _Runs:
        """Return these runs, and then the others."""
        return _Runs(*(np.concatenate(part) for part in zip(self, other, strict=True)))


_NO_RUNS: Final = _Runs(*(np.empty(0, np.int64),) * 3)


class _Pass:
    """One call of ``MatchEngine.run``."""

    def __init__(self, engine: MatchEngine, batch: PatternEvents | None, until_ms: int) -> None:
        self.engine = engine
        self.store = engine.store
        self.batch = batch
        self.until_ms = until_ms
        self.matches: list[Match] = []
        nodes = self.store.nodes
        self.first_node = self.first_of_pass = nodes.size
        self.before: list[int] = []
        self.step: list[int] = []
        self.row: list[int] = []
        self.slots: list[int] = []
        self.events: list[int] = []
        self.bits: list[int] = []
        none = np.empty(0, np.int64)
        #: The events of runs, and the bits that their pattern or family has for them.
        self.pair_events, self.pair_bits = (none, none) if batch is None else (batch.events, batch.bits)
        #: The bits for automata, and the index in ``parts`` of the events of families that have them, or -1.
        self.shared_bits, self.parted, self.parts = self.pair_bits, np.full(len(self.pair_bits), -1), NO_PARTS
        self.room = engine.limits.partials - len(self.store)
        self.columns: dict[str, list[Any]] = {}
        self.times: list[int] = [] if batch is None else batch.event_ms.tolist()
        self.first_event = self.store.next_event
        self.store.next_event += len(self.times)

    def run(self) -> list[Match]:
        store = self.store
        self._share_bits()
        runs = self._active(*self._runs())
        due = store.due(self.until_ms, without=runs.codes)
        runs = runs.join(_Runs(due, np.zeros_like(due), np.zeros_like(due)))
        if not len(runs.codes):
            return []
        runs = self._run_families(runs)
        runs = runs.take(self._run_columns(runs, self.engine.fewest_runs))
        pairs = expand_counts(runs.lows, runs.highs - runs.lows)
        self.events, self.bits = self.pair_events[pairs].tolist(), self.pair_bits[pairs].tolist()
        ends = np.cumsum(runs.highs - runs.lows).tolist()
        before = store.read(store.find(runs.codes))
        code_list = runs.codes.tolist()
        automata = self.engine.automata
        after = []
        for code, partials, low, high in zip(code_list, before, [0, *ends], ends, strict=False):
            pattern = code >> 32
            after.append(_Run(self, automata[pattern], pattern, code & 0xFFFFFFFF, partials).run(low, high))
        self._append_nodes()
        store.write(code_list, before, after)
        store.drop_unused(self.first_of_pass)
        self.matches.sort(key=itemgetter(0, 1))  # the pattern, the key slot
        return self.matches

    def _runs(self) -> _Runs:
        """Return the runs of patterns and families with events."""
        batch = self.batch
        if batch is None or not len(batch.events):
            return _NO_RUNS
        pair_codes = run_code(batch.patterns, batch.key_slots[batch.events])
        starts = run_starts(pair_codes)
        return _Runs(pair_codes[starts], starts, np.append(starts[1:], len(pair_codes)))

    def _share_bits(self) -> None:
        """Compute the bits of events for families of patterns that are alike."""
        if self.batch is None:
            return
        for number, family in self.engine.tables.families.items():
            low, high = np.searchsorted(self.batch.patterns, [number, number + 1]).tolist()
            if family.alike and low < high:
                members = [self.engine.automata[member].leaves for member in family.members]
                bits, parted, parts = divide_bits(self.pair_bits[low:high], family.leaves, members)
                self.shared_bits = np.concatenate([self.shared_bits[:low], bits, self.shared_bits[high:]])
                self.parted[low:high] = np.where(parted >= 0, parted + len(self.parts.counts), -1)
                self.parts = self.parts.join(parts)

    def _active(self, codes: Ints, lows: Ints, highs: Ints) -> _Runs:
        """Leave out the runs without a partial match and without an event that begins one.

        A family's run on a key on which its members differ is replaced by those of its members.
        """
        if not len(codes):
            return _NO_RUNS
        families = self.engine.tables.families
        divided = _NO_RUNS
        if families:
            is_divided = self._is_divided(codes)
            if is_divided.any():
                runs = _Runs(codes, lows, highs)
                divided = self._active(*self._of_members(runs.take(np.flatnonzero(is_divided))))
                codes, lows, highs = runs.take(np.flatnonzero(~is_divided))
        active = self.store.find(codes) >= 0
        idle = np.flatnonzero(~active)
        counts = highs[idle] - lows[idle]
        pairs = expand_counts(lows[idle], counts)
        begins = self._begins(np.repeat(codes[idle] >> 32, counts), pairs)
        active[np.repeat(idle, counts)[begins]] = True
        return _Runs(codes, lows, highs).take(np.flatnonzero(active)).join(divided)

    def _begins(self, patterns: Ints, pairs: Ints) -> Mask:
        """Return whether each event, by its index in ``pair_events``, may begin a match of its pattern or family."""
        tables, begins, bits = self.engine.tables, np.zeros(len(patterns), bool), self.shared_bits[pairs]
        machine = tables.machine(patterns)
        known = machine >= 0
        begins[known] = tables.begins(machine[known], bits[known])
        parted = np.flatnonzero(self.parted[pairs] >= 0)
        if len(parted):
            event = self.parted[pairs[parted]]
            counts = self.parts.counts[event]
            bits_of_parts = self.parts.bits[expand_counts(self.parts.first[event], counts)]
            part_begins = tables.begins(np.repeat(machine[parted], counts), bits_of_parts)
            begins[parted] = np.logical_or.reduceat(part_begins, np.cumsum(counts) - counts)
        for pattern in np.unique(patterns[~known]).tolist():
            own = patterns == pattern
            for required, forbidden in self.engine.automata[pattern].begin_masks:
                begins |= own & (bits & required == required) & (bits & forbidden == 0)
        return begins

    # --- families -----------------------------------------------------------------------------------------------

    def _is_divided(self, codes: Ints) -> Mask:
        """Return which runs are a family's on a key on which a member has partial matches of its own."""
        live = self.store.codes()
        divided = [
            run_code(np.full(1, number), live[np.isin(live >> 32, family.members)] & 0xFFFFFFFF)
            for number, family in self.engine.tables.families.items()
        ]
        return np.isin(codes, np.concatenate(divided))

    def _of_members(self, runs: _Runs) -> _Runs:
        """Return the runs of the members of families, with the events that concern each of them."""
        found = _NO_RUNS
        for number, family in self.engine.tables.families.items():
            own = runs.take(np.flatnonzero(runs.codes >> 32 == number))
            if not len(own.codes):
                continue
            counts = own.highs - own.lows
            pairs = expand_counts(own.lows, counts)
            ends = np.cumsum(counts)
            for member in family.members:
                bits = project(self.pair_bits[pairs], family.leaves, self.engine.automata[member].leaves)
                kept = bits != 0
                before = np.concatenate([[0], np.cumsum(kept)]) + len(self.pair_bits)
                self.pair_bits = np.concatenate([self.pair_bits, bits[kept]])
                self.shared_bits = np.concatenate([self.shared_bits, bits[kept]])
                self.parted = np.concatenate([self.parted, np.full(int(kept.sum()), -1)])
                self.pair_events = np.concatenate([self.pair_events, self.pair_events[pairs[kept]]])
                codes = run_code(np.full(len(own.codes), member), own.codes & 0xFFFFFFFF)
                found = found.join(_Runs(codes, before[ends - counts], before[ends]))
        return found

    def _run_families(self, runs: _Runs) -> _Runs:
        """Run families in columns; return the other runs, and those of members where a family's run is hard."""
        families = self.engine.tables.families
        if not families:
            return runs
        is_family = np.isin(runs.codes >> 32, [*families])
        shared = runs.take(np.flatnonzero(is_family))
        hard = shared.take(self._run_columns(shared, 0))
        if len(hard.codes):
            for number, family in families.items():
                self.engine.divide_codes(family, hard.codes[hard.codes >> 32 == number])
        return runs.take(np.flatnonzero(~is_family)).join(self._of_members(hard))

    def _run_columns(self, runs: _Runs, fewest_runs: int) -> Ints:
        """Run in columns if there are so many runs; return the indexes of the runs that are still to be run."""
        engine, store, batch = self.engine, self.store, self.batch
        tables, everything = engine.tables, np.arange(len(runs.codes))
        machines = tables.machine(runs.codes >> 32)
        fit = np.flatnonzero(machines >= 0)
        most_begun = tables.most_begun * int(self.parts.counts.max(initial=1))
        begun = int(most_begun * (runs.highs - runs.lows).sum())
        if len(fit) < max(1, fewest_runs) or self.room < begun:
            return everything
        stored = store.find(runs.codes[fit])
        rows, owner = store.read_rows(stored, room=2 * len(self.pair_events) + len(fit))
        nodes = store.nodes
        given = ColumnInput(
            self.pair_events,
            self.shared_bits,
            self.parted,
            self.parts,
            np.empty(0, np.int64) if batch is None else batch.event_ms,
            self.first_event,
            self.until_ms,
            nodes.before[: nodes.size],
            nodes.step[: nodes.size],
            nodes.event_ms[: nodes.size],
            self._decide,
            engine.limits.partials_per_key,
            engine.limits.length,
            engine.fewest_runs,
        )
        key_slots = runs.codes[fit] & 0xFFFFFFFF
        result = run_columns(
            tables, ColumnRuns(machines[fit], key_slots, runs.lows[fit], runs.highs[fit], rows, owner), given
        )
        new = result.nodes
        self._add_nodes(new.before, new.step, new.row, new.key_slot)
        self.first_node = nodes.size
        self.room -= result.after.shape[1] - int((~result.hard)[owner].sum())
        self._add_matches(runs.codes[fit], result.matches)
        self._write_rows(runs.codes[fit], rows[NODE, : len(owner)], owner, result)
        return np.concatenate([np.flatnonzero(machines < 0), fit[result.hard]])

    def _add_matches(self, codes: Ints, found: ColumnMatches) -> None:
        """Add the matches of runs with these codes, those of a family once for each member that has them."""
        codes, chains = codes[found.owner], self.store.nodes.chains(found.node, found.length)
        patterns, key_slots = codes >> 32, codes & 0xFFFFFFFF
        index, families = np.arange(len(codes)), self.engine.tables.families
        if families:
            parts = [index[~np.isin(patterns, [*families])]]
            numbers = [patterns[parts[0]]]
            for number, family in families.items():
                own = np.flatnonzero(patterns == number)
                for n, member in enumerate(family.members):
                    parts.append(own[found.members[own] >> n & 1 > 0])
                    numbers.append(np.full(len(parts[-1]), member))
            index, patterns = np.concatenate(parts), np.concatenate(numbers)
        ways = [patterns, key_slots[index], found.time_ms[index]]
        own_chains = map(chains.__getitem__, index.tolist())
        self.matches += map(Match, *(way.tolist() for way in ways), own_chains, found.timed_out[index].tolist())

    def _write_rows(self, codes: Ints, last_nodes: Ints, owner: Ints, result: ColumnResult) -> None:
        """Replace the partial matches of the runs that are not hard and have changed.

        ``last_nodes``, ``owner``: of each that was there its last node, and its run.
        """
        after, equal = result.after, result.equal
        counts = np.bincount(after[0], minlength=len(codes))
        changed = ~result.hard & ((equal < counts) | (np.bincount(owner, minlength=len(codes)) > counts))
        if not changed.all():
            codes, last_nodes, equal = codes[changed], last_nodes[changed[owner]], equal[changed]
            after = np.compress(changed[after[0]], after, axis=1)
            after[0] = (np.cumsum(changed) - 1)[after[0]]
        self.store.write_rows(codes, last_nodes, result.rows, after, equal)

    def _decide(self, questions: Questions) -> Ints:
        """Return which conditions over earlier events hold (see ``ColumnInput``).

        Conditions that read the same are evaluated over the same values.
        """
        bits = np.zeros(len(questions.patterns), np.int64)
        alike: dict[_Read, list[_Asked]] = {}
        for pattern in np.unique(questions.patterns).tolist():
            automaton, is_own = self.engine.automata[pattern], questions.patterns == pattern
            for leaf, condition in automaton.iterative.items():
                at = np.flatnonzero(is_own & (questions.asked >> leaf & 1 > 0))
                if len(at):
                    read = automaton.steps_read(condition), condition.reads, condition.columns
                    alike.setdefault(read, []).append(_Asked(leaf, condition, at))
        for (steps, *_), asked in alike.items():
            self._decide_alike(questions, steps, asked, bits)
        return bits

    def _decide_alike(
        self, questions: Questions, steps: Sequence[Sequence[int]], asked: Sequence[_Asked], bits: Ints
    ) -> None:
        """Add the bits of conditions that read the same. ``steps``: the numbers of the steps of each read."""
        index = np.full(len(questions.rows), -1)
        for one in asked:
            index[questions.partial[one.at]] = 0
        partials = np.flatnonzero(index == 0)
        index[partials] = np.arange(len(partials))
        rows, condition = questions.rows[partials], asked[0].condition
        taken = questions.taken._replace(owner=index[questions.taken.owner])
        groups = [self._places_taken(numbers, taken, len(rows)) for numbers in steps]
        arrays = self._in_arrays(condition, rows, groups)
        left = []
        for one in asked:
            own = index[questions.partial[one.at]]
            held = _hold_arrays(one.condition, arrays)
            if held is None:
                left.append((one, own))
            else:
                bits[one.at] |= held[own].astype(np.int64) << one.leaf
        if left:
            self._decide_in_lists(questions.numbers, rows.tolist(), groups, left, bits)

    def _in_arrays(
        self, condition: IterativeCondition, rows: Ints, groups: Sequence[_PlacesTaken]
    ) -> tuple[Mapping[str, npt.NDArray[Any]], Mapping[MatchRead, NullableArray]] | None:
        """Return the columns of the rows, and what the condition reads; None if not all of it is arrays."""
        if not isinstance(condition, MatchExpression) or not all(read.function in READS for read in condition.reads):
            return None
        matched = {}
        for read, (places, bounds) in zip(condition.reads, groups, strict=True):
            values = self._take_array(read.column, places) if read.column else places
            if values is None:
                return None
            matched[read] = read_groups(read, values, bounds)
        columns = {name: self._column_array(name) for name in condition.columns}
        candidates = {name: column[rows] for name, column in columns.items() if column is not None}
        return (candidates, matched) if len(candidates) == len(columns) else None

    def _column_array(self, name: str) -> npt.NDArray[Any] | None:
        assert self.batch is not None
        column = self.batch.values[name]
        return column.to_numpy() if column.dtype in (pl.Int64, pl.Float64) and not column.null_count() else None

    def _take_array(self, column: str, places: Ints) -> npt.NDArray[Any] | None:
        """Return a value of each event of ``TakenEvents``; None if they are no array."""
        is_stored = places >= 0
        stored = self.store.nodes.take_array(column, places[is_stored])
        if stored is None or len(stored) == len(places):
            return stored
        new = self._column_array(column)
        if new is None or new.dtype != stored.dtype:
            return None
        values = np.empty(len(places), stored.dtype)
        values[is_stored], values[~is_stored] = stored, new[~places[~is_stored]]
        return values

    def _decide_in_lists(
        self,
        numbers: Ints,
        rows: list[int],
        groups: Sequence[_PlacesTaken],
        asked: Sequence[tuple[_Asked, Ints]],
        bits: Ints,
    ) -> None:
        """Add the bits of conditions that read the same, with the indexes in ``rows`` of their events."""
        (condition, *_) = (one.condition for one, _ in asked)
        read_values = [self._values_taken(*of) for of in zip(condition.reads, groups, strict=True)]
        try:
            matched = [read.compute_each(own) for read, own in zip(condition.reads, read_values, strict=True)]
            candidates = {name: [*map(self.column(name).__getitem__, rows)] for name in condition.columns}
            values = MatchValues(candidates, matched)
        except CALL_ERRORS:
            values = None
        for (leaf, condition, at), index in asked:
            own = index.tolist()
            held = None if values is None else _hold_each(condition, values, None if len(own) == len(rows) else own)
            if held is None:  # of one row at least it raises
                by_row = [[*map(list, group)] for group in read_values]
                failing = [
                    self.condition_holds(n, condition, rows[i], [group[i] for group in by_row])
                    for n, i in zip(numbers[at].tolist(), own, strict=True)
                ]
                bits[at] |= np.array([_FAILS if holds is None else holds << leaf for holds in failing], np.int64)
            else:
                bits[at] |= np.asarray(held, np.int64) << leaf

    def _places_taken(self, steps: Sequence[int], taken: TakenEvents, count: int) -> _PlacesTaken:
        """Return the places of the events of these steps for each of ``count`` partial matches; owner -1 is none."""
        is_own = taken.owner >= 0
        for_steps = [taken.step == step for step in steps]
        own = np.flatnonzero(is_own & np.logical_or.reduce(for_steps))
        bounds = np.zeros(count + 1, np.int64)
        np.cumsum(np.bincount(taken.owner[own], minlength=count), out=bounds[1:])
        return _PlacesTaken(taken.place[own], bounds)

    def _values_taken(self, read: MatchRead, taken: _PlacesTaken) -> Groups:
        """Return the values that a read is about for each partial match."""
        values: list[Any] = [None] * len(taken.places)
        if read.column:
            values = self.store.nodes.take(read.column, taken.places[taken.places >= 0])
            if len(values) < len(taken.places):
                stored, new = iter(values), self.column(read.column)
                values = [next(stored) if place >= 0 else new[~place] for place in taken.places.tolist()]
        return Groups(values, taken.bounds.tolist())

    def condition_holds(
        self, pattern: int, condition: IterativeCondition, row: int, values: Sequence[Sequence[Any]]
    ) -> bool | None:
        """Return whether a condition over earlier events holds for a row of the batch; None if that of a family fails.

        ``values``: for each read, those of the events that its step has taken.
        """
        candidate = {name: self.column(name)[row] for name in condition.columns}
        try:
            matched = [read.compute(own) for read, own in zip(condition.reads, values, strict=True)]
            return condition.holds(candidate, matched)
        except CALL_ERRORS as error:
            if pattern in self.engine.tables.families:
                return None
            reason, failed = failure_reason("pattern condition", error), self.engine.failed
            failed[pattern, row] = min(reason, failed.get((pattern, row), reason))
            return False

    # --- nodes --------------------------------------------------------------------------------------------------

    def new_node(self, before: int, step: int, row: int, key_slot: int) -> int:
        """Return the index of a new node for an event of the batch."""
        self.before.append(before)
        self.step.append(step)
        self.row.append(row)
        self.slots.append(key_slot)
        return self.first_node + len(self.before) - 1

    def chain(self, node: int) -> list[int]:
        """Return the nodes of a chain, first event first."""
        recent = []
        while node >= self.first_node:
            recent.append(node)
            node = self.before[node - self.first_node]
        return [*self.store.nodes.chain(node), *reversed(recent)]

    def find_step(self, node: int) -> int:
        """Return the step that took the event of a node."""
        return self.step[node - self.first_node] if node >= self.first_node else int(self.store.nodes.step[node])

    def find_event(self, node: int) -> int:
        """Return the number of the event of a node."""
        if node >= self.first_node:
            return self.first_event + self.row[node - self.first_node]
        return int(self.store.nodes.event[node])

    def find_time(self, node: int) -> int:
        """Return the time of the event of a node."""
        if node >= self.first_node:
            return self.times[self.row[node - self.first_node]]
        return int(self.store.nodes.event_ms[node])

    def read_node(self, node: int, column: str) -> Any:
        """Return a value of the event of a node."""
        if node >= self.first_node:
            return self.column(column)[self.row[node - self.first_node]]
        return self.store.nodes.value(column, node)

    def column(self, name: str) -> list[Any]:
        """Return a column of the events of the batch."""
        found = self.columns.get(name)
        if found is None:
            assert self.batch is not None
            found = self.columns[name] = self.batch.values[name].to_list()
        return found

    def _append_nodes(self) -> None:
        columns = (self.before, self.step, self.row, self.slots)
        self._add_nodes(*(np.array(column, np.int64) for column in columns))

    def _add_nodes(self, before: Ints, step: Ints, rows: Ints, key_slots: Ints) -> None:
        if not len(before):
            return
        assert self.batch is not None
        is_taken = np.zeros(len(self.times), bool)
        is_taken[rows] = True
        taken = np.flatnonzero(is_taken)
        values = {name: self.batch.values[name].gather(taken) for name in self.store.nodes.dtypes}
        self.store.add_nodes(
            before,
            step,
            self.first_event + rows,
            self.batch.event_ms[rows],
            key_slots,
            (np.cumsum(is_taken) - 1)[rows],
            values,
        )


#: What conditions read: the numbers of the steps of each read, the reads, and columns of the event.
_Read = tuple[tuple[tuple[int, ...], ...], tuple[MatchRead, ...], frozenset[str]]


class _Asked(NamedTuple):
    """A condition over earlier events, the number of its bit, and the indexes of questions."""

    leaf: int
    condition: IterativeCondition
    at: Ints


class _PlacesTaken(NamedTuple):
    """The places (see ``TakenEvents``) of the events that partial matches have taken, and the bounds of each."""

    places: Ints
    bounds: Ints


def _hold_arrays(
    condition: IterativeCondition,
    arrays: tuple[Mapping[str, npt.NDArray[Any]], Mapping[MatchRead, NullableArray]] | None,
) -> Mask | None:
    """Return where a condition holds; None if arrays do not compute it."""
    if arrays is None or not isinstance(condition, MatchExpression):
        return None
    return hold_arrays(condition.tree, *arrays)


def _hold_each(condition: IterativeCondition, values: MatchValues, at: Sequence[int] | None) -> Sequence[bool] | None:
    """Return where a condition holds; None if it raises."""
    try:
        return condition.holds_each(values, at)
    except CALL_ERRORS:
        return None


class _Run:
    """One pattern and key. ``partials`` are in order of their first events, and never changed in place."""

    __slots__ = ("automaton", "context", "held", "key_slot", "partials", "pattern", "soonest_ms")

    def __init__(
        self, context: _Pass, automaton: Automaton, pattern: int, key_slot: int, partials: Sequence[PartialMatch]
    ) -> None:
        self.context = context
        self.automaton = automaton
        self.pattern = pattern
        self.key_slot = key_slot
        self.partials = [p for p in partials if p.state != _FINAL]
        self.held = [p for p in partials if p.state == _FINAL] if len(self.partials) < len(partials) else []
        self.soonest_ms = min([p.deadline_ms for p in self.partials], default=NEVER)

    def run(self, low: int, high: int) -> list[PartialMatch]:
        """Take the events of the batch from ``low`` to ``high``, advance time, and return the partial matches."""
        context = self.context
        for i in range(low, high):
            row = context.events[i]
            ms = context.times[row]
            if ms >= self.soonest_ms:
                self._advance(ms)
            self._take(row, ms, context.bits[i])
        if context.until_ms >= self.soonest_ms:
            self._advance(context.until_ms)
        return self.partials + self.held if self.held else self.partials

    # --- events -------------------------------------------------------------------------------------------------

    def _take(self, row: int, ms: int, bits: int) -> None:
        """Let every partial match take, ignore or end with an event, and begin others with it."""
        kept: list[PartialMatch] = []
        complete: list[PartialMatch] = []
        for partial in self.partials:
            self._go_on(partial, row, ms, bits, kept, complete)
        self._begin_with(row, ms, bits, kept, complete)
        limit = self.context.engine.limits.partials_per_key
        if len(kept) > limit:
            self.context.engine.dropped += len(kept) - limit
            del kept[: len(kept) - limit]
        self.partials = kept
        self.soonest_ms = min([p.deadline_ms for p in kept], default=NEVER)
        if complete or self.held:
            self._settle(complete, ms)

    def _go_on(
        self,
        partial: PartialMatch,
        row: int,
        ms: int,
        bits: int,
        kept: list[PartialMatch],
        complete: list[PartialMatch],
    ) -> None:
        """Add the successors of a partial match after an event to ``kept`` and ``complete``."""
        automaton, state = self.automaton, partial.state
        if automaton.iterative:
            bits = self._decide(partial, state, bits, row)
        moves, stops = automaton.moves(state, bits)
        going_on: list[PartialMatch] = []
        too_long = partial.length >= self.context.engine.limits.length and any(step >= 0 for _, step, _ in moves)
        if too_long:
            self.context.engine.dropped += 1
            moves = tuple(move for move in moves if move[1] < 0)
        for target, step, completes in moves:
            moved = self._move(partial, target, ms) if step < 0 else self._extend(partial, target, step, row, ms)
            if moved is not None:
                if completes:
                    complete.append(moved._replace(state=_FINAL, deadline_ms=NEVER))
                if automaton.states[target].kind is not StateKind.FINAL:
                    going_on.append(moved)
        if not stops and not too_long:  # else matches that began later would wait for it, and it can never match
            kept += going_on

    def _begin_with(self, row: int, ms: int, bits: int, kept: list[PartialMatch], complete: list[PartialMatch]) -> None:
        """Add the partial matches that begin with an event, and those that it completes at once."""
        automaton, context = self.automaton, self.context
        if automaton.iterative:
            bits = self._decide(None, automaton.start, bits, row)
        for target, step, completes in automaton.moves(automaton.start, bits).moves:
            if context.room <= 0:
                context.engine.dropped += 1
                continue
            begun = self._begin(target, step, row, ms)
            if completes:
                complete.append(begun._replace(state=_FINAL, deadline_ms=NEVER))
            if automaton.states[target].kind is not StateKind.FINAL:
                context.room -= 1
                kept.append(begun)

    def _begin(self, target: int, step: int, row: int, ms: int) -> PartialMatch:
        context = self.context
        node = context.new_node(NO_NODE, step, row, self.key_slot)
        deadline = _deadline(self.automaton, target, ms, ms, ms, step)
        return PartialMatch(target, node, context.first_event + row, ms, ms, 1, ALL_MEMBERS, deadline)

    def _extend(self, partial: PartialMatch, target: int, step: int, row: int, ms: int) -> PartialMatch | None:
        """Return a partial match with one more event; None if that comes too late."""
        context = self.context
        last_ms, goes_on = context.find_time(partial.node), context.find_step(partial.node) == step
        limit_ms, limit = self.automaton.limits[step]
        if limit_ms is not None and (
            goes_on or limit is not WithinType.BETWEEN_TIMES
        ):  # a loop before the step does not have the step's limit while it waits
            since_ms = partial.step_ms if goes_on and limit is WithinType.SINCE_STEP_BEFORE else last_ms
            if ms - since_ms >= limit_ms:
                return None
        node = context.new_node(partial.node, step, row, self.key_slot)
        step_ms = partial.step_ms if goes_on else last_ms
        deadline = _deadline(self.automaton, target, partial.started_ms, ms, step_ms, step)
        return partial._replace(
            state=target, node=node, step_ms=step_ms, length=partial.length + 1, deadline_ms=deadline
        )

    def _move(self, partial: PartialMatch, target: int, ms: int) -> PartialMatch | None:
        """Return a partial match that waits in another state; None if its time is over there."""
        if target == partial.state:
            return partial
        context, node = self.context, partial.node
        deadline = _deadline(
            self.automaton,
            target,
            partial.started_ms,
            context.find_time(node),
            partial.step_ms,
            context.find_step(node),
        )
        return partial._replace(state=target, deadline_ms=deadline) if deadline > ms else None

    def _decide(self, partial: PartialMatch | None, state: int, bits: int, row: int) -> int:
        """Return the bits with those of the iterative conditions that matter."""
        automaton = self.automaton
        undecided = automaton.undecided(state, bits)
        if not undecided:
            return bits
        by_step: dict[str, list[int]] = {}
        if partial is not None:
            for node in self.context.chain(partial.node):
                by_step.setdefault(automaton.steps[self.context.find_step(node)], []).append(node)
        for leaf in undecided:
            condition = automaton.iterative[leaf]
            values = [read_events(read, by_step.get(read.step, ()), self.context.read_node) for read in condition.reads]
            if self.context.condition_holds(self.pattern, condition, row, values):
                bits |= 1 << leaf
        return bits

    # --- time ---------------------------------------------------------------------------------------------------

    def _advance(self, until_ms: int) -> None:
        """End the partial matches whose time is over at this time: those of one deadline together, in their order."""
        automaton, states = self.automaton, self.automaton.states
        while (now_ms := self.soonest_ms) <= until_ms:
            ended = [p for p in self.partials if p.deadline_ms == now_ms]
            self.partials = [p for p in self.partials if p.deadline_ms != now_ms]
            self.soonest_ms = min([p.deadline_ms for p in self.partials], default=NEVER)
            complete = [
                p._replace(state=_FINAL, deadline_ms=NEVER) for p in ended if states[p.state].kind is StateKind.PENDING
            ]
            if self.pattern in self.context.engine.timed_out:
                for partial in ended:
                    if states[partial.state].kind is not StateKind.PENDING:
                        self._emit(partial, now_ms, timed_out=True)
            if complete or (self.held and automaton.skip is not SkipKind.NO_SKIP):
                self._settle(complete, now_ms)

    # --- matches ------------------------------------------------------------------------------------------------

    def _settle(self, complete: list[PartialMatch], now_ms: int) -> None:
        """Emit matches. With a skip strategy, a match waits for partial matches that began before it."""
        if self.automaton.skip is SkipKind.NO_SKIP:
            for match in complete:
                self._emit(match, now_ms)
            return
        held = sorted([*self.held, *complete], key=_first)
        while held and (not self.partials or held[0].first <= self.partials[0].first):
            match = held.pop(0)
            self._emit(match, now_ms)
            keep = self._survives(match)
            held = list(filter(keep, held))
            if not all(map(keep, self.partials)):
                self.partials = list(filter(keep, self.partials))
                self.soonest_ms = min([p.deadline_ms for p in self.partials], default=NEVER)
        self.held = held

    def _survives(self, match: PartialMatch) -> Callable[[PartialMatch], bool]:
        """Return whether the match leaves a partial match alive."""
        context, kind = self.context, self.automaton.skip
        if kind is SkipKind.TO_NEXT:
            return lambda p: p.first > match.first
        if kind is SkipKind.PAST_LAST_EVENT:
            last = context.find_event(match.node)
            return lambda p: p.first > last
        taken = [n for n in context.chain(match.node) if context.find_step(n) == self.automaton.skip_step]
        if not taken:
            return lambda _: True
        number = context.find_event(taken[0] if kind is SkipKind.TO_FIRST else taken[-1])
        return lambda p: p.first >= number

    def _emit(self, partial: PartialMatch, time_ms: int, *, timed_out: bool = False) -> None:
        nodes = tuple(self.context.chain(partial.node))
        self.context.matches.append(Match(self.pattern, self.key_slot, time_ms, nodes, timed_out))


def _first(partial: PartialMatch) -> int:
    return partial.first


def read_value(read: MatchRead, nodes: Sequence[int], read_node: Callable[[int, str], Any]) -> Any:
    """Return an aggregate over the events of these nodes, which one step has taken."""
    return read.compute(read_events(read, nodes, read_node))


def read_events(read: MatchRead, nodes: Sequence[int], read_node: Callable[[int, str], Any]) -> Sequence[Any]:
    """Return the values of these nodes that a read is about; the nodes, if it counts events."""
    return [read_node(node, read.column) for node in nodes] if read.column else nodes
