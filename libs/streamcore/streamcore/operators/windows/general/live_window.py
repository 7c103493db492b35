"""One live window of one key: its trigger's state, its contents, and the panes it has emitted.

The classes decide as ``streamcore.windowing.reference_pane`` does, but compute no values: a pane refers to its contents
by a ``View``, and the values are computed at the end of the cut.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from streamcore.operators.windows.general.contents import ContentPolicy, FailedView, View, WindowContent
from streamcore.operators.windows.general.user_parts import CheckedTrigger
from streamcore.windowing.model import Accumulation, AnyWindow, Element, Timing
from streamcore.windowing.reference_pane import WindowProgress
from streamcore.windowing.spec import WindowSpec
from streamcore.windowing.triggers import TriggerContext, TriggerState


@dataclass(frozen=True, slots=True)
class EmittedPane:
    """An emitted pane that may have to be retracted.

    ``pane``: its number in the window, from 0. ``latest_ms``: the latest event time of its elements. ``upto``: all its
    elements have lower numbers.
    """

    window: AnyWindow
    pane: int
    view: View
    latest_ms: int
    upto: int


@dataclass(frozen=True, slots=True)
class PaneFiring:
    """A pane or retraction that fires in this cut, without its values. ``key_slot``: the key slot."""

    key_slot: int
    window: AnyWindow
    pane: int
    timing: Timing
    final: bool
    retraction: bool
    latest_ms: int
    view: View


@dataclass(slots=True)
class LiveWindow:
    """The state of one live window of one key.

    ``key_slot``: the key slot. ``trigger``: the state of its trigger. ``awaits``: whether the pane on time is still to
    fire. ``unfired``, ``fired``, ``last`` and ``superseded`` are defined in ``windowing.reference_pane.LivePane``.
    ``latest_ms``: the latest event time of its elements. ``wakes_ms``: the next clock at which its trigger may fire, or
    None. ``evicted``: how many elements its evictor removed, for the metric.
    """

    key_slot: int
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
        self._trigger = CheckedTrigger(spec.trigger) if spec.calls_user_code else spec.trigger
        self._retracting = spec.accumulation is Accumulation.RETRACTING
        self._discarding = spec.accumulation is Accumulation.DISCARDING

    def start(
        self, key_slot: int, window: AnyWindow, absorbed: Sequence[LiveWindow], context: TriggerContext
    ) -> LiveWindow:
        """Return a new window, or the one into which sessions are merged."""
        states = [session.trigger for session in absorbed]
        trigger = self._trigger.merge(states, context) if states else self._trigger.start()
        live = LiveWindow(
            key_slot, window, trigger, not context.past_end or any(session.awaits for session in absorbed)
        )
        if absorbed:
            self.contents.absorb(live.content, [session.content for session in absorbed])
            live.latest_ms = max(session.latest_ms for session in absorbed)
            live.unfired = sum(session.unfired for session in absorbed)
        for session in absorbed if self._retracting else ():
            live.superseded += session.emitted_panes
        return live

    def add(self, live: LiveWindow, element: Element, row: int, context: TriggerContext) -> None:
        """Add an element to the window. ``row``: the index of its row in the cut."""
        live.trigger = self._trigger.observe(live.trigger, element, context)
        self.contents.add(live.content, element, row)
        live.unfired += 1
        live.latest_ms = max(live.latest_ms, element.event_ms)

    def due(self, live: LiveWindow, context: TriggerContext, progress: WindowProgress) -> list[PaneFiring]:
        """Fire the pane that is due. Return it after its retractions; an empty list if none is due."""
        on_time = live.awaits and progress.end_passed
        may_fire = (on_time or live.unfired > 0) and not live.trigger.done
        ready = may_fire and self._trigger.ready(live.trigger, context)
        if not ready and not (progress.expired and live.unfired):
            return []
        clears = self._discarding or (ready and self._trigger.purges(live.trigger, context))
        if ready:
            live.trigger = self._trigger.fire(live.trigger, context)
        final = progress.expired or live.trigger.done
        fired = self._emit(live, _timing(live, progress), final=final)
        if clears or final:
            self.contents.clear(live.content)
        return fired

    def fail(self, live: LiveWindow, progress: WindowProgress, reason: str) -> PaneFiring:
        """Return the last pane of a window whose trigger failed."""
        view = FailedView(reason, tuple(live.content.elements))
        return PaneFiring(
            live.key_slot, live.window, live.fired, _timing(live, progress), True, False, live.latest_ms, view
        )

    def _emit(self, live: LiveWindow, timing: Timing, *, final: bool) -> list[PaneFiring]:
        retractions = self._retract(live, timing) if self._retracting else []
        view, evicted = self.contents.view(live.content)
        pane = PaneFiring(live.key_slot, live.window, live.fired, timing, final, False, live.latest_ms, view)
        live.fired += 1
        live.evicted += evicted
        live.unfired = 0
        live.awaits = live.awaits and timing is Timing.EARLY
        if self._retracting and not final:
            live.last = EmittedPane(live.window, pane.pane, view, live.latest_ms, live.content.upto)
        return [*retractions, pane]

    def _retract(self, live: LiveWindow, timing: Timing) -> list[PaneFiring]:
        """Return the final retractions of the panes of absorbed sessions, then the retraction of the last pane."""
        old = [_retraction_of_pane(live, emitted_pane, timing, final=True) for emitted_pane in live.superseded]
        live.superseded = []
        if live.last is None:
            return old
        live.fired += 1
        return [*old, _retraction_of_pane(live, live.last, timing, final=False)]


def _timing(live: LiveWindow, progress: WindowProgress) -> Timing:
    if not progress.end_passed:
        return Timing.EARLY
    return Timing.ON_TIME if live.awaits else Timing.LATE


def _retraction_of_pane(live: LiveWindow, emitted_pane: EmittedPane, timing: Timing, *, final: bool) -> PaneFiring:
    return PaneFiring(
        live.key_slot,
        emitted_pane.window,
        emitted_pane.pane + 1,
        timing,
        final,
        True,
        emitted_pane.latest_ms,
        emitted_pane.view,
    )
