"""One live window of one key in the reference: its elements, its trigger state, and the panes it has fired.

The time is passed as a ``TriggerContext`` and a ``WindowProgress``.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace
from typing import Self

from streamcore.windowing.model import Accumulation, AnyWindow, Element, FiredPane, Timing, WindowFunction
from streamcore.windowing.spec import WindowSpec
from streamcore.windowing.triggers import TriggerContext, TriggerState


@dataclass(frozen=True, slots=True)
class WindowProgress:
    """Whether a window's end has passed, and whether the allowed lateness after it has."""

    end_passed: bool
    expired: bool


@dataclass
class LivePane:
    """A live window.

    ``elements``: the contents of the next pane, in order of arrival. ``unfired``: how many of them were in no pane yet.
    ``fired``: the number of panes and retractions so far. ``awaits_on_time``: the window existed before its end and has
    not fired its pane on time. ``last``: the pane that the next retraction would retract. ``superseded``: the last
    panes of absorbed sessions, which must be retracted.
    """

    key: Hashable
    window: AnyWindow
    trigger: TriggerState
    awaits_on_time: bool
    elements: list[Element] = field(default_factory=list)
    unfired: int = 0
    fired: int = 0
    last: FiredPane | None = None
    superseded: list[FiredPane] = field(default_factory=list)
    evicted: int = 0

    @classmethod
    def start(
        cls, spec: WindowSpec, key: Hashable, window: AnyWindow, absorbed: Sequence[LivePane], context: TriggerContext
    ) -> Self:
        """Return a new window, or the one into which ``absorbed`` sessions are merged."""
        states = [pane.trigger for pane in absorbed]
        trigger = spec.trigger.merge(states, context) if states else spec.trigger.start()
        awaits = not context.past_end or any(pane.awaits_on_time for pane in absorbed)
        pane = cls(key, window, trigger, awaits)
        for other in absorbed:
            pane._absorb(other)
        pane.elements.sort(key=lambda element: element.number)
        return pane

    def add(self, spec: WindowSpec, element: Element, context: TriggerContext) -> None:
        """Add an element."""
        self.elements.append(element)
        self.unfired += 1
        self.trigger = spec.trigger.observe(self.trigger, element, context)

    def due(
        self, spec: WindowSpec, function: WindowFunction, context: TriggerContext, progress: WindowProgress
    ) -> list[FiredPane]:
        """Fire the pane of the trigger or the closing pane, if one is due. Return it after its retractions.

        A pane without new elements fires only as the one on time. A trigger that is ready without new elements keeps
        its state, so a second call changes nothing.
        """
        on_time = self.awaits_on_time and progress.end_passed
        ready = (on_time or self.unfired > 0) and not self.trigger.done and spec.trigger.ready(self.trigger, context)
        if not ready and not (progress.expired and self.unfired):
            return []
        empties_window = spec.accumulation is Accumulation.DISCARDING or (
            ready and spec.trigger.purges(self.trigger, context)
        )
        if ready:
            self.trigger = spec.trigger.fire(self.trigger, context)
        final = progress.expired or self.trigger.done
        firings = self._emit(spec, function, _timing(progress, awaited=on_time), final=final)
        if empties_window or final:
            self.elements = []
        return firings

    def take_evicted(self) -> int:
        """Return how many elements the evictor left out since the last call, and reset the count."""
        evicted, self.evicted = self.evicted, 0
        return evicted

    def _emit(self, spec: WindowSpec, function: WindowFunction, timing: Timing, *, final: bool) -> list[FiredPane]:
        retracting = spec.accumulation is Accumulation.RETRACTING
        firings = self._retract(timing) if retracting else []
        view = spec.evictor.keep(self.elements) if spec.evictor else tuple(self.elements)
        self.evicted += len(self.elements) - len(view)
        first = self.fired == 0
        index = self._next_index()
        pane = FiredPane(self.key, self.window, index, timing, first, final, False, function(view), view)
        self.unfired, self.last = 0, pane
        self.awaits_on_time = self.awaits_on_time and timing is Timing.EARLY
        return [*firings, pane]

    def _retract(self, timing: Timing) -> list[FiredPane]:
        """Return the final retractions of absorbed sessions, and then the retraction of this window's last pane."""
        old = [_retraction_of_pane(pane, timing, final=True) for pane in self.superseded]
        self.superseded = []
        if self.last is None:
            return old
        self._next_index()
        return [*old, _retraction_of_pane(self.last, timing, final=False)]

    def _next_index(self) -> int:
        self.fired += 1
        return self.fired - 1

    def _absorb(self, other: LivePane) -> None:
        self.elements += other.elements
        self.unfired += other.unfired
        self.superseded += other.superseded + ([other.last] if other.last else [])


def _retraction_of_pane(pane: FiredPane, timing: Timing, *, final: bool) -> FiredPane:
    """Return the retraction of a pane: with the next index, and the timing of the pane that replaces it."""
    index = pane.pane_index + 1
    return replace(pane, pane_index=index, timing=timing, is_first=False, is_final=final, is_retraction=True)


def _timing(progress: WindowProgress, *, awaited: bool) -> Timing:
    if not progress.end_passed:
        return Timing.EARLY
    return Timing.ON_TIME if awaited else Timing.LATE
