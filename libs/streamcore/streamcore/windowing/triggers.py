"""When a window's elements become a pane: triggers as values.

A trigger is a frozen value. What it remembers of one window is a ``TriggerState``, a value too, and every method is a
pure function of states and of a ``Moment``: no timers, no context. Whoever keeps the windows asks ``ready`` after each
input and, when a pane fires, takes the state that ``fire`` answers. The meanings follow the published model of Apache
Beam. A trigger whose state is done has finished: it is never ready again, and its window takes no more elements.

Refuses to know keys, watermarks in milliseconds, panes and values.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import IntEnum

from streamcore.errors import ConfigError
from streamcore.windowing.values import Element


@dataclass(frozen=True, slots=True)
class Moment:
    """What a trigger may know of now. ``past_end``: the watermark has reached the window's end, or a count window is
    full. ``clock_ms``: the cut's clock. ``stream_ended``: no element will come any more."""

    past_end: bool
    clock_ms: int
    stream_ended: bool = False


@dataclass(frozen=True, slots=True)
class TriggerState:
    """What a trigger remembers of one window. Each kind uses the fields it needs; ``parts`` are those of its parts."""

    done: bool = False
    count: int = 0
    since_ms: int | None = None
    flag: bool = False
    parts: tuple[TriggerState, ...] = ()


class Earliest(IntEnum):
    """How early something can happen, for checking what fits together."""

    BEFORE_END = 0
    AT_END = 1
    NEVER = 2


class Trigger(ABC):
    """One kind of trigger. ``merge`` gets the states of sessions that become one."""

    @property
    def parts(self) -> tuple[Trigger, ...]:
        """The triggers it is made of."""
        return ()

    @property
    @abstractmethod
    def earliest_firing(self) -> Earliest:
        """How early it can fire."""

    @property
    def earliest_finish(self) -> Earliest:
        """How early it can finish. Most fire once."""
        return self.earliest_firing

    def start(self) -> TriggerState:
        """The state of a window without elements."""
        return TriggerState(parts=tuple(part.start() for part in self.parts))

    def observe(self, state: TriggerState, element: Element, moment: Moment) -> TriggerState:
        """The state after an element came into the window."""
        return state

    @abstractmethod
    def ready(self, state: TriggerState, moment: Moment) -> bool:
        """Whether a pane is due. Never asked of a state that is done."""

    def fire(self, state: TriggerState, moment: Moment) -> TriggerState:
        """The state after the pane. Only from a state that is ready."""
        return replace(state, done=True)

    def purges(self, state: TriggerState, moment: Moment) -> bool:
        """Whether the pane that is due empties the window."""
        return False

    @abstractmethod
    def merge(self, states: Sequence[TriggerState], moment: Moment) -> TriggerState:
        """The state of the window that those of ``states`` became; none of them is done."""


@dataclass(frozen=True)
class AfterWatermark(Trigger):
    """At the window's end; before it whenever ``early`` fires, after it whenever ``late`` fires, each again and again.

    Without ``late`` it finishes at the end. With ``late=Never()`` late elements wait for the closing pane.
    """

    early: Trigger | None = None
    late: Trigger | None = None

    def __post_init__(self) -> None:
        for name, part in (("early", self.early), ("late", self.late)):
            if part is not None and any(isinstance(one, AfterWatermark) for one in walk(part)):
                raise ConfigError(
                    f"{name} must not hold AfterWatermark: there is one end, and it is waited for already"
                )

    @property
    def parts(self) -> tuple[Trigger, ...]:
        return (self.early or Never(), self.late or Never())

    @property
    def earliest_firing(self) -> Earliest:
        return min(Earliest.AT_END, self.parts[0].earliest_firing)

    @property
    def earliest_finish(self) -> Earliest:
        return Earliest.AT_END if self.late is None else Earliest.NEVER

    def observe(self, state: TriggerState, element: Element, moment: Moment) -> TriggerState:
        phase = self._phase(state)
        return with_part(state, phase, self.parts[phase].observe(state.parts[phase], element, moment))

    def ready(self, state: TriggerState, moment: Moment) -> bool:
        return self._at_end(state, moment) or self._part_ready(state, moment)

    def fire(self, state: TriggerState, moment: Moment) -> TriggerState:
        if self._at_end(state, moment):
            return replace(self.start(), flag=True, done=self.late is None)
        phase = self._phase(state)
        return with_part(state, phase, fire_again(self.parts[phase], state.parts[phase], moment))

    def purges(self, state: TriggerState, moment: Moment) -> bool:
        phase = self._phase(state)
        return not self._at_end(state, moment) and self.parts[phase].purges(state.parts[phase], moment)

    def merge(self, states: Sequence[TriggerState], moment: Moment) -> TriggerState:
        """A session that has grown past the watermark has its end before it again."""
        flag = moment.past_end and all(state.flag for state in states)
        phase = int(flag)
        merged = self.parts[phase].merge([s.parts[phase] for s in states], moment)
        return with_part(replace(self.start(), flag=flag), phase, merged)

    def _at_end(self, state: TriggerState, moment: Moment) -> bool:
        return moment.past_end and not state.flag

    def _part_ready(self, state: TriggerState, moment: Moment) -> bool:
        phase = self._phase(state)
        return self.parts[phase].ready(state.parts[phase], moment)

    def _phase(self, state: TriggerState) -> int:
        """Which part counts: 0 before the pane at the end, 1 after it."""
        return int(state.flag)


@dataclass(frozen=True)
class AfterCount(Trigger):
    """When so many elements have come since the last pane."""

    count: int

    def __post_init__(self) -> None:
        if self.count < 1:
            raise ConfigError(f"AfterCount needs a positive count, not {self.count}")

    @property
    def earliest_firing(self) -> Earliest:
        return Earliest.BEFORE_END

    def observe(self, state: TriggerState, element: Element, moment: Moment) -> TriggerState:
        return replace(state, count=state.count + 1)

    def ready(self, state: TriggerState, moment: Moment) -> bool:
        return state.count >= self.count

    def merge(self, states: Sequence[TriggerState], moment: Moment) -> TriggerState:
        return TriggerState(count=sum(state.count for state in states))


@dataclass(frozen=True)
class AfterProcessingTime(Trigger):
    """When the clock is ``delay_ms`` past what it was at the first element since the last pane."""

    delay_ms: int

    def __post_init__(self) -> None:
        if self.delay_ms < 0:
            raise ConfigError(f"delay_ms must not be negative: {self.delay_ms}")

    @property
    def earliest_firing(self) -> Earliest:
        return Earliest.BEFORE_END

    def observe(self, state: TriggerState, element: Element, moment: Moment) -> TriggerState:
        return state if state.since_ms is not None else replace(state, since_ms=moment.clock_ms)

    def ready(self, state: TriggerState, moment: Moment) -> bool:
        return state.since_ms is not None and moment.clock_ms >= state.since_ms + self.delay_ms

    def merge(self, states: Sequence[TriggerState], moment: Moment) -> TriggerState:
        return TriggerState(since_ms=min((s.since_ms for s in states if s.since_ms is not None), default=None))


@dataclass(frozen=True)
class OnPunctuation(Trigger):
    """When an element came whose field ``flag`` is true (the boolean, nothing that only resembles it)."""

    flag: str

    @property
    def earliest_firing(self) -> Earliest:
        return Earliest.BEFORE_END

    def observe(self, state: TriggerState, element: Element, moment: Moment) -> TriggerState:
        return replace(state, flag=state.flag or element.value.get(self.flag) is True)

    def ready(self, state: TriggerState, moment: Moment) -> bool:
        return state.flag

    def merge(self, states: Sequence[TriggerState], moment: Moment) -> TriggerState:
        return TriggerState(flag=any(state.flag for state in states))


@dataclass(frozen=True)
class AtEndOfStream(Trigger):
    """When the stream has ended."""

    @property
    def earliest_firing(self) -> Earliest:
        return Earliest.AT_END

    def ready(self, state: TriggerState, moment: Moment) -> bool:
        return moment.stream_ended

    def merge(self, states: Sequence[TriggerState], moment: Moment) -> TriggerState:
        return TriggerState()


@dataclass(frozen=True)
class Never(Trigger):
    """Never. What a window holds comes out in its closing pane."""

    @property
    def earliest_firing(self) -> Earliest:
        return Earliest.NEVER

    def ready(self, state: TriggerState, moment: Moment) -> bool:
        return False

    def merge(self, states: Sequence[TriggerState], moment: Moment) -> TriggerState:
        return TriggerState()


def walk(trigger: Trigger) -> tuple[Trigger, ...]:
    """The trigger and all it is made of."""
    return (trigger, *(one for part in trigger.parts for one in walk(part)))


def fire_again(trigger: Trigger, state: TriggerState, moment: Moment) -> TriggerState:
    """The state after a pane of a trigger that begins anew when it has finished."""
    after = trigger.fire(state, moment)
    return trigger.start() if after.done else after


def with_part(state: TriggerState, index: int, part: TriggerState) -> TriggerState:
    """The state with another state of one of its parts."""
    return replace(state, parts=(*state.parts[:index], part, *state.parts[index + 1 :]))
