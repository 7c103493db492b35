"""Triggers that consist of other triggers: repeated, all of, any of, in sequence, until, and fire-and-purge.

The contract is that of ``streamcore.windowing.triggers``. ``AllOf``, ``AnyOf`` and ``OrFinally`` restart or finish as a
whole when they fire, so no part carries a count into the next pane.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from streamcore.errors import ConfigError
from streamcore.windowing.model import Element
from streamcore.windowing.triggers import (
    Earliest,
    Trigger,
    TriggerContext,
    TriggerState,
    check_parts,
    fire_again,
    with_part,
)


class _CompositeTrigger(Trigger):
    """The base of composite triggers: every part observes every element, and states are merged part by part."""

    def observe(self, state: TriggerState, element: Element, context: TriggerContext) -> TriggerState:
        pairs = zip(self.parts, state.parts, strict=True)
        return replace(state, parts=tuple(part.observe(part_state, element, context) for part, part_state in pairs))

    def merge(self, states: Sequence[TriggerState], context: TriggerContext) -> TriggerState:
        merged = (part.merge([s.parts[i] for s in states], context) for i, part in enumerate(self.parts))
        return TriggerState(parts=tuple(merged))

    def purges(self, state: TriggerState, context: TriggerContext) -> bool:
        """Return whether a part that is ready would purge."""
        pairs = zip(self.parts, state.parts, strict=True)
        return any(part.ready(part_state, context) and part.purges(part_state, context) for part, part_state in pairs)

    def _parts_ready(self, state: TriggerState, context: TriggerContext) -> Iterator[bool]:
        """Yield for each part in turn whether it is ready."""
        return (part.ready(part_state, context) for part, part_state in zip(self.parts, state.parts, strict=True))


@dataclass(frozen=True)
class _SingleTrigger(_CompositeTrigger):
    """The base of triggers around one trigger: ready when that trigger is ready."""

    trigger: Trigger

    def __post_init__(self) -> None:
        check_parts(self)

    @property
    def parts(self) -> tuple[Trigger, ...]:
        return (self.trigger,)

    @property
    def earliest_firing(self) -> Earliest:
        return self.trigger.earliest_firing

    def ready(self, state: TriggerState, context: TriggerContext) -> bool:
        return self.trigger.ready(state.parts[0], context)


@dataclass(frozen=True)
class Repeatedly(_SingleTrigger):
    """Restarts the trigger whenever it finishes, so it never finishes itself."""

    @property
    def earliest_finish(self) -> Earliest:
        return Earliest.NEVER

    def fire(self, state: TriggerState, context: TriggerContext) -> TriggerState:
        return TriggerState(parts=(fire_again(self.trigger, state.parts[0], context),))


@dataclass(frozen=True)
class Purging(_SingleTrigger):
    """Fires with the trigger, and each pane empties the window: fire and purge."""

    @property
    def earliest_finish(self) -> Earliest:
        return self.trigger.earliest_finish

    def fire(self, state: TriggerState, context: TriggerContext) -> TriggerState:
        next_state = self.trigger.fire(state.parts[0], context)
        return TriggerState(parts=(next_state,), done=next_state.done)

    def purges(self, state: TriggerState, context: TriggerContext) -> bool:
        return True


@dataclass(frozen=True, init=False)
class _ManyTriggers(_CompositeTrigger):
    """The base of triggers with at least two parts."""

    triggers: tuple[Trigger, ...]

    def __init__(self, *triggers: Trigger) -> None:
        if len(triggers) < 2:
            raise ConfigError(f"{type(self).__name__} needs at least two triggers, not {len(triggers)}")
        object.__setattr__(self, "triggers", triggers)
        check_parts(self)

    @property
    def parts(self) -> tuple[Trigger, ...]:
        return self.triggers


@dataclass(frozen=True, init=False)
class AllOf(_ManyTriggers):
    """Fires once, when all parts are ready."""

    @property
    def earliest_firing(self) -> Earliest:
        return max(part.earliest_firing for part in self.parts)

    def ready(self, state: TriggerState, context: TriggerContext) -> bool:
        return all(self._parts_ready(state, context))


@dataclass(frozen=True, init=False)
class AnyOf(_ManyTriggers):
    """Fires once, when any part is ready."""

    @property
    def earliest_firing(self) -> Earliest:
        return min(part.earliest_firing for part in self.parts)

    def ready(self, state: TriggerState, context: TriggerContext) -> bool:
        return any(self._parts_ready(state, context))


@dataclass(frozen=True, init=False)
class InSequence(_ManyTriggers):
    """Fires as its first part until that finishes, then as the next, and finishes with the last.

    ``count`` of its state: the index of the current part.
    """

    def __init__(self, *triggers: Trigger) -> None:
        super().__init__(*triggers)
        for trigger in triggers[:-1]:
            if trigger.earliest_finish is Earliest.NEVER:
                raise ConfigError(f"{trigger} never finishes, so the triggers after it in a sequence never fire")

    @property
    def earliest_firing(self) -> Earliest:
        return self.parts[0].earliest_firing

    @property
    def earliest_finish(self) -> Earliest:
        return max(part.earliest_finish for part in self.parts)

    def observe(self, state: TriggerState, element: Element, context: TriggerContext) -> TriggerState:
        """Let only the current part observe elements."""
        return self._with_current(state, self._current(state).observe(state.parts[state.count], element, context))

    def ready(self, state: TriggerState, context: TriggerContext) -> bool:
        return self._current(state).ready(state.parts[state.count], context)

    def fire(self, state: TriggerState, context: TriggerContext) -> TriggerState:
        next_state = self._current(state).fire(state.parts[state.count], context)
        fired = self._with_current(state, next_state)
        if not next_state.done:
            return fired
        last = state.count + 1 == len(self.parts)
        return replace(fired, done=True) if last else replace(fired, count=state.count + 1)

    def purges(self, state: TriggerState, context: TriggerContext) -> bool:
        return self._current(state).purges(state.parts[state.count], context)

    def merge(self, states: Sequence[TriggerState], context: TriggerContext) -> TriggerState:
        """Merge the states of the least advanced sessions."""
        current = min(state.count for state in states)
        part = self.parts[current].merge([s.parts[current] for s in states if s.count == current], context)
        return self._with_current(replace(self.start(), count=current), part)

    def _current(self, state: TriggerState) -> Trigger:
        return self.parts[state.count]

    def _with_current(self, state: TriggerState, part: TriggerState) -> TriggerState:
        return with_part(state, state.count, part)


@dataclass(frozen=True)
class OrFinally(_CompositeTrigger):
    """Fires as ``trigger``, and finishes with a last pane when ``until`` is ready."""

    trigger: Trigger
    until: Trigger

    def __post_init__(self) -> None:
        check_parts(self)

    @property
    def parts(self) -> tuple[Trigger, ...]:
        return (self.trigger, self.until)

    @property
    def earliest_firing(self) -> Earliest:
        return min(self.trigger.earliest_firing, self.until.earliest_firing)

    @property
    def earliest_finish(self) -> Earliest:
        return min(self.trigger.earliest_finish, self.until.earliest_firing)

    def ready(self, state: TriggerState, context: TriggerContext) -> bool:
        return any(self._parts_ready(state, context))

    def fire(self, state: TriggerState, context: TriggerContext) -> TriggerState:
        if self.until.ready(state.parts[1], context):
            return replace(state, done=True)
        next_state = self.trigger.fire(state.parts[0], context)
        return replace(state, parts=(next_state, state.parts[1]), done=next_state.done)
