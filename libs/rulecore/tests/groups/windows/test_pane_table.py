"""Panes, compared with a recomputation of every window from all events after every event."""

from __future__ import annotations

import numpy as np
import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from rulecore.groups.windows import Aggregation, PaneRows, PaneTable
from streamcore.schema import LONG

PANE_MS = 10
AGGREGATIONS = (Aggregation("c", "count", None), Aggregation("s", "sum", LONG), Aggregation("m", "min", LONG))

Event = tuple[str | None, int, int]
events = st.lists(
    st.tuples(st.sampled_from(["a", "b", None]), st.integers(0, 120), st.integers(-5, 5)), min_size=1, max_size=30
)
cuts = st.lists(st.integers(1, 6), min_size=1, max_size=30)


def new_table() -> PaneTable:
    table = PaneTable({"key": pl.String()}, PANE_MS)
    table.keep_columns(AGGREGATIONS, fired_words=1)
    return table


def pane_rows(table: PaneTable, batch: list[Event]) -> PaneRows:
    frame = pl.DataFrame(batch, schema={"key": pl.String, "ms": pl.Int64, "v": pl.Int64}, orient="row")
    exprs = [e for a in AGGREGATIONS for e in a.contributions(pl.lit(value=True), pl.col("v") if a.argument else None)]
    values = frame.select(pl.len().alias("_"), *exprs).drop("_")
    contributions = {n: values[n].to_numpy() for n in values.columns}
    return PaneRows(table.keys.assign(frame), table.pane_numbers(frame["ms"].to_numpy()), contributions)


def split(sequence: list[Event], sizes: list[int]) -> list[list[Event]]:
    batches, start, index = [], 0, 0
    while start < len(sequence):
        size = sizes[index % len(sizes)]
        batches.append(sequence[start : start + size])
        start, index = start + size, index + 1
    return batches


def recompute_windows(history: list[Event], panes: int) -> dict[tuple[str | None, int], tuple[int, int, int]]:
    """Return the windows that contain the last event of the history and end at a pane of its key that holds data."""
    key, ms, _ = history[-1]
    pane = ms // PANE_MS
    mine = [(e[1] // PANE_MS, e[2]) for e in history if e[0] == key]
    ends = {p for p, _ in mine if pane <= p < pane + panes}
    result = {}
    for end in ends:
        values = [v for p, v in mine if end - panes < p <= end]
        result[key, end] = (len(values), sum(values), min(values))
    return result


@given(events, cuts, st.sampled_from([1, 2, 4]))
def test_after_each_event_every_window_equals_its_recomputation_from_all_events(
    sequence: list[Event], sizes: list[int], panes: int
) -> None:
    table, done = new_table(), 0
    for batch in split(sequence, sizes):
        rows = pane_rows(table, batch)
        arrivals = table.arrive(rows)
        windows = table.trail(rows, table.layout(arrivals, panes), panes)
        table.add(rows, arrivals)
        found: dict[int, dict[tuple[object, int], tuple[int, int, int]]] = {}
        keys = table.keys.frame(windows.key_slots).to_series().to_list()
        for i, (row, key) in enumerate(zip(windows.row.tolist(), keys, strict=True)):
            figures = tuple(int(windows.totals[n][i]) for n in ("c.n", "s.s", "m.m"))
            found.setdefault(row, {})[key, int(windows.end_panes[i])] = figures  # type: ignore[assignment]
        for i in range(len(batch)):
            assert found.get(i, {}) == recompute_windows(sequence[: done + i + 1], panes)
        done += len(batch)


@given(events, cuts, st.sampled_from([1, 2, 4]), st.integers(-1, 8), st.integers(0, 8))
def test_closing_windows_hold_all_events_of_their_panes(
    sequence: list[Event], sizes: list[int], panes: int, after: int, more: int
) -> None:
    table = new_table()
    for batch in split(sequence, sizes):
        rows = pane_rows(table, batch)
        table.add(rows, table.arrive(rows))
    windows = table.closing(after, after + more, panes)
    found = {
        (key, int(e)): (int(c), int(t))
        for key, e, c, t in zip(
            table.keys.frame(windows.key_slots).to_series(),
            windows.end_panes,
            windows.totals["c.n"],
            windows.totals["s.s"],
            strict=True,
        )
    }
    expected = {}
    for key in {e[0] for e in sequence}:
        for end in range(after + 1, after + more + 1):
            values = [v for k, ms, v in sequence if k == key and end - panes < ms // PANE_MS <= end]
            if values:
                expected[key, end] = (len(values), sum(values))
    assert found == expected


@given(events, cuts)
def test_a_table_loaded_from_its_changes_equals_the_table(sequence: list[Event], sizes: list[int]) -> None:
    table, copy = new_table(), PaneTable({"key": pl.String()}, PANE_MS)
    for i, batch in enumerate(split(sequence, sizes)):
        rows = pane_rows(table, batch)
        table.add(rows, table.arrive(rows))
        if i % 3 == 0:
            table.set_fired(np.unique(rows.codes)[:1], np.array([5]))
        copy.load(table.changes())
    copy.keep_columns(AGGREGATIONS, fired_words=1)
    everything = [t.rows(0, 1).sort("key", "__pane") for t in (table, copy)]
    assert everything[0].equals(everything[1].select(everything[0].columns))


def test_an_expired_pane_is_dropped_and_its_key_slot_is_reused() -> None:
    table = new_table()
    rows = pane_rows(table, [("a", 5, 1), ("b", 95, 1)])
    table.add(rows, table.arrive(rows))
    table.expire(first_pane=9)
    assert table.rows(0, 1)["key"].to_list() == ["b"]
    assert len(table.keys) == 1
    key_slots = table.keys.assign(pl.DataFrame({"key": ["c"]}))
    assert key_slots.tolist() == [0]
