"""The search app against plain Python: the final documents, however the input is cut, sharded and restarted."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from headgate_search.settings import SearchSettings
from tests.harness.apps import search_app as search
from tests.harness.apps.search_app import App, Document, Event, ProductChange

MINUTE_MS, HOUR_MS = 60_000, 3_600_000
DISORDER_MS = 5 * MINUTE_MS
SHORT, LONG = (HOUR_MS, 10 * MINUTE_MS), (3 * HOUR_MS, HOUR_MS)
REFRESH_MS = 10_000
SETTINGS: SearchSettings = search.settings(
    max_out_of_orderness_ms=DISORDER_MS,
    refresh_ms=REFRESH_MS,
    spans=[
        {"name": "short", "span_ms": SHORT[0], "step_ms": SHORT[1]},
        {"name": "long", "span_ms": LONG[0], "step_ms": LONG[1]},
    ],
)
#: One event of another product in each partition, so that the watermark includes both.
PRIMER: list[Event] = [("view", "nobody", None, None, None, 0, partition) for partition in (0, 1)]

ids = st.sampled_from(["a", "b", "c", "d"])
times = st.integers(0, 6 * HOUR_MS).map(lambda ms: ms // 1_000 * 1_000)
prices = st.integers(0, 10**6).map(lambda cents: f"{cents // 100}.{cents % 100:02}")
upserts = st.tuples(ids, st.just("upsert"), st.sampled_from(["x", "y"]), prices, times)
deletes = st.tuples(ids, st.just("delete"), st.none(), st.none(), times)
changes = st.lists(st.one_of(upserts, upserts, deletes), max_size=25)
happenings = st.one_of(
    st.tuples(st.just("view"), ids, st.none(), st.none(), st.none()),
    st.tuples(
        st.sampled_from(["payment", "refund"]),
        ids,
        st.integers(1, 5),
        prices,
        st.sampled_from(["ok", "ok", "declined"]),
    ),
    st.tuples(st.just("cart_add"), ids, st.just(1), prices, st.none()),
    st.tuples(st.just("view"), st.none(), st.none(), st.none(), st.none()),
)
events = st.lists(
    st.tuples(happenings, times, st.integers(0, 1)).map(lambda parts: (*parts[0], parts[1], parts[2])), max_size=40
)


def watermark(happened: Sequence[Event]) -> int:
    latest = {partition: max(e[5] for e in happened if e[6] == partition) for partition in (0, 1)}
    return min(latest.values()) - DISORDER_MS


def counts(event: Event, span: tuple[int, int], watermark_ms: int) -> bool:
    span_ms, step_ms = span
    return watermark_ms < event[5] // step_ms * step_ms + span_ms


def figures(name: str, happened: Sequence[Event], span: tuple[int, int], watermark_ms: int) -> tuple[int, int, Decimal]:
    views, units, revenue = 0, 0, Decimal(0)
    for event in happened:
        what, product, quantity, amount, status, *_ = event
        if product != name or not counts(event, span, watermark_ms):
            continue
        if what == "view":
            views += 1
        elif what in {"payment", "refund"} and status == "ok":
            sign = 1 if what == "payment" else -1
            units += sign * (quantity or 0)
            revenue += sign * Decimal(amount or 0)
    return views, units, revenue


def expected(changed: Sequence[ProductChange], happened: Sequence[Event], watermark_ms: int) -> dict[str, Document]:
    held: dict[str, ProductChange] = {}
    for change in changed:
        if change[0] not in held or change[4] >= held[change[0]][4]:
            held[change[0]] = change
    documents: dict[str, Document] = {}
    for name, op, title, price, at_ms in held.values():
        if op == "delete":
            continue
        fields: dict[str, object] = {"name": title, "description": None, "category": "c", "price": Decimal(price or 0)}
        fields |= {"currency": "EUR", "in_stock": True, "updated_at": datetime.fromtimestamp(at_ms / 1_000, UTC)}
        for label, span in (("short", SHORT), ("long", LONG)):
            found = figures(name, happened, span, watermark_ms)
            fields |= dict(zip((f"{m}_{label}" for m in ("views", "units", "revenue")), found, strict=True))
        documents[name] = fields
    return documents


def some(rows: Sequence[ProductChange], start: int, end: int) -> pl.DataFrame:
    return search.changes(SETTINGS, rows[start:end])


@pytest.mark.slow
@hypothesis_settings(max_examples=40)
@given(
    changes,
    events,
    st.lists(st.tuples(st.integers(0, 12), st.integers(0, 15), st.integers(0, 8_000), st.booleans()), max_size=4),
    st.sampled_from([1, 3]),
)
def test_the_final_documents_equal_those_of_plain_python_however_the_input_is_cut(
    changed: list[ProductChange], happened: list[Event], cuts: list[tuple[int, int, int, bool]], shards: int
) -> None:
    app, clock_ms = App(SETTINGS, shards), 1_000
    app.cut(None, search.events(SETTINGS, PRIMER), clock_ms)
    rest_changes, rest_events = changed, happened
    for some_changes, some_events, pause_ms, restarts in [*cuts, (len(changed), len(happened), 0, True)]:
        clock_ms += pause_ms
        if restarts:
            app.restart()
        app.cut(
            search.changes(SETTINGS, rest_changes[:some_changes]),
            search.events(SETTINGS, rest_events[:some_events]),
            clock_ms,
        )
        rest_changes, rest_events = rest_changes[some_changes:], rest_events[some_events:]
    app.cut(None, None, clock_ms + REFRESH_MS)
    assert app.index.documents == expected(changed, happened, watermark([*PRIMER, *happened]))
    app.end(clock_ms + 2 * REFRESH_MS)
    quiet = expected(changed, [], 0)
    assert app.index.documents == quiet


def one(name: str, at_ms: int, op: str = "upsert", title: str | None = "x") -> pl.DataFrame:
    return search.changes(SETTINGS, [(name, op, title, "1.00" if title else None, at_ms)])


def views(name: str, at_ms: int, count: int = 1) -> pl.DataFrame:
    return search.events(SETTINGS, [("view", name, None, None, None, at_ms, 0)] * count)


@pytest.mark.slow
def test_figures_of_an_unknown_product_are_kept_until_the_product_arrives() -> None:
    app = App(SETTINGS)
    assert app.cut(None, views("a", HOUR_MS, 3), 1_000).height == 0
    app.restart()
    assert app.cut(one("a", 5), None, 2_000)["views_short"].to_list() == [3]


@pytest.mark.slow
def test_a_product_without_events_has_figures_of_zero() -> None:
    row = App(SETTINGS).cut(one("a", 5), None, 1_000).row(0, named=True)
    assert {row[f"{m}_{s}"] for m in ("views", "units", "revenue") for s in ("short", "long")} == {0}


@pytest.mark.slow
def test_a_deletion_is_sent_once_and_only_a_later_change_restores_the_product() -> None:
    app = App(SETTINGS)
    app.cut(one("a", 10_000), views("a", 0), 1_000)
    for change in (one("a", 20_000, "delete", None), one("a", 20_000, "delete", None), one("a", 15_000)):
        app.cut(change, views("a", 1_000), 60_000)
        app.restart()
    assert app.index.documents == {}
    assert app.index.tombstones == {"a": 1}
    app.cut(one("a", 30_000), None, 61_000)
    assert app.index.documents["a"]["views_short"] == 4
    app.cut(one("a", 40_000, "delete", None), None, 62_000)
    assert app.index.tombstones == {"a": 2}


@pytest.mark.slow
def test_of_changes_with_equal_updated_at_the_last_in_the_log_counts() -> None:
    app = App(SETTINGS)
    app.cut(pl.concat([one("a", 10_000, title="first"), one("a", 10_000, title="second")]), None, 1_000)
    app.cut(one("a", 10_000, title="third"), None, 1_001)
    assert app.index.documents["a"]["name"] == "third"


@pytest.mark.slow
def test_figures_fall_to_zero_when_no_events_arrive() -> None:
    app = App(SETTINGS)
    app.cut(one("a", 0), views("a", HOUR_MS, 2), 1_000)
    seen = []
    for step in range(2, 7):  # events of another product advance the watermark
        app.cut(None, views("b", step * HOUR_MS), step * 100_000)
        seen.append((app.index.documents["a"]["views_short"], app.index.documents["a"]["views_long"]))
    assert seen == [(2, 2), (0, 2), (0, 2), (0, 0), (0, 0)]


@pytest.mark.slow
def test_a_change_of_figures_is_sent_once_a_refresh_and_a_change_of_the_product_at_once() -> None:
    app = App(SETTINGS)
    sent = []
    for second in range(0, 30, 2):
        change = one("a", 1_000 * second, title=f"at {second}") if second in {0, 14} else None
        rows = app.cut(change, views("a", HOUR_MS + second), 100_000 + 1_000 * second)
        sent += [(second, count) for count in rows["views_short"].to_list()] if rows.height else []
    assert sent == [(0, 1), (10, 6), (14, 8), (24, 13)]
    app.cut(None, None, 100_000 + 34_000)
    assert app.index.documents["a"]["views_short"] == 15


@pytest.mark.slow
def test_with_no_refresh_limit_every_cut_sends() -> None:
    app = App(SETTINGS.model_copy(update={"refresh_ms": 0}))
    app.cut(one("a", 0), None, 1_000)
    assert [app.cut(None, views("a", HOUR_MS), 1_000).height for _ in range(3)] == [1, 1, 1]


@pytest.mark.slow
def test_a_change_with_equal_content_sends_nothing() -> None:
    app = App(SETTINGS)
    app.cut(one("a", 0), None, 1_000)
    assert app.cut(one("a", 0), None, 100_000).height == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (("", "upsert", "x", "1.00", 0), "the id is empty"),
        (("p" * 513, "upsert", "x", "1.00", 0), "longer than 512 bytes"),
        (("a", "replace", "x", "1.00", 0), "rule op: op in ('upsert', 'delete') is false for op = 'replace'"),
        (("a", "upsert", "", "1.00", 0), "rule name: "),
        (("a", "upsert", "x", None, 0), "rule price: "),
        (("a", "upsert", "x", "-1.00", 0), "rule price: "),
    ],
)
def test_an_invalid_change_is_a_dead_letter_and_affects_no_other(change: ProductChange, reason: str) -> None:
    app = App(SETTINGS)
    good: list[ProductChange] = [(name, "upsert", "x", "1.00", 0) for name in "bcd"]
    app.cut(search.changes(SETTINGS, [*good[:2], change, *good[2:]]), None, 1_000)
    assert set(app.index.documents) == {"b", "c", "d"}
    assert len(app.dead) == 1
    assert reason in app.dead[0]


@pytest.mark.slow
def test_each_invalid_change_has_the_reason_and_code_of_its_rule() -> None:
    rows: list[ProductChange] = [
        ("a", "replace", "x", "1.00", 0),
        ("b", "upsert", "x", "1.00", 0),
        ("c", "upsert", "", "1.00", 0),
    ]
    result = App(SETTINGS).simulation.cut({"products": search.changes(SETTINGS, rows)}, clock_ms=1_000)
    headers = [dict(record.headers) for record in result.dead]
    found = {one["reason_code"].decode(): one["reason"].decode().partition(" is ")[0] for one in headers}
    rules = SETTINGS.documents[0].rules
    assert found == {f"rule:{name}": f"rule {name}: {rules[name]}" for name in ("op", "name")}
    assert result["documents"]["id"].to_list() == ["b"]


@pytest.mark.slow
def test_an_event_older_than_every_span_is_late() -> None:
    app = App(SETTINGS)
    app.cut(one("a", 0), views("b", 20 * HOUR_MS), 1_000)
    app.cut(None, views("a", HOUR_MS), 50_000)
    assert app.late == 1
    assert app.index.documents["a"]["views_long"] == 0


@pytest.mark.slow
def test_documents_are_also_records_of_the_changes_lane_if_the_settings_say_so() -> None:
    app = App(SETTINGS.model_copy(update={"publish_changes": True}))
    result = app.simulation.cut({"products": one("a", 0)}, clock_ms=1_000)
    assert result["changes"].equals(result["documents"])
    assert "changes" in app.simulation.local.app.lanes
    assert "changes" not in App(SETTINGS).simulation.local.app.lanes


@pytest.mark.slow
def test_an_event_that_is_sent_twice_counts_once_if_the_stream_says_so(tmp_path: Path) -> None:
    file = tmp_path / "shop.yaml"
    file.write_text((search.ROOT / "streams" / "shop.yaml").read_text() + "deduplicate: 24h\n")
    counter = SETTINGS.counters[0].model_copy(update={"schema_file": file})
    once = SETTINGS.model_copy(update={"counters": (counter,), "shards": 1})
    product: list[ProductChange] = [("a", "upsert", "x", "1.00", 0)]
    happened: list[Event] = [*PRIMER, *[("payment", "a", 2, "3.00", "ok", n * 1_000, n % 2) for n in range(10)]]
    rows = search.events(SETTINGS, happened)
    copies = rows.filter(pl.col("product_id") == "a").with_columns(partition=1 - pl.col("partition"))
    documents = []
    for with_settings, twice in ((SETTINGS, False), (once, True), (SETTINGS, True)):
        app = App(with_settings, shards=3)
        app.cut(search.changes(with_settings, product), rows, 0)
        app.cut(None, copies if twice else None, 1_000)
        app.cut(None, None, 2 * REFRESH_MS)
        documents.append(app.index.documents)
    assert documents[0]["a"]["units_short"] == 20
    assert documents[0] == documents[1] != documents[2]
