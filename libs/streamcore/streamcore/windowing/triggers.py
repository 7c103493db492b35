"""Triggers: when a window fires a pane. They follow the published model of Apache Beam.

A trigger and its ``TriggerState`` for one window are immutable, and every method is a pure function of states and of a
``TriggerContext``: there are no timers. The owner of the windows calls ``ready`` after each input and, when a pane
fires, stores the state that ``fire`` returns. A trigger whose state is ``done`` has finished: it is never ready again,
and its window accepts no more elements.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import IntEnum

from streamcore.arguments import check_type, check_whole
from streamcore.durations import DurationField
from streamcore.errors import ConfigError
from streamcore.windowing.model import Element


@dataclass(frozen=True, slots=True)
class TriggerContext:
    """What a trigger can know when it is called.

    ``past_end``: the watermark has reached the window's end, or a count window is full. ``clock_ms``: the cut's clock.
    ``stream_ended``: no further element will arrive.
    """

    past_end: bool
    clock_ms: int
    stream_ended: bool = False


@dataclass(frozen=True, slots=True)
class TriggerState:
    """The state of a trigger for one window. Each kind of trigger uses the fields that it needs.

    ``count``: elements since the last pane. ``since_ms``: the clock at the first of them. ``flag``: see each trigger.
    ``parts``: the states of the trigger's parts.
    """

    done: bool = False
    count: int = 0
    since_ms: int | None = None
    flag: bool = False
    parts: tuple[TriggerState, ...] = ()


class Earliest(IntEnum):
    """How early a trigger can fire or finish, relative to the window's end. Used to check specifications."""

    BEFORE_END = 0
    AT_END = 1
    NEVER = 2


class Trigger(ABC):
    """The base class of triggers."""

    @property
    def parts(self) -> tuple[Trigger, ...]:
        """Return the triggers that this trigger consists of."""
        return ()

    @property
    @abstractmethod
    def earliest_firing(self) -> Earliest:
        """Return how early the trigger can fire."""

    @property
    def earliest_finish(self) -> Earliest:
        """Return how early the trigger can finish: by default with its first firing."""
        return self.earliest_firing

    def start(self) -> TriggerState:
        """Return the state of a window without elements."""
        return TriggerState(parts=tuple(part.start() for part in self.parts))

    def observe(self, state: TriggerState, element: Element, context: TriggerContext) -> TriggerState:
        """Return the state after an element was added to the window."""
        return state

    @abstractmethod
    def ready(self, state: TriggerState, context: TriggerContext) -> bool:
        """Return whether a pane is due. Not called for a state that is done."""

    def fire(self, state: TriggerState, context: TriggerContext) -> TriggerState:
        """Return the state after a pane fired. Called only if ``ready``."""
        return replace(state, done=True)

    def purges(self, state: TriggerState, context: TriggerContext) -> bool:
        """Return whether the pane that is due empties the window."""
        return False

    @abstractmethod
    def merge(self, states: Sequence[TriggerState], context: TriggerContext) -> TriggerState:
        """Return the state of a session from the states of the sessions merged into it, none of which is done."""


@dataclass(frozen=True)
class AfterWatermark(Trigger):
    """Fires at the window's end; before it whenever ``early`` fires, and after it whenever ``late`` fires, repeatedly.

    Without ``late`` it finishes at the end. With ``late=Never()`` late elements wait for the closing pane. ``flag`` of
    the state: the pane at the end has fired.
    """

    early: Trigger | None = None
    late: Trigger | None = None

    def __post_init__(self) -> None:
        check_parts(self)
        for name, part in (("early", self.early), ("late", self.late)):
            if part is not None and any(isinstance(nested, AfterWatermark) for nested in walk(part)):
                raise ConfigError(f"{name} must not contain AfterWatermark: the outer one already fires at the end")

    @property
    def parts(self) -> tuple[Trigger, ...]:
        return (self.early or Never(), self.late or Never())

    @property
    def earliest_firing(self) -> Earliest:
        return min(Earliest.AT_END, self.parts[0].earliest_firing)

    @property
    def earliest_finish(self) -> Earliest:
        return Earliest.AT_END if self.late is None else Earliest.NEVER

    def observe(self, state: TriggerState, element: Element, context: TriggerContext) -> TriggerState:
        phase = self._phase(state)
        return with_part(state, phase, self.parts[phase].observe(state.parts[phase], element, context))

    def ready(self, state: TriggerState, context: TriggerContext) -> bool:
        return self._at_end(state, context) or self._part_ready(state, context)

    def fire(self, state: TriggerState, context: TriggerContext) -> TriggerState:
        if self._at_end(state, context):
            return replace(self.start(), flag=True, done=self.late is None)
        phase = self._phase(state)
        return with_part(state, phase, fire_again(self.parts[phase], state.parts[phase], context))

    def purges(self, state: TriggerState, context: TriggerContext) -> bool:
        phase = self._phase(state)
        return not self._at_end(state, context) and self.parts[phase].purges(state.parts[phase], context)

    def merge(self, states: Sequence[TriggerState], context: TriggerContext) -> TriggerState:
        """Merge the states. A session whose end is after the watermark again fires at its end again."""
        flag = context.past_end and all(state.flag for state in states)
        phase = int(flag)
        merged = self.parts[phase].merge([s.parts[phase] for s in states], context)
        return with_part(replace(self.start(), flag=flag), phase, merged)

    def _at_end(self, state: TriggerState, context: TriggerContext) -> bool:
        return context.past_end and not state.flag

    def _part_ready(self, state: TriggerState, context: TriggerContext) -> bool:
        phase = self._phase(state)
        return self.parts[phase].ready(state.parts[phase], context)

    def _phase(self, state: TriggerState) -> int:
        """Return the index of the active part: 0 before the pane at the end, 1 after it."""
        return int(state.flag)


@dataclass(frozen=True)
class AfterCount(Trigger):
    """Fires when ``count`` elements have been added since the last pane."""

    count: int

    def __post_init__(self) -> None:
        check_whole(count=self.count)
        if self.count < 1:
            raise ConfigError(f"AfterCount needs a positive count, not {self.count}")

    @property
    def earliest_firing(self) -> Earliest:
        return Earliest.BEFORE_END

    def observe(self, state: TriggerState, element: Element, context: TriggerContext) -> TriggerState:
        return replace(state, count=state.count + 1)

    def ready(self, state: TriggerState, context: TriggerContext) -> bool:
        return state.count >= self.count

    def merge(self, states: Sequence[TriggerState], context: TriggerContext) -> TriggerState:
        return TriggerState(count=sum(state.count for state in states))


@dataclass(frozen=True)
class AfterProcessingTime(Trigger):
    """Fires ``delay_ms`` of processing time after the first element since the last pane."""

    delay_ms: DurationField = DurationField()

    def __post_init__(self) -> None:
        if self.delay_ms < 0:
            raise ConfigError(f"delay_ms must not be negative: {self.delay_ms}")

    @property
    def earliest_firing(self) -> Earliest:
        return Earliest.BEFORE_END

    def observe(self, state: TriggerState, element: Element, context: TriggerContext) -> TriggerState:
        return state if state.since_ms is not None else replace(state, since_ms=context.clock_ms)

    def ready(self, state: TriggerState, context: TriggerContext) -> bool:
        return state.since_ms is not None and context.clock_ms >= state.since_ms + self.delay_ms

    def merge(self, states: Sequence[TriggerState], context: TriggerContext) -> TriggerState:
        return TriggerState(since_ms=min((s.since_ms for s in states if s.since_ms is not None), default=None))


@dataclass(frozen=True)
class OnPunctuation(Trigger):
    """Fires after an element whose field ``flag`` is the boolean true. ``flag`` of the state: there was one."""

    flag: str

    @property
    def earliest_firing(self) -> Earliest:
        return Earliest.BEFORE_END

    def observe(self, state: TriggerState, element: Element, context: TriggerContext) -> TriggerState:
        return replace(state, flag=state.flag or element.value.get(self.flag) is True)

    def ready(self, state: TriggerState, context: TriggerContext) -> bool:
        return state.flag

    def merge(self, states: Sequence[TriggerState], context: TriggerContext) -> TriggerState:
        return TriggerState(flag=any(state.flag for state in states))


@dataclass(frozen=True)
class AtEndOfStream(Trigger):
    """Fires when the stream has ended."""

    @property
    def earliest_firing(self) -> Earliest:
        return Earliest.AT_END

    def ready(self, state: TriggerState, context: TriggerContext) -> bool:
        return context.stream_ended

    def merge(self, states: Sequence[TriggerState], context: TriggerContext) -> TriggerState:
        return TriggerState()


@dataclass(frozen=True)
class Never(Trigger):
    """Never fires. The contents of a window are emitted in its closing pane."""

    @property
    def earliest_firing(self) -> Earliest:
        return Earliest.NEVER

    def ready(self, state: TriggerState, context: TriggerContext) -> bool:
        return False

    def merge(self, states: Sequence[TriggerState], context: TriggerContext) -> TriggerState:
        return TriggerState()


def check_parts(trigger: Trigger) -> None:
    """Raise ``ConfigError`` unless all parts of a new trigger are triggers."""
    for part in trigger.parts:
        check_type(type(trigger).__name__, part, Trigger, "write such as AfterCount(10)")


def walk(trigger: Trigger) -> tuple[Trigger, ...]:
    """Return the trigger and, recursively, its parts."""
    return (trigger, *(nested for part in trigger.parts for nested in walk(part)))


def fire_again(trigger: Trigger, state: TriggerState, context: TriggerContext) -> TriggerState:
    """Return the state after a pane of a trigger that restarts when it has finished."""
    next_state = trigger.fire(state, context)
    return trigger.start() if next_state.done else next_state


def with_part(state: TriggerState, index: int, part: TriggerState) -> TriggerState:
    """Return the state with the state of one part replaced."""
    return replace(state, parts=(*state.parts[:index], part, *state.parts[index + 1 :]))
