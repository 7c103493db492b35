"""The common parts of the live views of all services: the figures of a running app, and their layout.

Pure functions from values to terminal output. Does not know the source of the figures.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from rich import box
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

METRICS_PANEL_LINES: Final = 6
_MEDIUM: Final = 100  # characters


@dataclass(frozen=True, slots=True, kw_only=True)
class RunMetrics:
    """Figures of an app and its generator; None: not known yet. ``sent`` and ``processed`` count input records.
    ``lag_s``: the age of the oldest record not yet processed, in seconds. ``cut_ms``: the durations of the latest
    cuts. ``waits_for``: what the start waits for, for ``waits_s`` seconds; empty if it does not. ``invented_clock``:
    whether event times are those of a generator, which has a clock of its own. ``silent_partitions``: those without an
    event, which hold the watermark back."""

    app: str
    bootstrap: str
    phase: str
    elapsed_s: float
    sent: int
    processed: int | None
    events_per_second: float
    lag_s: float
    newest_event_ms: int | None
    watermark_ms: int | None
    cut_ms: Sequence[int]
    cuts: int
    epoch: int
    waits_for: str = ""
    waits_s: float = 0.0
    invented_clock: bool = False
    silent_partitions: int = 0

    @property
    def lag(self) -> int | None:
        """Records sent and not yet processed."""
        return None if self.processed is None else max(0, self.sent - self.processed)

    @property
    def waiting(self) -> str:
        """The reason and the length of a wait of the start; empty if it does not wait."""
        return f"waits for {self.waits_for}, {self.waits_s:.0f} s" if self.waits_for else ""


def header(state: RunMetrics, width: int) -> Text:
    """Return the first line: phase, app, Kafka, epoch, cuts, and the running time at the right."""
    left = Text.assemble(
        (" headgate ", "bold black on green"),
        (f" {state.phase}{': ' if state.waiting else ''}{state.waiting} ", "bold"),
        (f" app {state.app} on {state.bootstrap}, epoch {state.epoch}, {state.cuts:,} cuts", "dim"),
    )
    right = str(datetime.timedelta(seconds=int(state.elapsed_s)))
    left.truncate(max(0, width - len(right) - 1), overflow="ellipsis")
    left.append(right.rjust(max(1, width - len(left))))
    return left


def footer(text: str, width: int) -> Text:
    """Return the last line: the key that stops the run, and ``text``."""
    line = Text(f" Ctrl-C: stop   {text}", style="dim")
    line.truncate(width, overflow="ellipsis")
    return line


def metrics_table(state: RunMetrics, out: Mapping[str, str], width: int) -> Table:
    """Return three panels of ``METRICS_PANEL_LINES`` lines: events, times, and ``out``, at most four counts
    by name."""
    time_format = "%Y-%m-%d %H:%M:%S" if width >= _MEDIUM else "%H:%M:%S"
    grid = Table.grid(expand=True)
    for _ in range(3):
        grid.add_column(ratio=1)
    grid.add_row(
        _panel(
            "events",
            ("rate", f"{state.events_per_second:,.0f} /s"),
            ("lag", "-" if state.lag is None else f"{state.lag:,} ({state.lag_s:.1f} s)"),
            ("sent", f"{state.sent:,}"),
            ("processed", "-" if state.processed is None else f"{state.processed:,}"),
        ),
        _panel(
            "event time, invented" if state.invented_clock else "event time",
            ("newest", time_text(state.newest_event_ms, time_format)),
            ("watermark", _render_watermark(state, time_format)),
            ("delay", _render_delay(state)),
            ("cut", _render_cut_durations(state.cut_ms)),
        ),
        _panel("out", *out.items()),
    )
    return grid


def time_text(time_ms: int | None, time_format: str) -> str:
    """Format epoch milliseconds in UTC with the strftime format ``time_format``; ``-`` for None."""
    if time_ms is None:
        return "-"
    return datetime.datetime.fromtimestamp(time_ms / 1000, datetime.UTC).strftime(time_format)


def _panel(title: str, *entries: tuple[str, str]) -> Panel:
    grid = Table.grid(padding=(0, 1))
    grid.add_column(style="dim", no_wrap=True, min_width=max(len(name) for name, _ in entries))
    grid.add_column(no_wrap=True, overflow="ellipsis")
    for name, value in entries:
        grid.add_row(name, value)
    return Panel(
        grid, title=title, title_align="left", border_style="blue", box=box.ROUNDED, height=METRICS_PANEL_LINES
    )


def _render_watermark(state: RunMetrics, time_format: str) -> str:
    if state.watermark_ms is None and state.newest_event_ms is not None and state.silent_partitions:
        return f"{state.silent_partitions} partitions empty"
    return time_text(state.watermark_ms, time_format)


def _render_delay(state: RunMetrics) -> str:
    if state.newest_event_ms is None or state.watermark_ms is None:
        return "-"
    return f"{(state.newest_event_ms - state.watermark_ms) / 1000:,.1f} s"


def _render_cut_durations(cut_ms: Sequence[int]) -> str:
    if not cut_ms:
        return "-"
    ordered = sorted(cut_ms)
    median, slow = ordered[len(ordered) // 2], ordered[min(len(ordered) - 1, len(ordered) * 95 // 100)]
    return f"{median}, p95 {slow} ms" if slow < 1_000 else f"{median / 1000:,.1f}, p95 {slow / 1000:,.1f} s"
