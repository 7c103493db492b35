"""The etl service keeps a table and an index in step with a table, whose changes PostgreSQL's logical decoding reports.

The reports (``pgoutput``, protocol version 1) become records as Debezium's connector for PostgreSQL writes them: a
snapshot, changes with the row before and after, tombstones, and a deletion and an insert where a key changes.
"""

from __future__ import annotations

import json
import os
import random
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import psycopg
import yaml

from headgate.local.servers.opensearch import EmbeddedOpenSearch
from headgate.local.servers.postgres import EmbeddedPostgres
from tests.harness.faults.services.servers import OpenSearch, Postgres
from tests.harness.faults.services.trial import ROOT, Input, ServicePlan, ServiceScene

CHANGES = int(os.environ.get("HEADGATE_TABLE_CHANGES", "4000"))
_TOPIC = "accounts"
_INDEX = "copied-accounts"
_ACCOUNTS = 400
_COLUMNS = "id bigint primary key, owner text, credit_limit numeric(9,2), status text"
_SLOT, _PUBLICATION = "changes", "accounts"
_EPOCH_2000_MS = 946_684_800_000
_BIGINT = 20

Row = dict[str, object]


def plan_changes(name: str, server: EmbeddedPostgres, search_server: EmbeddedOpenSearch) -> ServicePlan:
    """Start the servers, change a table at random, and return the plan of the service with its changes as input."""
    database, node = Postgres(server), OpenSearch(search_server)
    server.start()
    search_server.start()
    with database.connect() as connection:
        connection.autocommit = True
        connection.execute(f"create table accounts ({_COLUMNS})")
        connection.execute("alter table accounts replica identity full")
        connection.execute(f"create publication {_PUBLICATION} for table accounts")
        connection.execute("insert into accounts select n, 'o' || n, n * 1.25, 'open' from generate_series(1, 100) n")
        records = [*_snapshot(connection)]
        connection.execute("select pg_create_logical_replication_slot(%s, 'pgoutput')", (_SLOT,))
        _change(connection, random.Random(CHANGES))
        records += Changes().read(connection)
        connection.execute("select pg_drop_replication_slot(%s)", (_SLOT,))
        connection.execute(f"create table copies ({_COLUMNS})")

    def check(_: ServiceScene) -> None:
        with database.connect() as connection:
            ours, copies = (
                connection.execute(f"select * from {table} order by id").fetchall() for table in ("accounts", "copies")
            )
        assert len(ours) > _ACCOUNTS // 4
        assert copies == ours
        assert sorted(_document_row(hit) for hit in node.hits(_INDEX)) == ours

    return ServicePlan(("headgate_etl",), _settings(name, database, node), records, server, check)


def _document_row(hit: Mapping[str, Any]) -> tuple[object, ...]:
    """Return a document as the row that it is of, whose key is the document's id."""
    found = hit["_source"]
    assert hit["_id"] == str(found["id"])
    assert "deleted" not in found
    limit = found.get("credit_limit")
    return (found["id"], found.get("owner"), None if limit is None else Decimal(str(limit)), found.get("status"))


def _settings(name: str, database: Postgres, node: OpenSearch) -> dict[str, object]:
    document: dict[str, Any] = yaml.safe_load((ROOT / "examples/events/etl/debezium.yaml").read_text(encoding="utf-8"))
    (source,) = document["inputs"]
    source |= {"schema_file": str(ROOT / "examples/events/streams/debezium.yaml"), "topic": f"{name}.{_TOPIC}"}
    table = document["postgres"]["tables"]["accounts"] | {"table": "public.copies"}
    postgres = database.login | {"tables": {"accounts": table}}
    (index,) = document["opensearch"]["indexes"].values()
    index |= {"alias": _INDEX, "settings": {"number_of_replicas": 0}}
    opensearch = node.login | {"indexes": document["opensearch"]["indexes"]}
    sinks = {"postgres": postgres, "opensearch": opensearch}
    return {entry: document[entry] for entry in ("model", "id", "routes")} | {"inputs": [source]} | sinks


def _change(connection: psycopg.Connection, draw: random.Random) -> None:
    """Insert, update and delete rows, and change keys, in transactions of different sizes."""
    done = 0
    while done < CHANGES:
        with connection.transaction():
            for _ in range(draw.choice([1, 1, 3, 50])):
                connection.execute(*_statement(draw, done))
                done += 1


def _statement(draw: random.Random, number: int) -> tuple[str, tuple[object, ...]]:
    key, limit = draw.randrange(_ACCOUNTS), draw.choice([None, number / 4])
    match draw.randrange(10):
        case 0 | 1:
            return "delete from accounts where id = %s", (key,)
        case 2:
            return "update accounts set id = id + %s where id = %s", (_ACCOUNTS * (number + 1), key)
    upsert = (
        "insert into accounts values (%s, %s, %s, %s) on conflict (id) do update set owner = excluded.owner,"
        " credit_limit = excluded.credit_limit, status = excluded.status"
    )
    return upsert, (key, draw.choice([None, f"o{number}", 'Zoë "q" \\ 😀']), limit, draw.choice(["open", "closed"]))


def _snapshot(connection: psycopg.Connection) -> Iterator[Input]:
    for number, owner, limit, status in connection.execute("select * from accounts order by id").fetchall():
        after: Row = {"id": number, "owner": owner, "credit_limit": str(limit), "status": status}
        yield from _records("r", None, after, 1_790_000_000_000, {"snapshot": "true", "table": "accounts"})


def _records(
    op: str, before: Row | None, after: Row | None, time_ms: int, source: Mapping[str, object]
) -> Iterator[Input]:
    """Yield the records of one change."""
    if before is not None and after is not None and before["id"] != after["id"]:
        yield from _records("d", before, None, time_ms, source)
        yield from _records("c", None, after, time_ms, source)
        return
    row = before if after is None else after
    assert row is not None
    key = json.dumps({"id": row["id"]}).encode()
    change = {"before": before, "after": after, "source": source, "op": op, "ts_ms": time_ms, "transaction": None}
    yield _TOPIC, key, json.dumps(change).encode()
    if after is None:
        yield _TOPIC, key, None


@dataclass(slots=True)
class Changes:
    """Reads the messages of ``pgoutput``. ``columns``: name and type of each column of the table."""

    columns: list[tuple[str, int]] = field(default_factory=list)
    time_ms: int = 0
    transaction: int = 0

    def read(self, connection: psycopg.Connection) -> Iterator[Input]:
        """Yield the records of all changes since the last call."""
        query = (
            "select lsn, data from pg_logical_slot_get_binary_changes"
            "(%s, null, null, 'proto_version', '1', 'publication_names', %s)"
        )
        for lsn, message in connection.execute(query, (_SLOT, _PUBLICATION)).fetchall():
            source = {"snapshot": "false", "table": "accounts", "txId": self.transaction, "lsn": _number(lsn)}
            yield from self._records(bytes(message), source)

    def _records(self, message: bytes, source: Mapping[str, object]) -> Iterator[Input]:
        match message[:1]:
            case b"B":
                _, time_us, self.transaction = struct.unpack_from(">qqi", message, 1)
                self.time_ms = _EPOCH_2000_MS + time_us // 1000
            case b"R":
                self._read_columns(message)
            case b"I" | b"U" | b"D":
                rows = dict(self._rows(message, 5))
                op = {b"I": "c", b"U": "u", b"D": "d"}[message[:1]]
                yield from _records(op, rows.get(b"O"), rows.get(b"N"), self.time_ms, source)

    def _read_columns(self, message: bytes) -> None:
        at = message.index(b"\0", message.index(b"\0", 5) + 1) + 2  # behind schema, name and replica identity
        (count,), at = struct.unpack_from(">h", message, at), at + 2
        self.columns = []
        for _ in range(count):
            end = message.index(b"\0", at + 1)
            self.columns.append((message[at + 1 : end].decode(), struct.unpack_from(">i", message, end + 1)[0]))
            at = end + 9

    def _rows(self, message: bytes, at: int) -> Iterator[tuple[bytes, Row]]:
        while at < len(message):
            which, row = message[at : at + 1], Row()
            at += 3
            for name, kind in self.columns:
                present, at = message[at : at + 1], at + 1
                if present == b"n":
                    row[name] = None
                    continue
                assert present == b"t"
                (size,) = struct.unpack_from(">i", message, at)
                text = message[at + 4 : at + 4 + size].decode()
                row[name], at = int(text) if kind == _BIGINT else text, at + 4 + size
            yield which, row


def _number(lsn: str) -> int:
    high, low = lsn.split("/")
    return (int(high, 16) << 32) + int(low, 16)
