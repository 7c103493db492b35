"""Plans: what a change of an app means for its state, said before anything starts. Written by hand, case by case."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamcore.savepoint import AppDescription, Decisions, SavepointManifest, StateTableDescription, Verdict, plan
from streamcore.savepoint.manifest import OperatorDescription, StoredTable

APP = AppDescription(
    name="shop",
    shards=4,
    stages=2,
    topics=("orders", "views"),
    control_topic="shop.control",
    domains=(("orders", "views"),),
    tables=(
        StateTableDescription("sums/panes", 0, {"user": "String", "total": "Int64"}),
        StateTableDescription("running/values", 0, {}, version=2, reads=(1,)),
        StateTableDescription("join/left", 1, {"user": "String"}),
    ),
)


def stored(name: str, stage: int = 0, versions: tuple[int, ...] = (1,), **columns: str) -> StoredTable:
    return StoredTable(name, stage, 10, 100, columns, versions)


SAVED = SavepointManifest(
    name="one",
    epoch=1,
    batch=7,
    created_ms=0,
    version="1",
    settled=True,
    app=APP,
    position={"clock_ms": 0, "topics": {}},
    domains=(),
    tables=(
        stored("sums/panes", user="String", total="Int64"),
        stored("running/values", versions=(2,)),
        stored("join/left", stage=1, user="String"),
    ),
    files=(),
)


def of(*tables: StoredTable) -> SavepointManifest:
    return replace(SAVED, tables=tables)


def texts(saved: SavepointManifest, app: AppDescription, decided: Decisions | None = None) -> tuple[Verdict, str]:
    found = plan(saved, app, decided)
    return found.verdict, "; ".join(reason.text for reason in found.reasons)


def test_the_same_app_is_compatible_and_each_table_goes_to_its_stage() -> None:
    found = plan(SAVED, APP)
    assert (found.verdict, found.reasons, found.possible) == (Verdict.COMPATIBLE, (), True)
    assert found.stages == {(0, "sums/panes"): 0, (0, "running/values"): 0, (1, "join/left"): 1}


def test_state_follows_its_operator_to_another_stage() -> None:
    moved = replace(APP, tables=(*APP.tables[:2], replace(APP.tables[2], stage=0)))
    assert plan(SAVED, moved).stages[1, "join/left"] == 0


def test_two_stages_cannot_give_state_of_one_name_to_one() -> None:
    both = of(stored("sums/panes", user="String", total="Int64"), stored("sums/panes", 1, user="String", total="Int64"))
    assert texts(both, APP)[0] is Verdict.INCOMPATIBLE


@pytest.mark.parametrize(
    ("change", "verdict", "text"),
    [
        ({"name": "other"}, Verdict.INCOMPATIBLE, "it is of app shop, and this is other"),
        ({"shards": 8}, Verdict.INCOMPATIBLE, "it has 4 shards, the app is set to 8; set it to 4"),
        ({"topics": ("orders",)}, Verdict.DECISION, "topics views would not be read any more"),
        ({"topics": ("orders", "views", "clicks")}, Verdict.COMPATIBLE, "topic clicks is new"),
        ({"control_topic": "c"}, Verdict.DECISION, "control records came from shop.control"),
        ({"tables": APP.tables[:2]}, Verdict.DECISION, r"nothing in this app takes the state join/left \(10 rows\)"),
    ],
)
def test_what_changes_is_said(change: dict[str, object], verdict: Verdict, text: str) -> None:
    found, said = texts(SAVED, replace(APP, **change))  # type: ignore[arg-type]
    assert found is verdict
    assert re.search(text, said), said


def test_a_decision_makes_way() -> None:
    assert (
        texts(SAVED, replace(APP, tables=APP.tables[:2]), Decisions(drop=frozenset({"join"})))[0] is Verdict.COMPATIBLE
    )
    fewer = replace(APP, topics=("orders",))
    assert texts(SAVED, fewer, Decisions(accept=frozenset({"topic-gone"})))[0] is Verdict.COMPATIBLE
    unsettled = replace(SAVED, settled=False)
    assert texts(unsettled, APP)[0] is Verdict.DECISION
    assert texts(unsettled, APP, Decisions(accept=frozenset({"unsettled"})))[0] is Verdict.COMPATIBLE


@pytest.mark.parametrize(
    ("now", "verdict"),
    [
        (OperatorDescription("join", ("orders", "views"), 500), Verdict.COMPATIBLE),
        (OperatorDescription("join", ("views", "orders"), 400), Verdict.COMPATIBLE),
        (OperatorDescription("join", ("orders",), 500), Verdict.DECISION),
        (OperatorDescription("join", ("orders", "views"), 501), Verdict.DECISION),
        (OperatorDescription("visits", ("views",), 900), Verdict.COMPATIBLE),
    ],
)
def test_an_operator_that_would_see_another_time_needs_a_decision(now: OperatorDescription, verdict: Verdict) -> None:
    before = replace(APP, operators=(OperatorDescription("join", ("orders", "views"), 500),))
    saved, app = replace(SAVED, app=before), replace(APP, operators=(now,))
    assert plan(saved, app).verdict is verdict
    assert plan(saved, app, Decisions(accept=frozenset({"time-moved"}))).possible


def test_what_is_dropped_is_given_to_nobody() -> None:
    assert (1, "join/left") not in plan(SAVED, APP, Decisions(drop=frozenset({"join"}))).stages


def test_a_new_operator_starts_empty() -> None:
    more = replace(APP, tables=(*APP.tables, StateTableDescription("visits/panes", 0)))
    assert texts(SAVED, more) == (Verdict.COMPATIBLE, "visits is new: it starts empty")


@pytest.mark.parametrize(
    ("versions", "verdict"),
    [
        ((1,), Verdict.MIGRATES),
        ((1, 2), Verdict.MIGRATES),
        ((2,), Verdict.COMPATIBLE),
        ((3,), Verdict.INCOMPATIBLE),
        ((0,), Verdict.INCOMPATIBLE),
    ],
)
def test_versions_of_rows_need_a_way_to_the_program_s(versions: tuple[int, ...], verdict: Verdict) -> None:
    assert texts(of(stored("running/values", versions=versions)), APP)[0] is verdict


@pytest.mark.parametrize(
    ("columns", "verdict"),
    [
        ({"user": "String", "total": "Int64", "more": "String"}, Verdict.COMPATIBLE),
        ({"user": "String", "total": "Null"}, Verdict.COMPATIBLE),
        ({"user": "String", "total": "String"}, Verdict.INCOMPATIBLE),
        ({"user": "String"}, Verdict.INCOMPATIBLE),
    ],
)
def test_rows_of_one_version_have_the_columns_that_are_wanted(columns: dict[str, str], verdict: Verdict) -> None:
    assert texts(of(stored("sums/panes", 0, (1,), **columns)), APP)[0] is verdict


@pytest.mark.parametrize(
    ("tables", "verdict"),
    [
        ((stored("sums/panes", user="String", total="Int64"),), Verdict.COMPATIBLE),
        ((stored("join/left", 1, user="String", __partition="Int32"),), Verdict.INCOMPATIBLE),
        ((stored("rules"),), Verdict.INCOMPATIBLE),
    ],
)
def test_a_topic_may_change_its_place_where_no_state_rests_on_it(
    tables: tuple[StoredTable, ...], verdict: Verdict
) -> None:
    swapped = replace(APP, topics=("views", "orders"), tables=(*APP.tables, StateTableDescription("rules", 0)))
    assert plan(of(*tables), swapped).verdict is verdict


_CHANGES = st.fixed_dictionaries(
    {},
    optional={
        "shards": st.integers(1, 5),
        "topics": st.permutations(["orders", "views", "clicks"]).map(lambda t: tuple(t[:2])),
        "control_topic": st.sampled_from(["shop.control", "c"]),
        "tables": st.lists(st.sampled_from(APP.tables), unique_by=lambda t: t.name).map(tuple),
    },
)


@given(change=_CHANGES, drop=st.frozensets(st.sampled_from(["join", "sums/panes", "running"])))
def test_a_plan_that_is_possible_gives_every_table_to_somebody_or_drops_it(
    change: dict[str, object], drop: frozenset[str]
) -> None:
    app, decided = replace(APP, **change), Decisions(drop)  # type: ignore[arg-type]
    found = plan(SAVED, app, decided)
    takers = {(one.stage, one.name) for one in app.tables}
    for table in SAVED.tables:
        taken = found.stages.get((table.stage, table.name))
        assert (taken is None) == (decided.drops(table.name) or table.name not in {name for _, name in takers})
        assert taken is None or (taken, table.name) in takers
        assert not found.possible or taken is not None or decided.drops(table.name)
