"""The OpenSearch that ``headgate up search`` writes to: a node of the data folder's own, or one that was named.

Promises: a node that was there before is left running; what is deleted is the shop's. Everything on a node of our own
is the shop's; on somebody else's server, the indexes that carry the name of the shop's app, and its notes.
"""

from __future__ import annotations

import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from headgate.errors import OpenSearchError
from headgate.local.embedded import HOST
from headgate.local.java import Java
from headgate.local.opensearch import DEFAULT_PORT, JAVA_AT_LEAST, EmbeddedOpenSearch, OpenSearchNodeSettings
from headgate.local.opensearch_http import OpenSearchHttp
from headgate.talk import Say
from streamcore.sinks.opensearch.settings import Login

#: Of the sink's notes, a document an app.
LEDGER: Final = "headgate-ledger"
_NAMED_WAIT_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class Writer:
    """An app, its sink, and the alias of the indexes that it writes to."""

    app: str
    alias: str
    sink: str


class OpenSearchServer(Protocol):
    """A ``Server`` with an address."""

    @property
    def login(self) -> Login:
        """How to reach it, once it has started."""
        ...

    @property
    def replicas(self) -> int | None:
        """Of an index; None: as the server likes."""
        ...

    def start(self, say: Say) -> None: ...

    def check(self) -> None: ...

    def stop(self, say: Say) -> None: ...

    def forget(self, writer: Writer | None, say: Say) -> None:
        """Delete what it wrote. None: nobody knows who wrote."""
        ...


class OwnNode:
    """In ``folder``, on the port that ``headgate search`` looks at if it is free, else on any."""

    replicas: int | None = 0

    def __init__(self, folder: Path, java: Java) -> None:
        self._folder = folder
        self._java = java
        self._node: EmbeddedOpenSearch | None = None
        self._started = False

    @property
    def login(self) -> Login:
        """How to reach it, once it has started."""
        assert self._node is not None, "start() comes first"
        return Login((self._node.url,))

    def start(self, say: Say) -> None:
        """Use the node of the folder if it runs, else start it."""
        java = self._java if self._java.version >= JAVA_AT_LEAST else None
        node = EmbeddedOpenSearch(OpenSearchNodeSettings(self._folder), java, say)
        self._started = node.running is None
        if self._started and _is_free(DEFAULT_PORT):
            node = EmbeddedOpenSearch(OpenSearchNodeSettings(self._folder, DEFAULT_PORT), java, say)
        node.start()
        self._node = node

    def check(self) -> None:
        """Raise when it is gone."""
        if self._node is not None and self._node.running is None:
            files = self._node.files
            raise OpenSearchError(f"opensearch ended; last in its log {files.log}: {files.complaint()}")

    def stop(self, say: Say) -> None:
        """End it, if we started it."""
        if self._node is None:
            return
        if self._started:
            say("opensearch: stopping")
            self._node.stop()
        else:
            say(f"opensearch: left running at {self._node.url}")

    def forget(self, writer: Writer | None, say: Say) -> None:  # noqa: ARG002 - there is nobody else
        """Delete everything."""
        http = OpenSearchHttp(self.login)
        _delete_indexes(http, [*http.find("/_all?filter_path=*.settings.index.uuid")], say)
        http.delete("/_index_template/headgate-*")


class NamedServer:
    """Somebody else's."""

    replicas: int | None = None

    def __init__(self, login: Login) -> None:
        self.login = login

    def start(self, say: Say) -> None:  # noqa: ARG002 - nothing is started
        """See that it answers."""
        OpenSearchHttp(self.login).await_ready(_NAMED_WAIT_S)

    def check(self) -> None:
        """Nothing: the app waits for it."""

    def stop(self, say: Say) -> None:
        """It is not ours."""

    def forget(self, writer: Writer | None, say: Say) -> None:
        """Delete the indexes with the alias's name that are the app's, its template and its note."""
        if writer is None:
            return
        http = OpenSearchHttp(self.login)
        found = http.find(f"/{writer.alias}-0*?filter_path=*.mappings._meta")
        _delete_indexes(http, [name for name, one in found.items() if _app_of(one) == writer.app], say)
        http.delete(f"/_index_template/headgate-{writer.app}-*")
        http.delete(f"/{LEDGER}/_doc/{writer.app}.{writer.sink}")


def _app_of(index: dict[str, dict[str, dict[str, dict[str, str]]]]) -> str | None:
    return index["mappings"]["_meta"].get("headgate", {}).get("app")


def _delete_indexes(http: OpenSearchHttp, names: list[str], say: Say) -> None:
    for name in sorted(names):
        say(f"opensearch: deleting index {name}")
        http.delete(f"/{name}")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True
