"""The comparison of search documents accepts those of the service, and finds every difference."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal

import pyarrow as pa
import pytest

from headgate.demo.shop.expected_documents import DocumentsExpectation
from headgate.demo.shop.feed import search_feed
from headgate.demo.shop.settings import RecordFate, ShopRecord, ShopSettings
from headgate.demo.verify.documents import (
    DocumentCounts,
    IndexContents,
    await_idle_sink,
    comparable_fields,
    compare,
    expectation,
)
from headgate.demo.workspace import PARTITIONS
from headgate.errors import HeadgateError
from headgate_search.app import build_app
from headgate_search.settings import DOCUMENTS
from streamcore.engine.in_process import InProcessApp, RawRecord
from streamcore.sinks.opensearch.bulk_lines import LaneDocuments
from streamcore.sinks.opensearch.settings import IndexSpec
from streamcore.wire.lanes import DEAD_LETTERS, LATE
from tests.harness.apps import search_app as search

pytestmark = pytest.mark.slow

EVENTS = 8_000
SHOP = ShopSettings(seed=3, start_ms=1_789_900_000_000 // 86_400_000 * 86_400_000)
NOTHING = DocumentCounts(0, 0, 0, 0)
SPEC = IndexSpec("products", ("id",), "deleted")
STRICT = search.shop_streams("products", "events", reject_extra_fields=True)


class Server:
    """A model of OpenSearch: it applies bulk requests, whose versions must increase."""

    def __init__(self) -> None:
        self.documents: dict[str, Mapping[str, object]] = {}

    def take(self, table: pa.Table) -> None:
        lines = iter(LaneDocuments(DOCUMENTS, table, SPEC, 1).last().body().splitlines())
        for line in lines:
            ((action, meta),) = json.loads(line).items()
            if action == "delete":
                self.documents.pop(meta["_id"], None)
            else:
                self.documents[meta["_id"]] = json.loads(next(lines), parse_float=Decimal)


@pytest.fixture(scope="module")
def contents() -> IndexContents:
    """Run the service over the feed in-process, with random cuts."""
    settings = search.settings(shards=2, **STRICT)
    app = InProcessApp(build_app(settings), partitions=[1 << 16 | n for n in range(PARTITIONS)])
    server, lanes, sent, offsets = Server(), Counter[str](), Counter[str](), Counter[tuple[str, int]]()
    rng, clock_ms, waiting = random.Random(1), 1_790_000_000_000, list[RawRecord]()

    def cut() -> None:
        for record in app.cut(waiting, clock_ms):
            if record.lane == DOCUMENTS:
                server.take(pa.ipc.open_stream(record.value).read_all())
            lanes[record.lane] += 1
        waiting.clear()

    for one in search_feed("shop", "products", SHOP).records(0, EVENTS):
        place = (one.topic, one.record.partition(PARTITIONS))
        source = ("products", "shop").index(one.topic)
        waiting.append(RawRecord(source, place[1], offsets[place], one.record.value, one.record.key))
        offsets[place] += 1
        sent[one.topic] += 1
        if rng.randrange(700) == 0:
            clock_ms += 1_000
            cut()
    cut()
    clock_ms += settings.refresh_ms
    cut()
    counts = DocumentCounts(sent["shop"], sent["products"], lanes[DEAD_LETTERS], lanes[LATE])
    return IndexContents(counts, comparable_fields(server.documents.items()))


def change_documents(found: IndexContents, name: str, /, **columns: str | int | bool | None) -> IndexContents:
    return replace(found, documents={**found.documents, name: {**found.documents[name], **columns}})


def test_the_documents_of_the_service_pass_the_comparison(contents: IndexContents) -> None:
    verdict = compare(NOTHING, contents, SHOP)
    assert verdict.passed, verdict
    assert verdict.run == verdict.total == contents.counts
    assert verdict.documents == verdict.expected_documents > 4_000
    assert verdict.run.changes > 5_000
    assert verdict.run.dead_letters > 20


def test_a_missing_document_is_lost(contents: IndexContents) -> None:
    (name, _), *rest = contents.documents.items()
    verdict = compare(NOTHING, replace(contents, documents=dict(rest)), SHOP)
    assert (verdict.missing, verdict.unexpected, verdict.wrong, verdict.passed) == (1, 0, 0, False)
    assert verdict.examples == (name,)


@pytest.mark.parametrize(
    "columns", [{"price": 1}, {"name": None}, {"in_stock": "true"}, {"updated_at": 0}, {"views_1h": -1}, {"more": 1}]
)
def test_a_document_with_one_wrong_field_is_wrong(
    contents: IndexContents, columns: dict[str, str | int | None]
) -> None:
    verdict = compare(NOTHING, change_documents(contents, "p0", **columns), SHOP)
    assert (verdict.missing, verdict.unexpected, verdict.wrong, verdict.passed) == (0, 0, 1, False)


def test_a_document_without_a_field_is_wrong(contents: IndexContents) -> None:
    less = {name: value for name, value in contents.documents["p0"].items() if name != "units_1d"}
    assert compare(NOTHING, replace(contents, documents={**contents.documents, "p0": less}), SHOP).wrong == 1


def test_a_document_of_a_deleted_product_is_unexpected_and_resurrected(contents: IndexContents) -> None:
    _, expected = expectation(SHOP, EVENTS)
    name = min(expected.deleted)
    verdict = compare(
        NOTHING, replace(contents, documents={**contents.documents, name: contents.documents["p0"]}), SHOP
    )
    assert (verdict.missing, verdict.unexpected, verdict.resurrected, verdict.passed) == (0, 1, 1, False)


@pytest.mark.parametrize(("lane", "more"), [("dead_letters", -1), ("dead_letters", 1), ("late", 1), ("changes", -1)])
def test_a_record_that_is_not_accounted_for_fails_the_verification(
    contents: IndexContents, lane: str, more: int
) -> None:
    counts = replace(contents.counts, **{lane: getattr(contents.counts, lane) + more})
    assert not compare(NOTHING, replace(contents, counts=counts), SHOP).passed


def test_the_figures_of_a_run_exclude_earlier_runs(contents: IndexContents) -> None:
    verdict = compare(DocumentCounts(7_000, 5_100, 20, 0), contents, SHOP)
    assert (verdict.run.events, verdict.run.changes) == (1_000, contents.counts.changes - 5_100)
    assert verdict.summary().details["total"] != verdict.summary().details["run"]


# --- popularity between the clocks of two partitions ----------------------------------------------------------------


def _view(index: int, user: str, event_ms: int) -> ShopRecord:
    event = {"type": "view", "product_id": "p0", "ts": event_ms}
    return ShopRecord(index, user.encode(), json.dumps(event).encode(), RecordFate.EVENT, event_ms)


def test_a_figure_is_correct_only_at_watermarks_between_those_of_the_partitions() -> None:
    users = {_view(0, user, 0).partition(2): user for user in "abcdefgh"}
    expected = DocumentsExpectation(2, max_out_of_orderness_ms=0)
    product = {"product_id": "p0", "op": "upsert", "name": "Mug", "price": 1.5, "updated_at": 0}
    expected.change(ShopRecord(0, b"p0", json.dumps(product).encode(), RecordFate.EVENT, 0))
    for index, event_ms in enumerate((0, 60_000, 120_000)):
        expected.event(_view(index, users[0], event_ms))
    expected.event(_view(3, users[0], 3_600_000))  # the slowest: the first view's hour is over
    expected.event(_view(4, users[1], 3_720_000))  # the fastest: the third view's hour is over
    result = expected.result()
    views = {n: {**result.documents["p0"], "views_1h": n} for n in range(1, 7)}
    assert [n for n, one in views.items() if result.may_be("p0", one)] == [2, 3, 4]
    assert result.documents["p0"]["views_1h"] == 4


def test_a_partition_without_events_holds_the_watermark_until_it_is_idle() -> None:
    expected = DocumentsExpectation(2, max_out_of_orderness_ms=0)
    product = {"product_id": "p0", "op": "upsert", "name": "Mug", "price": 1.5, "updated_at": 0}
    expected.change(ShopRecord(0, b"p0", json.dumps(product).encode(), RecordFate.EVENT, 0))
    for index, event_ms in enumerate((0, 3_600_000)):
        expected.event(_view(index, "a", event_ms))
    result = expected.result()
    assert [n for n in (1, 2) if result.may_be("p0", {**result.documents["p0"], "views_1h": n})] == [1, 2]


# --- reading --------------------------------------------------------------------------------------------------------


def test_values_of_the_server_are_read_exactly() -> None:
    source = {
        "id": "p1",
        "price": "12.50",
        "revenue_1d": "-0.07",
        "updated_at": "2026-01-02T03:04:05.678Z",
        "name": None,
    }
    assert comparable_fields([("p1", source)]) == {
        "p1": {"price": 1250, "revenue_1d": -7, "updated_at": 1_767_323_045_678, "name": None}
    }


def test_a_value_that_is_no_amount_or_time_stays_as_it_is() -> None:
    source = {"price": "12.505", "revenue_1h": "much", "updated_at": "yesterday"}
    assert comparable_fields([("p1", source)]) == {"p1": source}


# --- waiting --------------------------------------------------------------------------------------------------------


def test_the_wait_ends_when_cuts_continue_without_new_rows() -> None:
    rows, cuts, last_count = iter([5, 5, 7, 7] + [9] * 1_000), iter(range(1_000_000)), [0]

    def count() -> int:
        last_count[0] = next(rows)
        return last_count[0]

    await_idle_sink(count, lambda: next(cuts), 0.3, lambda: None)
    assert last_count == [9]


def test_the_wait_ends_with_an_error_of_the_check() -> None:
    def check() -> None:
        raise HeadgateError("the app ended")

    with pytest.raises(HeadgateError, match="ended"):
        await_idle_sink(lambda: 0, lambda: 0, 0.1, check)
