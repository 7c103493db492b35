"""The transitions of patterns, as tables of integers, for runs in columns (``column_run``).

Several patterns form a *family*, which keeps equal partial matches once. There are two kinds. Patterns that are *alike*
differ in conditions and lengths of time only, so the family has the automaton of each of them. A partial match is that
of some members, and divides where an event means something else to some of them (``family_bits``). Other patterns form
a family if they begin with equal conditions. Its automaton is the product of those of its members as far as these
agree: a state of the family is a state of each member, and an event on which two members do something else is *hard*.

Events that complete a match of a family, or of a pattern with a skip strategy that may leave partial matches, are hard,
too. Members may have other time limits: a partial match of the family ends when the longest of them is over, and
between the shortest and the longest it is hard.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

import numpy as np

from streamcore.patterns.automaton import Automaton, Move
from streamcore.patterns.graph import StateKind
from streamcore.patterns.match_store import ALL_MEMBERS, NEVER, Ints, Mask, PartialMatch
from streamcore.patterns.pattern import SkipKind, WithinType

#: The outcome of an event that must be looked at one run at a time.
HARD: Final = 0
#: The state of a match.
COMPLETE: Final = 0
STATE, NODE, FIRST, STARTED, STEP_MS, LENGTH, MEMBERS, DEADLINE = range(len(PartialMatch._fields))
_MAX_LEAVES: Final = 12
_MAX_CELLS: Final = 1 << 18
_MAX_MEMBERS: Final = 32
#: The most conditions of patterns that are alike: each is a bit of an event.
_MAX_ALIKE_LEAVES: Final = 60
#: The moves in their order; None for ``HARD``.
_Outcome = tuple[Move, ...] | None


@dataclass(frozen=True, slots=True)
class Family:
    """Patterns that share partial matches.

    ``members``: their numbers. ``leaves``: their distinct conditions, by bit. ``states``: by state of the family, the
    state of each member; the first one is not used. ``alike``: the members differ in conditions and lengths of time
    only.
    """

    members: tuple[int, ...]
    leaves: tuple[Any, ...]
    states: tuple[tuple[int, ...], ...]
    alike: bool = False


class _Limit(NamedTuple):
    """A time limit: ``since`` when (None if it does not matter), and the least and the most ms of the members."""

    since: WithinType | None
    least_ms: int
    most_ms: int


class _Waiting(NamedTuple):
    pending: bool
    step: int
    limit: _Limit


@dataclass(slots=True)
class _Machine:
    """The automaton of a pattern or family. ``cells``: by state and bits, an index of ``outcomes``."""

    leaves: tuple[Any, ...]
    cells: Ints
    outcomes: list[_Outcome]
    start: int
    states: list[_Waiting]
    steps: list[_Limit | None]
    within: _Limit
    undecided: Ints
    emits_timed_out: bool = False
    skips: bool = False
    members: int = 1


@dataclass(frozen=True, slots=True)
class ColumnTables:
    """The moves of patterns and families. ``numbers``: theirs, ascending; the index in it is that of a *machine*.

    By machine: the first cell, state and step, the number of bits, the start, the time limit of the whole, whether
    timed-out partial matches are emitted, whether a match ends all partial matches (``skips``), and the members. By
    cell of a state and bits: the outcome, whether it leaves a partial match as it is, and as bits the conditions over
    earlier events that must be evaluated (``undecided``), with which another cell is looked up. By outcome: its moves,
    of which there are ``target``, ``takes`` and ``completes``. By state, and by step: what its time limit is counted
    from, and how long it is (least, most; ``NEVER`` without).

    By machine: its *deciders*, the patterns whose conditions over earlier events are evaluated, and for which members
    each of them is (as bits).
    """

    numbers: Ints
    cells: Ints
    states: Ints
    steps: Ints
    bits: Ints
    start: Ints
    within_ms: Ints
    emits: Mask
    skips: Mask
    members: Ints
    outcome: Ints
    stays: Mask
    undecided: Ints
    first: Ints
    count: Ints
    target: Ints
    takes: Ints
    completes: Mask
    pending: Mask
    step: Ints
    since_step: Mask
    between: Mask
    limit_ms: Ints
    take_since_step: Mask
    take_between: Mask
    take_limit_ms: Ints
    decider_first: Ints
    decider_counts: Ints
    decider_pattern: Ints
    decider_members: Ints
    families: Mapping[int, Family] = field(default_factory=dict)

    @property
    def most_begun(self) -> int:
        """The most partial matches that an event may begin."""
        return int(self.count.max(initial=0))

    def machine(self, numbers: Ints) -> Ints:
        """Return the machine of each number; -1 for none."""
        if not len(self.numbers):
            return np.full(len(numbers), -1)
        found = np.minimum(np.searchsorted(self.numbers, numbers), len(self.numbers) - 1)
        return np.where(self.numbers[found] == numbers, found, -1)

    def begins(self, machine: Ints, bits: Ints) -> Mask:
        """Return whether an event of these bits may begin a match."""
        cell = self.cell(machine, self.start[machine], bits)
        outcome = self.outcome[cell]
        begins: Mask = (outcome == HARD) | (self.count[outcome] > 0) | (self.undecided[cell] > 0)
        return begins

    def cell(self, machine: Ints, state: Ints | int, bits: Ints) -> Ints:
        """Return the cell of a state and bits; other bits than those of conditions are left out."""
        width = self.bits[machine]
        cells: Ints = self.cells[machine] + (state << width) + (bits & ((1 << width) - 1))
        return cells

    def deadlines(self, machine: Ints, rows: Ints, last_step: Ints, last_ms: Ints, most: int = 0) -> Ints:
        """Return when the time of partial matches is over (see ``engine``). ``most`` 1: by the longest time limits."""
        state = self.states[machine] + rows[STATE]
        limit_ms, waits_on = self.limit_ms[state, most], self.step[state] == last_step
        limit_ms = np.where(self.between[state] & ~waits_on, NEVER, limit_ms)
        since_ms = np.where(self.since_step[state] & waits_on, rows[STEP_MS], last_ms)
        within_ms = np.where(self.pending[state] & self.since_step[state], NEVER, self.within_ms[machine, most])
        whole = np.where(within_ms < NEVER, rows[STARTED] + within_ms, NEVER)
        found = np.minimum(whole, np.where(limit_ms < NEVER, since_ms + limit_ms, NEVER))
        return np.where(rows[STATE] == COMPLETE, NEVER, found)


def build_families(
    automata: Mapping[int, Automaton],
    known: Iterable[Sequence[int]] = (),
    seen: Mapping[int, Hashable] | None = None,
) -> list[Family]:
    """Return families of patterns that are alike or begin with the same conditions; a pattern is in one at most.

    ``known``: the members of the families so far, which stay together if all of them are there. Equal conditions are
    equal objects in Python, with equal hashes. ``seen``: by pattern, equal if they see the same events besides those
    that satisfy their conditions, and emit what times out or do not; others are in no family together. Patterns with
    conditions over earlier events are in one only if they are alike.
    """
    seen = seen or {}
    machines = {n: _machine(a, emits_timed_out=False) for n, a in automata.items()}
    left = {number: one for number, one in machines.items() if one is not None}
    groups = []
    for members in known:
        if all(number in left for number in members) and len({seen.get(number) for number in members}) == 1:
            groups.append([*members])
            for number in members:
                del left[number]
    groups += _group_similar(automata, left, seen)
    families = []
    for group in (group for group in groups if len(group) > 1):
        if any(automata[number].iterative for number in group) and not _are_alike(automata, group):
            continue
        joined = (_join_alike if _are_alike(automata, group) else _join)(group, [machines[number] for number in group])
        if joined is not None and len(joined[1].states) > 2:
            families.append(joined[1])
    return families


def _group_similar(
    automata: Mapping[int, Automaton], left: Mapping[int, _Machine], seen: Mapping[int, Hashable]
) -> list[list[int]]:
    """Return groups of patterns that are alike or begin with the same conditions, among those that are ``left``."""
    groups = []
    by_start: dict[Hashable, list[int]] = {}
    for number in sorted(left):
        read = automata[number].bits_read(automata[number].start)
        start = frozenset(leaf for n, leaf in enumerate(automata[number].leaves) if read >> n & 1)
        by_start.setdefault((start, seen.get(number)), []).append(number)
    by_shape: dict[Hashable, list[int]] = {}
    for start_alike in by_start.values():
        if _are_alike(automata, start_alike):
            shape = _shape(automata[start_alike[0]]), seen.get(start_alike[0])
            by_shape.setdefault(shape, []).extend(start_alike)
            continue
        for number in start_alike:
            if automata[number].iterative:
                by_shape.setdefault((_shape(automata[number]), seen.get(number)), []).append(number)
        if plain := [number for number in start_alike if not automata[number].iterative]:
            groups += _groups(plain, left, _MAX_LEAVES)
    for alike in by_shape.values():
        groups += _groups(alike, left, _MAX_ALIKE_LEAVES)
    return groups


def _groups(alike: Sequence[int], machines: Mapping[int, _Machine], most: int) -> list[list[int]]:
    """Return these patterns in groups that have at most so many conditions each."""
    groups, group, leaves = [], [alike[0]], {*machines[alike[0]].leaves}
    for number in alike[1:]:
        if len(leaves | {*machines[number].leaves}) > most or len(group) >= _MAX_MEMBERS:
            groups.append(group)
            group, leaves = [], set()
        group.append(number)
        leaves |= {*machines[number].leaves}
    return [*groups, group]


def _shape(automaton: Automaton) -> Hashable:
    """Return a value that is equal for patterns that are alike."""
    states = tuple(replace(s, limit_ms=None if s.limit_ms is None else 1) for s in automaton.states)
    limits = tuple((limit_ms is None, since) for limit_ms, since in automaton.limits)
    return states, limits, automaton.within_ms is None, len(automaton.leaves), tuple(sorted(automaton.iterative))


def _deciders(automata: Mapping[int, Automaton], members: Sequence[int]) -> list[tuple[int, int]]:
    """Return one of the members for each set of equal conditions over earlier events, and the members as bits."""
    by_conditions: dict[Hashable, tuple[int, int]] = {}
    for index, member in enumerate(members):
        found = _reads_earlier(automata[member])
        decider, bits = by_conditions.get(found, (member, 0))
        by_conditions[found] = decider, bits | 1 << index
    return [*by_conditions.values()]


def _reads_earlier(automaton: Automaton) -> Hashable:
    """Return a value that is equal for patterns whose conditions over earlier events are equal, and read equal
    steps."""
    return tuple(
        (leaf, automaton.leaves[leaf], automaton.steps_read(condition))
        for leaf, condition in automaton.iterative.items()
    )


def _are_alike(automata: Mapping[int, Automaton], numbers: Sequence[int]) -> bool:
    return len({_shape(automata[number]) for number in numbers}) == 1


def build_tables(
    automata: Mapping[int, Automaton],
    timed_out: Collection[int] = (),
    families: Mapping[int, Family] | None = None,
) -> ColumnTables:
    """Return the tables of patterns and families, by number. Patterns with too many conditions or states have none.

    ``timed_out``: the patterns whose timed-out partial matches are emitted.
    """
    machines = {}
    for number, automaton in automata.items():
        found = _machine(automaton, emits_timed_out=number in timed_out)
        if found is not None:
            machines[number] = found
    for number, family in (families or {}).items():
        join = _join_alike if family.alike else _join
        joined = join(family.members, [machines[member] for member in family.members])
        assert joined is not None
        machines[number], _ = joined
    all_families = families or {}
    deciders = [
        _deciders(automata, all_families[number].members) if number in all_families else [(number, ALL_MEMBERS)]
        for number in sorted(machines)
    ]
    return _to_tables(dict(sorted(machines.items())), deciders, all_families)


def _to_tables(
    machines: Mapping[int, _Machine], deciders: Sequence[Sequence[tuple[int, int]]], families: Mapping[int, Family]
) -> ColumnTables:
    firsts: list[tuple[int, int, int]] = []
    outcomes: list[_Outcome] = [None]
    cells: list[Ints] = []
    stays: list[Mask] = []
    states: list[_Waiting] = []
    steps: list[_Limit] = []
    for one in machines.values():
        firsts.append((sum(map(len, cells)), len(states), len(steps)))
        numbers = np.array([HARD if o is None else len(outcomes) + n for n, o in enumerate(one.outcomes)], np.int64)
        stay = np.array([_only_state(outcome) for outcome in one.outcomes], np.int64)[one.cells]
        outcomes += one.outcomes
        cells.append(numbers[one.cells].ravel())
        stays.append((stay == np.arange(len(one.cells))[:, None]).ravel())
        states += one.states
        steps += [limit or _NO_LIMIT for limit in one.steps]
    counts = np.array([len(outcome or ()) for outcome in outcomes], np.int64)
    moves = [move for outcome in outcomes for move in outcome or ()]
    all_firsts = np.array(firsts, np.int64).reshape(-1, 3)
    decider_counts = np.array([*map(len, deciders)], np.int64)
    all_deciders = np.array([pair for pairs in deciders for pair in pairs], np.int64).reshape(-1, 2)
    return ColumnTables(
        np.array([*machines], np.int64),
        all_firsts[:, 0],
        all_firsts[:, 1],
        all_firsts[:, 2],
        np.array([len(one.leaves) for one in machines.values()], np.int64),
        np.array([one.start for one in machines.values()], np.int64),
        _times([one.within for one in machines.values()]),
        np.array([one.emits_timed_out for one in machines.values()], bool),
        np.array([one.skips for one in machines.values()], bool),
        np.array([one.members for one in machines.values()], np.int64),
        np.concatenate([*cells, np.empty(0, np.int64)]),
        np.concatenate([*stays, np.empty(0, bool)]),
        np.concatenate([*(one.undecided.ravel() for one in machines.values()), np.empty(0, np.int64)]),
        np.cumsum(counts) - counts,
        counts,
        np.array([move.target for move in moves], np.int64),
        np.array([move.step for move in moves], np.int64),
        np.array([move.completes for move in moves], bool),
        np.array([waiting.pending for waiting in states], bool),
        np.array([waiting.step for waiting in states], np.int64),
        np.array([waiting.limit.since is WithinType.SINCE_STEP_BEFORE for waiting in states], bool),
        np.array([waiting.limit.since is WithinType.BETWEEN_TIMES for waiting in states], bool),
        _times([waiting.limit for waiting in states]),
        np.array([limit.since is WithinType.SINCE_STEP_BEFORE for limit in steps], bool),
        np.array([limit.since is WithinType.BETWEEN_TIMES for limit in steps], bool),
        _times(steps),
        np.cumsum(decider_counts) - decider_counts,
        decider_counts,
        all_deciders[:, 0],
        all_deciders[:, 1],
        families,
    )


def _times(limits: Sequence[_Limit]) -> Ints:
    return np.array([(limit.least_ms, limit.most_ms) for limit in limits], np.int64).reshape(-1, 2)


def _only_state(outcome: _Outcome) -> int:
    """Return the state that the event leaves as it is, if it does; otherwise -1."""
    if outcome is None or len(outcome) != 1 or outcome[0].step >= 0 or outcome[0].completes:
        return -1
    return outcome[0].target


def _limit(since: WithinType, limit_ms: int | None) -> _Limit:
    return _NO_LIMIT if limit_ms is None else _Limit(since, limit_ms, limit_ms)


def _machine(automaton: Automaton, *, emits_timed_out: bool) -> _Machine | None:
    """Return the machine of a pattern; None if it would be too large."""
    width = 1 << len(automaton.leaves)
    if len(automaton.leaves) > _MAX_LEAVES or width * len(automaton.states) > _MAX_CELLS:
        return None
    known: dict[_Outcome, int] = {None: HARD}
    cells, undecided = np.zeros((2, len(automaton.states), width), np.int64)
    for number, state in enumerate(automaton.states):
        if state.kind not in (StateKind.FINAL, StateKind.STOP):
            read, index = np.unique(np.arange(width) & automaton.bits_read(number), return_inverse=True)
            found = [known.setdefault(_outcome(automaton, number, bits), len(known)) for bits in read.tolist()]
            cells[number] = np.array(found, np.int64)[index]
            if automaton.iterative:
                unresolved = [sum(1 << leaf for leaf in automaton.undecided(number, bits)) for bits in read.tolist()]
                undecided[number] = np.array(unresolved, np.int64)[index]
    undecided[:, np.arange(width) & automaton.iterative_bits > 0] = 0
    within = _limit(WithinType.PREVIOUS_AND_CURRENT, automaton.within_ms)
    states = []
    for state in automaton.states:
        limit, pending = _limit(state.limit, state.limit_ms), state.kind is StateKind.PENDING
        states.append(_Waiting(pending, state.step, limit._replace(since=state.limit) if pending else limit))
    steps: list[_Limit | None] = [_limit(since, limit_ms) for limit_ms, since in automaton.limits]
    skips = automaton.skip is not SkipKind.NO_SKIP
    outcomes, start = [*known], automaton.start
    return _Machine(automaton.leaves, cells, outcomes, start, states, steps, within, undecided, emits_timed_out, skips)


def _outcome(automaton: Automaton, state: int, bits: int) -> _Outcome:
    moves, stops = automaton.moves(state, bits)
    ends = [move for move in moves if move.completes]
    match automaton.skip:
        case SkipKind.NO_SKIP:
            is_hard = False
        case SkipKind.PAST_LAST_EVENT:  # a match without this event leaves what began behind its last one
            is_hard = any(move.step < 0 for move in ends)
        case _:
            is_hard = bool(ends)
    if is_hard:
        return None
    if not stops or state == automaton.start:
        return moves
    return tuple(move._replace(target=COMPLETE) for move in ends)


def _join(members: Sequence[int], machines: Sequence[_Machine | None]) -> tuple[_Machine, Family]:
    """Return the machine of a family: the product of those of its members, as far as they do the same."""
    own = [one for one in machines if one is not None]
    leaves = tuple(dict.fromkeys(leaf for one in own for leaf in one.leaves))
    all_bits = np.arange(1 << len(leaves))
    bits = [project(all_bits, leaves, one.leaves) for one in own]
    steps = [_joined([one.steps[n] for one in own]) for n in range(min(len(one.steps) for one in own))]
    start = tuple(one.start for one in own)
    numbers, queue = {(): 0, start: 1}, [start]
    outcomes: dict[_Outcome, int] = {None: HARD}
    waiting = [_Waiting(False, -1, _NO_LIMIT)] * 2
    cells = [np.zeros(len(all_bits), np.int64)]
    for states in queue:
        found = np.stack([one.cells[state][b] for one, state, b in zip(own, states, bits, strict=True)])
        combined, index = np.unique(found, axis=1, return_inverse=True)
        joined = []
        for column in combined.T.tolist():
            outcome = _agreed([one.outcomes[n] for one, n in zip(own, column, strict=True)], states, steps)
            targets = [target for target, _ in outcome or ()]
            for target in targets:
                if target not in numbers:
                    waits = _waiting([one.states[state] for one, state in zip(own, target, strict=True)])
                    if waits is None or len(numbers) * len(all_bits) >= _MAX_CELLS:
                        outcome = None
                        break
                    numbers[target] = len(numbers)
                    queue.append(target)
                    waiting.append(waits)
            moves = None if outcome is None else tuple(Move(numbers[t], step, completes=False) for t, step in outcome)
            joined.append(outcomes.setdefault(moves, len(outcomes)))
        cells.append(np.array(joined, np.int64)[index.ravel()])
    within = _joined([one.within for one in own])
    assert within is not None
    all_cells = np.stack(cells)
    undecided = np.zeros_like(all_cells)
    machine = _Machine(
        leaves,
        all_cells,
        [*outcomes],
        1,
        waiting,
        steps,
        within,
        undecided,
        emits_timed_out=own[0].emits_timed_out,
        members=len(own),
    )
    return machine, Family(tuple(members), leaves, tuple(state or (-1,) * len(own) for state in numbers))


def _join_alike(members: Sequence[int], machines: Sequence[_Machine | None]) -> tuple[_Machine, Family] | None:
    """Return the machine of a family of patterns that are alike; None if their time limits cannot be joined."""
    own = [one for one in machines if one is not None]
    first, count = own[0], len(own)
    states = [_waiting(alike) for alike in zip(*(one.states for one in own), strict=True)]
    steps = [_joined(alike) for alike in zip(*(one.steps for one in own), strict=True)]
    within = _joined([one.within for one in own])
    known = [state for state in states if state is not None]
    if len(known) < len(states) or None in steps or within is None:
        return None
    leaves = tuple(dict.fromkeys(leaf for one in own for leaf in one.leaves))
    outcomes = [None if o is None or any(move.completes for move in o) else o for o in first.outcomes]
    machine = replace(first, outcomes=outcomes, states=known, steps=steps, within=within, members=count)
    return machine, Family(tuple(members), leaves, tuple((state,) * count for state in range(len(states))), alike=True)


def _agreed(
    outcomes: Sequence[_Outcome], states: Sequence[int], steps: Sequence[_Limit | None]
) -> list[tuple[tuple[int, ...], int]] | None:
    """Return the moves of all members, if they are the same: the states to go to, and the step."""
    known = [outcome for outcome in outcomes if outcome is not None and not any(move.completes for move in outcome)]
    if len(known) < len(outcomes) or len({len(outcome) for outcome in known}) > 1:
        return None
    agreed = []
    for moves in zip(*known, strict=True):
        taken = {move.step for move in moves}
        stays = {move.target == state for move, state in zip(moves, states, strict=True)}
        (step, *others) = taken
        if others or (step < 0 and len(stays) > 1) or (step >= 0 and (step >= len(steps) or steps[step] is None)):
            return None
        agreed.append((tuple(move.target for move in moves), step))
    return agreed


def _joined(limits: Sequence[_Limit | None]) -> _Limit | None:
    """Return the shortest and the longest limit; None if they are counted from different events."""
    known = [limit for limit in limits if limit is not None]
    since = {limit.since for limit in known} - {None}
    if len(known) < len(limits) or len(since) > 1:
        return None
    least, most = min(limit.least_ms for limit in known), max(limit.most_ms for limit in known)
    return _Limit(since.pop() if since else None, least, most)


def _waiting(states: Sequence[_Waiting]) -> _Waiting | None:
    limit = _joined([state.limit for state in states])
    of_limit = {state.step for state in states if state.limit.since is not None}
    if limit is None or len(of_limit) > 1 or len({state.pending for state in states}) > 1:
        return None
    return _Waiting(states[0].pending, of_limit.pop() if of_limit else states[0].step, limit)


def project(bits: Ints, leaves: Sequence[Any], wanted: Sequence[Any]) -> Ints:
    """Return the bits of ``wanted`` conditions. ``leaves``: those of ``bits``; bits behind them stay."""
    index = {leaf: n for n, leaf in enumerate(leaves)}
    found = bits & ~((1 << len(leaves)) - 1)
    for number, leaf in enumerate(wanted):
        found |= (bits >> index[leaf] & 1) << number
    return found


_NO_LIMIT: Final = _Limit(None, NEVER, NEVER)

__all__ = ["ColumnTables", "Family", "build_families", "build_tables", "project"]
