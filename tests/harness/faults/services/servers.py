"""Servers that services write to and that tests kill: their logins, and clients that share no code with the sinks."""

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
    """A server that keeps its data when it is started after a ``kill``."""

    def kill(self) -> object:
        """Kill the server, as a power cut does."""
        ...

    def start(self) -> object:
        """Start the server, and wait until it answers."""
        ...


@dataclass(frozen=True, slots=True)
class Postgres:
    """A PostgreSQL database."""

    server: EmbeddedPostgres

    @property
    def login(self) -> dict[str, object]:
        """Return the settings with which an app connects."""
        return {
            "host": self.server.host,
            "port": self.server.port,
            "database": self.server.database,
            "user": self.server.user,
            "password_file": str(self.server.password_file),
            "patience": {"recovery_ms": _RECOVERY_MS},
        }

    def connect(self) -> psycopg.Connection:
        """Return a connection of the test."""
        server = self.server
        password = server.password_file.read_text(encoding="utf-8")
        return psycopg.connect(
            host=server.host, port=server.port, dbname=server.database, user=server.user, password=password
        )


@dataclass(frozen=True, slots=True)
class OpenSearch:
    """An OpenSearch node."""

    server: EmbeddedOpenSearch

    @property
    def login(self) -> dict[str, object]:
        """Return the settings with which an app connects."""
        return {"hosts": [self.server.url], "patience": {"recovery_ms": _RECOVERY_MS}}

    def hits(self, alias: str) -> list[dict[str, Any]]:
        """Return all documents, each with ``_id`` and ``_source``."""
        self._request("POST", f"{alias}/_refresh", None)
        found = self._request("POST", f"{alias}/_search", {"size": 10_000, "query": {"match_all": {}}})
        return found["hits"]["hits"]

    def _request(self, method: str, path: str, body: object) -> dict[str, dict[str, list[dict[str, Any]]]]:
        request = urllib.request.Request(
            f"{self.server.url}/{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=30) as answer:
            found: dict[str, dict[str, list[dict[str, Any]]]] = json.load(answer)
            return found
