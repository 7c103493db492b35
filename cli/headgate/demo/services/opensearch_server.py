"""The OpenSearch that ``headgate up search`` writes to: a local node of the data folder, or one that the user names.

Promises: a local node that already ran is left running; only data of the workspace is deleted. That is everything on a
local node, and on an external server the indexes, the index template and the ledger document of the workspace's app.
"""

from __future__ import annotations

import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from headgate.console.messages import Print
from headgate.errors import OpenSearchError
from headgate.local.java import Java
from headgate.local.servers.base import HOST
from headgate.local.servers.opensearch import DEFAULT_PORT, JAVA_AT_LEAST, EmbeddedOpenSearch, OpenSearchNodeSettings
from headgate.local.servers.opensearch_http import OpenSearchHttp
from streamcore.sinks.opensearch.settings import ClientSettings

#: The index of the sink's ledger, with one document per app.
LEDGER: Final = "headgate-ledger"
_EXTERNAL_WAIT_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class IndexWriter:
    """An app, its sink, and the alias of the indexes that it writes to."""

    app: str
    alias: str
    sink: str


class OpenSearchServer(Protocol):
    """An OpenSearch as a ``Server``, with its login."""

    @property
    def login(self) -> ClientSettings:
        """The address and login, after ``start``."""
        ...

    @property
    def replicas(self) -> int | None:
        """The number of replicas of a new index; None: the server's default."""
        ...

    def start(self, print_message: Print) -> None: ...

    def raise_if_ended(self) -> None: ...

    def stop(self, print_message: Print) -> None: ...

    def delete_leftovers(self, writer: IndexWriter | None, print_message: Print) -> None:
        """Delete the documents that the app wrote. None: the app is unknown."""
        ...


class LocalNode:
    """A local node with its data in ``folder``, on the default port of ``headgate search`` if it is free, else on any
    port."""

    replicas: int | None = 0

    def __init__(self, folder: Path, java: Java) -> None:
        self._folder = folder
        self._java = java
        self._node: EmbeddedOpenSearch | None = None
        self._started = False

    @property
    def login(self) -> ClientSettings:
        """The address and login, after ``start``."""
        assert self._node is not None, "call start() first"
        return ClientSettings((self._node.url,))

    def start(self, print_message: Print) -> None:
        """Start the node of the folder unless it runs."""
        java = self._java if self._java.version >= JAVA_AT_LEAST else None
        node = EmbeddedOpenSearch(OpenSearchNodeSettings(self._folder), java, print_message)
        self._started = node.running is None
        if self._started and _is_free(DEFAULT_PORT):
            node = EmbeddedOpenSearch(OpenSearchNodeSettings(self._folder, DEFAULT_PORT), java, print_message)
        node.start()
        self._node = node

    def raise_if_ended(self) -> None:
        """Raise ``OpenSearchError`` if the node has ended."""
        if self._node is not None and self._node.running is None:
            files = self._node.files
            raise OpenSearchError(f"opensearch ended; last in its log {files.log}: {files.last_error()}")

    def stop(self, print_message: Print) -> None:
        """Stop the node if ``start`` started it."""
        if self._node is None:
            return
        if self._started:
            print_message("opensearch: stopping")
            self._node.stop()
        else:
            print_message(f"opensearch: left running at {self._node.url}")

    def delete_leftovers(self, writer: IndexWriter | None, print_message: Print) -> None:  # noqa: ARG002 - all data is the workspace's
        """Delete all indexes."""
        http = OpenSearchHttp(self.login)
        _delete_indexes(http, [*http.find("/_all?filter_path=*.settings.index.uuid")], print_message)
        http.delete("/_index_template/headgate-*")


class ExternalServer:
    """An external OpenSearch."""

    replicas: int | None = None

    def __init__(self, login: ClientSettings) -> None:
        self.login = login

    def start(self, print_message: Print) -> None:  # noqa: ARG002 - nothing is started
        """Wait until the server answers."""
        OpenSearchHttp(self.login).await_ready(_EXTERNAL_WAIT_S)

    def raise_if_ended(self) -> None:
        """Do nothing: the app waits for the server."""

    def stop(self, print_message: Print) -> None:
        """Do nothing: the server is an external one."""

    def delete_leftovers(self, writer: IndexWriter | None, print_message: Print) -> None:
        """Delete the app's indexes behind the alias, its index template and its ledger document."""
        if writer is None:
            return
        http = OpenSearchHttp(self.login)
        indexes = http.find(f"/{writer.alias}-0*?filter_path=*.mappings._meta")
        _delete_indexes(
            http, [name for name, index in indexes.items() if _app_in_index(index) == writer.app], print_message
        )
        http.delete(f"/_index_template/headgate-{writer.app}-*")
        http.delete(f"/{LEDGER}/_doc/{writer.app}.{writer.sink}")


def _app_in_index(index: dict[str, dict[str, dict[str, dict[str, str]]]]) -> str | None:
    return index["mappings"]["_meta"].get("headgate", {}).get("app")


def _delete_indexes(http: OpenSearchHttp, names: list[str], print_message: Print) -> None:
    for name in sorted(names):
        print_message(f"opensearch: deleting index {name}")
        http.delete(f"/{name}")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True
