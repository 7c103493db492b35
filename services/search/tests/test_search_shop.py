"""The search app over raw records of the demo shop, against the expectation of the shop."""

from __future__ import annotations

import random
from collections import Counter
from datetime import datetime

import polars as pl
import pyarrow as pa
import pytest

from headgate.demo.shop.expected_documents import DocumentsExpectation, ExpectedDocument, ExpectedDocuments
from headgate.demo.shop.feed import search_feed
from headgate.demo.shop.products import EVERY, records
from headgate.demo.shop.settings import RecordFate, ShopSettings
from headgate_search.app import build_app
from headgate_search.settings import DOCUMENTS
from streamcore.engine.in_process import InProcessApp, RawRecord
from streamcore.wire.lanes import DEAD_LETTERS, LATE, Record
from tests.harness.apps import search_app as search
from tests.harness.apps.search_app import Index

pytestmark = pytest.mark.slow

SHOP = ShopSettings(seed=11, start_ms=1_789_900_000_000 // 86_400_000 * 86_400_000)
RECORDS = 9_000
NOW_MS = 1_790_000_000_000
PARTITIONS = 3
STRICT = search.shop_streams("products", "events", reject_extra_fields=True)


class Topics:
    """Both topics in memory: records with offsets, in the order of sending."""

    def __init__(self, count: int) -> None:
        self.log: list[RawRecord] = []
        expectation, offsets = DocumentsExpectation(PARTITIONS), Counter[tuple[str, int]]()
        for one in search_feed("shop", "products", SHOP).records(0, count):
            partition, source = one.record.partition(PARTITIONS), ("products", "shop").index(one.topic)
            place = (one.topic, partition)
            self.log.append(RawRecord(source, partition, offsets[place], one.record.value, one.record.key))
            offsets[place] += 1
            (expectation.event if source else expectation.change)(one.record)
        self.expected: ExpectedDocuments = expectation.result()


@pytest.fixture(scope="module")
def topics() -> Topics:
    return Topics(RECORDS)


def run(topics: Topics, shards: int, cut_records: int) -> tuple[Index, Counter[str]]:
    """Run the app in cuts of about ``cut_records`` records; another process continues in the middle."""
    settings = search.settings(shards=shards, **STRICT)
    app = InProcessApp(build_app(settings), partitions=[1 << 16 | n for n in range(PARTITIONS)])
    rng, index, lanes = random.Random(cut_records), Index(), Counter[str]()
    start, clock_ms, restarted = 0, NOW_MS, False
    while start < len(topics.log):
        end = start + rng.randrange(1, 2 * cut_records)
        clock_ms += rng.randrange(1, 5_000)
        if not restarted and 2 * start > len(topics.log):
            app, restarted = (
                InProcessApp(app.app, app.blobs, partitions=app.partitions, next_offsets=app.next_offsets),
                True,
            )
        apply_output(index, lanes, app.cut(topics.log[start:end], clock_ms, tasks=2))
        start = end
    apply_output(index, lanes, app.cut([], clock_ms + settings.refresh_ms))
    return index, lanes


def apply_output(index: Index, lanes: Counter[str], output: list[Record]) -> None:
    frames = []
    for record in output:
        if record.lane == DOCUMENTS:
            frames.append(pl.DataFrame(pa.ipc.open_stream(record.value).read_all()))
        else:
            lanes[record.lane] += 1
    if frames:
        index.apply(pl.concat(frames))


def to_expected_form(index: Index) -> dict[str, ExpectedDocument]:
    """Return the documents in the form of the expectation: money in cents, times in milliseconds."""
    found: dict[str, ExpectedDocument] = {}
    for name, document in index.documents.items():
        fields: dict[str, str | int | bool | None] = {}
        for column, value in document.items():
            if isinstance(value, datetime):
                fields[column] = round(value.timestamp() * 1_000)
            elif column == "price" or column.startswith("revenue"):
                fields[column] = int(value * 100)  # type: ignore[operator]
            else:
                assert value is None or isinstance(value, str | int)
                fields[column] = value
        found[name] = fields
    return found


@pytest.mark.parametrize(("shards", "cut_records"), [(1, 3_000), (3, 700)])
def test_the_index_equals_the_expectation_of_the_shop(topics: Topics, shards: int, cut_records: int) -> None:
    index, lanes = run(topics, shards, cut_records)
    found = to_expected_form(index)
    assert found.keys() == topics.expected.documents.keys()
    assert found == topics.expected.documents
    assert lanes[DEAD_LETTERS] == topics.expected.dead_letters
    assert set(lanes) <= {DEAD_LETTERS, LATE}


def test_the_expectation_has_every_case(topics: Topics) -> None:
    expected = topics.expected
    assert len(expected.deleted) > 5
    assert expected.dead_letters > 20
    assert any(one["views_1h"] for one in expected.documents.values())
    assert any(one["views_1d"] and not one["views_1h"] for one in expected.documents.values())
    assert any(one["units_1d"] for one in expected.documents.values())


def test_a_record_is_a_function_of_its_number_alone() -> None:
    every = [*records(SHOP, 0, 8_000)]
    assert [r for r in every if 5_500 <= r.index < 7_001] == [*records(SHOP, 5_500, 7_001)]
    assert {r.index % EVERY for r in every if r.index >= 5_000} == {0}
    assert {r.fate for r in every} == {RecordFate.EVENT, RecordFate.DEAD}
