"""Runs patterns over the events of many keys at once, in columns (``column_tables``).

Round n looks at the n-th event of each run. A run in which something happens that the tables do not have, as a match
that waits for others, is *hard*: what was computed for it here is dropped, and it runs by itself (``engine``), with the
same result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from streamcore.columnar.grouping import expand_counts, run_starts
from streamcore.patterns.column_tables import (
    COMPLETE,
    DEADLINE,
    FIRST,
    HARD,
    LENGTH,
    NODE,
    STARTED,
    STATE,
    STEP_MS,
    ColumnTables,
)
from streamcore.patterns.match_store import NEVER, NO_NODE, Ints, Mask, PartialMatch

#: How many rounds families are run in columns, however few runs there are.
_SHARED_ROUNDS: Final = 64


class ColumnRuns(NamedTuple):
    """Runs to be run in columns: machines and key slots, and the bounds of their events in the batch.

    ``rows``: the partial matches (columns of ``PartialMatch``) in order, ``owner``: the run of each.
    """

    machines: Ints
    key_slots: Ints
    low: Ints
    high: Ints
    rows: Ints
    owner: Ints


class NewNodes(NamedTuple):
    """Nodes in order of their indexes: the node before, the step, the row of the event, the key slot."""

    before: Ints
    step: Ints
    row: Ints
    key_slot: Ints


class ColumnMatches(NamedTuple):
    """Matches in order of ``owner``, their run, then of time.

    Of each the number of its first event, its last node, its length, when it is certain, and whether it is timed out.
    """

    owner: Ints
    first: Ints
    node: Ints
    length: Ints
    time_ms: Ints
    timed_out: Mask

    def take(self, index: Ints) -> ColumnMatches:
        """Return some of the matches."""
        return ColumnMatches(
            self.owner[index],
            self.first[index],
            self.node[index],
            self.length[index],
            self.time_ms[index],
            self.timed_out[index],
        )


class ColumnResult(NamedTuple):
    """What became of runs. Those that are ``hard`` must be run by themselves: no row and no match is theirs."""

    hard: Mask
    rows: Ints
    owner: Ints
    nodes: NewNodes
    matches: ColumnMatches


class TakenEvents(NamedTuple):
    """The events of several partial matches, in order.

    Of each the index of its partial match, its step, and its node or, if it is a row of the batch, ``~row``.
    """

    owner: Ints
    step: Ints
    place: Ints


@dataclass(frozen=True, slots=True)
class ColumnInput:
    """The events of a batch and the limits. ``node_before``, ``node_steps``, ``node_ms``: of the stored nodes.

    ``decide``: returns which conditions over earlier events hold, as bits. It gets columns: the pattern, those of its
    conditions that are of interest, and the row of the batch; and the events that were taken before.
    """

    events: Ints
    bits: Ints
    event_ms: Ints
    first_event: int
    until_ms: int
    node_before: Ints
    node_steps: Ints
    node_ms: Ints
    decide: Callable[[Ints, Ints, Ints, TakenEvents], Ints]
    partials_per_key: int
    length: int
    fewest_runs: int


def run_columns(tables: ColumnTables, runs: ColumnRuns, given: ColumnInput) -> ColumnResult:
    """Run the patterns or families of machines over the events of many runs."""
    return _Columns(tables, runs, given).run()


class _Columns:
    def __init__(self, tables: ColumnTables, runs: ColumnRuns, given: ColumnInput) -> None:
        self.tables, self.runs, self.given = tables, runs, given
        self.machines = runs.machines
        self.hard = np.zeros(len(runs.machines), bool)
        self.rows, self.owner = runs.rows, runs.owner
        self.hard[self.owner[self.rows[:, STATE] == COMPLETE]] = True  # a match that waits for others
        # Of each row: the step and the time of its last event.
        known = self.rows[:, NODE]
        self.last_step, self.last_ms = given.node_steps[known], given.node_ms[known]
        self.first_node = len(given.node_steps)
        self.nodes: list[NewNodes] = []
        self.node_count = 0
        self.matches = [_NO_MATCHES]
        #: Matches of this round of which each run emits one.
        self.candidates: list[ColumnMatches] = []

    def run(self) -> ColumnResult:
        runs, members = self.runs, self.tables.members[self.machines]
        rounds = _SHARED_ROUNDS if (members > 1).any() else 1  # to divide a family costs more than some short rounds
        for number in range(int((runs.high - runs.low).max(initial=0))):
            active = np.flatnonzero((runs.low + number < runs.high) & ~self.hard)
            if number >= rounds and members[active].sum() < self.given.fewest_runs:
                self.hard[active] = True
                break
            if len(active):
                self._round(active, runs.low[active] + number)
        self._expire(np.full(len(self.hard), self.given.until_ms))
        kept = ~self.hard[self.owner]
        nodes = NewNodes(*(np.concatenate(part) for part in zip(*self.nodes, strict=True))) if self.nodes else _NONE
        return ColumnResult(self.hard, self.rows[kept], self.owner[kept], nodes, self._easy_matches())

    def _easy_matches(self) -> ColumnMatches:
        found = _join(self.matches)
        easy = np.flatnonzero(~self.hard[found.owner])
        order = easy[np.argsort(found.owner[easy], kind="stable")]
        return found.take(order)

    def _round(self, active: Ints, pairs: Ints) -> None:
        given, tables, count = self.given, self.tables, len(self.hard)
        row, ms, bits = np.full(count, -1), np.full(count, -NEVER), np.zeros(count, np.int64)
        row[active] = given.events[pairs]
        ms[active] = given.event_ms[row[active]]
        bits[active] = given.bits[pairs]
        self._expire(ms)
        near = np.flatnonzero(row[self.owner] >= 0)  # the rows that have an event
        owner = self.owner[near]
        cell = tables.cell(self.machines[owner], self.rows[near, STATE], bits[owner])
        undecided = np.flatnonzero(tables.undecided[cell])
        if len(undecided):
            asked = tables.undecided[cell[undecided]]
            cell[undecided] += self._decide(owner[undecided], asked, row, self.rows[near[undecided]])
        moves = np.flatnonzero(~tables.stays[cell])
        if len(moves):
            self._move(near[moves], tables.outcome[cell[moves]], row, ms)
        self._begin(active, row, ms, bits)
        if len(self.owner) > self.given.partials_per_key:
            self.hard |= np.bincount(self.owner, minlength=len(self.hard)) > self.given.partials_per_key
        if self.candidates:
            self._settle()

    def _emit(self, places: Ints, time_ms: Ints, timed_out: Mask) -> None:
        rows, owner = self.rows[places], self.owner[places]
        self.matches.append(ColumnMatches(owner, rows[:, FIRST], rows[:, NODE], rows[:, LENGTH], time_ms, timed_out))

    def _complete(self, places: Ints, ms: Ints) -> None:
        """Emit matches whose last event is that of this round, or make them candidates."""
        owner, not_timed_out = self.owner[places], np.zeros(len(places), bool)
        skips = self.tables.skips[self.machines[owner]]
        if not skips.all():
            self._emit(places[~skips], ms[owner[~skips]], not_timed_out[~skips])
        if skips.any():
            self._emit(places[skips], ms[owner[skips]], not_timed_out[skips])
            self.candidates.append(self.matches.pop())

    def _settle(self) -> None:
        """Emit the candidate of each run that began first, and drop its partial matches: all began up to this event.

        A run is hard if one of them began before the match, which waits for it.
        """
        found, self.candidates = _join(self.candidates), []
        order = np.lexsort((found.first, found.owner))
        order = order[run_starts(found.owner[order])]
        began = np.full(len(self.hard), -1)
        began[found.owner[order]] = found.first[order]
        self.hard[self.owner[self.rows[:, FIRST] < began[self.owner]]] = True
        self.matches.append(found.take(order))
        self._keep(began[self.owner] < 0)

    def _keep(self, kept: Mask) -> None:
        if not kept.all():
            self.rows, self.owner = self.rows[kept], self.owner[kept]
            self.last_step, self.last_ms = self.last_step[kept], self.last_ms[kept]

    def _expire(self, now_ms: Ints) -> None:
        """Drop the rows whose time is over at the time of their run; emit those that are matches now or timed out.

        A run is hard if its time is over for some members of a family only.
        """
        over = np.flatnonzero(self.rows[:, DEADLINE] <= now_ms[self.owner])
        if len(over):
            owner, rows, tables = self.owner[over], self.rows[over], self.tables
            machine = self.machines[owner]
            latest_ms = tables.deadlines(machine, rows, self.last_step[over], self.last_ms[over], most=1)
            pending = tables.pending[tables.states[machine] + rows[:, STATE]]
            only_alone = pending & (tables.skips[machine] | (tables.members[machine] > 1))
            self.hard[owner[only_alone | (latest_ms > now_ms[owner])]] = True
            emitted = np.flatnonzero(pending | tables.emits[machine])
            if len(emitted):
                emitted = emitted[np.lexsort((pending[emitted], rows[emitted, DEADLINE]))]
                self._emit(over[emitted], rows[emitted, DEADLINE], ~pending[emitted])
            self._drop(over)

    def _drop(self, places: Ints) -> None:
        kept = np.ones(len(self.rows), bool)
        kept[places] = False
        self._keep(kept)

    def _move(self, changes: Ints, outcome: Ints, row: Ints, ms: Ints) -> None:
        """Replace these rows by those that their outcomes make of them, in the order of the moves."""
        tables = self.tables
        self.hard[self.owner[changes[outcome == HARD]]] = True
        counts = np.ones(len(self.rows), np.int64)
        counts[changes] = moves = tables.count[outcome]
        if (moves == 1).all():
            if self.rows is self.runs.rows:
                self.rows = self.rows.copy()
            places = changes
        else:
            index = np.repeat(np.arange(len(self.rows)), counts)
            places = expand_counts((np.cumsum(counts) - counts)[changes], moves)
            self.rows, self.owner = self.rows[index], self.owner[index]
            self.last_step, self.last_ms = self.last_step[index], self.last_ms[index]
        move = expand_counts(tables.first[outcome], moves)
        kept = ~self.hard[self.owner[places]]
        places, move = places[kept], move[kept]
        target, step = tables.target[move], tables.takes[move]
        ignores = (step < 0) & (target != self.rows[places, STATE])
        late = [self._change_state(places[ignores], target[ignores], ms)] if ignores.any() else []
        if (step >= 0).any():
            late.append(self._extend(places[step >= 0], target[step >= 0], step[step >= 0], row, ms))
        kept = ~self.hard[self.owner]
        for late_rows in late:
            kept[late_rows] = False
        completes = places[tables.completes[move] & kept[places]]
        if len(completes):
            self._complete(completes, ms)
            kept[places[target == COMPLETE]] = False
        self._keep(kept)

    def _change_state(self, places: Ints, target: Ints, ms: Ints) -> Ints:
        """Let rows wait in other states; return the places of those whose time is over there."""
        owner, last = self.owner[places], (self.last_step[places], self.last_ms[places])
        self.rows[places, STATE] = target
        machine, rows, now_ms = self.machines[owner], self.rows[places], ms[owner]
        self.rows[places, DEADLINE] = deadline = self.tables.deadlines(machine, rows, *last)
        over = deadline <= now_ms
        self.hard[owner[over & (self.tables.deadlines(machine, rows, *last, most=1) > now_ms)]] = True
        return places[over]

    def _extend(self, places: Ints, target: Ints, step: Ints, row: Ints, ms: Ints) -> Ints:
        """Add an event to rows; return the places of those for which it comes too late."""
        tables, rows, owner = self.tables, self.rows[places], self.owner[places]
        machine = self.machines[owner]
        goes_on = self.last_step[places] == step
        limit = tables.steps[machine] + step
        since_ms = np.where(goes_on & tables.take_since_step[limit], rows[:, STEP_MS], self.last_ms[places])
        passed_ms = np.where(goes_on | ~tables.take_between[limit], ms[owner] - since_ms, -1)
        late: Mask = passed_ms >= tables.take_limit_ms[limit, 0]
        self.hard[owner[late & (passed_ms < tables.take_limit_ms[limit, 1])]] = True
        self.hard[owner[rows[:, LENGTH] >= self.given.length]] = True
        rows[:, STEP_MS] = np.where(goes_on, rows[:, STEP_MS], self.last_ms[places])
        rows[:, STATE] = target
        rows[:, NODE] = self._new_nodes(rows[:, NODE], step, row[owner], owner)
        rows[:, LENGTH] += 1
        rows[:, DEADLINE] = tables.deadlines(machine, rows, step, ms[owner])
        self.rows[places] = rows
        self.last_step[places], self.last_ms[places] = step, ms[owner]
        too_late: Ints = places[late]
        return too_late

    def _begin(self, active: Ints, row: Ints, ms: Ints, bits: Ints) -> None:
        tables = self.tables
        machine = self.machines[active]
        cell = tables.cell(machine, tables.start[machine], bits[active])
        open_rows = np.flatnonzero(tables.undecided[cell])
        if len(open_rows):
            cell[open_rows] += self._decide(active[open_rows], tables.undecided[cell[open_rows]], row, self.rows[:0])
        outcome = tables.outcome[cell]
        self.hard[active[outcome == HARD]] = True
        counts = tables.count[outcome]
        owner, move = np.repeat(active, counts), expand_counts(tables.first[outcome], counts)
        if not len(owner):
            return
        step, target, completes = tables.takes[move], tables.target[move], tables.completes[move]
        rows = np.empty((len(owner), len(PartialMatch._fields)), np.int64)
        rows[:, STATE] = target
        rows[:, NODE] = self._new_nodes(np.full(len(owner), NO_NODE), step, row[owner], owner)
        rows[:, FIRST] = self.given.first_event + row[owner]
        rows[:, STARTED] = rows[:, STEP_MS] = ms[owner]
        rows[:, LENGTH] = 1
        rows[:, DEADLINE] = tables.deadlines(self.machines[owner], rows, step, ms[owner])
        places = np.searchsorted(self.owner, owner, side="right") + np.arange(len(owner))
        is_old = np.ones(len(self.owner) + len(owner), bool)
        is_old[places] = False
        added = (rows, owner, step, ms[owner])
        for name, values in zip(("rows", "owner", "last_step", "last_ms"), added, strict=True):
            joined = np.empty((len(is_old), *values.shape[1:]), np.int64)
            joined[is_old], joined[places] = getattr(self, name), values
            setattr(self, name, joined)
        if completes.any():
            kept = np.ones(len(is_old), bool)
            self._complete(places[completes], ms)
            kept[places[target == COMPLETE]] = False
            self._keep(kept)

    def _decide(self, owner: Ints, undecided: Ints, row: Ints, partials: Ints) -> Ints:
        """Return the bits of these conditions over earlier events. ``partials``: the rows, none for new ones."""
        given, first = self.given, self.first_node
        new = NewNodes(*(np.concatenate(part) for part in zip(*self.nodes, strict=True))) if self.nodes else _NONE
        lengths = partials[:, LENGTH]
        taken = TakenEvents(np.repeat(np.arange(len(partials)), lengths), *np.empty((2, int(lengths.sum())), np.int64))
        node, at = partials[:, NODE].copy(), np.cumsum(lengths) - 1
        while len(node):
            is_new = node >= first
            added, stored = node[is_new] - first, node[~is_new]
            taken.step[at[is_new]], taken.place[at[is_new]] = new.step[added], ~new.row[added]
            taken.step[at[~is_new]], taken.place[at[~is_new]] = given.node_steps[stored], stored
            node[is_new], node[~is_new] = new.before[added], given.node_before[stored]
            kept = node >= 0
            node, at = node[kept], at[kept] - 1
        return given.decide(self.tables.numbers[self.machines[owner]], undecided, row[owner], taken)

    def _new_nodes(self, before: Ints, step: Ints, row: Ints, owner: Ints) -> Ints:
        first = self.first_node + self.node_count
        self.node_count += len(before)
        self.nodes.append(NewNodes(before.copy(), step, row, self.runs.key_slots[owner]))
        return np.arange(first, first + len(before))


_EMPTY: Final = np.empty(0, np.int64)
_NONE: Final = NewNodes(_EMPTY, _EMPTY, _EMPTY, _EMPTY)
_NO_MATCHES: Final = ColumnMatches(_EMPTY, _EMPTY, _EMPTY, _EMPTY, _EMPTY, np.empty(0, bool))


def _join(matches: Sequence[ColumnMatches]) -> ColumnMatches:
    return ColumnMatches(*(np.concatenate(part) for part in zip(*matches, strict=True)))


__all__ = ["ColumnInput", "ColumnMatches", "ColumnResult", "ColumnRuns", "TakenEvents", "run_columns"]
