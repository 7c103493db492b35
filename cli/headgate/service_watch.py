"""Gathers what the live view of a service shows: the app's reports, the generator's position, and its topics read live.

Counts of lanes are of the whole topics, so a view that starts later shows the same numbers; those of sinks are since
the app was started, as it reports them.
"""

from __future__ import annotations

import json
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from headgate.local.stack import Stack
from headgate.panels import Running
from headgate.service_view import LastRow, ServiceState, SinkRow, render
from headgate.timeline import Timeline
from streamcore.kafka.readers import Follower, Record

if TYPE_CHECKING:
    from rich.layout import Layout

_LAST_KEPT: Final = 100  # of each lane
_OTHER_LINES: Final = 15  # of a screen, about
_TEXT: Final = 500
_POLLS: Final = 5  # of 10,000 records each, so that a long history does not freeze the view


def running(stack: Stack, timeline: Timeline, phase: str) -> Running:
    """The figures that every view has."""
    figures, generator = stack.app.figures, stack.generator
    return Running(
        app=stack.shop.names.app,
        bootstrap=stack.kafka.bootstrap,
        phase=phase,
        elapsed_s=timeline.elapsed_s,
        sent=generator.sent,
        processed=None if figures.committed is None else figures.processed,
        events_per_second=figures.events_per_second,
        lag_s=generator.waiting_s(figures.processed),
        newest_event_ms=generator.newest_event_ms,
        watermark_ms=figures.watermark_ms,
        cut_ms=figures.cut_ms,
        cuts=figures.cuts,
        epoch=figures.epoch,
    )


class ServiceWatch:
    """Follows a stack's lanes until it is closed; one thread. ``hint``: what one may want to do."""

    def __init__(self, stack: Stack, timeline: Timeline, hint: str) -> None:
        self._stack = stack
        self._timeline = timeline
        self._hint = hint
        names = stack.shop.names
        self._lanes = {names.lane(lane): lane for lane in names.lanes}
        self._follower = Follower(stack.kafka, [*self._lanes])
        self._counts: Counter[str] = Counter(dict.fromkeys(names.lanes, 0))
        self._last = {lane: deque[LastRow](maxlen=_LAST_KEPT) for lane in names.lanes}

    def close(self) -> None:
        """Stop reading."""
        self._follower.close()

    def poll(self) -> None:
        """Read what has come."""
        for _ in range(_POLLS):
            records = self._follower.poll(0)
            for record in records:
                self._take(record)
            if not records:
                return

    def picture(self, phase: str, width: int, height: int) -> Layout:
        """For a terminal of this size."""
        return render(self._state(phase, max(height - _OTHER_LINES, 1)), width, height)

    def line(self) -> str:
        """The figures in a line."""
        state = running(self._stack, self._timeline, "")
        lanes = ", ".join(f"{count:,} {lane}" for lane, count in self._counts.items())
        sinks = ", ".join(f"{row.rows:,} rows in {row.sink}" for row in self._sinks())
        return (
            f"{state.processed or 0:,} events processed, lag {state.lag or 0:,}, {state.events_per_second:,.0f}/s; "
            f"{lanes}{'; ' if sinks else ''}{sinks}"
        )

    def _state(self, phase: str, rows: int) -> ServiceState:
        common = running(self._stack, self._timeline, phase)
        return ServiceState(
            **{name: getattr(common, name) for name in Running.__slots__},
            lanes=dict(self._counts),
            sinks=self._sinks(),
            last=latest(self._last.values(), rows),
            hint=self._hint,
        )

    def _sinks(self) -> tuple[SinkRow, ...]:
        sinks = self._stack.app.figures.sinks
        return tuple(SinkRow(n, s.guarantee, s.rows, s.refused, s.ms) for n, s in sorted(sinks.items()))

    def _take(self, record: Record) -> None:
        lane = self._lanes[record.topic]
        self._counts[lane] += 1
        text = (record.value or b"").decode("utf-8", "replace")
        if lane == "deadletters":
            reason = (record.header("reason") or b"").decode("utf-8", "replace")
            text = f"{reason}: {text}"
        self._last[lane].append(LastRow(record.timestamp_ms, lane, brief(text)[:_TEXT]))


def latest(lanes: Iterable[Sequence[LastRow]], rows: int) -> tuple[LastRow, ...]:
    """About so many, the latest first, of each lane as many: one cut's many rows of one do not hide the others."""
    filled = [[*lane] for lane in lanes if lane]
    share = max(1, rows // max(1, len(filled)))
    return tuple(sorted((row for lane in filled for row in lane[: -share - 1 : -1]), key=_time, reverse=True))


def _time(row: LastRow) -> int:
    return row.time_ms // 1000  # as it is shown; within a second, lane by lane


def brief(text: str) -> str:
    """A JSON object as names with their values, without those that have none; other text as it is."""
    try:
        body = json.loads(text, parse_float=str)
    except ValueError:
        return text
    if not isinstance(body, dict):
        return text
    return "  ".join(f"{name} {_shown(value)}" for name, value in body.items() if value is not None)


def _shown(value: object) -> str:
    if isinstance(value, str):
        return value.removesuffix("+00:00")
    return json.dumps(value) if isinstance(value, bool | dict | list) else str(value)
