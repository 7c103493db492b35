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
    MEMBERS,
    NODE,
    STARTED,
    STATE,
    STEP_MS,
    ColumnTables,
)
from streamcore.patterns.family_bits import Parts
from streamcore.patterns.match_store import ALL_MEMBERS, NEVER, NO_NODE, Ints, Mask, PartialMatch

#: How many rounds families are run in columns, however few runs there are.
_SHARED_ROUNDS: Final = 64


class ColumnRuns(NamedTuple):
    """Runs to be run in columns: machines and key slots, and the bounds of their events in the batch.

    ``owner``: the run of each partial match, in order. ``rows``: the partial matches, in columns (those of
    ``PartialMatch``), with room for others behind them.
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

    Of each the number of its first event, its last node, its length, the members of a family that have it, when it is
    certain, and whether it is timed out.
    """

    owner: Ints
    first: Ints
    node: Ints
    length: Ints
    members: Ints
    time_ms: Ints
    timed_out: Mask

    def take(self, index: Ints) -> ColumnMatches:
        """Return some of the matches."""
        return ColumnMatches(
            self.owner[index],
            self.first[index],
            self.node[index],
            self.length[index],
            self.members[index],
            self.time_ms[index],
            self.timed_out[index],
        )


class ColumnResult(NamedTuple):
    """The outcomes of runs. Those that are ``hard`` must be run by themselves: no partial match and no match is theirs.

    ``after``: for each partial match, in order, its run and its place in ``rows``. ``equal``: how many first ones of
    each run have not changed.
    """

    hard: Mask
    rows: Ints
    after: Ints
    equal: Ints
    nodes: NewNodes
    matches: ColumnMatches


class TakenEvents(NamedTuple):
    """The events of several partial matches, in order.

    Of each the index of its partial match, its step, and its node or, if it is a row of the batch, ``~row``.
    """

    owner: Ints
    step: Ints
    place: Ints


class Questions(NamedTuple):
    """The questions that conditions over earlier events decide.

    Of each question the pattern or family, the pattern whose conditions are evaluated (of a family a member), those of
    interest as bits, and the index of its partial match; of these the row of the batch, and the events that each took.
    """

    numbers: Ints
    patterns: Ints
    asked: Ints
    partial: Ints
    rows: Ints
    taken: TakenEvents


@dataclass(frozen=True, slots=True)
class ColumnInput:
    """The events of a batch and the limits. ``node_before``, ``node_steps``, ``node_ms``: of the stored nodes.

    ``parted``: of each event, the index of its ``parts``, or -1 (``family_bits``).

    ``decide``: returns which conditions over earlier events hold, as bits, for several ``Questions``. Below 0: a
    condition of a family fails, so its run is hard and each of its members finds that by itself.
    """

    events: Ints
    bits: Ints
    parted: Ints
    parts: Parts
    event_ms: Ints
    first_event: int
    until_ms: int
    node_before: Ints
    node_steps: Ints
    node_ms: Ints
    decide: Callable[[Questions], Ints]
    partials_per_key: int
    length: int
    fewest_runs: int


def run_columns(tables: ColumnTables, runs: ColumnRuns, given: ColumnInput) -> ColumnResult:
    """Run the patterns or families of machines over the events of many runs."""
    return _Columns(tables, runs, given).run()


class _Columns:
    """A call of ``run_columns``.

    Rows never change: ``rows`` are those that were there, and behind them each new one. ``places`` are the rows of the
    runs that are looked at, in order, and ``owner`` is the run of each; what moves from round to round is these two.
    """

    def __init__(self, tables: ColumnTables, runs: ColumnRuns, given: ColumnInput) -> None:
        self.tables, self.runs, self.given = tables, runs, given
        self.machines = runs.machines
        self.hard = np.zeros(len(runs.machines), bool)
        self.rows, self.owner = runs.rows, runs.owner
        self.size = len(runs.owner)
        self.places = np.arange(self.size)
        self.hard[self.owner[self.rows[STATE, : self.size] == COMPLETE]] = True  # a match that waits for others
        #: The rows of runs without further events, and the run of each.
        self.over: list[tuple[Ints, Ints]] = []
        self.first_node = len(given.node_steps)
        self.nodes = np.empty((len(NewNodes._fields), self.rows.shape[1] - self.size), np.int64)
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
        if self.over:
            self.places, self.owner = map(np.concatenate, zip((self.places, self.owner), *self.over, strict=True))
            order = np.argsort(self.owner, kind="stable")
            self.places, self.owner = self.places[order], self.owner[order]
        self._expire(np.full(len(self.hard), self.given.until_ms))
        self._keep(~self.hard[self.owner])
        nodes = NewNodes(*self.nodes[:, : self.node_count])
        after = np.stack([self.owner, self.places])
        return ColumnResult(self.hard, self.rows, after, self._equal(), nodes, self._easy_matches())

    def _equal(self) -> Ints:
        """Return how many first rows of each run have not changed."""
        counts, before = (np.bincount(o, minlength=len(self.hard)) for o in (self.owner, self.runs.owner))
        rank = np.arange(len(self.owner)) - (np.cumsum(counts) - counts)[self.owner]
        is_equal = (self.places == (np.cumsum(before) - before)[self.owner] + rank) & (rank < before[self.owner])
        changed = np.flatnonzero(~is_equal)[::-1]
        counts[self.owner[changed]] = rank[changed]  # of each run the first one remains
        return counts

    def _easy_matches(self) -> ColumnMatches:
        found = _join(self.matches)
        easy = np.flatnonzero(~self.hard[found.owner])
        order = easy[np.argsort(found.owner[easy], kind="stable")]
        return found.take(order)

    def _round(self, active: Ints, pairs: Ints) -> None:
        given, tables, count = self.given, self.tables, len(self.hard)
        row, ms, base = np.full(count, -1), np.full(count, -NEVER), np.zeros(count, np.int64)
        row[active] = given.events[pairs]
        ms[active] = given.event_ms[row[active]]
        machine, bits = self.machines[active], given.bits[pairs]
        base[active] = tables.cell(machine, 0, bits)
        has_event = row[self.owner] >= 0
        if not has_event.all():
            self.over.append((self.places[~has_event], self.owner[~has_event]))
            self._keep(has_event)
        self._expire(ms)
        cell = base[self.owner] + (self.rows[STATE][self.places] << tables.bits[self.machines[self.owner]])
        parted = given.parted[pairs]
        if (parted >= 0).any():
            of_run = np.full(count, -1)
            of_run[active] = parted
            cell = self._divide(of_run[self.owner], cell)
        undecided = np.flatnonzero(tables.undecided[cell])
        if len(undecided):
            places = self.places[undecided]
            found = self._decide(self.owner[undecided], self.rows[MEMBERS, places], cell[undecided], row, places)
            cell = self._divide_rows(undecided, cell, *found)
        moves = np.flatnonzero(~tables.stays[cell])
        if len(moves):
            self._move(moves, tables.outcome[cell[moves]], row, ms)
        self._begin(active, row, ms, bits, parted)
        if len(self.owner) > given.partials_per_key:
            self.hard |= np.bincount(self.owner, minlength=count) > given.partials_per_key
        if self.candidates:
            self._settle()

    def _divide(self, parted: Ints, cell: Ints) -> Ints:
        """Divide the rows of members to which an event means something else; return the cell of each row.

        ``parted``: see ``ColumnInput``, by row; ``cell``: that of the other rows.
        """
        at = np.flatnonzero(parted >= 0)
        if not len(at):
            return cell
        places = self.places[at]
        found = self._parts(
            parted[at], self.machines[self.owner[at]], self.rows[STATE, places], self.rows[MEMBERS, places]
        )
        return self._divide_rows(at, cell, *found)

    def _divide_rows(self, at: Ints, cell: Ints, source: Ints, members: Ints, cells: Ints) -> Ints:
        """Divide the rows ``at`` into parts; return the cell of each row.

        ``cell``: that of the other rows. Of each part, in order, the index in ``at``, the members and the cell.
        """
        if len(source) == len(at):
            cell[at] = cells
            return cell
        counts, to = _repeats(len(cell), at, source)
        is_part = np.flatnonzero(counts[at][source] > 1)
        rows = np.take(self.rows, self.places[at[source[is_part]]], axis=1)
        rows[MEMBERS] = members[is_part]
        self.places, self.owner, cell = (np.repeat(column, counts) for column in (self.places, self.owner, cell))
        self.places[to[is_part]] = self._add_rows(rows)
        cell[to] = cells
        return cell

    def _parts(self, parted: Ints, machine: Ints, state: Ints, members: Ints) -> tuple[Ints, Ints, Ints]:
        """Divide the members by what they do with events; return the index, members and cell of each part, in order.

        Given are the parts of each event, and of the row that meets it the machine, state and members.
        """
        tables, parts = self.tables, self.given.parts
        counts = parts.counts[parted]
        part, source = expand_counts(parts.first[parted], counts), np.repeat(np.arange(len(parted)), counts)
        own = parts.members[part] & members[source]
        some = own != 0
        part, source, own = part[some], source[some], own[some]
        cell = tables.cell(machine[source], state[source], parts.bits[part])
        # Where conditions over earlier events matter, it is these that members of a part must agree about, too.
        agreed = np.where(tables.undecided[cell] > 0, len(tables.count) + cell, tables.outcome[cell])
        return self._join_parts(source, own, cell, agreed, members)

    def _join_parts(self, source: Ints, own: Ints, cell: Ints, agreed: Ints, members: Ints) -> tuple[Ints, Ints, Ints]:
        """Join the parts of each row for which ``agreed`` is equal; return its index, members and cell, in order.

        ``own``: the members of each part; ``members``: those of each row.
        """
        tables = self.tables
        order = np.lexsort((agreed, source))
        first = run_starts(source[order] * (len(tables.count) + len(tables.outcome)) + agreed[order])
        own = np.bitwise_or.reduceat(own[order], first)
        source, cell = source[order[first]], cell[order[first]]
        alone = np.bincount(source, minlength=len(members))[source] == 1
        return source, np.where(alone, members[source], own), cell

    def _add_rows(self, rows: Ints) -> Ints:
        """Return the places of new rows."""
        places, room = self._room_for(rows.shape[1])
        room[:] = rows
        return places

    def _copy_rows(self, places: Ints) -> tuple[Ints, Ints]:
        """Return the places of copies of these rows, and the copies, to be changed in place."""
        copies, room = self._room_for(len(places))
        for column, values in zip(self.rows, room, strict=True):
            np.take(column, places, out=values, mode="clip")  # which writes to ``out`` at once
        return copies, room

    def _room_for(self, count: int) -> tuple[Ints, Ints]:
        """Return the places of so many new rows, and these."""
        size = self.size + count
        if size > self.rows.shape[1]:
            self.rows = _with_columns(self.rows, 2 * size)
        added = slice(self.size, size)
        self.size = size
        return np.arange(added.start, size), self.rows[:, added]

    def _last(self, node: Ints) -> tuple[Ints, Ints]:
        """Return the step and the time of the event of each node."""
        given, new = self.given, node - self.first_node
        is_new = np.flatnonzero(new >= 0)
        if not len(is_new):
            return given.node_steps[node], given.node_ms[node]
        step, ms = np.empty((2, len(node)), np.int64)
        added, is_stored = NewNodes(*self.nodes[:, new[is_new]]), np.flatnonzero(new < 0)
        step[is_new], ms[is_new] = added.step, given.event_ms[added.row]
        step[is_stored], ms[is_stored] = given.node_steps[node[is_stored]], given.node_ms[node[is_stored]]
        return step, ms

    def _emit(self, owner: Ints, rows: Ints, time_ms: Ints, timed_out: Mask) -> None:
        self.matches.append(
            ColumnMatches(owner, rows[FIRST], rows[NODE], rows[LENGTH], rows[MEMBERS], time_ms, timed_out)
        )

    def _complete(self, owner: Ints, rows: Ints, ms: Ints) -> None:
        """Emit matches whose last event is that of this round, or make them candidates."""
        not_timed_out = np.zeros(len(owner), bool)
        skips = self.tables.skips[self.machines[owner]]
        if not skips.all():
            self._emit(owner[~skips], rows[:, ~skips], ms[owner[~skips]], not_timed_out[~skips])
        if skips.any():
            self._emit(owner[skips], rows[:, skips], ms[owner[skips]], not_timed_out[skips])
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
        self.hard[self.owner[self.rows[FIRST][self.places] < began[self.owner]]] = True
        self.matches.append(found.take(order))
        self._keep(began[self.owner] < 0)

    def _keep(self, kept: Mask) -> None:
        if not kept.all():
            self.places, self.owner = self.places[kept], self.owner[kept]

    def _expire(self, now_ms: Ints) -> None:
        """Drop the rows whose time is over at the time of their run; emit those that are matches now or timed out.

        A run is hard if its time is over for some members of a family only, or if members that emit time-outs have
        different deadlines.
        """
        is_over = self.rows[DEADLINE][self.places] <= now_ms[self.owner]
        over = np.flatnonzero(is_over)
        if len(over):
            owner, rows, tables = self.owner[over], self.rows[:, self.places[over]], self.tables
            machine = self.machines[owner]
            latest_ms = tables.deadlines(machine, rows, *self._last(rows[NODE]), most=1)
            pending = tables.pending[tables.states[machine] + rows[STATE]]
            only_alone = pending & (tables.skips[machine] | (tables.members[machine] > 1))
            emits = tables.emits[machine] & (tables.members[machine] > 1)
            at_once = np.where(emits, rows[DEADLINE], now_ms[owner])
            self.hard[owner[only_alone | (latest_ms > at_once)]] = True
            emitted = np.flatnonzero(pending | tables.emits[machine])
            if len(emitted):
                emitted = emitted[np.lexsort((pending[emitted], rows[DEADLINE, emitted]))]
                self._emit(owner[emitted], rows[:, emitted], rows[DEADLINE, emitted], ~pending[emitted])
            self._keep(~is_over)

    def _move(self, changes: Ints, outcome: Ints, row: Ints, ms: Ints) -> None:
        """Replace these rows by those that their outcomes make of them, in the order of the moves."""
        tables = self.tables
        self.hard[self.owner[changes[outcome == HARD]]] = True
        counts = np.ones(len(self.owner), np.int64)
        counts[changes] = moves = tables.count[outcome]
        if (moves == 1).all():
            at = changes
        else:
            at = expand_counts((np.cumsum(counts) - counts)[changes], moves)
            self.places, self.owner = np.repeat(self.places, counts), np.repeat(self.owner, counts)
        move = expand_counts(tables.first[outcome], moves)
        kept = ~self.hard[self.owner[at]]
        at, move = at[kept], move[kept]
        target, step = tables.target[move], tables.takes[move]
        ignores = (step < 0) & (target != self.rows[STATE][self.places[at]])
        late = [self._change_state(at[ignores], target[ignores], ms)] if ignores.any() else []
        if (step >= 0).any():
            late.append(self._extend(at[step >= 0], target[step >= 0], step[step >= 0], row, ms))
        kept = ~self.hard[self.owner]
        for late_rows in late:
            kept[late_rows] = False
        completes = at[tables.completes[move] & kept[at]]
        if len(completes):
            self._complete(self.owner[completes], self.rows[:, self.places[completes]], ms)
            kept[at[target == COMPLETE]] = False
        self._keep(kept)

    def _change_state(self, at: Ints, target: Ints, ms: Ints) -> Ints:
        """Let rows wait in other states; return those whose time is over there."""
        owner, (places, rows) = self.owner[at], self._copy_rows(self.places[at])
        last = self._last(rows[NODE])
        rows[STATE] = target
        machine, now_ms = self.machines[owner], ms[owner]
        rows[DEADLINE] = deadline = self.tables.deadlines(machine, rows, *last)
        over = deadline <= now_ms
        if over.any():
            self.hard[owner[over & (self.tables.deadlines(machine, rows, *last, most=1) > now_ms)]] = True
        self.places[at] = places
        return at[over]

    def _extend(self, at: Ints, target: Ints, step: Ints, row: Ints, ms: Ints) -> Ints:
        """Add an event to rows; return those for which it comes too late."""
        tables, (places, rows), owner = self.tables, self._copy_rows(self.places[at]), self.owner[at]
        machine, (last_step, last_ms) = self.machines[owner], self._last(rows[NODE])
        goes_on = last_step == step
        limit = tables.steps[machine] + step
        since_ms = np.where(goes_on & tables.take_since_step[limit], rows[STEP_MS], last_ms)
        passed_ms = np.where(goes_on | ~tables.take_between[limit], ms[owner] - since_ms, -1)
        late: Mask = passed_ms >= tables.take_limit_ms[limit, 0]
        self.hard[owner[late & (passed_ms < tables.take_limit_ms[limit, 1])]] = True
        self.hard[owner[rows[LENGTH] >= self.given.length]] = True
        rows[STEP_MS] = np.where(goes_on, rows[STEP_MS], last_ms)
        rows[STATE] = target
        rows[NODE] = self._new_nodes(rows[NODE], step, row[owner], owner)
        rows[LENGTH] += 1
        rows[DEADLINE] = tables.deadlines(machine, rows, step, ms[owner])
        self.places[at] = places
        too_late: Ints = at[late]
        return too_late

    def _begin(self, active: Ints, row: Ints, ms: Ints, bits: Ints, parted: Ints) -> None:
        tables = self.tables
        machine = self.machines[active]
        cell, members = tables.cell(machine, tables.start[machine], bits), np.full(len(active), ALL_MEMBERS)
        at = np.flatnonzero(parted >= 0)
        if len(at):
            found = self._parts(parted[at], machine[at], tables.start[machine[at]], members[at])
            active, members, cell = _with_parts(at, active, members, cell, *found)
        undecided = np.flatnonzero(tables.undecided[cell])
        if len(undecided):
            found = self._decide(active[undecided], members[undecided], cell[undecided], row, _EMPTY)
            active, members, cell = _with_parts(undecided, active, members, cell, *found)
        outcome = tables.outcome[cell]
        self.hard[active[outcome == HARD]] = True
        counts = tables.count[outcome]
        owner, move = np.repeat(active, counts), expand_counts(tables.first[outcome], counts)
        members = np.repeat(members, counts)
        if not len(owner):
            return
        step, target, completes = tables.takes[move], tables.target[move], tables.completes[move]
        rows = np.empty((len(PartialMatch._fields), len(owner)), np.int64)
        rows[STATE] = target
        rows[NODE] = self._new_nodes(np.full(len(owner), NO_NODE), step, row[owner], owner)
        rows[FIRST] = self.given.first_event + row[owner]
        rows[STARTED] = rows[STEP_MS] = ms[owner]
        rows[LENGTH] = 1
        rows[MEMBERS] = members
        rows[DEADLINE] = tables.deadlines(self.machines[owner], rows, step, ms[owner])
        if completes.any():
            self._complete(owner[completes], rows[:, completes], ms)
            kept = target != COMPLETE
            rows, owner = rows[:, kept], owner[kept]
        at = np.searchsorted(self.owner, owner, side="right") + np.arange(len(owner))
        is_old = np.ones(len(self.owner) + len(owner), bool)
        is_old[at] = False
        places, owners = np.empty((2, len(is_old)), np.int64)
        places[is_old], places[at] = self.places, self._add_rows(rows)
        owners[is_old], owners[at] = self.owner, owner
        self.places, self.owner = places, owners

    def _decide(self, owner: Ints, members: Ints, cell: Ints, row: Ints, places: Ints) -> tuple[Ints, Ints, Ints]:
        """Divide rows by the conditions over earlier events that their members find true (see ``_parts``).

        ``places``: of the rows, none for new ones.
        """
        tables, machine = self.tables, self.machines[owner]
        counts = tables.decider_counts[machine]
        decider, source = expand_counts(tables.decider_first[machine], counts), np.repeat(np.arange(len(owner)), counts)
        own = tables.decider_members[decider] & members[source]
        if len(source) > len(owner):
            some = own != 0
            decider, source, own = decider[some], source[some], own[some]
        patterns, asked = tables.decider_pattern[decider], tables.undecided[cell[source]]
        taken = self._taken(places)
        bits = self.given.decide(Questions(tables.numbers[machine[source]], patterns, asked, source, row[owner], taken))
        self.hard[owner[source[bits < 0]]] = True
        cells = cell[source] + np.maximum(bits, 0)
        if len(source) == len(owner):
            return source, members, cells
        return self._join_parts(source, own, cells, tables.outcome[cells], members)

    def _taken(self, places: Ints) -> TakenEvents:
        """Return the events that rows have taken."""
        given, first, new = self.given, self.first_node, NewNodes(*self.nodes)
        node, lengths = self.rows[NODE, places], self.rows[LENGTH, places]
        taken = TakenEvents(np.repeat(np.arange(len(places)), lengths), *np.empty((2, int(lengths.sum())), np.int64))
        at = np.cumsum(lengths) - 1
        while len(node):
            is_new = node >= first
            added, stored = node[is_new] - first, node[~is_new]
            taken.step[at[is_new]], taken.place[at[is_new]] = new.step[added], ~new.row[added]
            taken.step[at[~is_new]], taken.place[at[~is_new]] = given.node_steps[stored], stored
            node[is_new], node[~is_new] = new.before[added], given.node_before[stored]
            kept = node >= 0
            node, at = node[kept], at[kept] - 1
        return taken

    def _new_nodes(self, before: Ints, step: Ints, row: Ints, owner: Ints) -> Ints:
        added = slice(self.node_count, self.node_count + len(before))
        if added.stop > self.nodes.shape[1]:
            self.nodes = _with_columns(self.nodes, 2 * added.stop)
        new = NewNodes(*self.nodes[:, added])
        new.before[:], new.step[:], new.row[:], new.key_slot[:] = before, step, row, self.runs.key_slots[owner]
        self.node_count = added.stop
        return np.arange(self.first_node + added.start, self.first_node + added.stop)


def _with_columns(rows: Ints, count: int) -> Ints:
    """Return a copy of the rows (in columns) with room for ``count``; those that are added are undefined."""
    room = np.empty((len(rows), count), np.int64)
    room[:, : rows.shape[1]] = rows
    return room


def _repeats(count: int, at: Ints, source: Ints) -> tuple[Ints, Ints]:
    """Return how often each of ``count`` rows is repeated to make room for its parts, and the places of the parts of
    the rows ``at``. ``source``: of each part, in order, the index in ``at``."""
    repeats = np.ones(count, np.int64)
    repeats[at] = np.bincount(source, minlength=len(at))
    return repeats, expand_counts((np.cumsum(repeats) - repeats)[at], repeats[at])


def _with_parts(
    at: Ints, owner: Ints, members: Ints, cell: Ints, source: Ints, own: Ints, cells: Ints
) -> tuple[Ints, Ints, Ints]:
    """Return the owner, members and cell of rows, with their parts instead of the rows ``at`` (see ``_parts``)."""
    repeats, to = _repeats(len(owner), at, source)
    owner, members, cell = (np.repeat(column, repeats) for column in (owner, members, cell))
    members[to], cell[to] = own, cells
    return owner, members, cell


_EMPTY: Final = np.empty(0, np.int64)
_NO_MATCHES: Final = ColumnMatches(*(_EMPTY,) * 6, np.empty(0, bool))


def _join(matches: Sequence[ColumnMatches]) -> ColumnMatches:
    return ColumnMatches(*(np.concatenate(part) for part in zip(*matches, strict=True)))


__all__ = ["ColumnInput", "ColumnMatches", "ColumnResult", "ColumnRuns", "Questions", "TakenEvents", "run_columns"]
