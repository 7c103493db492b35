"""Documents of the search app on a real OpenSearch, written by the sink that its settings describe."""

from __future__ import annotations

import polars as pl
import pyarrow as pa
import pytest

from headgate.local.servers.opensearch import EmbeddedOpenSearch
from headgate_search.settings import DOCUMENTS
from streamcore.service.config.sinks import sink_factory
from streamcore.sinks.sink import SinkHooks
from streamcore.wire.arrow_ipc import to_table
from tests.harness.apps import search_app as search
from tests.harness.apps.search_app import App
from tests.harness.cut_ids import cut_id
from tests.harness.servers.search_index import SearchIndex, index_on

pytestmark = pytest.mark.opensearch

PROPERTIES = {
    "name": {"type": "text", "fields": {"keyword": {"type": "keyword", "ignore_above": 256}}},
    "description": {"type": "text"},
}
HOUR_MS = 3_600_000


def settings(search_index: SearchIndex) -> dict[str, object]:
    index = {
        "alias": search_index.alias,
        "id": ["id"],
        "deleted": "deleted",
        "properties": PROPERTIES,
        "settings": {"number_of_replicas": 0},
    }
    return {"hosts": [search_index.url], "indexes": {DOCUMENTS: index}}


def rows(frame: pl.DataFrame) -> dict[str, pa.Table]:
    return {DOCUMENTS: to_table(frame)} if frame.height else {}


def sources(search_index: SearchIndex) -> dict[str, dict[str, object]]:
    search_index.ask("POST", f"/{search_index.alias}/_refresh")
    hits = search_index.ask("POST", f"/{search_index.alias}/_search", {"size": 1_000})["hits"]
    assert isinstance(hits, dict)
    return {hit["_id"]: hit["_source"] for hit in hits["hits"]}


def test_the_server_holds_the_documents_and_finds_the_popular_ones_first(opensearch: EmbeddedOpenSearch) -> None:
    search_index = index_on(opensearch)
    configured = search.settings(opensearch=settings(search_index), refresh_ms=0)
    app = App(configured)
    sink = sink_factory(configured.opensearch, app.topology.table_columns)(SinkHooks())
    sink.open(search_index.owner())
    product = [(name, "upsert", "Red lantern", "12.50", 1_000) for name in "abc"]
    views = [("view", name, None, None, None, HOUR_MS, 0) for name in "bbbccac"]
    cuts = [
        (search.changes(configured, product), None),
        (None, search.events(configured, views)),
        (search.changes(configured, [("c", "delete", None, None, 2_000)]), None),
        (search.changes(configured, [("c", "upsert", "Old", "1.00", 1_500)]), None),
    ]
    written = [app.cut(changes, events, 1_000 + n) for n, (changes, events) in enumerate(cuts)]
    for batch, frame in enumerate(written):
        assert not sink.write(cut_id(batch), rows(frame)).rejected
    again = sink_factory(configured.opensearch, app.topology.table_columns)(SinkHooks())
    again.open(search_index.owner())
    again.write(cut_id(len(written) - 1), rows(written[-1]))  # as after a crash
    found = sources(search_index)
    assert {name: (one["name"], one["price"], one["views_1h"]) for name, one in found.items()} == {
        name: (one["name"], str(one["price"]), one["views_1h"]) for name, one in app.index.documents.items()
    }
    assert found.keys() == {"a", "b"}
    query = {"query": {"match": {"name": "lantern"}}, "sort": [{"views_1h": "desc"}]}
    hits = search_index.ask("POST", f"/{search_index.alias}/_search", query)["hits"]
    assert isinstance(hits, dict)
    assert [hit["_id"] for hit in hits["hits"]] == ["b", "a"]
    mappings = search_index.ask("GET", f"/{search_index.alias}/_mapping")
    (one,) = mappings.values()
    assert isinstance(one, dict)
    mapped = one["mappings"]["properties"]
    assert {name: mapped[name] for name in PROPERTIES} == PROPERTIES
    derived = {"id": "keyword", "in_stock": "boolean", "updated_at": "date"}
    derived |= {"price": "scaled_float", "views_1h": "long", "revenue_1d": "scaled_float"}
    assert {name: mapped[name]["type"] for name in derived} == derived
    for each in (sink, again):
        each.close()
