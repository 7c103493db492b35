"""The systems that sinks write to, as tests of whole apps see them: what the app is told of them, what is in them (read
by a client that shares nothing with the sink), and how they are harmed."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import psycopg

from headgate.local.opensearch import EmbeddedOpenSearch
from headgate.local.postgres import EmbeddedPostgres
from tests.harness import delta_log
from tests.harness.sink_app import LANE
from tests.harness.sink_scene import Row, Target

#: Makes a target: ``targets("postgres")``.
Targets = Callable[[str], Target]

_RECOVERY_MS = 120_000


@runtime_checkable
class ServerTarget(Protocol):
    """A target with a server that a test may harm."""

    def kill_server(self) -> None:
        """As a power cut would."""
        ...

    def start_server(self) -> None:
        """On the data that is there."""
        ...


@dataclass(slots=True)
class PostgresTarget:
    """A table without a key: what is written twice is there twice."""

    server: EmbeddedPostgres
    keyed: bool = False

    def prepare(self) -> None:
        """The server and the table."""
        self.server.start()
        with self.connect() as connection:
            connection.execute(
                "CREATE TABLE changes (id text NOT NULL, n bigint NOT NULL, amount numeric(12, 2), text text, "
                "deleted boolean, ts timestamptz NOT NULL)"
            )

    @property
    def entry(self) -> dict[str, object]:
        return {"postgres": {**self.login, "tables": {LANE: {"table": "public.changes"}}}}

    @property
    def login(self) -> dict[str, object]:
        """How an app reaches it."""
        return {
            "host": self.server.host,
            "port": self.server.port,
            "database": self.server.database,
            "user": self.server.user,
            "password_file": str(self.server.password_file),
        }

    def rows(self) -> Sequence[Row]:
        with self.connect() as connection:
            return connection.execute("SELECT id, n, amount, text FROM changes").fetchall()

    def kill_server(self) -> None:
        self.server.kill()

    def start_server(self) -> None:
        self.server.start()

    def connect(self) -> psycopg.Connection:
        """A client of the test's own."""
        server = self.server
        password = server.password_file.read_text(encoding="utf-8")
        return psycopg.connect(
            host=server.host, port=server.port, dbname=server.database, user=server.user, password=password
        )


@dataclass(slots=True)
class DeltaTarget:
    """A table in a folder."""

    folder: Path
    keyed: bool = False

    @property
    def entry(self) -> dict[str, object]:
        return {"delta": {"tables": {LANE: {"uri": str(self.folder), "compact_every": 5, "checkpoint_every": 1_000}}}}

    def rows(self) -> Sequence[Row]:
        return [(row["id"], row["n"], row["amount"], row["text"]) for row in delta_log.rows(self.folder)]


@dataclass(slots=True)
class OpenSearchTarget:
    """Documents by id."""

    server: EmbeddedOpenSearch
    keyed: bool = True

    @property
    def entry(self) -> dict[str, object]:
        index = {"alias": "changes", "id": ["id"], "deleted": "deleted"}
        return {"opensearch": {**self.login, "indexes": {LANE: index}, "request_documents": 200}}

    @property
    def login(self) -> dict[str, object]:
        """How an app reaches it, and for how long it waits."""
        return {"hosts": [self.server.url], "recovery_ms": _RECOVERY_MS}

    def hits(self, alias: str) -> list[dict[str, Any]]:
        """All documents, each with its ``_id`` and ``_source``."""
        self._ask("POST", f"{alias}/_refresh", None)
        found = self._ask("POST", f"{alias}/_search", {"size": 10_000, "query": {"match_all": {}}})
        return found["hits"]["hits"]

    def rows(self) -> Sequence[Row]:
        documents = [hit["_source"] for hit in self.hits("changes")]
        return [(d["id"], d["n"], Decimal(str(d["amount"])).quantize(Decimal("0.01")), d["text"]) for d in documents]

    def kill_server(self) -> None:
        self.server.kill()

    def start_server(self) -> None:
        self.server.start()

    def _ask(self, method: str, path: str, body: object) -> dict[str, dict[str, list[dict[str, Any]]]]:
        request = urllib.request.Request(
            f"{self.server.url}/{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=30) as answer:
            found: dict[str, dict[str, list[dict[str, Any]]]] = json.load(answer)
            return found
