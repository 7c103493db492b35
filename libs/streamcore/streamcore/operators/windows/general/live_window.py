"""One live window of one key: its trigger's state, its contents, and the panes it has emitted.

The same decisions as ``streamcore.windowing.reference_pane``, without the values: a pane refers to its contents by a
``View``, and values are computed when the cut is over.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from streamcore.operators.windows.general.contents import ContentPolicy, View, WindowContent
from streamcore.windowing.model import Accumulation, AnyWindow, Element, Timing
from streamcore.windowing.reference_pane import WindowProgress
from streamcore.windowing.spec import WindowSpec
from streamcore.windowing.triggers import TriggerContext, TriggerState


@dataclass(frozen=True, slots=True)
class EmittedPane:
    """A pane that may have to be retracted. ``upto``: all its elements have lower numbers."""

    window: AnyWindow
    pane: int
    view: View
    latest_ms: int
    upto: int


@dataclass(frozen=True, slots=True)
class PaneFiring:
    """A pane or a retraction, without its values."""

    slot: int
    window: AnyWindow
    pane: int
    timing: Timing
    final: bool
    retraction: bool
    latest_ms: int
    view: View


@dataclass(slots=True)
class LiveWindow:
    """``awaits``, ``unfired``, ``fired``, ``last``, ``superseded``: as in ``LivePane``. ``latest_ms``: the latest event
    time so far; ``wakes_ms``: the clock at which its trigger wants to be asked."""

    slot: int
    window: AnyWindow
    trigger: TriggerState
    awaits: bool
    content: WindowContent = field(default_factory=WindowContent)
    unfired: int = 0
    fired: int = 0
    latest_ms: int = -(2**63)
    last: EmittedPane | None = None
    superseded: list[EmittedPane] = field(default_factory=list)
    wakes_ms: int | None = None
    evicted: int = 0

    @property
    def emitted_panes(self) -> tuple[EmittedPane, ...]:
        """Return all panes that may have to be retracted, in the order of retraction."""
        return (*self.superseded, self.last) if self.last else tuple(self.superseded)


class TriggerRules:
    """The decisions of a window spec about one live window, for either kind of contents."""

    def __init__(self, spec: WindowSpec, contents: ContentPolicy) -> None:
        self.spec = spec
        self.contents = contents
        self._retracting = spec.accumulation is Accumulation.RETRACTING
        self._discarding = spec.accumulation is Accumulation.DISCARDING

    def start(
        self, slot: int, window: AnyWindow, absorbed: Sequence[LiveWindow], context: TriggerContext
    ) -> LiveWindow:
        """Return a new window, or the one into which sessions are merged."""
        states = [other.trigger for other in absorbed]
        trigger = self.spec.trigger.merge(states, context) if states else self.spec.trigger.start()
        live = LiveWindow(slot, window, trigger, not context.past_end or any(other.awaits for other in absorbed))
        if absorbed:
            self.contents.absorb(live.content, [other.content for other in absorbed])
            live.latest_ms = max(other.latest_ms for other in absorbed)
            live.unfired = sum(other.unfired for other in absorbed)
        for other in absorbed if self._retracting else ():
            live.superseded += other.emitted_panes
        return live

    def add(self, live: LiveWindow, element: Element, row: int, context: TriggerContext) -> None:
        """Take an element."""
        self.contents.add(live.content, element, row)
        live.unfired += 1
        live.latest_ms = max(live.latest_ms, element.event_ms)
        live.trigger = self.spec.trigger.observe(live.trigger, element, context)

    def due(self, live: LiveWindow, context: TriggerContext, progress: WindowProgress) -> list[PaneFiring]:
        """Fire the pane that is due. Return it after its retractions; an empty list if none is due."""
        on_time = live.awaits and progress.end_passed
        may = (on_time or live.unfired > 0) and not live.trigger.done
        ready = may and self.spec.trigger.ready(live.trigger, context)
        if not ready and not (progress.expired and live.unfired):
            return []
        empties = self._discarding or (ready and self.spec.trigger.purges(live.trigger, context))
        if ready:
            live.trigger = self.spec.trigger.fire(live.trigger, context)
        final = progress.expired or live.trigger.done
        timing = Timing.EARLY if not progress.end_passed else Timing.ON_TIME if on_time else Timing.LATE
        fired = self._emit(live, timing, final=final)
        if empties or final:
            self.contents.clear(live.content)
        return fired

    def _emit(self, live: LiveWindow, timing: Timing, *, final: bool) -> list[PaneFiring]:
        retractions = self._retract(live, timing) if self._retracting else []
        view, evicted = self.contents.view(live.content)
        pane = PaneFiring(live.slot, live.window, live.fired, timing, final, False, live.latest_ms, view)
        live.fired += 1
        live.evicted += evicted
        live.unfired = 0
        live.awaits = live.awaits and timing is Timing.EARLY
        if self._retracting and not final:
            live.last = EmittedPane(live.window, pane.pane, view, live.latest_ms, live.content.upto)
        return [*retractions, pane]

    def _retract(self, live: LiveWindow, timing: Timing) -> list[PaneFiring]:
        """Retract the panes of absorbed sessions, for good, and then this window's last pane."""
        old = [_retraction_of_pane(live, emitted_pane, timing, final=True) for emitted_pane in live.superseded]
        live.superseded = []
        if live.last is None:
            return old
        live.fired += 1
        return [*old, _retraction_of_pane(live, live.last, timing, final=False)]


def _retraction_of_pane(live: LiveWindow, emitted_pane: EmittedPane, timing: Timing, *, final: bool) -> PaneFiring:
    return PaneFiring(
        live.slot,
        emitted_pane.window,
        emitted_pane.pane + 1,
        timing,
        final,
        True,
        emitted_pane.latest_ms,
        emitted_pane.view,
    )
