"""One live window of one key: its trigger's state, what it holds, and what it has said.

The same decisions as ``streamcore.windowing.pane``, without the values: a pane names what it says by a ``View``, and
values are computed when the cut is over.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from streamcore.operators.windows.contents import Content, Contents, View
from streamcore.windowing.pane import Past
from streamcore.windowing.spec import WindowSpec
from streamcore.windowing.triggers import Moment, TriggerState
from streamcore.windowing.values import Accumulation, AnyWindow, Element, Timing


@dataclass(frozen=True, slots=True)
class Said:
    """A pane that may have to be taken back. ``upto``: no element with this number or a later one was in it."""

    window: AnyWindow
    pane: int
    view: View
    latest_ms: int
    upto: int


@dataclass(frozen=True, slots=True)
class Fired:
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
    content: Content = field(default_factory=Content)
    unfired: int = 0
    fired: int = 0
    latest_ms: int = -(2**63)
    last: Said | None = None
    superseded: list[Said] = field(default_factory=list)
    wakes_ms: int | None = None
    evicted: int = 0

    @property
    def said(self) -> tuple[Said, ...]:
        """All that may have to be taken back, in the order of taking back."""
        return (*self.superseded, self.last) if self.last else tuple(self.superseded)


class Rules:
    """What a spec says about one live window, over whatever windows hold."""

    def __init__(self, spec: WindowSpec, contents: Contents) -> None:
        self.spec = spec
        self.contents = contents
        self._retracting = spec.accumulation is Accumulation.RETRACTING
        self._discarding = spec.accumulation is Accumulation.DISCARDING

    def start(self, slot: int, window: AnyWindow, absorbed: Sequence[LiveWindow], moment: Moment) -> LiveWindow:
        """A new window, or the one that some sessions have become."""
        states = [other.trigger for other in absorbed]
        trigger = self.spec.trigger.merge(states, moment) if states else self.spec.trigger.start()
        live = LiveWindow(slot, window, trigger, not moment.past_end or any(other.awaits for other in absorbed))
        if absorbed:
            self.contents.absorb(live.content, [other.content for other in absorbed])
            live.latest_ms = max(other.latest_ms for other in absorbed)
            live.unfired = sum(other.unfired for other in absorbed)
        for other in absorbed if self._retracting else ():
            live.superseded += other.said
        return live

    def add(self, live: LiveWindow, element: Element, row: int, moment: Moment) -> None:
        """Take an element."""
        self.contents.add(live.content, element, row)
        live.unfired += 1
        live.latest_ms = max(live.latest_ms, element.event_ms)
        live.trigger = self.spec.trigger.observe(live.trigger, element, moment)

    def due(self, live: LiveWindow, moment: Moment, past: Past) -> list[Fired]:
        """The pane that is due, with the retractions before it; or nothing."""
        on_time = live.awaits and past.end
        may = (on_time or live.unfired > 0) and not live.trigger.done
        ready = may and self.spec.trigger.ready(live.trigger, moment)
        if not ready and not (past.expired and live.unfired):
            return []
        empties = self._discarding or (ready and self.spec.trigger.purges(live.trigger, moment))
        if ready:
            live.trigger = self.spec.trigger.fire(live.trigger, moment)
        final = past.expired or live.trigger.done
        timing = Timing.EARLY if not past.end else Timing.ON_TIME if on_time else Timing.LATE
        fired = self._emit(live, timing, final=final)
        if empties or final:
            self.contents.clear(live.content)
        return fired

    def _emit(self, live: LiveWindow, timing: Timing, *, final: bool) -> list[Fired]:
        retractions = self._retract(live, timing) if self._retracting else []
        view, evicted = self.contents.view(live.content)
        pane = Fired(live.slot, live.window, live.fired, timing, final, False, live.latest_ms, view)
        live.fired += 1
        live.evicted += evicted
        live.unfired = 0
        live.awaits = live.awaits and timing is Timing.EARLY
        if self._retracting and not final:
            live.last = Said(live.window, pane.pane, view, live.latest_ms, live.content.upto)
        return [*retractions, pane]

    def _retract(self, live: LiveWindow, timing: Timing) -> list[Fired]:
        """Take back what absorbed sessions said, for good, and then this window's last pane."""
        old = [_taken_back(live, said, timing, final=True) for said in live.superseded]
        live.superseded = []
        if live.last is None:
            return old
        live.fired += 1
        return [*old, _taken_back(live, live.last, timing, final=False)]


def _taken_back(live: LiveWindow, said: Said, timing: Timing, *, final: bool) -> Fired:
    return Fired(live.slot, said.window, said.pane + 1, timing, final, True, said.latest_ms, said.view)
