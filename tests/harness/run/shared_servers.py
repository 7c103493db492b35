"""The servers that all processes of one test run share.

The process that the user started keeps them: a worker asks for one over a local socket, the first that asks has it
started, and all use the same. They end with the run, also when workers die, and when the run itself is killed.
"""

from __future__ import annotations

import os
import shutil
import socket
import socketserver
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from headgate.local.servers.base import EmbeddedServer, Lifetime
from headgate.local.servers.kafka import BrokerSettings, EmbeddedBroker
from headgate.local.servers.opensearch import EmbeddedOpenSearch, OpenSearchNodeSettings
from headgate.local.servers.postgres import EmbeddedPostgres, PostgresServerSettings
from tests.harness.servers.schema_registry import EmbeddedRegistry, RegistryServerSettings

_START_TIMEOUT_S = 600.0


def _broker(folder: Path) -> EmbeddedBroker:
    return EmbeddedBroker(BrokerSettings(folder, lifetime=Lifetime.WITH_PARENT, short_lived=True))


def _postgres(folder: Path) -> EmbeddedPostgres:
    return EmbeddedPostgres(PostgresServerSettings(folder, lifetime=Lifetime.WITH_PARENT))


def _opensearch(folder: Path) -> EmbeddedOpenSearch:
    return EmbeddedOpenSearch(OpenSearchNodeSettings(folder, lifetime=Lifetime.WITH_PARENT, short_lived=True))


def _registry(folder: Path) -> EmbeddedRegistry:
    return EmbeddedRegistry(RegistryServerSettings(folder))


_KINDS: dict[str, Callable[[Path], Any]] = {
    "kafka": _broker,
    "postgres": _postgres,
    "opensearch": _opensearch,
    "registry": _registry,
}


class ServerSource(Protocol):
    """Hands out servers that run: ``kafka``, ``postgres``, ``opensearch`` or ``registry``."""

    def get(self, kind: str) -> Any:
        """Return the run's server of this kind, started."""
        ...


class ServerKeeper:
    """Starts each server at the first request, and ends them all."""

    def __init__(self) -> None:
        self._made: Path | None = None
        self._locks = {kind: threading.Lock() for kind in _KINDS}
        self._started: dict[str, EmbeddedServer[Any, Any]] = {}
        self._address = ""
        self._listener: socketserver.ThreadingTCPServer | None = None

    def _folder(self) -> Path:
        if self._made is None:
            self._made = Path(tempfile.mkdtemp(prefix="headgate-tests-"))
            self._made.chmod(0o755)  # a server may run as another user
        return self._made

    def get(self, kind: str) -> Any:
        """Return the run's server of this kind, started."""
        with self._locks[kind]:
            if kind not in self._started:
                server = _KINDS[kind](self._folder() / kind)
                server.start()
                self._started[kind] = server
            return self._started[kind]

    def listen(self) -> str:
        """Answer the workers of this run from now on, and return the address that they need."""
        if self._listener is not None:
            return self._address
        keeper = self

        class Answer(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                kind = self.rfile.readline().decode().strip()
                try:
                    keeper.get(kind)
                    self.wfile.write(b"started\n")
                except Exception as error:
                    self.wfile.write(f"{type(error).__name__}: {error}".encode())

        self._listener = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Answer)
        self._listener.daemon_threads = True
        threading.Thread(target=self._listener.serve_forever, daemon=True).start()
        self._address = f"{self._listener.server_address[1]} {self._folder()}"
        return self._address

    def close(self) -> None:
        """End all servers and delete their data."""
        if self._listener is not None:
            self._listener.shutdown()
            self._listener.server_close()
        for server in self._started.values():
            server.kill()  # a stop in order would write everything to the disk first
            if isinstance(server, EmbeddedPostgres):
                server.delete()
        if self._made is not None:
            shutil.rmtree(self._made, ignore_errors=True)


class WorkerServers:
    """The same for a worker: it asks the keeper, and connects to the server in the keeper's folder."""

    def __init__(self, address: str) -> None:
        port, self._folder = address.split(" ", 1)
        self._port = int(port)

    def get(self, kind: str) -> Any:
        """Return the run's server of this kind, started."""
        with socket.create_connection(("127.0.0.1", self._port), _START_TIMEOUT_S) as connection:
            connection.sendall(f"{kind}\n".encode())
            with connection.makefile("rb") as answer:
                text = answer.read().decode()
        if text != "started\n":
            raise RuntimeError(f"the run's {kind} did not start: {text or 'no answer'}")
        server = _KINDS[kind](Path(self._folder) / kind)
        server.start()
        return server


def worker_id() -> str:
    """Return the name of this worker, empty when the run has none: names on shared servers contain it."""
    return os.environ.get("PYTEST_XDIST_WORKER", "")


def unique_name(stem: str, number: int) -> str:
    """Return a name that no other test of the run has on the shared servers."""
    return "-".join(part for part in (stem, worker_id(), str(number)) if part)
