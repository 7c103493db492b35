"""The live view of ``headgate up rules``: a pure function from figures to terminal output.

Promises: fits any size from 80 columns by 24 lines up; the same figures give the same output.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from rich.layout import Layout
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from headgate.demo.views.panels import METRICS_PANEL_LINES, RunMetrics, footer, header, metrics_table, time_text

_RULE_COLUMN: Final = 50  # the width of a column of rules, in characters
_ALERT_LINES_AT_LEAST: Final = 7
_WIDE: Final = 130  # characters
_SEVERITY: Final = {"critical": "bold white on red", "high": "bold red", "medium": "yellow", "low": "cyan"}
_STATUS: Final = {"accepted": "green", "rejected": "bold red", "quarantined": "bold red", "deleted": "dim"}


@dataclass(frozen=True, slots=True)
class RuleRow:
    """One rule. ``status``: the app's last response, None before it. ``matches``: its alerts, in shadow mode too."""

    rule: str
    version: int
    mode: str
    status: str | None
    matches: int


@dataclass(frozen=True, slots=True)
class AlertRow:
    """One alert. ``time_ms``: its event time, in epoch milliseconds."""

    time_ms: int
    severity: str
    rule: str
    key: str
    message: str


@dataclass(frozen=True, slots=True)
class ViewState(RunMetrics):
    """All figures of the view. ``alerts``: the latest first. ``reasons``: the most frequent codes of dead letters."""

    alert_count: int
    shadow_count: int
    dead_letters: int
    late: int
    reasons: str
    rules: Sequence[RuleRow]
    alerts: Sequence[AlertRow]


def render(state: ViewState, width: int, height: int) -> Layout:
    """Render the view for a terminal of this size."""
    columns = max(1, (width + 20) // _RULE_COLUMN)
    wanted = max(1, math.ceil(len(state.rules) / columns))
    rows = max(1, min(wanted, height - 2 - METRICS_PANEL_LINES - _ALERT_LINES_AT_LEAST - 2))
    publish = f"headgate rules publish FILE --app {state.app} --bootstrap {state.bootstrap}"
    layout = Layout()
    layout.split_column(
        Layout(header(state, width), size=1),
        Layout(metrics_table(state, _output_counts(state), width), size=METRICS_PANEL_LINES),
        Layout(_rules_panel(state.rules, columns, rows), size=rows + 2),
        Layout(_alerts_panel(state.alerts, width)),
        Layout(footer(f"change rules: {publish}", width), size=1),
    )
    return layout


def _output_counts(state: ViewState) -> dict[str, str]:
    return {
        "alerts": f"{state.alert_count:,}",
        "in shadow": f"{state.shadow_count:,}",
        "dead letters": f"{state.dead_letters:,}{': ' if state.reasons else ''}{state.reasons}",
        "late": f"{state.late:,}",
    }


def _rules_panel(rules: Sequence[RuleRow], columns: int, rows: int) -> Panel:
    """Draw the rules by name, column by column; if not all fit, only those with the most matches."""
    room = columns * rows
    shown = sorted(rules, key=lambda r: (-r.matches, r.rule))[:room] if len(rules) > room else list(rules)
    shown.sort(key=lambda r: r.rule)
    grid = Table.grid(expand=True, padding=(0, 1))
    for _ in range(columns):
        grid.add_column(ratio=1, no_wrap=True, overflow="ellipsis")
        grid.add_column(style="dim", justify="right", no_wrap=True)
        grid.add_column(justify="right", no_wrap=True, width=8)
    for row in range(min(rows, len(shown))):
        cells: list[Text | str] = []
        for rule in shown[row::rows][:columns]:
            cells += [_rule_name(rule), f"v{rule.version}", f"{rule.matches:,}"]
        grid.add_row(*cells)
    title = f"rules: {len(rules)}" + (f", {len(shown)} shown" if len(shown) < len(rules) else "")
    return Panel(grid, title=f"{title}, with version and matches", title_align="left", border_style="blue")


def _rule_name(rule: RuleRow) -> Text:
    text = Text("● ", style=_STATUS.get(rule.status or "", "dim"))
    text.append(rule.rule, style="default")
    if rule.mode != "live":
        text.append(f" {rule.mode}", style="magenta")
    if rule.status in ("rejected", "quarantined"):
        text.append(f" {rule.status}", style="bold red")
    return text


def _alerts_panel(alerts: Sequence[AlertRow], width: int) -> Panel:
    wide = width >= _WIDE
    table = Table(box=None, expand=True, padding=(0, 1, 0, 0), header_style="dim", pad_edge=False)
    table.add_column("event time", width=19 if wide else 10, no_wrap=True)
    table.add_column("severity", width=8, no_wrap=True)
    table.add_column("rule", width=32 if wide else 22, no_wrap=True, overflow="ellipsis")
    table.add_column("key", width=26 if wide else 16, no_wrap=True, overflow="ellipsis")
    table.add_column("message", ratio=1, no_wrap=True, overflow="ellipsis")
    form = "%Y-%m-%d %H:%M:%S" if wide else "%H:%M:%S"
    for alert in alerts:
        severity = Text(alert.severity, style=_SEVERITY.get(alert.severity, "default"))
        table.add_row(time_text(alert.time_ms, form), severity, alert.rule, Text(alert.key), Text(alert.message))
    return Panel(table, title="latest alerts", title_align="left", border_style="blue")
