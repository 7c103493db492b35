"""The servers that services write to, for tests that harm them: an app's settings for a server, and the server's
content, read by a client that shares nothing with the sink."""

from __future__ import annotations

import json
import urllib.request
from dataclasses import dataclass
from typing import Any, Protocol

import psycopg

from headgate.local.servers.opensearch import EmbeddedOpenSearch
from headgate.local.servers.postgres import EmbeddedPostgres

_RECOVERY_MS = 120_000


class Server(Protocol):
    """One of them. ``start`` after a ``kill`` goes on with the data that is there."""

    def kill(self) -> object:
        """As a power cut would."""
        ...

    def start(self) -> object:
        """Until it answers."""
        ...


@dataclass(frozen=True, slots=True)
class Postgres:
    """A database."""

    server: EmbeddedPostgres

    @property
    def login(self) -> dict[str, object]:
        """How an app reaches it, and for how long it waits."""
        return {
            "host": self.server.host,
            "port": self.server.port,
            "database": self.server.database,
            "user": self.server.user,
            "password_file": str(self.server.password_file),
            "patience": {"recovery_ms": _RECOVERY_MS},
        }

    def connect(self) -> psycopg.Connection:
        """Return a client of the test's own."""
        server = self.server
        password = server.password_file.read_text(encoding="utf-8")
        return psycopg.connect(
            host=server.host, port=server.port, dbname=server.database, user=server.user, password=password
        )


@dataclass(frozen=True, slots=True)
class OpenSearch:
    """A node."""

    server: EmbeddedOpenSearch

    @property
    def login(self) -> dict[str, object]:
        """How an app reaches it, and for how long it waits."""
        return {"hosts": [self.server.url], "patience": {"recovery_ms": _RECOVERY_MS}}

    def hits(self, alias: str) -> list[dict[str, Any]]:
        """All documents, each with its ``_id`` and ``_source``."""
        self._ask("POST", f"{alias}/_refresh", None)
        found = self._ask("POST", f"{alias}/_search", {"size": 10_000, "query": {"match_all": {}}})
        return found["hits"]["hits"]

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
