"""The live view of a service that writes rows: the counts of each lane and each sink, and the latest records.

A pure function from the known figures to terminal output; fits any size from 80 columns by 24 lines up. Does not know
the source of the figures.
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
#: How a lane is called here, where not by its name.
_CALLED: Final = {"deadletters": "dead letters"}


@dataclass(frozen=True, slots=True)
class SinkRow:
    """A sink since the app was started; ``ms``: how long its latest cut with rows took."""

    sink: str
    guarantee: str
    rows: int
    refused: int
    ms: int


@dataclass(frozen=True, slots=True)
class LastRow:
    """A record of one of the lanes. ``time_ms``: when it was written."""

    time_ms: int
    lane: str
    text: str


@dataclass(frozen=True, slots=True)
class ServiceState(RunMetrics):
    """Everything that the view shows. ``lanes``: records of each, those that matter first; ``last``: latest first;
    ``hint``: a useful next command."""

    lanes: Mapping[str, int]
    sinks: Sequence[SinkRow]
    last: Sequence[LastRow]
    hint: str


def render(state: ServiceState, width: int, height: int) -> Layout:  # noqa: ARG001 - the layout asks for its height itself
    """Render the view for a terminal of this size."""
    layout = Layout()
    sinks = [Layout(_sinks(state.sinks), size=len(state.sinks) + 3)] if state.sinks else []
    layout.split_column(
        Layout(header(state, width), size=1),
        Layout(
            metrics_table(state, dict([*_display_names(state.lanes)][:_LANES_SHOWN]), width), size=METRICS_PANEL_LINES
        ),
        *sinks,
        Layout(_last(state.last)),
        Layout(footer(state.hint, width), size=1),
    )
    return layout


def _display_names(lanes: Mapping[str, int]) -> Iterator[tuple[str, int]]:
    return ((_CALLED.get(lane, lane), count) for lane, count in lanes.items())


def _sinks(sinks: Sequence[SinkRow]) -> Panel:
    table = Table(box=None, expand=True, padding=(0, 1, 0, 0), header_style="dim", pad_edge=False)
    table.add_column("sink", no_wrap=True, overflow="ellipsis")
    table.add_column("guarantee", no_wrap=True)
    for name in ("rows", "refused", "latest cut"):
        table.add_column(name, justify="right", no_wrap=True)
    for sink in sinks:
        refused = Text(f"{sink.refused:,}", style="bold red" if sink.refused else "default")
        table.add_row(sink.sink, sink.guarantee, f"{sink.rows:,}", refused, f"{sink.ms:,} ms")
    return Panel(table, title="sinks, since this start", title_align="left", border_style="blue")


def _last(last: Sequence[LastRow]) -> Panel:
    table = Table(box=None, expand=True, padding=(0, 1, 0, 0), header_style="dim", pad_edge=False)
    table.add_column("written", width=8, no_wrap=True)
    table.add_column("lane", width=12, no_wrap=True, overflow="ellipsis")
    table.add_column("record", ratio=1, no_wrap=True, overflow="ellipsis")
    for row in last:
        style = "red" if row.lane == "deadletters" else "default"
        table.add_row(
            time_text(row.time_ms, "%H:%M:%S"), Text(_CALLED.get(row.lane, row.lane), style=style), Text(row.text)
        )
    return Panel(table, title="latest records", title_align="left", border_style="blue")
