"""Changes that Debezium reads of a table keep a second one, or an index, in step: inserts, updates, snapshot reads and
deletions."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import orjson
import pyarrow as pa
import pytest
import yaml

from conftest import NewDatabase
from headgate.local.servers.opensearch import EmbeddedOpenSearch
from headgate_etl.app import build_app, build_topology
from headgate_etl.settings import EtlSettings
from streamcore.cuts.writer_id import WriterId
from streamcore.engine.in_process import InProcessApp, RawRecord
from streamcore.service.config.sinks import sink_factories
from streamcore.sinks.sink import SinkHooks
from tests.harness.cut_ids import cut_id
from tests.harness.servers.search_index import index_on

ROOT = Path(__file__).parents[3]
NOW_MS = 1_800_000_000_000
PARTITIONS = 3
ACCOUNTS = 40
CHANGES = 3_000
_CREATE = "create table accounts (id bigint primary key, owner text, credit_limit numeric(9,2), status text)"

Row = dict[str, object]


def random_changes(rng: random.Random, table: dict[int, Row]) -> Iterator[tuple[int, bytes | None]]:
    """Yield the key and the value of each record of a table that changes; ``table``: its rows, by id."""
    for number in range(CHANGES):
        key = rng.randrange(ACCOUNTS)
        before = table.get(key)
        after: Row | None = {"id": key, "owner": f"o{number}", "credit_limit": number / 4, "status": rng.choice("ab")}
        op = "u" if before else rng.choice("cr")
        if before and rng.random() < 0.4:
            op, after = "d", None
        change = {"before": before, "after": after, "op": op, "source": {"table": "accounts"}, "ts_ms": NOW_MS - number}
        value = change if rng.random() < 0.5 else {"schema": {"type": "struct", "fields": []}, "payload": change}
        yield key, orjson.dumps(value)
        if after is None:
            del table[key]
            yield key, None  # the tombstone, for compaction
        else:
            table[key] = after


def follow(table: dict[int, Row], route: str, sink_settings: dict[str, object]) -> None:
    """Write random changes of ``table`` with the app of the example into one of its sinks. Each fifth cut is written
    again, by another sink of the same owner, as after a crash."""
    document = yaml.safe_load((ROOT / "examples/events/etl/debezium.yaml").read_text())
    document["inputs"][0]["schema_file"] = str(ROOT / "examples/events/streams/debezium.yaml")
    document["routes"] = [one for one in document["routes"] if one["to"] == route]
    document |= dict.fromkeys(("postgres", "opensearch")) | {route: document[route] | sink_settings}
    settings, rng = EtlSettings.model_validate(document), random.Random(7)
    lane = settings.routes[0].name
    offsets = [0] * PARTITIONS
    records = list[RawRecord]()
    for key, value in random_changes(rng, table):
        partition = key % PARTITIONS
        records.append(RawRecord(0, partition, offsets[partition], value, orjson.dumps({"id": key})))
        offsets[partition] += 1
    app = InProcessApp(build_app(settings))
    (make,) = sink_factories(settings, build_topology(settings).table_columns)
    sink = make(SinkHooks())
    sink.open(WriterId("accounts", 1))
    batch = 0
    while records:
        count = rng.randrange(1, 400)
        cut, records = records[:count], records[count:]
        output = app.cut(cut, NOW_MS)
        assert {record.lane for record in output} <= {lane}, "no dead letters"
        rows = [pa.ipc.open_stream(record.value).read_all() for record in output]
        if rows:
            written = {lane: pa.concat_tables(rows)}
            assert not sink.write(cut_id(batch), written).rejected
            if batch % 5 == 0:
                sink.close()
                sink = make(SinkHooks())
                sink.open(WriterId("accounts", 1))
                sink.write(cut_id(batch), written)
        batch += 1
    sink.close()
    assert 0 < len(table) < ACCOUNTS


@pytest.mark.postgres
def test_a_table_of_postgresql_follows_the_changes_of_another_one(new_database: NewDatabase) -> None:
    table, database = dict[int, Row](), new_database()
    with database.connect() as connection:
        connection.execute(_CREATE)
    login = {name: getattr(database, name) for name in ("host", "port", "user")}
    follow(table, "postgres", login | {"database": database.name, "password_file": str(database.password_file)})
    with database.connect() as connection:
        found = connection.execute("select id, owner, credit_limit, status from accounts order by id").fetchall()
    assert [(i, owner, float(limit), status) for i, owner, limit, status in found] == [
        tuple(table[key].values()) for key in sorted(table)
    ]


@pytest.mark.opensearch
def test_an_index_of_opensearch_follows_the_changes_of_a_table(opensearch: EmbeddedOpenSearch) -> None:
    table, index = dict[int, Row](), index_on(opensearch)
    spec = {"alias": index.alias, "id": ["id"], "deleted": "deleted", "settings": {"number_of_replicas": 0}}
    follow(table, "opensearch", {"hosts": [index.url], "indexes": {"account_search": spec}})
    index.ask("POST", f"/{index.alias}/_refresh")
    hits = index.ask("POST", f"/{index.alias}/_search", {"size": 10_000})["hits"]
    assert isinstance(hits, dict)
    found = {hit["_id"]: hit["_source"] for hit in hits["hits"]}
    assert {key: row | {"credit_limit": float(row["credit_limit"])} for key, row in found.items()} == {
        str(key): row for key, row in table.items()
    }
