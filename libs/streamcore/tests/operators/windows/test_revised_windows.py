"""Windows as a changing table: the highest revisions of all names are the table, however the input is cut."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamcore.aggregates import Count, Sum
from streamcore.durations import Milliseconds
from streamcore.errors import ConfigError
from streamcore.operators.base import LATE, MAIN, CutTime
from streamcore.operators.windows.revised_operator import RevisedWindows
from streamcore.schema import EVENT_MS
from streamcore.state import MemoryBlobs, StateLog, StateSettings
from streamcore.state.state_log import HEAD
from streamcore.watermark import END_OF_TIME_MS, NO_WATERMARK
from streamcore.windowing import (
    Accumulation,
    AfterWatermark,
    Assigner,
    Never,
    RevisionPolicy,
    Session,
    Sliding,
    Tumbling,
    WindowSpec,
)

SCHEMA = {"key": pl.String(), "gap": pl.Int64(), "v": pl.Decimal(12, 2)}
SETTINGS = StateSettings(buckets=3)

#: Key, event time, own gap, value in cents.
Row = tuple[str | None, int, int | None, int]


@dataclass(frozen=True)
class Cut:
    rows: list[Row]
    clock_ms: int
    watermark_ms: int


@dataclass
class Runner:
    """Feeds the operator. ``restarts``: in each cut it starts from stored state."""

    assigner: Assigner
    policy: RevisionPolicy
    lateness_ms: int = 0
    restarts: bool = False
    watermark_ms: int = NO_WATERMARK
    blobs: MemoryBlobs = field(default_factory=MemoryBlobs)

    def __post_init__(self) -> None:
        self._make()

    def _make(self) -> None:
        trigger = AfterWatermark(late=Never())
        spec = WindowSpec(self.assigner, trigger, Accumulation.ACCUMULATING, Milliseconds(self.lateness_ms))
        aggregates = {"events": Count(), "total": Sum("v")}
        self.operator = RevisedWindows(spec, self.policy, ("key",), SCHEMA, aggregates)
        self.log = StateLog(SETTINGS)

    def cut(self, cut: Cut) -> tuple[pl.DataFrame, pl.DataFrame]:
        time = CutTime(self.watermark_ms, cut.watermark_ms, cut.clock_ms)
        ports = self.operator.step([frame(cut.rows)], time)
        self.watermark_ms = cut.watermark_ms
        self.log.commit(self.blobs, self.operator.tables(), {})
        if self.restarts:
            self._make()
            self.log.load(self.blobs.get(HEAD), self.blobs, self.operator.tables().__getitem__)
            self.operator.on_state_loaded()
        return ports[MAIN], ports[LATE]


def frame(rows: Sequence[Row]) -> pl.DataFrame:
    columns = {
        "key": [row[0] for row in rows],
        "gap": [row[2] for row in rows],
        "v": [Decimal(row[3]) / 100 for row in rows],
        EVENT_MS: [row[1] for row in rows],
    }
    return pl.DataFrame(columns, schema={**SCHEMA, EVENT_MS: pl.Int64()})


# --- the oracle -----------------------------------------------------------------------------------------------------

#: Key, start, end, events, cents.
Window = tuple[str | None, int, int, int, int]


def expected_windows(assigner: Assigner, rows: Iterable[Row]) -> list[Window]:
    """Compute the windows of all rows at once, in order of time."""
    found: dict[str | None, list[list[int]]] = defaultdict(list)
    for key, at, gap, cents in sorted(rows, key=lambda row: row[1]):
        if isinstance(assigner, Tumbling):
            start, end = at // assigner.size_ms * assigner.size_ms, at // assigner.size_ms * assigner.size_ms
            end += assigner.size_ms
        else:
            assert isinstance(assigner, Session)
            own = gap if assigner.gap_field and gap is not None and gap > 0 else assigner.gap_ms
            start, end = at, at + own
        last = found[key][-1] if found[key] else None
        if last is None or start >= last[1]:
            found[key].append([start, end, 1, cents])
        else:
            last[1:] = [max(last[1], end), last[2] + 1, last[3] + cents]
    windows = [(key, *one) for key, of in found.items() for one in of]
    return sorted(windows, key=repr)  # type: ignore[arg-type]


def accepted_rows(assigner: Assigner, lateness_ms: int, cuts: Sequence[Cut]) -> list[Row]:
    """Return the rows that are not late."""
    watermark_ms, found = NO_WATERMARK, list[Row]()
    for cut in cuts:
        for row in cut.rows:
            if isinstance(assigner, Tumbling):
                late = (row[1] // assigner.size_ms + 1) * assigner.size_ms <= watermark_ms - lateness_ms
            else:
                late = row[1] < watermark_ms - lateness_ms
            found += [] if late else [row]
        watermark_ms = cut.watermark_ms
    return found


def latest_revisions(records: pl.DataFrame) -> pl.DataFrame:
    """Return the highest revision of each name, without deleted windows."""
    latest = records.sort("revision").group_by("key", "window_anchor", maintain_order=True).last()
    return latest.filter(~pl.col("is_deleted"))


def to_windows(table: pl.DataFrame) -> list[Window]:
    rows = table.select(
        "key",
        pl.col("window_start", "window_end").dt.epoch("ms"),
        "events",
        (pl.col("total") * 100).cast(pl.Int64),
    ).rows()
    return sorted(rows, key=repr)


# --- any input, any cuts --------------------------------------------------------------------------------------------

rows = st.tuples(
    st.sampled_from(["a", "b", None]),
    st.integers(-20, 90),
    st.none() | st.integers(-1, 25),
    st.integers(-500, 500),
)


@st.composite
def inputs(draw: st.DrawFn) -> list[Cut]:
    clock_ms, watermark_ms, found = 0, -60, list[Cut]()
    for chunk in draw(st.lists(st.lists(rows, max_size=6), max_size=10)):
        clock_ms += draw(st.integers(0, 8))
        watermark_ms += draw(st.integers(0, 25))
        found.append(Cut(chunk, clock_ms, watermark_ms))
    return [*found, Cut([], clock_ms, END_OF_TIME_MS)]


assigners = st.sampled_from([Session("7ms"), Session("7ms", "gap"), Tumbling("10ms")])
revisings = st.builds(RevisionPolicy, st.sampled_from([0, 1, 5]).map(Milliseconds), st.booleans())


@settings(max_examples=60, deadline=None)
@given(assigners, revisings, st.sampled_from([0, 3, 30]), inputs(), st.booleans())
def test_the_revised_table_holds_the_windows_of_the_accepted_rows(
    assigner: Assigner, policy: RevisionPolicy, lateness_ms: int, cuts: list[Cut], restarts: bool
) -> None:
    runner = Runner(assigner, policy, lateness_ms, restarts)
    outputs = [runner.cut(cut) for cut in cuts]
    records = pl.concat([main for main, _ in outputs])
    accepted = accepted_rows(assigner, lateness_ms, cuts)
    assert sum(late.height for _, late in outputs) == sum(len(cut.rows) for cut in cuts) - len(accepted)
    table = latest_revisions(records)
    assert to_windows(table) == expected_windows(assigner, accepted)
    assert table["is_final"].all()
    check_names(records)
    if policy.once:
        assert records["revision"].to_list() == [1] * table.height
    assert runner.operator.tables()["sessions"].rows(0, 1).height == 0


def check_names(records: pl.DataFrame) -> None:
    """Revisions count from 1, the last record of a name is its final one, and a session was merged into one that was
    emitted in the same cut or before."""
    seen: dict[tuple[object, object], tuple[int, bool]] = {}
    for row in records.iter_rows(named=True):
        name = row["key"], row["window_anchor"]
        revision, final = seen.get(name, (0, False))
        assert not final
        assert row["revision"] == revision + 1
        seen[name] = row["revision"], row["is_final"]
        assert row["is_deleted"] == (row["merged_into"] is not None)
        if row["is_deleted"]:
            assert revision > 0
            assert (row["key"], row["merged_into"]) in seen
    assert all(final for _, final in seen.values())


@settings(max_examples=40, deadline=None)
@given(assigners, st.lists(rows, min_size=1, max_size=25), st.lists(st.integers(0, 25), max_size=4), revisings)
def test_the_revised_table_does_not_depend_on_how_the_input_is_cut(
    assigner: Assigner, every: list[Row], breaks: list[int], policy: RevisionPolicy
) -> None:
    """The watermark is the latest event time so far minus 120, so no row is late."""
    ends = sorted({*breaks, len(every)})
    cuts, first = [], 0
    for number, end in enumerate(ends):
        latest = max([row[1] for row in every[: max(end, 1)]])
        cuts.append(Cut(every[first:end], number * 3, latest - 120))
        first = max(first, end)
    runner = Runner(assigner, policy, lateness_ms=0)
    records = pl.concat([runner.cut(cut)[0] for cut in [*cuts, Cut([], 99, END_OF_TIME_MS)]])
    assert to_windows(latest_revisions(records)) == expected_windows(assigner, every)


# --- single cases ---------------------------------------------------------------------------------------------------


def revisions(records: pl.DataFrame) -> list[tuple[object, ...]]:
    times = pl.col("window_anchor", "window_start", "window_end", "merged_into").dt.epoch("ms")
    return records.select(times, "revision", "is_final", "is_deleted", "events").rows()


def test_a_session_that_grows_backwards_keeps_its_name() -> None:
    runner = Runner(Session("10ms"), RevisionPolicy(at_end=True), lateness_ms=100)
    first, _ = runner.cut(Cut([("a", 50, None, 1)], 0, 70))
    assert revisions(first) == [(50, 50, 60, None, 1, False, False, 1)]
    again, _ = runner.cut(Cut([("a", 45, None, 1)], 0, 71))
    assert revisions(again) == [(50, 45, 60, None, 2, False, False, 2)]
    final, _ = runner.cut(Cut([], 0, 160))
    assert revisions(final) == [(50, 45, 60, None, 3, True, False, 2)]


def test_merging_two_sessions_retracts_the_later_one_and_revises_the_earlier_one() -> None:
    runner = Runner(Session("10ms"), RevisionPolicy(at_end=True), lateness_ms=100)
    runner.cut(Cut([("a", 50, None, 1), ("a", 65, None, 1)], 0, 80))
    merged, _ = runner.cut(Cut([("a", 57, None, 1)], 0, 80))
    assert revisions(merged) == [(65, 65, 75, 50, 2, True, True, 0), (50, 50, 75, None, 2, False, False, 3)]


def test_merging_a_session_that_was_never_emitted_retracts_nothing() -> None:
    runner = Runner(Session("10ms"), RevisionPolicy(early_ms="5ms"), lateness_ms=100)
    runner.cut(Cut([("a", 50, None, 1)], 0, 0))
    early, _ = runner.cut(Cut([("a", 35, None, 1)], 5, 0))
    assert revisions(early) == [(50, 50, 60, None, 1, False, False, 1)]
    assert revisions(runner.cut(Cut([("a", 42, None, 1)], 9, 0))[0]) == []
    merged, _ = runner.cut(Cut([], 14, 0))
    assert revisions(merged) == [(50, 35, 60, None, 2, False, False, 3)]


def test_an_early_record_is_emitted_when_the_clock_has_passed_the_delay_after_the_first_change() -> None:
    runner = Runner(Session("10ms"), RevisionPolicy(early_ms="5ms"))
    assert revisions(runner.cut(Cut([("a", 50, None, 1)], 100, 0))[0]) == []
    assert revisions(runner.cut(Cut([("a", 51, None, 1)], 104, 0))[0]) == []
    assert revisions(runner.cut(Cut([], 105, 0))[0]) == [(50, 50, 61, None, 1, False, False, 2)]
    assert revisions(runner.cut(Cut([], 999, 0))[0]) == []


def test_windows_that_cannot_be_revised_are_rejected() -> None:
    spec = WindowSpec(Sliding("10ms", "5ms"), AfterWatermark(), Accumulation.ACCUMULATING)
    with pytest.raises(ConfigError, match="only sessions and tumbling"):
        RevisedWindows(spec, RevisionPolicy(), ("key",), SCHEMA, {"events": Count()})


def test_windows_beyond_the_limit_are_counted() -> None:
    spec = WindowSpec(Session("10ms"), AfterWatermark(), Accumulation.ACCUMULATING)
    operator = RevisedWindows(spec, RevisionPolicy(), ("key",), SCHEMA, {"events": Count()}, max_windows=1)
    operator.step([frame([("a", 1, None, 1), ("b", 2, None, 1)])], CutTime(NO_WATERMARK, 0, 0))
    assert operator.metrics()["rejected"] == 1
