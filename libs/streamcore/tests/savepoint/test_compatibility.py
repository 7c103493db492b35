"""Compatibility: what a change of an app means for its state, reported before anything starts, case by case."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamcore.savepoint import (
    AppDescription,
    Compatibility,
    RestoreDecisions,
    SavepointManifest,
    StateTableDescription,
    check_compatibility,
)
from streamcore.savepoint.manifest import OperatorDescription, StoredTable, UnequalCopies

APP = AppDescription(
    name="shop",
    shards=4,
    stages=2,
    topics=("orders", "views"),
    control_topic="shop.control",
    watermark_groups=(("orders", "views"),),
    tables=(
        StateTableDescription("sums/panes", 0, {"user": "String", "total": "Int64"}),
        StateTableDescription("running/values", 0, {}, version=2, reads=(1,)),
        StateTableDescription("join/left", 1, {"user": "String"}),
    ),
    key_groups=128,
)


def stored_table(name: str, stage: int = 0, versions: tuple[int, ...] = (1,), **columns: str) -> StoredTable:
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
    watermark_groups=(),
    tables=(
        stored_table("sums/panes", user="String", total="Int64"),
        stored_table("running/values", versions=(2,)),
        stored_table("join/left", stage=1, user="String"),
    ),
    files=(),
)


def saved_with(*tables: StoredTable) -> SavepointManifest:
    return replace(SAVED, tables=tables)


def check(
    saved: SavepointManifest, app: AppDescription, decided: RestoreDecisions | None = None
) -> tuple[Compatibility, str]:
    found = check_compatibility(saved, app, decided)
    return found.compatibility, "; ".join(reason.text for reason in found.reasons)


def test_other_shards_are_rejected_if_a_replicated_table_differs_between_shards() -> None:
    saved = replace(SAVED, unequal_copies=(UnequalCopies("rules", (0, 3)),))
    assert check(saved, APP) == (Compatibility.COMPATIBLE, "")
    found, reasons = check(saved, replace(APP, shards=8))
    assert found is Compatibility.INCOMPATIBLE
    assert "rules must be equal in all shards to be divided anew, and differs in shards 0 and 3" in reasons


def test_an_unchanged_app_is_compatible_and_each_table_goes_to_its_stage() -> None:
    found = check_compatibility(SAVED, APP)
    assert (found.compatibility, found.reasons, found.possible) == (Compatibility.COMPATIBLE, (), True)
    assert found.stages == {(0, "sums/panes"): 0, (0, "running/values"): 0, (1, "join/left"): 1}


def test_state_follows_its_operator_to_another_stage() -> None:
    moved = replace(APP, tables=(*APP.tables[:2], replace(APP.tables[2], stage=0)))
    assert check_compatibility(SAVED, moved).stages[1, "join/left"] == 0


def test_tables_of_one_name_in_two_stages_cannot_be_restored_into_one() -> None:
    both = saved_with(
        stored_table("sums/panes", user="String", total="Int64"),
        stored_table("sums/panes", 1, user="String", total="Int64"),
    )
    assert check(both, APP)[0] is Compatibility.INCOMPATIBLE


@pytest.mark.parametrize(
    ("change", "verdict", "text"),
    [
        ({"name": "other"}, Compatibility.INCOMPATIBLE, "it is of app shop, and this is other"),
        ({"shards": 8}, Compatibility.COMPATIBLE, "8 shards of 128 key groups divide its state, which 4 shards of 128"),
        ({"topics": ("orders",)}, Compatibility.DECISION, "topics views would not be read any more"),
        ({"topics": ("orders", "views", "clicks")}, Compatibility.COMPATIBLE, "topic clicks is new"),
        ({"control_topic": "c"}, Compatibility.DECISION, "control records came from shop.control"),
        (
            {"tables": APP.tables[:2]},
            Compatibility.DECISION,
            r"nothing in this app takes the state join/left \(10 rows\)",
        ),
    ],
)
def test_the_compatibility_report_names_each_change(
    change: dict[str, object], verdict: Compatibility, text: str
) -> None:
    found, reasons = check(SAVED, replace(APP, **change))  # type: ignore[arg-type]
    assert found is verdict
    assert re.search(text, reasons), reasons


def test_a_decision_permits_the_restore() -> None:
    assert (
        check(SAVED, replace(APP, tables=APP.tables[:2]), RestoreDecisions(drop=frozenset({"join"})))[0]
        is Compatibility.COMPATIBLE
    )
    fewer = replace(APP, topics=("orders",))
    assert check(SAVED, fewer, RestoreDecisions(accept=frozenset({"topic-gone"})))[0] is Compatibility.COMPATIBLE
    unsettled = replace(SAVED, settled=False)
    assert check(unsettled, APP)[0] is Compatibility.DECISION
    assert check(unsettled, APP, RestoreDecisions(accept=frozenset({"unsettled"})))[0] is Compatibility.COMPATIBLE


@pytest.mark.parametrize(
    ("now", "verdict"),
    [
        (OperatorDescription("join", ("orders", "views"), 500), Compatibility.COMPATIBLE),
        (OperatorDescription("join", ("views", "orders"), 400), Compatibility.COMPATIBLE),
        (OperatorDescription("join", ("orders",), 500), Compatibility.DECISION),
        (OperatorDescription("join", ("orders", "views"), 501), Compatibility.DECISION),
        (OperatorDescription("visits", ("views",), 900), Compatibility.COMPATIBLE),
    ],
)
def test_an_operator_whose_watermark_changes_needs_a_decision(now: OperatorDescription, verdict: Compatibility) -> None:
    before = replace(APP, operators=(OperatorDescription("join", ("orders", "views"), 500),))
    saved, app = replace(SAVED, app=before), replace(APP, operators=(now,))
    assert check_compatibility(saved, app).compatibility is verdict
    assert check_compatibility(saved, app, RestoreDecisions(accept=frozenset({"time-moved"}))).possible


def test_dropped_state_is_not_assigned_to_a_stage() -> None:
    assert (1, "join/left") not in check_compatibility(SAVED, APP, RestoreDecisions(drop=frozenset({"join"}))).stages


def test_a_new_operator_starts_empty() -> None:
    more = replace(APP, tables=(*APP.tables, StateTableDescription("visits/panes", 0)))
    assert check(SAVED, more) == (Compatibility.COMPATIBLE, "visits is new: it starts empty")


@pytest.mark.parametrize(
    ("versions", "verdict"),
    [
        ((1,), Compatibility.MIGRATES),
        ((1, 2), Compatibility.MIGRATES),
        ((2,), Compatibility.COMPATIBLE),
        ((3,), Compatibility.INCOMPATIBLE),
        ((0,), Compatibility.INCOMPATIBLE),
    ],
)
def test_stored_row_versions_need_a_migration_to_the_version_of_the_program(
    versions: tuple[int, ...], verdict: Compatibility
) -> None:
    assert check(saved_with(stored_table("running/values", versions=versions)), APP)[0] is verdict


@pytest.mark.parametrize(
    ("columns", "verdict"),
    [
        ({"user": "String", "total": "Int64", "more": "String"}, Compatibility.COMPATIBLE),
        ({"user": "String", "total": "Null"}, Compatibility.COMPATIBLE),
        ({"user": "String", "total": "String"}, Compatibility.INCOMPATIBLE),
        ({"user": "String"}, Compatibility.INCOMPATIBLE),
    ],
)
def test_stored_rows_must_have_the_columns_of_their_version(columns: dict[str, str], verdict: Compatibility) -> None:
    assert check(saved_with(stored_table("sums/panes", 0, (1,), **columns)), APP)[0] is verdict


@pytest.mark.parametrize(
    ("tables", "verdict"),
    [
        ((stored_table("sums/panes", user="String", total="Int64"),), Compatibility.COMPATIBLE),
        ((stored_table("join/left", 1, user="String", __partition="Int32"),), Compatibility.INCOMPATIBLE),
        ((stored_table("rules"),), Compatibility.INCOMPATIBLE),
    ],
)
def test_topics_may_be_reordered_unless_state_depends_on_their_order(
    tables: tuple[StoredTable, ...], verdict: Compatibility
) -> None:
    swapped = replace(APP, topics=("views", "orders"), tables=(*APP.tables, StateTableDescription("rules", 0)))
    assert check_compatibility(saved_with(*tables), swapped).compatibility is verdict


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
def test_a_valid_plan_assigns_or_drops_every_table(change: dict[str, object], drop: frozenset[str]) -> None:
    app, decided = replace(APP, **change), RestoreDecisions(drop)  # type: ignore[arg-type]
    found = check_compatibility(SAVED, app, decided)
    takers = {(one.stage, one.name) for one in app.tables}
    for table in SAVED.tables:
        taken = found.stages.get((table.stage, table.name))
        assert (taken is None) == (decided.drops(table.name) or table.name not in {name for _, name in takers})
        assert taken is None or (taken, table.name) in takers
        assert not found.possible or taken is not None or decided.drops(table.name)
