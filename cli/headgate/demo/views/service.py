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
    records, the newest first. ``hint``: the next command for the user."""

    lanes: Mapping[str, int]
    sinks: Sequence[SinkRow]
    latest: Sequence[LatestRecord]
    hint: str


def render(state: ServiceState, width: int, height: int) -> Layout:  # noqa: ARG001 - the layout asks for its height itself
    """Render the view for a terminal of this size."""
    layout = Layout()
    sinks = [Layout(_sinks_panel(state.sinks), size=len(state.sinks) + 3)] if state.sinks else []
    layout.split_column(
        Layout(header(state, width), size=1),
        Layout(
            metrics_table(state, dict([*_display_names(state.lanes)][:_LANES_SHOWN]), width), size=METRICS_PANEL_LINES
        ),
        *sinks,
        Layout(_latest_panel(state.latest)),
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


def _latest_panel(latest: Sequence[LatestRecord]) -> Panel:
    table = Table(box=None, expand=True, padding=(0, 1, 0, 0), header_style="dim", pad_edge=False)
    table.add_column("written", width=8, no_wrap=True)
    table.add_column("lane", width=12, no_wrap=True, overflow="ellipsis")
    table.add_column("record", ratio=1, no_wrap=True, overflow="ellipsis")
    for row in latest:
        style = "red" if row.lane == "deadletters" else "default"
        table.add_row(
            time_text(row.time_ms, "%H:%M:%S"),
            Text(_DISPLAY_NAMES.get(row.lane, row.lane), style=style),
            Text(row.text),
        )
    return Panel(table, title="latest records", title_align="left", border_style="blue")
