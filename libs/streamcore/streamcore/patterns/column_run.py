"""Runs plain patterns over the events of many keys at once, in columns.

A pattern is *plain* if a partial match has at most one way to go on, whatever the event, and no condition reads earlier
events: relaxed and strict steps that take a fixed number of events, and negations. Round n looks at the n-th event of
each run. A run in which a match completes, or something else happens that is not one move of each partial match, is
*hard*: what was computed for it here is dropped, and it runs by itself (``engine``), with the same result.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from streamcore.patterns.automaton import Automaton
from streamcore.patterns.graph import StateKind
from streamcore.patterns.match_store import NEVER, NO_NODE, Ints, Mask, PartialMatch
from streamcore.patterns.pattern import WithinType

STATE, NODE, FIRST, STARTED, STEP_MS, LENGTH, DEADLINE = range(len(PartialMatch._fields))
_MAX_LEAVES: Final = 12
_MAX_CELLS: Final = 1 << 18
#: In ``PlainTables.target``: the partial match ends; the run is hard.
_ENDS: Final = -1
_HARD: Final = -2


@dataclass(frozen=True, slots=True)
class PlainTables:
    """The moves of plain patterns. ``target[cell]``: the state to go to, for the cell of a state and bits.

    ``takes[cell]``: the step that takes the event; -1 for none. By state: ``pending``, the time limit (``NEVER`` for
    none), what it is counted from, and the step that is waited for. By pattern: the first cell and state, the bits that
    are read, the start, and ``within_ms``.
    """

    target: Ints
    takes: Ints
    pending: Mask
    limit_ms: Ints
    since_step: Mask
    between: Mask
    step: Ints
    cells: Mapping[int, int]
    states: Mapping[int, int]
    bits: Mapping[int, int]
    start: Mapping[int, int]
    within_ms: Mapping[int, int]

    def by_run(self, patterns: Ints, of: Mapping[int, int]) -> Ints:
        """Return a number of the pattern of each run."""
        known = sorted(of)
        return np.array([of[pattern] for pattern in known], np.int64)[np.searchsorted(known, patterns)]


def build_tables(automata: Mapping[int, Automaton]) -> PlainTables | None:
    """Return the tables of the patterns that are plain; None if none is."""
    target: list[int] = []
    takes: list[int] = []
    columns: list[tuple[bool, int, bool, bool, int]] = []
    cells: dict[int, int] = {}
    states: dict[int, int] = {}
    for number, automaton in automata.items():
        rows = _cells(automaton)
        if rows is None:
            continue
        cells[number], states[number] = len(target), len(columns)
        target += [one for one, _ in rows]
        takes += [step for _, step in rows]
        for state in automaton.states:
            limit_ms = NEVER if state.limit_ms is None else state.limit_ms
            since_step = state.limit is WithinType.SINCE_STEP_BEFORE
            between = state.limit is WithinType.BETWEEN_TIMES
            columns.append((state.kind is StateKind.PENDING, limit_ms, since_step, between, state.step))
    if not cells:
        return None
    pending, limits, since_steps, betweens, steps = zip(*columns, strict=True)
    plain = {number: automata[number] for number in cells}
    return PlainTables(
        np.array(target, np.int64),
        np.array(takes, np.int64),
        np.array(pending, bool),
        np.array(limits, np.int64),
        np.array(since_steps, bool),
        np.array(betweens, bool),
        np.array(steps, np.int64),
        cells,
        states,
        {number: len(automaton.leaves) for number, automaton in plain.items()},
        {number: automaton.start for number, automaton in plain.items()},
        {number: NEVER if a.within_ms is None else a.within_ms for number, a in plain.items()},
    )


def _cells(automaton: Automaton) -> list[tuple[int, int]] | None:
    """Return target and step for each state and bits; None for a pattern that is not plain."""
    width = 1 << len(automaton.leaves)
    if automaton.iterative or len(automaton.leaves) > _MAX_LEAVES or width * len(automaton.states) > _MAX_CELLS:
        return None
    cells = []
    for number, state in enumerate(automaton.states):
        for bits in range(width):
            if state.kind in (StateKind.FINAL, StateKind.STOP):
                cells.append((_HARD, -1))
                continue
            moves, stops = automaton.moves(number, bits)
            if len(moves) > 1 and not stops:
                return None
            if any(move.completes for move in moves):
                cells.append((_HARD, -1))
            elif stops or not moves:
                cells.append((_ENDS, -1))
            else:
                (move,) = moves
                limit_ms = automaton.limits[move.step][0] if move.step >= 0 else None
                moved = move.step < 0 and move.target != number
                differs = limit_ms is not None and automaton.limits[move.step][0] != state.limit_ms
                if moved or (differs and number != automaton.start):
                    return None
                cells.append((move.target, move.step))
    return cells


class PlainRuns(NamedTuple):
    """Runs to be run in columns: numbers of patterns and key slots, and the bounds of their events in the batch.

    ``rows``: the partial matches (columns of ``PartialMatch``) in order, ``owner``: the run of each.
    """

    patterns: Ints
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


class ColumnResult(NamedTuple):
    """What became of runs. Those that are ``hard`` must be run by themselves; their rows are not among ``rows``."""

    hard: Mask
    rows: Ints
    owner: Ints
    nodes: NewNodes


@dataclass(frozen=True, slots=True)
class ColumnInput:
    """The events of a batch and the limits. ``node_steps``, ``node_ms``: of the stored nodes."""

    events: Ints
    bits: Ints
    event_ms: Ints
    first_event: int
    until_ms: int
    node_steps: Ints
    node_ms: Ints
    partials_per_key: int
    length: int
    fewest_runs: int


def run_columns(tables: PlainTables, runs: PlainRuns, given: ColumnInput) -> ColumnResult:
    """Run plain patterns over the events of many runs."""
    return _Columns(tables, runs, given).run()


class _Columns:
    def __init__(self, tables: PlainTables, runs: PlainRuns, given: ColumnInput) -> None:
        self.tables, self.runs, self.given = tables, runs, given
        count = len(runs.patterns)
        self.hard = np.zeros(count, bool)
        self.rows, self.owner = runs.rows, runs.owner
        self.hard[self.owner[self.rows[:, STATE] == 0]] = True  # a match that waits for others
        by_run = tables.by_run
        self.cells, self.bits = by_run(runs.patterns, tables.cells), by_run(runs.patterns, tables.bits)
        self.states, self.start = by_run(runs.patterns, tables.states), by_run(runs.patterns, tables.start)
        self.within = by_run(runs.patterns, tables.within_ms)
        # Of each row: the step and the time of its last event.
        known = self.rows[:, NODE]
        self.last_step, self.last_ms = given.node_steps[known], given.node_ms[known]
        self.first_node = len(given.node_steps)
        self.nodes: list[NewNodes] = []
        self.node_count = 0

    def run(self) -> ColumnResult:
        runs = self.runs
        for number in range(int((runs.high - runs.low).max(initial=0))):
            active = np.flatnonzero((runs.low + number < runs.high) & ~self.hard)
            if number and len(active) < self.given.fewest_runs:
                self.hard[active] = True
                break
            if len(active):
                self._round(active, runs.low[active] + number)
        self._expire(np.full(len(self.hard), self.given.until_ms))
        kept = ~self.hard[self.owner]
        nodes = NewNodes(*(np.concatenate(part) for part in zip(*self.nodes, strict=True))) if self.nodes else _NONE
        return ColumnResult(self.hard, self.rows[kept], self.owner[kept], nodes)

    def _round(self, active: Ints, pairs: Ints) -> None:
        given, tables = self.given, self.tables
        count = len(self.hard)
        row, ms = np.full(count, -1), np.full(count, -NEVER)
        bits = np.zeros(count, np.int64)
        row[active] = given.events[pairs]
        ms[active] = given.event_ms[row[active]]
        bits[active] = given.bits[pairs] & ((1 << self.bits[active]) - 1)
        self._expire(ms)
        owner = self.owner
        cell = self.cells[owner] + (self.rows[:, STATE] << self.bits[owner]) + bits[owner]
        target, takes = tables.target[cell], tables.takes[cell]
        has_event = row[owner] >= 0
        self.hard[owner[has_event & (target == _HARD)]] = True
        kept = ~(has_event & (target == _ENDS)) & ~self.hard[owner]
        taking = np.flatnonzero((has_event & (takes >= 0))[kept])
        self._keep(kept)
        if len(taking):
            self._extend(taking, target[kept][taking], takes[kept][taking], row, ms)
        self._begin(active, row, ms, bits)

    def _keep(self, kept: Mask) -> None:
        if not kept.all():
            self.rows, self.owner = self.rows[kept], self.owner[kept]
            self.last_step, self.last_ms = self.last_step[kept], self.last_ms[kept]

    def _expire(self, now_ms: Ints) -> None:
        """Drop the rows whose time is over at the time of their run. One that becomes a match makes its run hard."""
        over = self.rows[:, DEADLINE] <= now_ms[self.owner]
        if over.any():
            owner = self.owner[over]
            self.hard[owner[self.tables.pending[self.states[owner] + self.rows[over, STATE]]]] = True
            self._keep(~over)

    def _extend(self, places: Ints, target: Ints, step: Ints, row: Ints, ms: Ints) -> None:
        rows, owner = self.rows[places], self.owner[places]
        self.hard[owner[rows[:, LENGTH] >= self.given.length]] = True
        goes_on = self.last_step[places] == step
        rows[:, STEP_MS] = np.where(goes_on, rows[:, STEP_MS], self.last_ms[places])
        rows[:, STATE] = target
        rows[:, NODE] = self._new_nodes(rows[:, NODE], step, row[owner], owner)
        rows[:, LENGTH] += 1
        rows[:, DEADLINE] = self._deadlines(rows, owner, step, ms[owner])
        if self.rows is self.runs.rows:
            self.rows = self.rows.copy()
        self.rows[places] = rows
        self.last_step[places], self.last_ms[places] = step, ms[owner]

    def _begin(self, active: Ints, row: Ints, ms: Ints, bits: Ints) -> None:
        tables = self.tables
        cell = self.cells[active] + (self.start[active] << self.bits[active]) + bits[active]
        target = tables.target[cell]
        self.hard[active[target == _HARD]] = True
        begins = target >= 0
        owner, step = active[begins], tables.takes[cell[begins]]
        if not len(owner):
            return
        rows = np.empty((len(owner), len(PartialMatch._fields)), np.int64)
        rows[:, STATE] = target[begins]
        rows[:, NODE] = self._new_nodes(np.full(len(owner), NO_NODE), step, row[owner], owner)
        rows[:, FIRST] = self.given.first_event + row[owner]
        rows[:, STARTED] = rows[:, STEP_MS] = ms[owner]
        rows[:, LENGTH] = 1
        rows[:, DEADLINE] = self._deadlines(rows, owner, step, ms[owner])
        owners = np.concatenate([self.owner, owner])
        order = np.argsort(owners, kind="stable")
        self.owner = owners[order]
        self.rows = np.concatenate([self.rows, rows])[order]
        self.last_step = np.concatenate([self.last_step, step])[order]
        self.last_ms = np.concatenate([self.last_ms, ms[owner]])[order]
        counts = np.bincount(self.owner, minlength=len(self.hard))
        self.hard |= counts > self.given.partials_per_key

    def _deadlines(self, rows: Ints, owner: Ints, last_step: Ints, last_ms: Ints) -> Ints:
        """Return when the time of rows is over (see ``engine``)."""
        tables, state = self.tables, self.states[owner] + rows[:, STATE]
        limit_ms, waits_on = tables.limit_ms[state], tables.step[state] == last_step
        limit_ms = np.where(tables.between[state] & ~waits_on, NEVER, limit_ms)
        since_ms = np.where(tables.since_step[state] & waits_on, rows[:, STEP_MS], last_ms)
        within_ms = np.where(tables.pending[state] & tables.since_step[state], NEVER, self.within[owner])
        whole = np.where(within_ms < NEVER, rows[:, STARTED] + within_ms, NEVER)
        return np.minimum(whole, np.where(limit_ms < NEVER, since_ms + limit_ms, NEVER))

    def _new_nodes(self, before: Ints, step: Ints, row: Ints, owner: Ints) -> Ints:
        first = self.first_node + self.node_count
        self.node_count += len(before)
        self.nodes.append(NewNodes(before.copy(), step, row, self.runs.key_slots[owner]))
        return np.arange(first, first + len(before))


_EMPTY: Final = np.empty(0, np.int64)
_NONE: Final = NewNodes(_EMPTY, _EMPTY, _EMPTY, _EMPTY)

__all__ = ["ColumnInput", "ColumnResult", "PlainRuns", "PlainTables", "build_tables", "run_columns"]
