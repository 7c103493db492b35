"""Gathers the figures of a service's live view, from the app's reports, the generator and the app's topics.

Lanes are counted from the beginning of their topics, so a view that starts later shows the same numbers. Sinks are
counted since the app was started, as it reports them.
"""

from __future__ import annotations

import json
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from headgate.console.timeline import Timeline
from headgate.demo.service import ServiceRun
from headgate.demo.views.panels import RunMetrics
from headgate.demo.views.reason_counts import ReasonCounts
from headgate.demo.views.service import LatestRecord, ServiceState, SinkRow, render
from streamcore.kafka.readers import Follower, Record
from streamcore.kafka.settings import KafkaSettings
from streamcore.wire.lanes import DEAD_LETTERS

if TYPE_CHECKING:
    from rich.layout import Layout

    from headgate.demo.app_process import AppMetrics

_KEPT_PER_LANE: Final = 100  # records
_OTHER_LINES: Final = 20  # lines of the screen without records, about
_TEXT_CHARACTERS: Final = 500
_POLLS: Final = 5  # of 10,000 records each, so that a long history does not freeze the view


def run_metrics(run: ServiceRun, timeline: Timeline, phase: str) -> RunMetrics:
    """Return the figures that the views of all services show."""
    metrics, generator = run.app.metrics, run.generator
    return RunMetrics(
        app=run.workspace.names.app,
        bootstrap=run.kafka.bootstrap,
        phase=phase,
        elapsed_s=timeline.elapsed_s,
        sent=generator.sent,
        processed=None if metrics.committed is None else metrics.processed,
        events_per_second=metrics.events_per_second,
        lag_s=generator.waiting_s(metrics.processed),
        newest_event_ms=generator.newest_event_ms,
        watermark_ms=metrics.watermark_ms,
        cut_ms=metrics.cut_ms,
        cuts=metrics.cuts,
        epoch=metrics.epoch,
        waits_for=metrics.waits_for,
        waits_s=time.monotonic() - metrics.waits_since_s,
        invented_clock=True,
    )


def service_live_view(run: ServiceRun, timeline: Timeline, hint: str) -> ServiceLiveView:
    """Return the live view of a service of ``headgate up``. ``hint``: the next command for the user."""
    names = run.workspace.names
    return ServiceLiveView(
        run.kafka,
        {names.lane(lane): lane for lane in names.lanes},
        lambda: run.app.metrics,
        lambda phase: run_metrics(run, timeline, phase),
        hint,
    )


class ServiceLiveView:
    """Reads the app's lanes until it is closed. For one thread.

    ``lanes``: the name of each lane by its topic. ``app``: returns the figures of the app's reports. ``figures``:
    returns those of the first panels, for a phase. ``hint``: the next command for the user.
    """

    def __init__(
        self,
        kafka: KafkaSettings,
        lanes: Mapping[str, str],
        app: Callable[[], AppMetrics],
        figures: Callable[[str], RunMetrics],
        hint: str,
    ) -> None:
        self._lanes = dict(lanes)
        self._app = app
        self._figures = figures
        self._hint = hint
        self._follower = Follower(kafka, [*self._lanes])
        self._counts: Counter[str] = Counter(dict.fromkeys(self._lanes.values(), 0))
        self._reasons = ReasonCounts()
        self._latest = {lane: deque[LatestRecord](maxlen=_KEPT_PER_LANE) for lane in self._lanes.values()}

    def close(self) -> None:
        """Close the consumer."""
        self._follower.close()

    def poll(self) -> None:
        """Read the records that have arrived, without waiting for more."""
        for _ in range(_POLLS):
            records = self._follower.poll(0)
            for record in records:
                self._add(record)
            if not records:
                return

    def render(self, phase: str, width: int, height: int) -> Layout:
        """Draw the view for a terminal of ``width`` columns and ``height`` lines."""
        return render(self._state(phase, max(height - _OTHER_LINES, 1)), width, height)

    def status_line(self) -> str:
        """Render the metrics as one line."""
        state = self._figures("")
        lanes = ", ".join(f"{count:,} {lane}{self._format_reasons(lane)}" for lane, count in self._counts.items())
        sinks = ", ".join(f"{row.rows:,} rows in {row.sink}" for row in self._sinks())
        if state.waiting:
            return f"starting: {state.waiting}"
        return (
            f"{state.processed or 0:,} events processed, lag {state.lag or 0:,}, {state.events_per_second:,.0f}/s; "
            f"{lanes}{'; ' if sinks else ''}{sinks}"
        )

    def _state(self, phase: str, rows: int) -> ServiceState:
        common = self._figures(phase)
        return ServiceState(
            **{name: getattr(common, name) for name in RunMetrics.__slots__},
            lanes=dict(self._counts),
            sinks=self._sinks(),
            latest=select_latest(self._latest.values(), rows),
            inputs=self._app().inputs,
            written=self._app().lanes,
            reasons=self._reasons.counts,
            hint=self._hint,
        )

    def _sinks(self) -> tuple[SinkRow, ...]:
        sinks = self._app().sinks
        return tuple(SinkRow(n, s.guarantee, s.rows, s.rejected, s.ms) for n, s in sorted(sinks.items()))

    def _format_reasons(self, lane: str) -> str:
        """Return the most frequent codes of the dead letters, in parentheses; nothing for another lane."""
        most = self._reasons.most() if lane == DEAD_LETTERS else ""
        return f" ({most})" if most else ""

    def _add(self, record: Record) -> None:
        lane = self._lanes[record.topic]
        self._counts[lane] += 1
        text = (record.value or b"").decode("utf-8", "replace")
        if lane == DEAD_LETTERS:
            reason = (record.header("reason") or b"").decode("utf-8", "replace")
            self._reasons.add(record)
            text = f"{reason}: {text}"
        self._latest[lane].append(LatestRecord(record.timestamp_ms, lane, brief(text)[:_TEXT_CHARACTERS]))


def select_latest(lanes: Iterable[Sequence[LatestRecord]], rows: int) -> tuple[LatestRecord, ...]:
    """Return about ``rows`` of the latest records, the newest first.

    Each lane gets an equal share, so that a lane with many records does not hide the others.
    """
    non_empty = [[*lane] for lane in lanes if lane]
    share = max(1, rows // max(1, len(non_empty)))
    return tuple(sorted((row for lane in non_empty for row in lane[: -share - 1 : -1]), key=_second, reverse=True))


def _second(row: LatestRecord) -> int:
    return row.time_ms // 1000  # records of a second stay together by lane, because only seconds are shown


def brief(text: str) -> str:
    """Render a JSON object as names and values, without nulls; return other text unchanged."""
    try:
        body = json.loads(text, parse_float=str)
    except ValueError:
        return text
    if not isinstance(body, dict):
        return text
    return "  ".join(f"{name} {_format_value(value)}" for name, value in body.items() if value is not None)


def _format_value(value: object) -> str:
    if isinstance(value, str):
        return value.removesuffix("+00:00")
    return json.dumps(value) if isinstance(value, bool | dict | list) else str(value)
