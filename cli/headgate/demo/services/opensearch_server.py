"""The OpenSearch that ``headgate up search`` writes to: a local node of the data folder, or one that the user names.

Promises: a node that ran before is left running; only the shop's data is deleted. Everything on a local node belongs
to the shop; on an external server, the indexes that carry the name of the shop's app, and its notes.
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

#: Of the sink's notes, a document an app.
LEDGER: Final = "headgate-ledger"
_NAMED_WAIT_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class IndexWriter:
    """An app, its sink, and the alias of the indexes that it writes to."""

    app: str
    alias: str
    sink: str


class OpenSearchServer(Protocol):
    """A ``Server`` with an address."""

    @property
    def login(self) -> ClientSettings:
        """How to reach it, once it has started."""
        ...

    @property
    def replicas(self) -> int | None:
        """Of an index; None: as the server likes."""
        ...

    def start(self, print_message: Print) -> None: ...

    def check(self) -> None: ...

    def stop(self, print_message: Print) -> None: ...

    def delete_leftovers(self, writer: IndexWriter | None, print_message: Print) -> None:
        """Delete the documents that the app wrote. None: the app is unknown."""
        ...


class LocalNode:
    """In ``folder``, on the port that ``headgate search`` looks at if it is free, else on any."""

    replicas: int | None = 0

    def __init__(self, folder: Path, java: Java) -> None:
        self._folder = folder
        self._java = java
        self._node: EmbeddedOpenSearch | None = None
        self._started = False

    @property
    def login(self) -> ClientSettings:
        """How to reach it, once it has started."""
        assert self._node is not None, "start() comes first"
        return ClientSettings((self._node.url,))

    def start(self, print_message: Print) -> None:
        """Use the node of the folder if it runs, else start it."""
        java = self._java if self._java.version >= JAVA_AT_LEAST else None
        node = EmbeddedOpenSearch(OpenSearchNodeSettings(self._folder), java, print_message)
        self._started = node.running is None
        if self._started and _is_free(DEFAULT_PORT):
            node = EmbeddedOpenSearch(OpenSearchNodeSettings(self._folder, DEFAULT_PORT), java, print_message)
        node.start()
        self._node = node

    def check(self) -> None:
        """Raise when it is gone."""
        if self._node is not None and self._node.running is None:
            files = self._node.files
            raise OpenSearchError(f"opensearch ended; last in its log {files.log}: {files.last_error()}")

    def stop(self, print_message: Print) -> None:
        """End it, if we started it."""
        if self._node is None:
            return
        if self._started:
            print_message("opensearch: stopping")
            self._node.stop()
        else:
            print_message(f"opensearch: left running at {self._node.url}")

    def delete_leftovers(self, writer: IndexWriter | None, print_message: Print) -> None:  # noqa: ARG002 - there is nobody else
        """Delete everything."""
        http = OpenSearchHttp(self.login)
        _delete_indexes(http, [*http.find("/_all?filter_path=*.settings.index.uuid")], print_message)
        http.delete("/_index_template/headgate-*")


class ExternalServer:
    """An external OpenSearch."""

    replicas: int | None = None

    def __init__(self, login: ClientSettings) -> None:
        self.login = login

    def start(self, print_message: Print) -> None:  # noqa: ARG002 - nothing is started
        """See that it answers."""
        OpenSearchHttp(self.login).await_ready(_NAMED_WAIT_S)

    def check(self) -> None:
        """Nothing: the app waits for it."""

    def stop(self, print_message: Print) -> None:
        """Do nothing: the server is not ours."""

    def delete_leftovers(self, writer: IndexWriter | None, print_message: Print) -> None:
        """Delete the indexes with the alias's name that are the app's, its template and its note."""
        if writer is None:
            return
        http = OpenSearchHttp(self.login)
        found = http.find(f"/{writer.alias}-0*?filter_path=*.mappings._meta")
        _delete_indexes(http, [name for name, one in found.items() if _app_in_index(one) == writer.app], print_message)
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
