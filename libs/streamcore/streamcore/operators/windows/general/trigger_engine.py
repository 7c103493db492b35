"""Evaluates the triggers of live windows, element by element, for any assigner, trigger and evictor.

The engine evaluates a window when an element is added to it, when the watermark reaches its end or its expiry, and at
the clock that its trigger waits for. So the cost of a cut does not depend on windows to which nothing happens.
``windowing.reference`` defines the decisions. The values are computed at the end of the cut.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from streamcore.columnar.key_slots import KeySlots
from streamcore.columnar.timer_index import TimerIndex
from streamcore.operators.windows.general.contents import BufferedContent, FoldedContent
from streamcore.operators.windows.general.live_window import EmittedPane, LiveWindow, PaneFiring, TriggerRules
from streamcore.operators.windows.general.user_parts import FailedCallError, assigned_windows
from streamcore.operators.windows.general.window_table import Name, WindowTable, bounds
from streamcore.operators.windows.metrics import WindowMetrics
from streamcore.watermark import NO_WATERMARK
from streamcore.windowing.model import END_OF_TIME_MS, AnyWindow, CountWindow, DropReason, Element, Window
from streamcore.windowing.reference_pane import WindowProgress
from streamcore.windowing.spec import WindowSpec, is_built_in
from streamcore.windowing.triggers import AfterProcessingTime, Trigger, TriggerContext, TriggerState, walk

#: A dropped element: the index of its row in the cut, the window that did not accept it, and the reason.
Drop = tuple[int, AnyWindow, DropReason]


@dataclass(frozen=True, slots=True)
class WindowBeforeCut:
    """The state of a window before the cut: the node of its partials, and the panes that it had emitted."""

    node: int
    emitted: tuple[EmittedPane, ...]


class TriggerEngine:
    """The live windows of a shard, and their evaluation.

    ``fired``, ``dropped`` and ``before`` are the panes, the dropped elements and the earlier states of the changed
    windows of the current cut. ``failed``: why code of the user failed on an element, by the index of its row; the
    windows for which it failed do not have the element. A window whose trigger fails when it is asked for a pane ends
    with a failed pane; a later element begins it anew.
    """

    def __init__(
        self,
        spec: WindowSpec,
        keys: KeySlots,
        contents: FoldedContent | BufferedContent,
        metrics: WindowMetrics,
        max_windows: int,
    ) -> None:
        self.spec = spec
        self.contents = contents
        self.metrics = metrics
        self.max_windows = max_windows
        self.rules = TriggerRules(spec, contents)
        self.windows = WindowTable(keys, contents.partial_store if isinstance(contents, FoldedContent) else None)
        self.fired: list[PaneFiring] = []
        self.dropped: list[Drop] = []
        self.before: dict[Name, WindowBeforeCut] = {}
        self.failed: dict[int, str] = {}
        self._keys = keys
        self._clock_ms = NO_WATERMARK
        self._watermark_ms = NO_WATERMARK
        self._clocked = any(isinstance(part, AfterProcessingTime) for part in walk(spec.trigger))
        self._by_watermark: TimerIndex[Name] = TimerIndex()
        self._by_clock: TimerIndex[Name] = TimerIndex()

    # --- inputs -------------------------------------------------------------------------------------------------

    def begin(self, clock_ms: int, watermark_ms: int) -> None:
        """Begin a cut: set its clock and the watermark before it, and evaluate the windows that wait for the clock."""
        self.fired, self.dropped, self.before, self.failed = [], [], {}, {}
        self._clock_ms, self._watermark_ms = clock_ms, watermark_ms
        self._evaluate_all(self._by_clock.take(clock_ms))

    def element(self, element: Element, row: int) -> None:
        """Add an element to its windows and evaluate them. ``element.key`` is a key slot.

        ``row``: the index of the element's row in the cut.
        """
        self.metrics.elements += 1
        try:
            windows = self._windows(element)
        except FailedCallError as error:
            self.failed[row] = str(error)
            return
        self.metrics.assignments += len(windows)
        self.put(element, row, windows)

    def _windows(self, element: Element) -> tuple[AnyWindow, ...]:
        assigner = self.spec.assigner
        return assigner.windows(element) if is_built_in(assigner) else assigned_windows(assigner, element)

    def put(self, element: Element, row: int, windows: Iterable[AnyWindow]) -> None:
        """Add an element to these of its windows, and evaluate each."""
        assert isinstance(element.key, int)
        key_slot = element.key
        accepted_by = [self._add_to_window(key_slot, window, element, row) for window in windows]
        for window in accepted_by:
            if window is not None:
                self._evaluate(key_slot, window, element.number + 1)

    def watermark(self, watermark_ms: int) -> None:
        """Advance the watermark after the rows of the cut, and evaluate the windows that it ends."""
        self._watermark_ms = watermark_ms
        due = self._by_watermark.take(watermark_ms)
        self._evaluate_all(self.windows.names() if self._stream_ended else due)

    def plan(self, live: LiveWindow) -> None:
        """Schedule the evaluation of a window at its end and at its expiry."""
        if isinstance(live.window, Window):
            self._by_watermark.put(live.window.end_ms, (live.key_slot, live.window))
            self._by_watermark.put(live.window.end_ms + self.spec.allowed_lateness_ms, (live.key_slot, live.window))
        self._plan_clock(live)

    @property
    def _stream_ended(self) -> bool:
        return self._watermark_ms >= END_OF_TIME_MS

    # --- placing ------------------------------------------------------------------------------------------------

    def _add_to_window(self, key_slot: int, window: AnyWindow, element: Element, row: int) -> AnyWindow | None:
        """Add the element to a window, after merging overlapping sessions into the window.

        Return the merged window, or None if the element is dropped or rejected.
        """
        absorbed = self._overlapping(key_slot, window)
        window = _cover(window, absorbed)
        progress = self._progress(window, element.number)
        if progress.expired:
            self._drop(row, window, DropReason.EXPIRED)
            return None
        live = self.windows.get(key_slot, window)
        if live is not None and live.trigger.done:
            self._drop(row, window, DropReason.CLOSED)
            return None
        if live is None and not absorbed and self.windows.count >= self.max_windows:
            self.metrics.rejected += 1
            return None
        is_new = live is None and not absorbed
        try:
            if live is None:
                live = self._start(key_slot, window, absorbed, self._trigger_context(progress))
                live.content.since = 0 if absorbed else element.number
            self._mark_dirty(live)
            self.rules.add(live, element, row, self._trigger_context(progress))
        except FailedCallError as error:
            self.failed.setdefault(row, str(error))
            self.metrics.assignments -= 1
            if is_new and live is not None:
                self.windows.pop(key_slot, window)
            return None
        self.metrics.on_time += not progress.end_passed
        self.metrics.late_accepted += progress.end_passed
        return window

    def _overlapping(self, key_slot: int, window: AnyWindow) -> list[Window]:
        """Return the live sessions that overlap this one, ordered by end."""
        if not self.spec.assigner.merges or not isinstance(window, Window):
            return []
        overlapping = [
            live for live in self.windows.windows_for(key_slot) if isinstance(live, Window) and live.overlaps(window)
        ]
        return sorted(overlapping, key=bounds)

    def _start(
        self, key_slot: int, window: AnyWindow, absorbed: Iterable[Window], context: TriggerContext
    ) -> LiveWindow:
        merged = [self.windows.live[key_slot][session] for session in absorbed]
        for session in merged:
            self._mark_dirty(session)
        live = self.rules.start(key_slot, window, merged, context)
        for session in merged:
            self.windows.pop(key_slot, session.window)
        self.windows.put(live)
        self.plan(live)
        return live

    def _mark_dirty(self, live: LiveWindow) -> None:
        name = (live.key_slot, live.window)
        self.windows.dirty[name] = None
        if name not in self.before:
            self.before[name] = WindowBeforeCut(live.content.node, live.emitted_panes)

    def _drop(self, row: int, window: AnyWindow, reason: DropReason) -> None:
        self.metrics.dropped_expired += reason is DropReason.EXPIRED
        self.metrics.dropped_closed += reason is DropReason.CLOSED
        self.dropped.append((row, window, reason))

    # --- firing -------------------------------------------------------------------------------------------------

    def _evaluate_all(self, names: Iterable[Name]) -> None:
        """Evaluate windows ordered by end, start and key hash, which does not depend on this process."""
        alive = [(key_slot, window) for key_slot, window in names if self.windows.get(key_slot, window)]
        for key_slot, window in sorted(alive, key=self._firing_order):
            self._evaluate(key_slot, window, 0)

    def _firing_order(self, name: Name) -> tuple[int, int, int]:
        first, end = bounds(name[1])
        return end, first, int(self._keys.hashes[name[0]])

    def _evaluate(self, key_slot: int, window: AnyWindow, arrived: int) -> None:
        """Fire the window if a pane is due; then forget it if it has expired."""
        live = self.windows.get(key_slot, window)
        if live is None:
            return
        progress = self._progress(window, arrived)
        before = WindowBeforeCut(live.content.node, live.emitted_panes)
        ends = progress.expired
        try:
            fired = self.rules.due(live, self._trigger_context(progress), progress)
        except FailedCallError as error:
            fired, ends = [self.rules.fail(live, progress, str(error))], True
        if fired or ends:
            self.before.setdefault((key_slot, window), before)
            self.windows.dirty[key_slot, window] = None
        self.fired += fired
        self.metrics.evicted += live.evicted
        live.evicted = 0
        if ends:
            self.contents.clear(live.content)
            self.windows.pop(key_slot, window)
        else:
            self._plan_clock(live)

    # --- time ---------------------------------------------------------------------------------------------------

    def _progress(self, window: AnyWindow, arrived: int) -> WindowProgress:
        """Return whether the window has ended and expired. ``arrived``: elements of the key, for count windows."""
        if isinstance(window, CountWindow):
            is_full = self._stream_ended or arrived >= window.end
            return WindowProgress(end_passed=is_full, expired=is_full)
        expiry_ms = window.end_ms + self.spec.allowed_lateness_ms
        return WindowProgress(
            self._watermark_ms >= window.end_ms, self._stream_ended or self._watermark_ms >= expiry_ms
        )

    def _trigger_context(self, progress: WindowProgress) -> TriggerContext:
        return TriggerContext(progress.end_passed, self._clock_ms, self._stream_ended)

    def _plan_clock(self, live: LiveWindow) -> None:
        if not self._clocked:
            return
        wakes_ms = next_wake(self.spec.trigger, live.trigger, self._clock_ms)
        if wakes_ms is not None and wakes_ms != live.wakes_ms:
            self._by_clock.put(wakes_ms, (live.key_slot, live.window))
        live.wakes_ms = wakes_ms


def next_wake(trigger: Trigger, state: TriggerState, clock_ms: int) -> int | None:
    """Return the next clock, in milliseconds, at which the trigger may become ready; None if there is none."""
    wakes = [next_wake(part, part_state, clock_ms) for part, part_state in zip(trigger.parts, state.parts, strict=True)]
    if isinstance(trigger, AfterProcessingTime) and state.since_ms is not None:
        wakes.append(state.since_ms + trigger.delay_ms)
    return min((wakes_ms for wakes_ms in wakes if wakes_ms is not None and wakes_ms > clock_ms), default=None)


def _cover(window: AnyWindow, sessions: Iterable[Window]) -> AnyWindow:
    for session in sessions:
        assert isinstance(window, Window)
        window = window.cover(session)
    return window
