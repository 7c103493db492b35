"""The live view: the screen of a state, and that it fits every terminal."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from headgate.demo.views.rules import AlertRow, RuleRow, ViewState, render

NEWEST_MS = 1_706_301_690_000
RULES = (
    RuleRow("card-in-many-countries", 1, "live", "accepted", 12),
    RuleRow("large-payment", 3, "shadow", "accepted", 1_234),
    RuleRow("view-flood", 2, "live", "rejected", 0),
)
ALERTS = (
    AlertRow(NEWEST_MS, "critical", "card-in-many-countries", "card=k1", "card k1 was used in 3 countries"),
    AlertRow(NEWEST_MS - 5_000, "low", "large-payment", "user_id=u1", "u1 paid [bold]much[/bold]"),
)
STATE = ViewState(
    app="shop",
    bootstrap="127.0.0.1:19092",
    phase="running",
    elapsed_s=3_723.4,
    sent=1_000_246,
    processed=1_000_000,
    events_per_second=249.6,
    lag_s=0.94,
    newest_event_ms=NEWEST_MS,
    watermark_ms=NEWEST_MS - 10_250,
    cut_ms=(210, 230, 250, 260, 900),
    cuts=4_321,
    epoch=3,
    alert_count=1_246,
    shadow_count=7,
    dead_letters=5_001,
    reasons="bad_value 20, not_json 3",
    late=3_000,
    rules=RULES,
    alerts=ALERTS,
)
EMPTY = replace(
    STATE, phase="starting the rules app", sent=0, processed=None, newest_event_ms=None, watermark_ms=None, cut_ms=(),
    rules=(), alerts=(),
)  # fmt: skip


def render_lines(state: ViewState, width: int, height: int) -> list[str]:
    console = Console(width=width, height=height, file=io.StringIO(), record=True, color_system=None)
    console.print(render(state, width, height), height=height)
    return [line.rstrip() for line in console.export_text().splitlines()]


def test_a_terminal_of_100_by_30_shows_the_golden_screen() -> None:
    assert render_lines(STATE, 100, 30) == GOLDEN.splitlines()


def test_a_wide_terminal_shows_dates_and_whole_messages() -> None:
    lines = render_lines(STATE, 160, 50)
    assert len(lines) == 50
    alert = next(line for line in lines if "critical" in line)
    assert "2024-01-26 20:41:30" in alert
    assert "card k1 was used in 3 countries" in alert


def test_text_of_events_is_not_interpreted_as_markup() -> None:
    nasty = AlertRow(NEWEST_MS, "low", "large-payment", "user_id=[red]", "u1 paid [bold]much[/bold]")
    (line,) = [line for line in render_lines(replace(STATE, alerts=(nasty,)), 160, 50) if "[bold]" in line]
    assert "user_id=[red]" in line
    assert "u1 paid [bold]much[/bold]" in line


def test_an_unknown_value_is_shown_as_a_dash() -> None:
    lines = render_lines(EMPTY, 100, 30)
    assert "starting the rules app" in lines[0]
    assert lines[3].split("│")[1].split() == ["lag", "-"]
    assert lines[3].split("││")[1].split() == ["watermark", "-"]


def test_a_watermark_that_empty_partitions_hold_back_says_so() -> None:
    line = render_lines(replace(STATE, watermark_ms=None, silent_partitions=3), 100, 30)[3]
    assert line.split("││")[1].split() == ["watermark", "3", "partitions", "empty"]


def test_a_small_terminal_shows_the_rules_with_the_most_matches() -> None:
    many = tuple(RuleRow(f"rule-{i:03}", 1, "live", "accepted", i) for i in range(200))
    text = "\n".join(render_lines(replace(STATE, rules=many), 100, 30))
    assert "rules: 200, 26 shown" in text
    assert "rule-199" in text
    assert "rule-000" not in text


@given(width=st.integers(80, 220), height=st.integers(24, 80), rules=st.integers(0, 60), alerts=st.integers(0, 100))
def test_the_view_fits_every_terminal_from_80_by_24(width: int, height: int, rules: int, alerts: int) -> None:
    state = replace(STATE, rules=RULES * (rules // 3), alerts=ALERTS * (alerts // 2))
    lines = render_lines(state, width, height)
    assert len(lines) == height
    assert max(map(len, lines)) <= width
    assert "latest alerts" in "\n".join(lines)


@pytest.mark.parametrize("lag", [-5, 0])
def test_a_lag_is_never_negative(lag: int) -> None:
    assert replace(STATE, processed=STATE.sent - lag).lag == 0
    assert replace(STATE, processed=None).lag is None


GOLDEN = """\
 headgate  running  app shop on 127.0.0.1:19092, epoch 3, 4,321 cuts                         1:02:03
╭─ events ───────────────────────╮╭─ event time ──────────────────╮╭─ out ─────────────────────────╮
│ rate      250 /s               ││ newest    2024-01-26 20:41:30 ││ alerts       1,246            │
│ lag       246 (0.9 s)          ││ watermark 2024-01-26 20:41:19 ││ in shadow    7                │
│ sent      1,000,246            ││ delay     10.2 s              ││ dead letters 5,001: bad_value │
│ processed 1,000,000            ││ cut       250, p95 900 ms     ││ late         3,000            │
╰────────────────────────────────╯╰───────────────────────────────╯╰───────────────────────────────╯
╭─ rules: 3, with version and matches ─────────────────────────────────────────────────────────────╮
│ ● card-in-many-countries             v1       12 ● view-flood rejected               v2        0 │
│ ● large-payment shadow               v3    1,234                                                 │
╰──────────────────────────────────────────────────────────────────────────────────────────────────╯
╭─ latest alerts ──────────────────────────────────────────────────────────────────────────────────╮
│ event time severity rule                   key              message                              │
│ 20:41:30   critical card-in-many-countries card=k1          card k1 was used in 3 countries      │
│ 20:41:25   low      large-payment          user_id=u1       u1 paid [bold]much[/bold]            │
│                                                                                                  │
│                                                                                                  │
│                                                                                                  │
│                                                                                                  │
│                                                                                                  │
│                                                                                                  │
│                                                                                                  │
│                                                                                                  │
│                                                                                                  │
│                                                                                                  │
│                                                                                                  │
│                                                                                                  │
│                                                                                                  │
╰──────────────────────────────────────────────────────────────────────────────────────────────────╯
 Ctrl-C: stop   change rules: headgate rules publish FILE --app shop --bootstrap 127.0.0.1:19092
"""
