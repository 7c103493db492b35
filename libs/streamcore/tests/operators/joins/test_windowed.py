"""Co-group and window join, compared with windows computed from all rows at once."""

from __future__ import annotations

from dataclasses import replace

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamcore.errors import ConfigError
from streamcore.operators.base import LATE, MAIN
from streamcore.operators.joins.cogroup import KEYLESS, CoGroup
from streamcore.operators.joins.join_input import REJECTED
from streamcore.operators.joins.output_columns import JoinKeys, JoinKind
from streamcore.operators.joins.window_closing import SessionClosing
from streamcore.operators.joins.window_join import WindowJoin
from streamcore.operators.joins.window_matching import WindowedSpec
from streamcore.schema import EVENT_MS
from streamcore.watermark import NO_WATERMARK
from streamcore.windowing.assigners import Assigner, CalendarDay, Session, Sliding, Tumbling
from streamcore.windowing.model import END_OF_TIME_MS, Element, Window
from tests.harness.apps.two_inputs import Arrival, CutPlan, Driver, Plan, Row, by_value, plans

LEFT = pl.Schema({"k": pl.String(), "n": pl.Int64(), "a": pl.Int64()})
RIGHT = pl.Schema({"k2": pl.String(), "n": pl.Int64(), "b": pl.Boolean()})
KEYS = JoinKeys(("k", "n"), ("k2", "n"))
OUTPUT = pl.Schema(
    {"k": pl.String(), "n": pl.Int64(), "start": pl.Int64(), "as": pl.List(pl.Int64()), "bs": pl.List(pl.Boolean())}
)

keys = st.tuples(st.sampled_from(["x", "x", "y", None]), st.sampled_from([1, 1, 1, None]))
rows = st.one_of(
    st.tuples(st.just(0), st.builds(lambda k, a: (*k, a), keys, st.integers(0, 5))),
    st.tuples(st.just(1), st.builds(lambda k, b: (*k, b), keys, st.booleans())),
)
assigners = st.sampled_from(
    [
        Tumbling("10ms"),
        Tumbling("7ms", "3ms"),
        Sliding("10ms", "5ms"),
        Sliding("10ms", "4ms", "-1ms"),
        Session("1ms"),
        Session("5ms"),
        Session("12ms"),
    ]
)
specs = st.builds(lambda assigner, late: WindowedSpec(KEYS, assigner, late), assigners, st.sampled_from([0, 0, 1, 9]))


def gather(key: tuple[object, ...], window: Window, left: pl.DataFrame, right: pl.DataFrame) -> pl.DataFrame:
    row = (*key, window.start_ms, left["a"].to_list(), right["b"].to_list())
    return pl.DataFrame([row], schema=OUTPUT, orient="row")


def cogroup(spec: WindowedSpec) -> Driver:
    return Driver(lambda: CoGroup(spec, gather, OUTPUT, LEFT, RIGHT), (LEFT, RIGHT))


def window_join(spec: WindowedSpec, kind: JoinKind) -> Driver:
    return Driver(lambda: WindowJoin(spec, kind, LEFT, RIGHT), (LEFT, RIGHT))


def own_windows(assigner: Assigner, row: Arrival) -> list[Window]:
    found = assigner.windows(Element(None, {}, row.event_ms, 0))
    return [window for window in found if isinstance(window, Window)]


def sessions(arrivals: list[Arrival], gap: int) -> list[tuple[Window, list[Arrival]]]:
    found: list[list[Arrival]] = []
    for row in sorted(arrivals, key=lambda a: a.event_ms):
        if found and row.event_ms - found[-1][-1].event_ms < gap:
            found[-1].append(row)
        else:
            found.append([row])
    return [(Window(s[0].event_ms, s[-1].event_ms + gap), [a for a in arrivals if a in s]) for s in found]


class Obvious:
    """Keeps every row, and computes all windows at every watermark. ``closed``: key, window, rows in order."""

    def __init__(self, spec: WindowedSpec, plan: Plan) -> None:
        self.spec = spec
        self.late: list[Arrival] = []
        self.keyless: list[tuple[Arrival, Window]] = []
        self.closed: list[tuple[Row, Window, list[Arrival]]] = []
        self.kept: dict[Row, list[Arrival]] = {}
        self.watermark_ms = NO_WATERMARK
        for cut in plan:
            self._cut(cut)

    def _is_open(self, window: Window) -> bool:
        return window.end_ms + self.spec.allowed_lateness_ms > self.watermark_ms

    def _cut(self, cut: CutPlan) -> None:
        for row in cut.arrivals:
            windows = [w for w in own_windows(self.spec.assigner, row) if self._is_open(w)]
            if not windows:
                self.late.append(row)
            elif None in row.values[:2]:
                self.keyless += [(row, window) for window in windows]
            else:
                self.kept.setdefault(row.values[:2], []).append(row)
        before = self._closed()
        self.watermark_ms = cut.next_watermark_ms
        after = self._closed()
        self.closed += [group for name, group in after.items() if name not in before]
        if isinstance(self.spec.assigner, Session):
            self.kept = {
                key: [r for r in rows if not any(k == key and r in group for k, _, group in after.values())]
                for key, rows in self.kept.items()
            }

    def _closed(self) -> dict[tuple[Row, Window], tuple[Row, Window, list[Arrival]]]:
        found = {}
        for key, arrivals in self.kept.items():
            for window, group in self._windows(arrivals):
                if not self._is_open(window):
                    found[key, window] = (key, window, group)
        return found

    def _windows(self, arrivals: list[Arrival]) -> list[tuple[Window, list[Arrival]]]:
        if isinstance(self.spec.assigner, Session):
            return sessions(arrivals, self.spec.assigner.gap_ms)
        windows = {w for a in arrivals for w in own_windows(self.spec.assigner, a)}
        return [(w, [a for a in arrivals if w.start_ms <= a.event_ms < w.end_ms]) for w in windows]


def expected_groups(closed: list[tuple[Row, Window, list[Arrival]]]) -> list[Row]:
    return by_value(
        [
            (
                *key,
                window.start_ms,
                [a.values[2] for a in group if a.side == 0],
                [a.values[2] for a in group if a.side == 1],
                window.end_ms - 1,
            )
            for key, window, group in closed
        ]
    )


def expected_pairs(obvious: Obvious, kind: JoinKind) -> list[Row]:
    """Columns: k, n, a, b, end of window."""
    result: list[Row] = []
    for key, window, group in obvious.closed:
        lefts, rights = ([a for a in group if a.side == side] for side in (0, 1))
        result += [(*key, a.values[2], b.values[2], window.end_ms) for a in lefts for b in rights]
        if kind in (JoinKind.LEFT, JoinKind.FULL) and not rights:
            result += [(*key, a.values[2], None, window.end_ms) for a in lefts]
        if kind in (JoinKind.RIGHT, JoinKind.FULL) and not lefts:
            result += [(*key, None, b.values[2], window.end_ms) for b in rights]
    for row, window in obvious.keyless:
        if row.side == 0 and kind in (JoinKind.LEFT, JoinKind.FULL):
            result.append((*row.values, None, window.end_ms))
        if row.side == 1 and kind in (JoinKind.RIGHT, JoinKind.FULL):
            result.append((*row.values[:2], None, row.values[2], window.end_ms))
    return by_value(result)


def joined_rows(run: Driver) -> list[Row]:
    columns = run.columns[MAIN]
    assert columns == ["k", "n", "a", "b", EVENT_MS, "window_start", "window_end"]
    return by_value([(*row[:4], row[4] + 1) for row in run.ports[MAIN]])  # type: ignore[operator]


@settings(max_examples=100, deadline=None)
@given(plans(rows), specs)
def test_every_group_is_emitted_once_with_all_rows_of_both_inputs_in_any_cuts(plan: Plan, spec: WindowedSpec) -> None:
    run = cogroup(spec).run(plan)
    whole = Obvious(spec, [CutPlan(tuple(a for cut in plan for a in cut.arrivals), END_OF_TIME_MS, restart=False)])
    assert by_value(run.ports[MAIN]) == expected_groups(whole.closed)
    assert run.ports[LATE] == run.ports[REJECTED] == []
    assert len(run.ports[KEYLESS]) == sum(None in a.values[:2] for cut in plan for a in cut.arrivals)


@settings(max_examples=100, deadline=None)
@given(plans(rows, late=True), specs)
def test_late_rows_are_accepted_until_their_last_window_closes(plan: Plan, spec: WindowedSpec) -> None:
    run, obvious = cogroup(spec).run(plan), Obvious(spec, plan)
    assert by_value(run.ports[MAIN]) == expected_groups(obvious.closed)
    assert len(run.ports[LATE]) == len(obvious.late) == run.counts["left_late"] + run.counts["right_late"]


@settings(max_examples=100, deadline=None)
@given(plans(rows, late=True), specs, st.sampled_from(list(JoinKind)))
def test_a_window_join_gives_all_pairs_of_a_key_and_window_and_the_rows_without_a_partner(
    plan: Plan, spec: WindowedSpec, kind: JoinKind
) -> None:
    assert joined_rows(window_join(spec, kind).run(plan)) == expected_pairs(Obvious(spec, plan), kind)


@settings(max_examples=60, deadline=None)
@given(plans(rows, late=True), specs)
def test_a_group_is_emitted_in_the_cut_whose_watermark_closes_it(plan: Plan, spec: WindowedSpec) -> None:
    run = cogroup(spec)
    for length, cut in enumerate(plan, 1):
        run.cut(cut)
        assert by_value(run.ports[MAIN]) == expected_groups(Obvious(spec, plan[:length]).closed)


@settings(max_examples=60, deadline=None)
@given(plans(rows, late=True), specs, st.sampled_from([2, 1000]))
def test_a_restart_changes_neither_the_output_nor_its_order_nor_the_rejected_rows(
    plan: Plan, spec: WindowedSpec, max_rows: int
) -> None:
    spec = replace(spec, max_rows=max_rows)
    straight, broken = cogroup(spec), cogroup(spec)
    for cut in plan:
        straight.cut(replace(cut, restart=False))
        broken.cut(cut)
        assert straight.ports == broken.ports
        assert straight.counts == broken.counts
    assert broken.counts["left_kept"] == broken.counts["right_kept"] == 0


@settings(max_examples=60, deadline=None)
@given(plans(rows), specs)
def test_output_is_never_further_behind_the_watermark_than_the_declared_delay(plan: Plan, spec: WindowedSpec) -> None:
    run = window_join(spec, JoinKind.FULL)
    for cut in plan:
        before, seen = run.watermark_ms, len(run.ports.get(MAIN, []))
        run.cut(cut)
        assert all(row[4] >= before - spec.allowed_lateness_ms for row in run.ports[MAIN][seen:])  # type: ignore[operator]


@pytest.mark.parametrize("assigner", [Tumbling("10ms"), Sliding("10ms", "5ms"), Session("10ms")])
def test_after_a_restart_rows_of_closed_windows_do_not_count_against_the_limit(assigner: Assigner) -> None:
    run = cogroup(WindowedSpec(KEYS, assigner, max_rows=1))
    run.cut(CutPlan((Arrival(0, 5, ("x", 1, 1)),), 0, restart=False))
    run.cut(CutPlan((Arrival(1, 25, ("x", 1, True)),), 20, restart=True))
    run.cut(CutPlan((Arrival(0, 35, ("x", 1, 2)),), 20, restart=True))
    assert run.ports[REJECTED] == []


@pytest.mark.slow
def test_a_session_that_never_ends_is_not_read_again_in_every_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    found_sizes = []
    original = SessionClosing._lasts

    def count_found(self: SessionClosing, *args: object) -> object:
        found = original(self, *args)  # type: ignore[arg-type]
        found_sizes.append(len(found))
        return found

    monkeypatch.setattr(SessionClosing, "_lasts", count_found)
    run = cogroup(WindowedSpec(KEYS, Session("10ms")))
    for start in range(0, 1000, 50):
        arrivals = tuple(Arrival(at % 2, at, ("x", 1, at if at % 2 == 0 else True)) for at in range(start, start + 50))
        run.cut(CutPlan(arrivals, start + 49, restart=False))
    assert sum(found_sizes) == 0
    run.cut(CutPlan((), END_OF_TIME_MS, restart=False))
    assert [len(row[3]) + len(row[4]) for row in run.ports[MAIN]] == [1000]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"assigner": Session("5ms", "gap")}, "two inputs meet in"),
        ({"assigner": CalendarDay("UTC")}, "two inputs meet in"),
        ({"allowed_lateness_ms": -1}, "must not be negative"),
        ({"max_rows": 0}, "must be positive"),
    ],
)
def test_inputs_that_do_not_match_are_rejected_when_the_join_is_built(change: dict[str, object], message: str) -> None:
    spec = WindowedSpec(KEYS, Tumbling("10ms"))
    with pytest.raises(ConfigError, match=message):
        cogroup(replace(spec, **change))  # type: ignore[arg-type]


def test_a_column_with_a_name_of_the_output_is_rejected() -> None:
    spec = WindowedSpec(KEYS, Tumbling("10ms"))
    left = pl.Schema({**LEFT, "window_start": pl.Int64()})
    with pytest.raises(ConfigError, match="rename"):
        WindowJoin(spec, JoinKind.INNER, left, RIGHT)
