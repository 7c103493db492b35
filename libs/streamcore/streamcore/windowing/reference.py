"""The reference implementation of windows: one element at a time, written to be obviously correct.

Fast implementations are tested against it. Every lost element is reported as dropped, ``(key, window, pane_index)``
identifies at most one output, and output is a function of the inputs and their order. After every input each affected
window is evaluated once. The reference knows no cuts, shards and storage.

A session that grows is a new window: its panes are numbered from 0. With retractions, the last panes of the sessions
that it absorbed are retracted directly before its first pane, so that no element is missing in between.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field, replace

from streamcore.watermark import NO_WATERMARK
from streamcore.windowing.model import (
    END_OF_TIME_MS,
    AnyWindow,
    CountWindow,
    DroppedElement,
    DropReason,
    Element,
    Fields,
    FiredPane,
    Window,
    WindowCounts,
    WindowFunction,
    WindowOutput,
)
from streamcore.windowing.reference_pane import LivePane, WindowProgress
from streamcore.windowing.spec import WindowSpec
from streamcore.windowing.triggers import TriggerContext


@dataclass
class _KeyState:
    """The windows of one key that have not expired, and the number of its elements so far."""

    key: Hashable
    arrived: int = 0
    live: dict[AnyWindow, LivePane] = field(default_factory=dict)


class ReferenceWindows:
    """Computes windows per key. Call ``element``, ``watermark`` and ``clock`` in order; each returns its output."""

    def __init__(self, spec: WindowSpec, function: WindowFunction, *, clock_ms: int = 0) -> None:
        self.spec = spec
        self.function = function
        self.counts = WindowCounts()
        self._clock_ms = clock_ms
        self._watermark_ms = NO_WATERMARK
        self._ended = False
        self._keys: dict[Hashable, _KeyState] = {}

    # --- inputs -------------------------------------------------------------------------------------------------

    def element(self, key: Hashable, value: Fields, event_ms: int) -> WindowOutput:
        """Add one event of a key, and return the output."""
        self._reject_after_end()
        key_state = self._keys.setdefault(key, _KeyState(key))
        element = Element(key, value, event_ms, key_state.arrived)
        self.counts = replace(self.counts, elements=self.counts.elements + 1)
        outcomes = [self._add_to_window(key_state, window, element) for window in self.spec.assigner.windows(element)]
        key_state.arrived += 1
        firings = [
            f
            for window in outcomes
            if isinstance(window, Window | CountWindow)
            for f in self._evaluate(key_state, window)
        ]
        return WindowOutput(
            tuple(firings), tuple(outcome for outcome in outcomes if isinstance(outcome, DroppedElement))
        )

    def watermark(self, watermark_ms: int) -> WindowOutput:
        """Advance the watermark, and return the output."""
        self._reject_after_end()
        if watermark_ms < self._watermark_ms:
            raise ValueError(f"the watermark may not go back from {self._watermark_ms} to {watermark_ms}")
        self._watermark_ms = watermark_ms
        return self._evaluate_all()

    def clock(self, clock_ms: int) -> WindowOutput:
        """Advance the clock of processing time, and return the output."""
        self._reject_after_end()
        if clock_ms < self._clock_ms:
            raise ValueError(f"the clock may not go back from {self._clock_ms} to {clock_ms}")
        self._clock_ms = clock_ms
        return self._evaluate_all()

    def end_of_stream(self) -> WindowOutput:
        """End the stream: every window ends and expires. Return the output."""
        self._reject_after_end()
        self._watermark_ms, self._ended = END_OF_TIME_MS, True
        return self._evaluate_all()

    # --- placing ------------------------------------------------------------------------------------------------

    def _add_to_window(self, key_state: _KeyState, window: AnyWindow, element: Element) -> AnyWindow | DroppedElement:
        """Add the element to its window, merged with overlapping sessions; return this window, or the drop."""
        absorbed = self._overlapping(key_state, window)
        for other in absorbed:
            window = _cover(window, other)
        progress = self._progress(key_state, window)
        pane = key_state.live.get(window)
        if progress.expired:
            return self._drop(window, element, DropReason.EXPIRED)
        if pane is not None and pane.trigger.done:
            return self._drop(window, element, DropReason.CLOSED)
        if pane is None:
            panes = [key_state.live.pop(other) for other in absorbed]
            pane = LivePane.start(self.spec, key_state.key, window, panes, self._trigger_context(progress))
            key_state.live[window] = pane
        pane.add(self.spec, element, self._trigger_context(progress))
        self._count(on_time=not progress.end_passed, late_accepted=progress.end_passed)
        return window

    def _overlapping(self, key_state: _KeyState, window: AnyWindow) -> list[AnyWindow]:
        """Return the live sessions that overlap this one, ordered by end."""
        if not self.spec.assigner.merges or not isinstance(window, Window):
            return []
        overlapping = [other for other in key_state.live if isinstance(other, Window) and other.overlaps(window)]
        return sorted(overlapping, key=_by_end)

    def _drop(self, window: AnyWindow, element: Element, reason: DropReason) -> DroppedElement:
        self._count(dropped_expired=reason is DropReason.EXPIRED, dropped_closed=reason is DropReason.CLOSED)
        return DroppedElement(element, window, reason, max(0, self._watermark_ms - element.event_ms))

    # --- firing -------------------------------------------------------------------------------------------------

    def _evaluate_all(self) -> WindowOutput:
        """Evaluate every window: keys in order of first arrival, windows ordered by end."""
        firings: list[FiredPane] = []
        for key_state in self._keys.values():
            for window in sorted(key_state.live, key=_by_end):
                firings += self._evaluate(key_state, window)
        return WindowOutput(tuple(firings))

    def _evaluate(self, key_state: _KeyState, window: AnyWindow) -> list[FiredPane]:
        """Fire the window if a pane is due; then forget it if it has expired."""
        progress = self._progress(key_state, window)
        pane = key_state.live.pop(window)
        firings = pane.due(self.spec, self.function, self._trigger_context(progress), progress)
        self.counts = replace(self.counts, evicted=self.counts.evicted + pane.take_evicted())
        if not progress.expired:
            key_state.live[window] = pane
        return firings

    # --- time ---------------------------------------------------------------------------------------------------

    def _progress(self, key_state: _KeyState, window: AnyWindow) -> WindowProgress:
        """Return whether the end of the window has passed, and whether it has expired.

        Event-time windows end by the watermark, count windows when they are full; both with the stream.
        """
        if isinstance(window, CountWindow):
            full = self._ended or key_state.arrived >= window.end
            return WindowProgress(end_passed=full, expired=full)
        expiry_ms = window.end_ms + self.spec.allowed_lateness_ms
        return WindowProgress(self._watermark_ms >= window.end_ms, self._ended or self._watermark_ms >= expiry_ms)

    def _trigger_context(self, progress: WindowProgress) -> TriggerContext:
        return TriggerContext(progress.end_passed, self._clock_ms, self._ended)

    def _count(
        self,
        *,
        on_time: bool = False,
        late_accepted: bool = False,
        dropped_expired: bool = False,
        dropped_closed: bool = False,
    ) -> None:
        """Count one assignment."""
        counts = self.counts
        self.counts = replace(
            counts,
            assignments=counts.assignments + 1,
            on_time=counts.on_time + on_time,
            late_accepted=counts.late_accepted + late_accepted,
            dropped_expired=counts.dropped_expired + dropped_expired,
            dropped_closed=counts.dropped_closed + dropped_closed,
        )

    def _reject_after_end(self) -> None:
        if self._ended:
            raise ValueError("the stream has ended; there can be no further input")


def _cover(window: AnyWindow, other: AnyWindow) -> AnyWindow:
    assert isinstance(window, Window)
    assert isinstance(other, Window)
    return window.cover(other)


def _by_end(window: AnyWindow) -> tuple[int, int]:
    if isinstance(window, CountWindow):
        return window.end, window.first
    return window.end_ms, window.start_ms
