"""The graph of a pattern: states, and edges that take an event, ignore it, or proceed without one.

The construction is that of Flink's CEP library (after Agrawal, Diao, Gyllstrom, Immerman: "Efficient pattern matching
over event streams", SIGMOD 2008), because its details decide which matches there are:

- A step is a state with a *take* edge; its *ignore* edge holds for what may lie before its event.
- An optional step also *proceeds* to the next one. So that a partial match branches once only, its ignore edge leads
  to a copy of the state that does not proceed.
- A step with ``times`` is a chain of such states. One without an upper limit ends in a state that takes into itself.
- A greedy step forbids the edges of the state behind it to events that it could take itself.
- ``not_followed_by`` is an edge to a *stop* state from the states before the next step's event; at the end of a pattern
  with a time limit it is a *pending* state, in which a match is complete when the time is over. (In Flink a match gets
  there with the next event only if its last step is optional or repeats; here, with its last event.)

States are built from the end of the pattern to its beginning.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass, field

from streamcore.errors import ConfigError
from streamcore.patterns.conditions import TRUE, Guard, Negation, both
from streamcore.patterns.pattern import Contiguity, Pattern, Step, WithinType


class Action(enum.IntEnum):
    """The effect of an edge on the event."""

    TAKE = 0
    IGNORE = 1
    PROCEED = 2


class StateKind(enum.IntEnum):
    """The kind of a state. PENDING: a match that is complete unless a forbidden event comes in time."""

    NORMAL = 0
    START = 1
    FINAL = 2
    STOP = 3
    PENDING = 4


@dataclass(slots=True)
class Edge:
    """An edge, which is open for an event that satisfies the guard."""

    action: Action
    target: State
    guard: Guard


@dataclass(slots=True, eq=False)
class State:
    """A state. ``step``: the number of its step. ``limited``: the step's time limit applies while it waits here."""

    number: int
    step: int
    kind: StateKind = StateKind.NORMAL
    edges: list[Edge] = field(default_factory=list)
    limited: bool = False

    def take(self, target: State, guard: Guard) -> None:
        """Add an edge."""
        self.edges.append(Edge(Action.TAKE, target, guard))

    def ignore(self, target: State, guard: Guard) -> None:
        """Add an edge."""
        self.edges.append(Edge(Action.IGNORE, target, guard))

    def proceed(self, target: State, guard: Guard) -> None:
        """Add an edge."""
        self.edges.append(Edge(Action.PROCEED, target, guard))


@dataclass(frozen=True, slots=True)
class StepGuards:
    """The conditions of a step, as guards. ``first``: of its first event. ``until``: None without one."""

    where: Guard
    first: Guard
    until: Guard | None


@dataclass(slots=True)
class _Level:
    """The steps of a pattern or group, and the step that is being converted. ``group``: the step that has them.

    ``optional``: this round of the group may be left out.
    """

    steps: tuple[Step, ...]
    position: int
    group: Step | None
    optional: bool = False

    @property
    def step(self) -> Step:
        return self.steps[self.position]

    @property
    def is_head(self) -> bool:
        return self.group is not None and self.position == 0


def build_graph(pattern: Pattern, guards: Callable[[Step], StepGuards]) -> list[State]:
    """Return the states of a pattern by number; the last one is the start. ``guards``: those of a step or group."""
    return _Builder(pattern, guards).build()


class _Builder:
    def __init__(self, pattern: Pattern, guards: Callable[[Step], StepGuards]) -> None:
        self._pattern = pattern
        self._guards = guards
        self._numbers = {id(step): number for number, step in enumerate(pattern.all_steps())}
        self._states: list[State] = []
        self._stops: dict[str, State] = {}
        self._level = _Level(pattern.steps, len(pattern.steps) - 1, None)
        self._following: Step | None = None
        self._first_of_loop: dict[int, bool] = {}
        self._before_greedy: dict[int, State] = {}

    def build(self) -> list[State]:
        sink = self._middle(self._new_state(StateKind.FINAL))
        start = self._convert(sink)
        start.kind = StateKind.START
        self._states.remove(start)
        self._states.append(start)
        for number, state in enumerate(self._states):
            state.number = number
        return self._states

    # --- steps --------------------------------------------------------------------------------------------------

    def _middle(self, sink: State) -> State:
        """Convert the steps of the level but the first, from the last one; return the state to go on from."""
        level = self._level
        while level.position > 0:
            step = level.step
            if step.contiguity is Contiguity.NOT_FOLLOWED_BY:
                if sink.kind is StateKind.FINAL:
                    sink = self._pending(step)
            elif step.contiguity is Contiguity.NOT_NEXT:
                sink = self._not_next(step, sink)
            else:
                sink = self._convert(sink)
            self._following = step
            level.position -= 1
        return sink

    def _pending(self, step: Step) -> State:
        if self._pattern.within_ms is None and step.limit_ms is None:
            raise ConfigError(f"pattern: not_followed_by({step.name!r}) at the end needs within: until when it holds")
        before = self._level.steps[self._level.position - 1]
        if before.greedy and before.until is not None:
            raise ConfigError(
                f"pattern: not_followed_by({step.name!r}) at the end: the step before is greedy and has until; "
                "leave one of them out"
            )
        condition = self._take_guard(step)
        state = self._new_state(StateKind.PENDING, step)
        state.proceed(self._stop(step, condition), condition)
        state.ignore(state, Negation(condition))
        return state

    def _not_next(self, step: Step, sink: State) -> State:
        condition = self._take_guard(step)
        state = self._like(sink) if sink.limited else self._new_state(StateKind.NORMAL, step)
        if sink.kind is StateKind.FINAL:  # the match is complete with the next event, which it does not have
            state.ignore(sink, Negation(condition))
        else:
            state.proceed(sink, Negation(condition))
        state.proceed(self._stop(step, condition), condition)
        return state

    def _convert(self, sink: State) -> State:
        """Convert a step that takes events; return its first state."""
        step = self._level.step
        if step.loops:
            self._set_first_of_loop(step, first=False)
            behind = self._without_earlier_nots(sink)
            looping = self._looping(behind)
            if step.greedy and behind is not sink:  # the way by which the step takes nothing
                self._before_greedy[id(sink)] = self._copy(sink)
                _forbid(sink, self._take_guard(step))
            self._set_first_of_loop(step, first=True)
            state = self._times(looping, sink)
        elif step.repeats:
            state = self._times(sink, sink)
        else:
            state = self._single(
                sink, sink, self._first_guard(step), self._ignore_guard(step), optional=self._is_optional(step)
            )
        self._add_stops(state)
        return state

    def _times(self, sink: State, proceed_to: State) -> State:
        """Convert a step into a chain of states, of which the last ones are optional; return the first one."""
        step = self._level.step
        self._set_first_of_loop(step, first=False)
        until = self._guards(step).until
        ignore = _unless(until, self._inner_ignore_guard(step))
        take = _unless(until, self._take_guard(step))
        assert take is not None
        most = step.least if step.most is None else step.most
        if step.greedy and step.least != most:
            if until is not None:
                self._before_greedy[id(sink)] = self._copy(sink)
            _forbid(sink, take)
        last = sink
        for _ in range(step.least, most):
            last = self._single(last, proceed_to, take, ignore, optional=True, inner=True)
            self._add_stop_inside(last)
        for _ in range(step.least - 1):
            last = self._single(last, None, take, ignore, optional=False, inner=True)
            if not step.forbid_at_end_only:
                self._add_stop_inside(last)
        self._set_first_of_loop(step, first=True)
        first = _unless(until, self._first_guard(step))
        assert first is not None
        return self._single(last, proceed_to, first, self._ignore_guard(step), optional=self._is_optional(step))

    def _single(
        self,
        sink: State,
        proceed_to: State | None,
        take: Guard,
        ignore: Guard | None,
        *,
        optional: bool,
        inner: bool = False,
    ) -> State:
        """Add the state of one event, and if it is optional its copy that does not proceed.

        ``inner``: of an event of the step that is not its first one. (The first state of a group proceeds behind the
        group; Flink forgets that the inner states of the group's first step proceed to its second one.)
        """
        step = self._level.step
        if step.group is not None:
            return self._group(step, sink, proceed_to, optional=optional)
        state = self._new_state(StateKind.NORMAL, step)
        after_take = self._without_earlier_nots(sink)
        state.take(after_take, take)
        if optional and (inner or not self._level.is_head):
            assert proceed_to is not None
            self._proceed_unless_greedy(state, step, proceed_to)
        if ignore is not None:
            waiting = state
            if optional:
                waiting = self._new_state(StateKind.NORMAL, step)
                waiting.take(after_take, take)
                waiting.ignore(waiting, ignore)
                # Flink forbids here what may not come before the step, and forgets what may not come behind it.
                if inner:
                    self._add_stop_inside(waiting)
                else:
                    self._add_stops(waiting)
            state.ignore(waiting, ignore)
        return state

    def _proceed_unless_greedy(self, state: State, step: Step, proceed_to: State) -> None:
        guard = self._true_guard()
        until = self._guards(step).until
        if step.greedy and until is not None:
            state.proceed(self._before_greedy[id(proceed_to)], both(guard, until))
            guard = both(guard, Negation(until))
        state.proceed(proceed_to, guard)

    def _looping(self, sink: State) -> State:
        """Add the state that takes any number of events."""
        step = self._level.step
        if step.group is not None:
            return self._looping_group(step, sink)
        until = self._guards(step).until
        ignore = _unless(until, self._inner_ignore_guard(step))
        take = _unless(until, self._take_guard(step))
        assert take is not None
        state = self._new_state(StateKind.NORMAL, step)
        guard = self._true_guard()
        if step.greedy:
            if until is not None:
                before = self._copy(sink)
                state.proceed(before, both(guard, until))
                self._before_greedy[id(sink)] = before
                guard = both(guard, Negation(until))
            state.proceed(sink, guard)
            _forbid(sink, self._take_guard(step))
        else:
            state.proceed(sink, guard)
        state.take(state, take)
        self._add_stop_inside(state)
        if ignore is not None:
            waiting = self._new_state(StateKind.NORMAL, step)
            waiting.take(state, take)
            waiting.ignore(waiting, ignore)
            state.ignore(waiting, ignore)
            self._add_stop_inside(waiting)
        return state

    # --- groups -------------------------------------------------------------------------------------------------

    def _group(self, step: Step, sink: State, proceed_to: State | None, *, optional: bool) -> State:
        first = self._steps_of_group(step, sink, optional=optional)
        if optional:
            assert proceed_to is not None
            first.proceed(proceed_to, self._true_guard())
        return first

    def _looping_group(self, step: Step, sink: State) -> State:
        guard = self._true_guard()
        again = self._new_state(StateKind.NORMAL, None)
        first = self._steps_of_group(step, again, optional=True)
        first.proceed(sink, guard)
        again.proceed(first, guard)
        return first

    def _steps_of_group(self, step: Step, sink: State, *, optional: bool) -> State:
        assert step.group is not None
        level, following = self._level, self._following
        self._level = _Level(step.group.steps, len(step.group.steps) - 1, step, optional)
        first = self._convert(self._middle(sink))
        self._level, self._following = level, following
        return first

    def _set_first_of_loop(self, step: Step, *, first: bool) -> None:
        if step.group is not None:
            self._first_of_loop[id(step)] = first

    def _group_is_first_of_loop(self) -> bool:
        return self._first_of_loop.get(id(self._level.group), True)

    def _is_optional(self, step: Step) -> bool:
        """Return whether the step may be left out; the first step of a group may if this round of the group may.

        (In Flink, in rounds after the first one, its state proceeds also after it has ignored an event, so that what
        comes next is not right behind the round before, and a match comes several times.)
        """
        if self._level.is_head:
            return self._level.optional
        return step.optional

    # --- forbidden events ---------------------------------------------------------------------------------------

    def _earlier_nots(self) -> list[Step]:
        """Return the ``not_followed_by`` before this step, with only optional steps between."""
        found = []
        position = self._level.position
        while position > 0:
            before = self._level.steps[position - 1]
            if not (before.optional or before.contiguity is Contiguity.NOT_FOLLOWED_BY):
                break
            position -= 1
            if before.contiguity is Contiguity.NOT_FOLLOWED_BY:
                found.append(before)
        return found

    def _without_earlier_nots(self, sink: State) -> State:
        """Return a copy of a state without the edges that stop at earlier ``not_followed_by``.

        An optional step that has taken an event lifts what was forbidden before it.
        """
        nots = self._earlier_nots()
        if not nots or not self._level.step.optional:
            return sink
        lifted = {id(self._stops[step.name]) for step in nots if step.name in self._stops}
        copy = self._like(sink)
        for edge in sink.edges:
            target = edge.target
            if edge.action is Action.PROCEED:
                if id(target) in lifted:
                    continue
                if target.kind is not StateKind.STOP:
                    target = self._without_earlier_nots(target)
            elif target is sink:
                target = copy
            copy.edges.append(Edge(edge.action, target, edge.guard))
        return copy

    def _add_stops(self, state: State) -> None:
        for step in self._earlier_nots():
            condition = self._take_guard(step)
            state.proceed(self._stop(step, condition), condition)

    def _add_stop_inside(self, state: State) -> None:
        following = self._following
        if following is not None and following.contiguity is Contiguity.NOT_FOLLOWED_BY:
            condition = self._take_guard(following)
            state.proceed(self._stop(following, condition), condition)

    def _stop(self, step: Step, condition: Guard) -> State:
        if step.name not in self._stops:
            state = self._new_state(StateKind.STOP, step)
            state.take(state, condition)
            self._stops[step.name] = state
        return self._stops[step.name]

    # --- guards -------------------------------------------------------------------------------------------------

    def _take_guard(self, step: Step) -> Guard:
        guard = _unless(self._until_of_group(), self._guards(step).where)
        assert guard is not None
        return guard

    def _first_guard(self, step: Step) -> Guard:
        """Return the condition on which the step takes its first event."""
        guard = _unless(self._until_of_group(), self._guards(step).first)
        assert guard is not None
        return guard

    def _ignore_guard(self, step: Step) -> Guard | None:
        """Return the condition of events that may lie before the first event of a step; None for no event."""
        contiguity = step.contiguity
        if self._level.is_head:
            assert self._level.group is not None
            group = self._level.group
            contiguity = group.contiguity if self._group_is_first_of_loop() else _inner(group)
        return self._between(contiguity, self._guards(step).first)

    def _inner_ignore_guard(self, step: Step) -> Guard | None:
        """Return the condition of events that may lie between two events of a step; None for no event."""
        contiguity = step.inner
        if contiguity is None and self._level.is_head:
            assert self._level.group is not None
            contiguity = self._level.group.inner
        return self._between(contiguity or Contiguity.RELAXED, self._guards(step).where)

    def _between(self, contiguity: Contiguity, taken: Guard) -> Guard | None:
        if contiguity is Contiguity.STRICT:
            return None
        guard = TRUE if contiguity is Contiguity.RELAXED_ANY else Negation(taken)
        return _unless(self._until_of_group(), guard)

    def _true_guard(self) -> Guard:
        guard = _unless(self._until_of_group(), TRUE)
        assert guard is not None
        return guard

    def _until_of_group(self) -> Guard | None:
        return None if self._level.group is None else self._guards(self._level.group).until

    # --- states -------------------------------------------------------------------------------------------------

    def _new_state(self, kind: StateKind, step: Step | None = None) -> State:
        limited = step is not None and step.limit_ms is not None
        state = State(len(self._states), -1 if step is None else self._numbers.get(id(step), -1), kind, limited=limited)
        self._states.append(state)
        return state

    def _like(self, state: State) -> State:
        copy = State(len(self._states), state.step, state.kind, limited=state.limited)
        self._states.append(copy)
        return copy

    def _copy(self, state: State) -> State:
        copy = self._like(state)
        copy.edges = [Edge(e.action, copy if e.target is state else e.target, e.guard) for e in state.edges]
        return copy


def _inner(step: Step) -> Contiguity:
    """Return the contiguity between two times of a step."""
    return step.inner or Contiguity.RELAXED


def _unless(until: Guard | None, guard: Guard | None) -> Guard | None:
    """Return the guard for events that do not satisfy ``until``; None stays None."""
    return guard if until is None or guard is None else both(Negation(until), guard)


def _forbid(state: State, take: Guard) -> None:
    """Close the edges of a state to events that a greedy step before it could take."""
    for edge in state.edges:
        edge.guard = both(edge.guard, Negation(take))


__all__ = ["Action", "Edge", "State", "StateKind", "StepGuards", "WithinType", "build_graph"]
