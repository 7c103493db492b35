"""Mappings of the settings on a real OpenSearch: nested attributes, completion, vectors, analyzers, refused names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from headgate.documents.checking import check_document
from headgate.local.servers.opensearch import EmbeddedOpenSearch
from headgate_search.app import build_topology
from headgate_search.service import SERVICE
from streamcore.service.config.sinks import sink_factory
from streamcore.sinks.sink import SinkHooks
from streamcore.topology import text_tables as tables
from streamcore.topology.simulation import Simulation
from streamcore.wire.arrow_ipc import to_table
from tests.harness.apps import search_app as search
from tests.harness.cut_ids import cut_id
from tests.harness.servers.search_index import index_on

FIELDS = {
    "at": "timestamp not null",
    "id": "string",
    "name": "string",
    "suggest": "array<string>",
    "embedding": "array<double>",
    "variants": "array<struct<colour: string, size: long>>",
}
PROPERTIES: dict[str, Any] = {
    "name": {"type": "text", "analyzer": "shop"},
    "suggest": {"type": "completion"},
    "embedding": {"type": "float", "index": False},  # knn_vector needs a plugin that the server of the tests lacks
    "variants": {"type": "nested", "properties": {"colour": {"type": "keyword"}, "size": {"type": "integer"}}},
}
INDEX_SETTINGS: dict[str, Any] = {
    "number_of_replicas": 0,
    "analysis": {
        # The server of the tests has the core alone: synonyms are a filter of a module, and are set in the same way.
        "filter": {"words": {"type": "stop", "stopwords": ["green"], "ignore_case": True}},
        "analyzer": {"shop": {"tokenizer": "standard", "filter": ["words"]}},
    },
}


def write_stream(folder: Path) -> dict[str, object]:
    file = folder / "things.yaml"
    file.write_text(
        yaml.safe_dump({"name": "things", "event_time": "at", "keys": [["id"]], "fields": FIELDS}, sort_keys=False)
    )
    return {"schema_file": str(file), "topic": "things"}


@pytest.mark.opensearch
def test_suggestions_vectors_nested_values_and_analyzers_of_the_settings_work(
    opensearch: EmbeddedOpenSearch, tmp_path: Path
) -> None:
    search_index = index_on(opensearch)
    index = {"alias": search_index.alias, "id": ["id"], "deleted": "deleted", "properties": PROPERTIES}
    sink_settings = {
        "hosts": [search_index.url],
        "indexes": {"documents": {**index, "settings": INDEX_SETTINGS}},
    }
    settings = search.settings(documents=[write_stream(tmp_path)], counters=[], opensearch=sink_settings)
    topology = build_topology(settings)
    rows = [
        ("1970-01-01T00:00:01Z", "a", "Green couch", ["couch", "green"], [1.0, 0.0, 0.0], [("green", 2), ("red", 3)]),
        ("1970-01-01T00:00:01Z", "b", "Lamp", ["lamp"], [0.0, 1.0, 0.0], [("green", 3)]),
    ]
    schema = settings.documents[0].stream_schema()
    members = ("colour", "size")
    events = tables.event_table(
        schema, [(*row[:-1], [dict(zip(members, v, strict=True)) for v in row[-1]]) for row in rows]
    )
    documents = Simulation(topology).cut({"things": events}, clock_ms=1_000)["documents"]
    sink = sink_factory(settings.opensearch, topology.table_columns)(SinkHooks())
    sink.open(search_index.owner())
    assert not sink.write(cut_id(0), {"documents": to_table(documents)}).rejected
    search_index.ask("POST", f"/{search_index.alias}/_refresh")

    def found(query: dict[str, Any]) -> list[str]:
        hits: Any = search_index.ask("POST", f"/{search_index.alias}/_search", {"query": query})["hits"]
        return [hit["_id"] for hit in hits["hits"]]

    assert (found({"match": {"name": "couch"}}), found({"match": {"name": "Green"}})) == (["a"], [])
    both = [{"term": {"variants.colour": "green"}}, {"term": {"variants.size": 3}}]
    assert found({"nested": {"path": "variants", "query": {"bool": {"must": both}}}}) == ["b"]
    suggest = {"suggest": {"s": {"prefix": "cou", "completion": {"field": "suggest"}}}}
    answer: Any = search_index.ask("POST", f"/{search_index.alias}/_search", suggest)
    assert [option["_id"] for option in answer["suggest"]["s"][0]["options"]] == ["a"]
    stored: Any = search_index.ask("GET", f"/{search_index.alias}/_doc/b")
    assert stored["_source"]["embedding"] == [0.0, 1.0, 0.0]
    sink.close()


def test_every_mistake_is_found_at_once_with_its_line(tmp_path: Path) -> None:
    write_stream(tmp_path)
    file = tmp_path / "search.yaml"
    file.write_text(
        """\
kafka: {bootstrap: "127.0.0.1:1"}
checkpoint: /data/search
documents:
  - schema_file: things.yaml
    topic: things
    id: idd
    deleted: name
    fields:
      deleted: name
      title: uper(name)
      brand: name
    rules:
      named: nam <> ''
counters:
  - schema_file: things.yaml
    topic: things
    counts:
      views: {when: "size = 3"}
      brand: {add: name}
opensearch:
  hosts: [http://nowhere:9200]
  indexes:
    documents:
      alias: things
      id: [id]
      deleted: deleted
      properties:
        brnad: {type: keyword}
"""
    )
    problems = check_document(SERVICE, file).problems
    assert sorted((one.place.line, one.path.rpartition(".")[2]) for one in problems) == [
        (6, "id"),
        (7, "deleted"),
        (9, "deleted"),
        (10, "title"),
        (13, "named"),
        (18, "when"),
        (19, "add"),
        (28, "brnad"),
    ]
    assert "a document has no field 'brnad'; it has id, " in problems[-1].message
