"""Latest joins equal two dictionaries, change by change, with any cuts, restarts and refresh intervals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamcore.errors import ConfigError
from streamcore.operators.base import MAIN
from streamcore.operators.joins.join_input import REJECTED
from streamcore.operators.joins.latest import TableTableJoin, TableTableSpec
from streamcore.operators.joins.output_columns import JoinKeys
from streamcore.watermark import NO_WATERMARK
from tests.harness.apps.two_inputs import Arrival, CutPlan, Driver, Plan, Row, plans

THINGS = pl.Schema({"id": pl.String(), "name": pl.String(), "place": pl.Int64(), "gone": pl.Boolean()})
FIGURES = pl.Schema({"thing": pl.String(), "sold": pl.Int64(), "quiet": pl.Boolean()})
SPEC = TableTableSpec(JoinKeys(("id",), ("thing",)), "gone", "quiet", ("place",))

ids = st.sampled_from(["a", "b", "c"])
names = st.sampled_from(["x", "y", None])
things = st.tuples(st.just(0), st.tuples(ids, names, st.integers(0, 3), st.sampled_from([None, False, False, True])))
figures = st.tuples(st.just(1), st.tuples(ids, st.integers(0, 9), st.sampled_from([None, False, True])))
changes = st.one_of(things, figures)
pauses = st.sampled_from([0, 5, 30])


@st.composite
def timed(draw: st.DrawFn) -> Plan:
    """Draw a plan with a clock that advances."""
    clock, cuts = 1_000, []
    for cut in draw(plans(changes, late=True)):
        clock += draw(st.integers(0, 12))
        cuts.append(replace(cut, clock_ms=clock))
    return cuts


def driver(refresh_ms: int = 0, max_rows: int = 1_000) -> Driver:
    spec = replace(SPEC, refresh_ms=refresh_ms, max_rows=max_rows)
    return Driver(lambda: TableTableJoin(spec, THINGS, FIGURES), (THINGS, FIGURES))


@dataclass
class Plain:
    """The definition, one change at a time."""

    refresh_ms: int
    things: dict[object, Arrival] = field(default_factory=dict)
    figures: dict[object, Row] = field(default_factory=dict)
    emitted_at_ms: dict[object, int] = field(default_factory=dict)
    waits: set[object] = field(default_factory=set)

    def cut(self, cut: CutPlan) -> dict[object, Row]:
        """Return the rows to emit, by key: the columns without the event time."""
        before = dict(self.things)
        due = set(self.waits)
        for one in cut.arrivals:
            key = one.values[0]
            if one.side == 0:
                held = self.things.get(key)
                if held is None or version(one) >= version(held):
                    self.things[key] = one
            else:
                self.figures[key] = one.values[1:]
                due.add(key)
        emitted = {key for key in self.things if self.changed(before.get(key), self.things[key])}
        others = {key for key in due - emitted if key in self.things and not deleted(self.things[key])}
        free = {key for key in others if cut.clock_ms - self.emitted_at_ms.get(key, 0) >= self.refresh_ms}
        self.waits = others - free
        self.emitted_at_ms |= dict.fromkeys(emitted | free, cut.clock_ms)
        return {key: self.document(key) for key in emitted | free}

    def changed(self, before: Arrival | None, now: Arrival) -> bool:
        if before is None or before is now:
            return before is None
        if deleted(before) or deleted(now):
            return deleted(before) != deleted(now)
        return content(before) != content(now)

    def document(self, key: object) -> Row:
        figures = self.figures.get(key, (None, True))
        quiet = figures[1] is True or deleted(self.things[key])
        return (*self.things[key].values, *((None, None) if quiet else figures))


def version(change: Arrival) -> tuple[int, object]:
    return change.event_ms, change.values[2]


def deleted(change: Arrival) -> bool:
    return change.values[3] is True


def content(change: Arrival) -> tuple[object, ...]:
    return (change.values[1], change.values[3])


@settings(max_examples=30, deadline=None)
@given(timed(), pauses)
def test_every_cut_emits_what_the_definition_emits(plan: Plan, refresh_ms: int) -> None:
    at_work, plain = driver(refresh_ms), Plain(refresh_ms)
    for cut in plan:
        at_work.ports = {}
        at_work.cut(cut)
        found = at_work.ports[MAIN]
        assert {row[0]: row[:-1] for row in found} == plain.cut(cut)
        assert len({row[0] for row in found}) == len(found)
    assert at_work.ports[REJECTED] == []


@settings(max_examples=30, deadline=None)
@given(timed(), timed(), pauses)
def test_the_last_rows_do_not_depend_on_how_the_changes_are_cut(plan: Plan, other: Plan, refresh_ms: int) -> None:
    """The second plan's cuts with the first one's changes, and both with a quiet cut at the end."""
    arrivals = [a for cut in plan for a in cut.arrivals]
    again = _with_cuts_of(other, arrivals)
    assert last_rows(plan, refresh_ms) == last_rows(again, refresh_ms)


def _with_cuts_of(other: Plan, arrivals: Sequence[Arrival]) -> Plan:
    cuts, start = [], 0
    for cut in other:
        end = start + len(cut.arrivals)
        cuts.append(replace(cut, arrivals=tuple(arrivals[start:end])))
        start = end
    return [*cuts, replace(other[-1], arrivals=tuple(arrivals[start:]))]


def last_rows(plan: Plan, refresh_ms: int) -> dict[object, Row]:
    """Return the final table: the last row of each key, without deleted keys."""
    at_work = driver(refresh_ms).run([*plan, CutPlan((), plan[-1].next_watermark_ms, restart=True, clock_ms=10**6)])
    found = {row[0]: row[:-1] for row in at_work.ports[MAIN]}
    return {key: (row[1], row[4]) for key, row in found.items() if row[3] is not True}


@settings(max_examples=30, deadline=None)
@given(timed(), pauses)
def test_a_restart_changes_neither_the_output_nor_its_order(plan: Plan, refresh_ms: int) -> None:
    straight, broken = driver(refresh_ms), driver(refresh_ms)
    for cut in plan:
        straight.cut(replace(cut, restart=False))
        broken.cut(cut)
        assert straight.ports == broken.ports
        assert straight.counts == broken.counts


@settings(max_examples=30, deadline=None)
@given(timed())
def test_changes_of_the_right_side_emit_a_key_at_most_once_per_refresh_interval(plan: Plan) -> None:
    at_work, emitted = driver(30), dict[object, tuple[int, Row]]()
    for cut in plan:
        at_work.ports = {}
        at_work.cut(cut)
        for row in at_work.ports[MAIN]:
            before_ms, before = emitted.get(row[0], (0, ()))
            assert cut.clock_ms - before_ms >= 30 or before[:4] != row[:4] or _changes_left(cut, row[0])
            emitted[row[0]] = cut.clock_ms, row


def _changes_left(cut: CutPlan, key: object) -> bool:
    return any(a.side == 0 and a.values[0] == key for a in cut.arrivals)


def left_row(key: str, name: str, at_ms: int, *, gone: bool = False, place: int = 0) -> Arrival:
    return Arrival(0, at_ms, (key, name, place, gone))


def test_a_deletion_is_emitted_once_and_older_rows_do_not_restore_the_key() -> None:
    at_work = driver()
    for arrival in (
        left_row("a", "x", 10),
        left_row("a", "", 20, gone=True),
        left_row("a", "", 21, gone=True),
        left_row("a", "y", 15),
        left_row("a", "z", 30),
    ):
        at_work.cut(CutPlan((arrival,), NO_WATERMARK, restart=True))
    assert [(row[1], row[3]) for row in at_work.ports[MAIN]] == [("x", False), ("", True), ("z", False)]
    assert at_work.counts["left_older"] == 1


def test_of_equal_times_the_later_offset_wins_in_any_order_of_arrival() -> None:
    at_work = driver()
    at_work.cut(
        CutPlan((left_row("a", "later", 10, place=2), left_row("a", "first", 10, place=1)), NO_WATERMARK, False)
    )
    at_work.cut(CutPlan((left_row("a", "first", 10, place=1),), NO_WATERMARK, restart=False))
    assert [row[1] for row in at_work.ports[MAIN]] == ["later"]


def test_a_full_table_rejects_new_keys_and_accepts_changes_of_existing_ones() -> None:
    at_work = driver(max_rows=1)
    arrivals = (
        left_row("a", "x", 1),
        left_row("b", "x", 1),
        Arrival(1, 1, ("b", 5, False)),
        Arrival(1, 1, ("a", 6, False)),
    )
    at_work.cut(CutPlan(arrivals, NO_WATERMARK, restart=False))
    at_work.cut(CutPlan((left_row("a", "y", 2),), NO_WATERMARK, restart=False))
    assert [row[:2] for row in at_work.ports[MAIN]] == [("a", "x"), ("a", "y")]
    assert at_work.counts["left_rejected"] == at_work.counts["right_rejected"] == 1
    assert len(at_work.ports[REJECTED]) == 2


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (replace(SPEC, deleted="nope"), "must be a column"),
        (replace(SPEC, right_deleted="thing"), "not part of its key"),
        (replace(SPEC, order=("name",)), "whole numbers"),
        (replace(SPEC, refresh_ms=-1), "must not be negative"),
    ],
)
def test_an_invalid_join_is_rejected_when_it_is_built(spec: TableTableSpec, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        TableTableJoin(spec, THINGS, FIGURES)
