"""The live view of services that write rows: the screen of a state, and that it fits every terminal."""

from __future__ import annotations

import io
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from headgate.demo.views.service import LatestRecord, ServiceState, SinkRow, render

NEWEST_MS = 1_706_301_690_000
STATE = ServiceState(
    app="search",
    bootstrap="127.0.0.1:19092",
    phase="running",
    elapsed_s=70.0,
    sent=41_380,
    processed=40_984,
    events_per_second=260.4,
    lag_s=1.6,
    newest_event_ms=NEWEST_MS,
    watermark_ms=NEWEST_MS - 10_250,
    cut_ms=(700, 738, 1_116),
    cuts=41,
    epoch=1,
    lanes={"changes": 8_056, "deadletters": 213, "late": 0},
    sinks=(SinkRow("opensearch", "idempotent", 1_749, 2, 170),),
    latest=(
        LatestRecord(NEWEST_MS, "changes", '{"id":"p20","name":"Glass [bold]mug"}'),
        LatestRecord(NEWEST_MS, "deadletters", "price is below zero: {}"),
    ),
    inputs={"shop.json": 30_000, "shop.csv": 10_984},
    written={"changes": 8_056, "deadletters": 213},
    reasons={"bad_value": 150, "not_json": 41, "late": 20, "missing_field": 2},
    invented_clock=True,
    hint="look: curl '127.0.0.1:19200/search-products/_search?q=lantern'",
)


def render_lines(state: ServiceState, width: int, height: int) -> list[str]:
    console = Console(width=width, height=height, file=io.StringIO(), record=True, color_system=None)
    console.print(render(state, width, height), height=height)
    return [line.rstrip() for line in console.export_text().splitlines()]


def test_a_terminal_of_80_by_24_shows_the_golden_screen() -> None:
    assert render_lines(STATE, 80, 24) == GOLDEN.splitlines()


def test_a_start_says_what_it_waits_for_and_that_the_records_are_older() -> None:
    state = replace(STATE, phase="starting the etl app", cuts=0, waits_for="Spark's session", waits_s=12.3)
    lines = render_lines(state, 100, 30)
    assert lines[0].startswith(" headgate  starting the etl app: waits for Spark's session, 12 s ")
    assert any("latest records, of earlier starts" in line for line in lines)


def test_event_time_of_a_real_clock_is_not_called_invented() -> None:
    assert "event time ─" in render_lines(replace(STATE, invented_clock=False), 80, 24)[1]


@given(
    width=st.integers(80, 220),
    height=st.integers(24, 80),
    lanes=st.integers(1, 6),
    sinks=st.integers(0, 3),
    latest=st.integers(0, 100),
    counts=st.integers(0, 40),
)
def test_the_view_fits_every_terminal_from_80_by_24(
    width: int, height: int, lanes: int, sinks: int, latest: int, counts: int
) -> None:
    state = replace(
        STATE,
        lanes={f"lane{number}": number for number in range(lanes)},
        sinks=[*STATE.sinks] * sinks,
        latest=[*STATE.latest] * (latest // 2),
        inputs={f"a.topic.with.a.long.name.{n}": 10**n for n in range(min(counts, 12))},
        reasons={f"reason_{n}": n for n in range(counts)},
    )
    lines = render_lines(state, width, height)
    assert len(lines) == height
    assert max(map(len, lines)) <= width
    assert "latest records" in "\n".join(lines)


GOLDEN = """\
 headgate  running  app search on 127.0.0.1:19092, epoch 1, 41 cuts      0:01:10
╭─ events ────────────────╮╭─ event time, invented ──╮╭─ out ──────────────────╮
│ rate      260 /s        ││ newest    20:41:30      ││ changes      8,056     │
│ lag       396 (1.6 s)   ││ watermark 20:41:19      ││ dead letters 213       │
│ sent      41,380        ││ delay     10.2 s        ││ late         0         │
│ processed 40,984        ││ cut       0.7, p95 1.1… ││                        │
╰─────────────────────────╯╰─────────────────────────╯╰────────────────────────╯
╭─ sinks, since this start ────────────────────────────────────────────────────╮
│ sink              guarantee              rows       rejected      latest cut │
│ opensearch        idempotent            1,749              2          170 ms │
╰──────────────────────────────────────────────────────────────────────────────╯
╭─ read, by input ────────╮╭─ this start, by lane ───╮╭─ letters, by reason ───╮
│ shop.json        30,000 ││ changes           8,056 ││ bad_value          150 │
│ shop.csv         10,984 ││ dead letters        213 ││ not_json            41 │
│                         ││                         ││ 2 others            22 │
╰─────────────────────────╯╰─────────────────────────╯╰────────────────────────╯
╭─ latest records ─────────────────────────────────────────────────────────────╮
│ written  lane         record                                                 │
│ 20:41:30 changes      {"id":"p20","name":"Glass [bold]mug"}                  │
│ 20:41:30 dead letters price is below zero: {}                                │
│                                                                              │
│                                                                              │
╰──────────────────────────────────────────────────────────────────────────────╯
 Ctrl-C: stop   look: curl '127.0.0.1:19200/search-products/_search?q=lantern'
"""
