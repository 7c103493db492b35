"""The live view of a service that writes rows: the counts of each lane and each sink, and the latest records.

A pure function from figures to terminal output; fits any size from 80 columns by 24 lines up.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from rich.layout import Layout
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from headgate.demo.views.panels import METRICS_PANEL_LINES, RunMetrics, footer, header, metrics_table, time_text

_LANES_SHOWN: Final = 4
_HIGH: Final = 36  # lines
_COUNTS_SHOWN: Final = 8
_FEW_COUNTS_SHOWN: Final = 3
#: The displayed name of a lane, where it is not the lane's name.
_DISPLAY_NAMES: Final = {"deadletters": "dead letters"}


@dataclass(frozen=True, slots=True)
class SinkRow:
    """The figures of a sink since the app was started. ``ms``: the duration of its latest cut with rows."""

    sink: str
    guarantee: str
    rows: int
    rejected: int
    ms: int


@dataclass(frozen=True, slots=True)
class LatestRecord:
    """A record of a lane. ``time_ms``: when it was written, in epoch milliseconds."""

    time_ms: int
    lane: str
    text: str


@dataclass(frozen=True, slots=True)
class ServiceState(RunMetrics):
    """All figures of the view. ``lanes``: the records of each lane, in order of importance. ``latest``: the latest
    records, the newest first. ``hint``: the next command for the user. ``inputs``: the records that were read of each
    topic; ``written``: the rows of each lane since the app was started; ``reasons``: all dead letters by code."""

    lanes: Mapping[str, int]
    sinks: Sequence[SinkRow]
    latest: Sequence[LatestRecord]
    hint: str
    inputs: Mapping[str, int]
    written: Mapping[str, int]
    reasons: Mapping[str, int]


def render(state: ServiceState, width: int, height: int) -> Layout:
    """Render the view for a terminal of this size."""
    layout = Layout()
    lanes = {name: f"{count:,}" for name, count in [*_display_names(state.lanes)][:_LANES_SHOWN]}
    counts = (state.inputs, state.written, state.reasons)
    lines = max(1, min(max(map(len, counts)), _COUNTS_SHOWN if height >= _HIGH else _FEW_COUNTS_SHOWN))
    sinks = [Layout(_sinks_panel(state.sinks), size=len(state.sinks) + 3)] if state.sinks else []
    layout.split_column(
        Layout(header(state, width), size=1),
        Layout(metrics_table(state, lanes, width), size=METRICS_PANEL_LINES),
        *sinks,
        Layout(_counts_panels(state, lines), size=lines + 2),
        Layout(_latest_panel(state)),
        Layout(footer(state.hint, width), size=1),
    )
    return layout


def _display_names(lanes: Mapping[str, int]) -> Iterator[tuple[str, int]]:
    return ((_DISPLAY_NAMES.get(lane, lane), count) for lane, count in lanes.items())


def _sinks_panel(sinks: Sequence[SinkRow]) -> Panel:
    table = Table(box=None, expand=True, padding=(0, 1, 0, 0), header_style="dim", pad_edge=False)
    table.add_column("sink", no_wrap=True, overflow="ellipsis")
    table.add_column("guarantee", no_wrap=True)
    for name in ("rows", "rejected", "latest cut"):
        table.add_column(name, justify="right", no_wrap=True)
    for sink in sinks:
        rejected = Text(f"{sink.rejected:,}", style="bold red" if sink.rejected else "default")
        table.add_row(sink.sink, sink.guarantee, f"{sink.rows:,}", rejected, f"{sink.ms:,} ms")
    return Panel(table, title="sinks, since this start", title_align="left", border_style="blue")


def _counts_panels(state: ServiceState, lines: int) -> Table:
    """Return three panels with the largest counts of ``lines`` names each: by input, by lane, by reason."""
    grid = Table.grid(expand=True)
    for _ in range(3):
        grid.add_column(ratio=1)
    grid.add_row(
        _counts_panel("read, by input", state.inputs, lines),
        _counts_panel("this start, by lane", dict(_display_names(state.written)), lines),
        _counts_panel("letters, by reason", state.reasons, lines),
    )
    return grid


def _counts_panel(title: str, counts: Mapping[str, int], lines: int) -> Panel:
    table = Table.grid(expand=True, padding=(0, 1))
    table.add_column(ratio=1, no_wrap=True, overflow="ellipsis")
    table.add_column(justify="right", no_wrap=True)
    ordered = sorted(((name, count) for name, count in counts.items() if count), key=lambda one: (-one[1], one[0]))
    shown = ordered if len(ordered) <= lines else ordered[: lines - 1]
    for name, count in shown:
        table.add_row(Text(name, style="dim"), f"{count:,}")
    if rest := ordered[len(shown) :]:
        table.add_row(Text(f"{len(rest)} others", style="dim"), f"{sum(count for _, count in rest):,}")
    return Panel(table, title=title, title_align="left", border_style="blue", height=lines + 2)


def _latest_panel(state: ServiceState) -> Panel:
    table = Table(box=None, expand=True, padding=(0, 1, 0, 0), header_style="dim", pad_edge=False)
    table.add_column("written", width=8, no_wrap=True)
    table.add_column("lane", width=12, no_wrap=True, overflow="ellipsis")
    table.add_column("record", ratio=1, no_wrap=True, overflow="ellipsis")
    for row in state.latest:
        style = "red" if row.lane == "deadletters" else "default"
        table.add_row(
            time_text(row.time_ms, "%H:%M:%S"),
            Text(_DISPLAY_NAMES.get(row.lane, row.lane), style=style),
            Text(row.text),
        )
    title = "latest records" if state.cuts else "latest records, of earlier starts"
    return Panel(table, title=title, title_align="left", border_style="blue")
