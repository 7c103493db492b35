"""A console that runs in a thread, and a client that speaks HTTP to it, header by header."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any  # bodies are JSON of any content
from urllib.parse import urlencode, urlsplit

from headgate.web.access.roles import Role
from headgate.web.server import ConsoleServer, running
from headgate.web.settings import ConsoleApp, ConsoleLimits, ConsoleSettings
from streamcore.kafka.settings import KafkaSettings

WAIT_S = 60


@dataclass(frozen=True, slots=True)
class Answer:
    """Status, headers by lower-case name, and body of an answer."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def text(self) -> str:
        """The body as text."""
        return self.body.decode()

    @property
    def json(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)


@dataclass(slots=True)
class ConsoleClient:
    """Sends requests to a console. ``headers``: those of every request, such as the token or the cookie."""

    address: str
    headers: dict[str, str] = field(default_factory=dict)

    def send(
        self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str | None] | None = None
    ) -> Answer:
        """Send a request. A header whose value is None is left out."""
        where = urlsplit(self.address)
        connection = http.client.HTTPConnection(where.hostname or "", where.port or 0, timeout=WAIT_S)
        try:
            connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
            given: dict[str, str | None] = {"Host": where.netloc, **self.headers, **(headers or {})}
            if body is not None:
                given.setdefault("Content-Length", str(len(body)))
            for name, value in given.items():
                if value is not None:
                    connection.putheader(name, value)
            connection.endheaders(body)
            answer = connection.getresponse()
            found = {name.lower(): value for name, value in answer.getheaders()}
            return Answer(answer.status, found, answer.read())
        finally:
            connection.close()

    def get(self, path: str, **headers: str | None) -> Answer:
        """Send GET. Names of headers have ``_`` for ``-``."""
        return self.send("GET", path, headers=_names(headers))

    def json(self, method: str, path: str, document: object, **headers: str | None) -> Answer:
        """Send a JSON document."""
        more = {"Content-Type": "application/json", **_names(headers)}
        return self.send(method, path, json.dumps(document).encode(), more)

    def form(self, path: str, entries: Mapping[str, str], **headers: str | None) -> Answer:
        """Send a form, as a browser does from a page of the console."""
        kind = {"Content-Type": "application/x-www-form-urlencoded", "Origin": self.address, **_names(headers)}
        return self.send("POST", path, urlencode(entries).encode(), kind)


def _names(headers: Mapping[str, str | None]) -> dict[str, str | None]:
    return {name.replace("_", "-"): value for name, value in headers.items()}


@contextmanager
def serve(
    kafka: KafkaSettings, *apps: str, role: Role = Role.ADMIN, limits: ConsoleLimits | None = None
) -> Iterator[ConsoleServer]:
    """Serve a console for some apps on a free port."""
    shown = tuple(ConsoleApp(name=name) for name in apps)
    settings = ConsoleSettings(kafka=kafka, apps=shown, port=0, role=role, limits=limits or ConsoleLimits())
    with running(ConsoleServer(settings)) as server:
        yield server


def program(server: ConsoleServer) -> ConsoleClient:
    """Return a client with a token."""
    return ConsoleClient(server.address, {"Authorization": f"Bearer {server.sessions.new_api_token()}"})


def browser(server: ConsoleServer) -> ConsoleClient:
    """Return a client with the cookie that the printed address gives."""
    opened = ConsoleClient(server.address).get(server.open_address().removeprefix(server.address))
    assert opened.status == 303
    return ConsoleClient(server.address, {"Cookie": opened.headers["set-cookie"].partition(";")[0]})
