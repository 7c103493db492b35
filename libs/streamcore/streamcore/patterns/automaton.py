"""The automaton of a pattern: what each state does with an event, as masks of bits, without edges that only proceed.

Bit n of an event is leaf n of the conditions. What a state does with certain bits is computed once and kept, so a step
of a run is a look-up. Bits of iterative conditions are those of a partial match; ``undecided`` returns those
that matter for a state and the bits of an event.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any, NamedTuple

from streamcore.errors import ConfigError
from streamcore.patterns.conditions import (
    TRUE,
    Alternation,
    Conjunction,
    Guard,
    Leaf,
    Masks,
    Negation,
    alternatives,
    both,
    holds,
)
from streamcore.patterns.expressions import IterativeCondition, MatchFunction
from streamcore.patterns.graph import Action, State, StateKind, StepGuards, build_graph
from streamcore.patterns.pattern import (
    MAX_CONDITIONS,
    Contiguity,
    Disjunction,
    Excluded,
    Pattern,
    SkipKind,
    Step,
    WithinType,
)

#: The most states of a pattern, and the most ways to go on from a state without an event.
MAX_STATES = 100_000
MAX_WAYS = 5_000
_MAX_TRIED = 6


class Move(NamedTuple):
    """One way on from a state. ``step``: the step that takes the event; -1 if the event is ignored.

    ``completes``: the match is complete, too.
    """

    target: int
    step: int
    completes: bool


class Moves(NamedTuple):
    """The transition of a state on an event. ``stops``: the event is forbidden, so no way on is left."""

    moves: tuple[Move, ...]
    stops: bool


@dataclass(frozen=True, slots=True)
class FlatState:
    """A state. ``moves``: alternatives of masks, the move, and those by which the move completes the match.

    ``stops``: the alternatives by which an event is forbidden. ``limit_ms``: the time limit while a partial match
    waits here, None for none. ``limit``: since when. ``step``: the number of the step that it waits for.
    """

    kind: StateKind
    step: int
    limit_ms: int | None
    limit: WithinType
    moves: tuple[tuple[tuple[Masks, ...], Move, tuple[Masks, ...]], ...]
    stops: tuple[Masks, ...]


@dataclass(slots=True)
class Automaton:
    """The automaton of a pattern. ``leaves``: the conditions by bit. ``start``: the number of the state to begin in.

    ``steps``: the names of the steps by number. ``skip_step``: the number of the step that the skip strategy names.
    ``structure``: equal for patterns whose stored states mean the same. ``limits``: the time limit of each step.
    """

    states: tuple[FlatState, ...]
    leaves: tuple[Any, ...]
    steps: tuple[str, ...]
    within_ms: int | None
    skip: SkipKind
    skip_step: int
    structure: str
    limits: tuple[tuple[int | None, WithinType], ...]
    iterative: Mapping[int, IterativeCondition] = field(default_factory=dict)
    _moves: dict[tuple[int, int], Moves] = field(default_factory=dict, compare=False)
    _undecided: dict[tuple[int, int], tuple[int, ...]] = field(default_factory=dict, compare=False)
    _relevant: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        self._relevant = tuple(_bits_read(state) for state in self.states)

    @property
    def start(self) -> int:
        """The number of the state in which every event may begin a match."""
        return len(self.states) - 1

    @property
    def iterative_bits(self) -> int:
        """The bits of iterative conditions."""
        return sum(1 << number for number in self.iterative)

    def bits_read(self, state: int) -> int:
        """Return the bits on which depends what a state does."""
        return self._relevant[state]

    def steps_read(self, condition: IterativeCondition) -> tuple[tuple[int, ...], ...]:
        """Return the numbers of the steps of each of a condition's reads."""
        return tuple(tuple(n for n, name in enumerate(self.steps) if name == read.step) for read in condition.reads)

    def moves(self, state: int, bits: int) -> Moves:
        """Return the transition of a state on an event of these bits."""
        key = state, bits & self._relevant[state]
        found = self._moves.get(key)
        if found is None:
            found = self._moves[key] = self._compute(state, bits)
        return found

    def undecided(self, state: int, bits: int) -> tuple[int, ...]:
        """Return the iterative leaves on which depends what the state does with these bits of simple conditions."""
        key = state, bits & self._relevant[state]
        found = self._undecided.get(key)
        if found is None:
            found = self._undecided[key] = self._find_undecided(state, bits)
        return found

    @property
    def begin_masks(self) -> tuple[Masks, ...]:
        """The masks of events that may begin a match, whether or not their iterative conditions hold."""
        simple = ~self.iterative_bits
        all_masks = [pair for masks, _, _ in self.states[self.start].moves for pair in masks]
        return tuple(dict.fromkeys((required & simple, forbidden & simple) for required, forbidden in all_masks))

    def is_inert(self, bits: int) -> bool:
        """Return whether an event of these bits changes no partial match and begins none."""
        for number, state in enumerate(self.states):
            if state.kind in (StateKind.FINAL, StateKind.STOP):
                continue
            if self.undecided(number, bits):
                return False
            outcome = self.moves(number, bits)
            stays = outcome.moves == (Move(number, -1, completes=False),) and not outcome.stops
            if not (stays or (number == self.start and not outcome.moves)):
                return False
        return True

    def _compute(self, number: int, bits: int) -> Moves:
        state = self.states[number]
        moves = tuple(
            Move(move.target, move.step, move.completes or holds(completing, bits))
            for masks, move, completing in state.moves
            if holds(masks, bits)
        )
        return Moves(moves, holds(state.stops, bits))

    def _find_undecided(self, number: int, bits: int) -> tuple[int, ...]:
        state, iterative = self.states[number], self.iterative_bits
        all_masks = [*state.stops]
        for masks, _, completing in state.moves:
            all_masks += [*masks, *completing]
        found = 0
        for required, forbidden in all_masks:
            simple_required, simple_forbidden = required & ~iterative, forbidden & ~iterative
            if bits & simple_required == simple_required and not bits & simple_forbidden:
                found |= (required | forbidden) & iterative
        leaves = tuple(leaf for leaf in self.iterative if found >> leaf & 1)
        if len(leaves) <= _MAX_TRIED:  # whatever is true of them, the state may do the same
            cases = [case for count in range(len(leaves) + 1) for case in combinations(leaves, count)]
            if len({self._compute(number, bits | sum(1 << leaf for leaf in case)) for case in cases}) == 1:
                return ()
        return leaves


def compile_pattern(pattern: Pattern) -> Automaton:
    """Return the automaton of a pattern; ``ConfigError`` for a pattern that cannot work."""
    return _Compiler(pattern).compile()


class _Compiler:
    def __init__(self, pattern: Pattern) -> None:
        self._pattern = pattern
        self._leaves: list[Any] = []
        self._by_identity: dict[int, int] = {}
        self._steps = tuple(pattern.all_steps())

    def compile(self) -> Automaton:
        pattern, names = self._pattern, tuple(step.name for step in self._steps)
        _check_groups(pattern)
        skip_step = -1
        if pattern.skip.kind in (SkipKind.TO_FIRST, SkipKind.TO_LAST):
            if pattern.skip.step not in pattern.step_names:
                raise ConfigError(
                    f"pattern: {pattern.skip.kind}({pattern.skip.step!r}): there is no such step; it has "
                    f"{list(pattern.step_names)}"
                )
            skip_step = names.index(pattern.skip.step)
        longest = max((s.limit_ms or 0 for s in self._steps if s.limit is WithinType.PREVIOUS_AND_CURRENT), default=0)
        if pattern.within_ms is not None and longest > pattern.within_ms:
            raise ConfigError(
                f"pattern: within: {longest} ms between two steps, and {pattern.within_ms} ms for the whole pattern"
            )
        states = build_graph(pattern, self._guards)
        if len(states) > MAX_STATES:
            raise ConfigError(
                f"pattern: it has {len(states)} states, more than {MAX_STATES}; take fewer times or steps"
            )
        iterative = {n: leaf for n, leaf in enumerate(self._leaves) if _is_iterative(leaf)}
        self._check_reads(iterative)
        flat = tuple(_flatten(state, self._steps) for state in states)
        return Automaton(
            flat,
            tuple(self._leaves),
            names,
            pattern.within_ms,
            pattern.skip.kind,
            skip_step,
            _structure(pattern),
            tuple((step.limit_ms, step.limit) for step in self._steps),
            iterative,
        )

    def _guards(self, step: Step) -> StepGuards:
        where = TRUE if step.group is not None else self._guard(step.condition)
        first = where if step.first is None else self._guard(step.first)
        return StepGuards(where, first, None if step.until is None else self._guard(step.until))

    def _guard(self, condition: Disjunction) -> Guard:
        if not condition.alternatives:
            return TRUE
        options: list[Guard] = []
        for all_of in condition.alternatives:
            guard: Guard = TRUE
            for one in all_of:
                guard = both(guard, self._leaf(one))
            options.append(guard)
        return options[0] if len(options) == 1 else Alternation(tuple(options))

    def _leaf(self, condition: Any) -> Guard:
        if isinstance(condition, Excluded):
            return Negation(Conjunction(tuple(map(self._leaf, condition.conditions))))
        number = self._by_identity.get(id(condition))
        if number is None:
            number = self._by_identity[id(condition)] = len(self._leaves)
            self._leaves.append(condition)
            if number >= MAX_CONDITIONS:
                raise ConfigError(f"pattern: more than {MAX_CONDITIONS} conditions; join some of them by & and |")
        return Leaf(number)

    def _check_reads(self, iterative: Mapping[int, IterativeCondition]) -> None:
        known = self._pattern.step_names
        for condition in iterative.values():
            for read in condition.reads:
                if read.step not in known:
                    raise ConfigError(f"pattern: {condition!r}: there is no step {read.step!r}; it has {list(known)}")
                if not read.column and read.function is not MatchFunction.COUNT:
                    raise ConfigError(f"pattern: {condition!r}: {read.function} needs a column")


def _is_iterative(condition: object) -> bool:
    return hasattr(condition, "reads") and hasattr(condition, "holds")


def _check_groups(pattern: Pattern) -> None:
    """Raise ``ConfigError`` for a group that could be gone through without an event, again and again."""
    for step in pattern.steps:
        if step.group is None:
            continue
        _check_groups(step.group)
        if step.group.within_ms is not None or step.group.skip.kind is not SkipKind.NO_SKIP:
            raise ConfigError("pattern: a group has no within and no skip of its own; give them to the whole pattern")
        if step.repeats and all(inner.optional or inner.contiguity.negates for inner in step.group.steps):
            raise ConfigError(f"pattern: the group {step.name!r} repeats and all of its steps are optional")


def _flatten(state: State, steps: Sequence[Step]) -> FlatState:
    """Return a state with the edges of all states to which it proceeds, in the order of a depth-first search."""
    moves: list[tuple[tuple[Masks, ...], Move, tuple[Masks, ...]]] = []
    stops: list[Masks] = []
    stack: list[tuple[State, Guard]] = [(state, TRUE)]
    visited = 0
    while stack:
        current, guard = stack.pop()
        visited += 1
        if visited > MAX_WAYS:
            raise ConfigError("pattern: a group can repeat without an event, or there are too many optional steps")
        if current.kind is StateKind.STOP:
            stops += alternatives(guard)
            continue
        for edge in current.edges:
            condition = both(guard, edge.guard)
            masks = alternatives(condition)
            if not masks:
                continue
            if edge.action is Action.PROCEED:
                if edge.target.kind is not StateKind.PENDING:
                    stack.append((edge.target, condition))
            elif edge.target.kind is StateKind.STOP:
                stops += masks
            elif edge.action is Action.TAKE:
                completes = edge.target.kind is StateKind.FINAL
                move = Move(edge.target.number, current.step, completes)
                moves.append((masks, move, () if completes else _completing(edge.target)))
                for waiting in _pending_behind(edge.target):
                    moves.append((masks, Move(waiting.number, current.step, completes=False), ()))
            elif state.kind is not StateKind.START:
                moves.append((masks, Move(edge.target.number, -1, edge.target.kind is StateKind.FINAL), ()))
    step = steps[state.step] if state.step >= 0 else None
    return FlatState(
        state.kind,
        state.step,
        step.limit_ms if step is not None and state.limited else None,
        step.limit if step is not None else WithinType.PREVIOUS_AND_CURRENT,
        tuple(moves),
        tuple(stops),
    )


def _pending_behind(state: State) -> list[State]:
    """Return the pending state to which a state proceeds, if it does: a match is complete there, too."""
    found: dict[int, State] = {}
    stack, visited = [state], set[int]()
    while stack:
        current = stack.pop()
        visited.add(current.number)
        for edge in current.edges:
            if edge.action is Action.PROCEED and edge.target.number not in visited:
                if edge.target.kind is StateKind.PENDING:
                    found[edge.target.number] = edge.target
                else:
                    stack.append(edge.target)
    return [*found.values()]


def _completing(state: State) -> tuple[Masks, ...]:
    """Return the alternatives by which a state that was just entered proceeds to the end."""
    found: list[Masks] = []
    stack: list[tuple[State, Guard]] = [(state, TRUE)]
    visited: set[tuple[int, tuple[Masks, ...]]] = set()
    while stack:
        current, guard = stack.pop()
        way = current.number, alternatives(guard)
        if way in visited:
            continue
        visited.add(way)
        for edge in current.edges:
            if edge.action is Action.PROCEED:
                condition = both(guard, edge.guard)
                if edge.target.kind is StateKind.FINAL:
                    found += alternatives(condition)
                elif edge.target.kind is not StateKind.STOP and alternatives(condition):
                    stack.append((edge.target, condition))
    return tuple(dict.fromkeys(found))


def _bits_read(state: FlatState) -> int:
    bits = 0
    for masks, _, completing in state.moves:
        for required, forbidden in (*masks, *completing):
            bits |= required | forbidden
    for required, forbidden in state.stops:
        bits |= required | forbidden
    return bits


def _structure(pattern: Pattern) -> str:
    """Return a text that is equal for patterns with the same states."""
    parts = []
    for step in pattern.steps:
        inside = f"({_structure(step.group)})" if step.group is not None else ""
        flags = "".join(
            letter
            for letter, is_set in (
                ("o", step.optional),
                ("g", step.greedy),
                ("u", step.until is not None),
                ("e", step.forbid_at_end_only),
            )
            if is_set
        )
        parts.append(f"{step.contiguity}:{step.name}{inside}[{step.least},{step.most},{step.inner},{flags}]")
    pending = pattern.steps[-1].contiguity is Contiguity.NOT_FOLLOWED_BY
    return " ".join([*parts, *(["pending"] if pending else [])])


__all__ = ["Automaton", "FlatState", "Move", "Moves", "compile_pattern"]
