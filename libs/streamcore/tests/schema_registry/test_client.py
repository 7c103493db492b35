"""The client against a real registry, also behind a server that wants TLS and a login."""

from __future__ import annotations

import base64
import http.server
import json
import logging
import socket
import ssl
import subprocess
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from streamcore.errors import ConfigError, Retryable
from streamcore.outages import Outages
from streamcore.schema_registry.client import RegistryClient
from streamcore.schema_registry.lookups import SchemaLookups
from streamcore.schema_registry.schemas import RegisteredSchema, SchemaId, SchemaReference
from streamcore.schema_registry.settings import RegistrySettings
from streamcore.schema_registry.store import SchemaStore
from streamcore.schema_registry.waiting import SchemaPins, StoredSchemas
from streamcore.storage import LocalObjectStore
from tests.harness.run.shared_servers import unique_name
from tests.harness.servers.processes import wait_until
from tests.harness.servers.schema_registry import EmbeddedRegistry

RECORD = '{"type":"record","name":"%s","fields":[{"name":"id","type":"%s"}]}'
SECRET = "s3cret-of-the-registry"
BASIC = "Basic " + base64.b64encode(f"headgate:{SECRET}".encode()).decode()


def ask(settings: RegistrySettings, schema_id: SchemaId) -> RegisteredSchema | None:
    with closing(RegistryClient(settings)) as client:
        return client.schema(schema_id)


def record(name: str, kind: str = "string") -> str:
    return RECORD % (name, kind)


def test_schemas_are_found_by_id_and_by_subject(registry: EmbeddedRegistry) -> None:
    with closing(RegistryClient(RegistrySettings(registry.url))) as client:
        check_subject(client, registry)


def check_subject(client: RegistryClient, registry: EmbeddedRegistry) -> None:
    subject = unique_name("a/b c", 1)
    first = registry.register(subject.replace("/", "%2F").replace(" ", "%20"), record("A"))
    second = registry.register(subject.replace("/", "%2F").replace(" ", "%20"), record("A", "long"))
    assert client.schema(first) == RegisteredSchema(first, "AVRO", record("A"))
    assert client.versions(subject) == [1, 2]
    assert [client.version_id(subject, n) for n in (1, 2, 3)] == [first, second, None]
    assert client.schema(2**31 - 1) is None
    assert client.versions(unique_name("nobody", 1)) == []


def test_references_come_after_what_they_use(registry: EmbeddedRegistry) -> None:
    names = [unique_name(stem, 2) for stem in ("inner", "middle", "outer")]
    uses = [[], [("Inner", names[0])], [("Middle", names[1]), ("Inner", names[0])]]
    texts = [record("Inner"), record("Middle", "Inner"), record("Outer", "Middle")]
    numbers: list[int] = []
    for name, text, used in zip(names, texts, uses, strict=True):
        references = [{"name": one, "subject": subject, "version": 1} for one, subject in used]
        numbers.append(registry.register(name, text, references=references))
    schema = ask(RegistrySettings(registry.url), numbers[-1])
    assert schema is not None
    assert schema.references == (SchemaReference("Inner", texts[0]), SchemaReference("Middle", texts[1]))


class Door(http.server.BaseHTTPRequestHandler):
    """Passes requests with a login on to the registry. ``guids``: what the registry is asked for in place of a path."""

    protocol_version = "HTTP/1.1"
    registry = ""
    login: str | None = ""
    page: tuple[int, bytes] | None = None
    guids: Mapping[str, str] = MappingProxyType({})

    def do_GET(self) -> None:
        if self.page is not None:
            self.answer(*self.page)
        elif self.headers.get("Authorization") != self.login:
            self.answer(401, b"")
        else:
            try:
                with urllib.request.urlopen(self.registry + self.guids.get(self.path, self.path), timeout=10) as answer:
                    self.answer(answer.status, answer.read())
            except urllib.error.HTTPError as error:
                self.answer(error.code, error.read())

    def answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: Any) -> None:
        """Say nothing."""


@pytest.fixture
def door(registry: EmbeddedRegistry, tmp_path: Path) -> Iterator[tuple[type[Door], str, Path]]:
    """Yield the handler of a server with TLS before the registry, its URL, and the file of its authority."""
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    options = ["-newkey", "rsa:2048", "-nodes", "-days", "2", "-keyout", str(key), "-out", str(certificate)]
    subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run(["openssl", "req", "-x509", *options, *subject], check=True, capture_output=True)
    kind = type("OwnDoor", (Door,), {"registry": registry.url})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), kind)
    server.daemon_threads = True
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield kind, f"https://127.0.0.1:{server.server_address[1]}", certificate
    server.shutdown()
    server.server_close()


def test_a_registry_is_reached_over_tls_with_a_password_or_a_token(
    registry: EmbeddedRegistry, door: tuple[type[Door], str, Path], tmp_path: Path
) -> None:
    kind, url, authority = door
    number = registry.register(unique_name("tls", 3), record("T"))
    secret = tmp_path / "secret"
    secret.write_text(SECRET + "\n")
    kind.login = BASIC
    basic = RegistrySettings(url, user="headgate", password_file=secret, ca_file=authority)
    found = ask(basic, number)
    assert found is not None
    bearer = RegistrySettings(url, token_file=secret, ca_file=authority)
    with pytest.raises(Retryable, match="401") as wrong:
        ask(bearer, number)
    kind.login = f"Bearer {SECRET}"
    assert ask(bearer, number) == found
    with pytest.raises(Retryable, match=r"CERTIFICATE_VERIFY_FAILED.*; check schema_registry\.url, ca_file"):
        ask(RegistrySettings(url, token_file=secret), number)
    secret.write_text("")
    with pytest.raises(Retryable, match="is empty"):
        ask(bearer, number)
    for text in (repr(basic), repr(bearer), str(wrong.value)):
        assert SECRET not in text


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (404, b"<html>no such page</html>"),
        (404, b'{"error_code": 404, "message": "HTTP 404 Not Found"}'),
        (404, b'{"error_code": 40401}'),
        (500, b'{"error_code": 50001}'),
        (200, b"<html>please log in</html>"),
        (200, b'{"id": 1}'),
        (200, b"[]"),
        (200, b'{"schema": "x", "references": [{"name": "a"}]}'),
    ],
)
def test_only_the_registrys_own_answer_makes_an_id_absent(
    door: tuple[type[Door], str, Path], status: int, body: bytes
) -> None:
    kind, url, authority = door
    kind.page = (status, body)
    with pytest.raises(Retryable):
        ask(RegistrySettings(url, ca_file=authority), 1)


def test_settings_that_cannot_work_are_rejected_without_their_secret() -> None:
    for wrong in (
        {"url": "registry:8081"},
        {"url": f"http://headgate:{SECRET}@registry:8081"},
        {"url": "http://r", "user": "headgate"},
        {"url": "http://r", "password_file": "/x"},
        {"url": "http://r", "user": "a", "password_file": "/x", "token_file": "/y"},
        {"url": "http://r", "token_env": f"not {SECRET}"},
        {"url": "http://r", "ca_file": "/x"},
        {"url": "https://r", "cert_file": "/x"},
    ):
        with pytest.raises(ConfigError) as error:
            RegistrySettings(**wrong)  # type: ignore[arg-type]
        assert SECRET not in str(error.value)


def test_a_task_waits_for_a_registry_that_is_away_and_an_absent_id_stays_absent(
    registry: EmbeddedRegistry, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    subject = unique_name("waits", 4)
    known = registry.register(f"{subject}-value", record("W"))
    other = registry.register(unique_name("other", 4), record("O"))
    unknown = 2**31 - 7
    store = SchemaStore.of(LocalObjectStore(tmp_path), registry.url)
    answers: list[Any] = []
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        away = RegistrySettings(f"http://127.0.0.1:{taken.getsockname()[1]}")
        outages = Outages(logging.getLogger("test"))
        task = threading.Thread(
            target=lambda: answers.append(StoredSchemas(store, SchemaPins(3)).find([other, unknown])), daemon=True
        )
        with SchemaLookups(away, store, [subject], outages) as lookups:
            lookups.prefetch()
            task.start()
            wait_until(lambda: bool(store.requests()), "a request", 20)
            with pytest.raises(Retryable):
                lookups.answer()
            assert task.is_alive()
            assert not answers
    with SchemaLookups(RegistrySettings(registry.url), store, [subject], outages) as lookups:
        lookups.prefetch()
        assert store.read(known) == RegisteredSchema(known, "AVRO", record("W")), "got before a record needs it"
        store.want(3, [other, unknown])  # a start drops the requests of tasks that died with the driver
        task.join(20)
    assert answers == [{other: RegisteredSchema(other, "AVRO", record("O")), unknown: None}]
    assert store.requests() == []
    # The id is registered meanwhile: absent in the cut that asked first, found in the next one.
    store.add(RegisteredSchema(unknown, "AVRO", record("U")))
    assert StoredSchemas(store, SchemaPins(3, tuple(store.absent(3)))).find([unknown]) == {unknown: None}
    assert StoredSchemas(store, SchemaPins(3)).find([unknown]) == {unknown: None}
    found = StoredSchemas(store, SchemaPins(4)).find([unknown])[unknown]
    assert found is not None


def test_the_absent_ids_of_old_batches_are_dropped(tmp_path: Path) -> None:
    store = SchemaStore.of(LocalObjectStore(tmp_path), "http://r")
    for batch in (1, 2, 150):
        store.add_absent(batch, [7])
        store.add_absent(batch, [9])
    assert [sorted(store.absent(batch)) for batch in (1, 2, 150)] == [[], [], [7, 9]]


def test_a_store_is_that_of_one_registry(tmp_path: Path) -> None:
    one, other = (SchemaStore.of(LocalObjectStore(tmp_path), url) for url in ("http://r", "http://s"))
    one.add(RegisteredSchema(1, "PROTOBUF", "x", (SchemaReference("a", "b"),)))
    assert one.read(1) == RegisteredSchema(1, "PROTOBUF", "x", (SchemaReference("a", "b"),))
    assert other.read(1) is None
    assert json.loads(next(tmp_path.rglob("ids/1")).read_text())["schema"] == "x"


def test_a_schema_is_found_by_its_guid(registry: EmbeddedRegistry, door: tuple[type[Door], str, Path]) -> None:
    """The registry that tests have knows no GUIDs; one that does has the schema at a path of its own."""
    guid = "5f1b3a52-0f3c-4e7d-9a57-6f0d6e1c2b3a"
    number = registry.register(unique_name("guid", 4), record("G"))
    assert ask(RegistrySettings(registry.url), guid) is None, "it answers otherwise, so it has no such schema"
    kind, url, authority = door
    kind.login, kind.guids = None, {f"/schemas/guids/{guid}": f"/schemas/ids/{number}"}
    there = RegistrySettings(url, ca_file=authority)
    assert ask(there, guid) == RegisteredSchema(guid, "AVRO", record("G"))
    assert ask(there, guid.replace("5", "6")) is None
    kind.page = (404, b"nothing here")
    with pytest.raises(Retryable, match="check the path"):
        ask(there, guid)


def test_guids_are_looked_up_pinned_and_found_in_a_replay(registry: EmbeddedRegistry, tmp_path: Path) -> None:
    store, number = SchemaStore(LocalObjectStore(tmp_path)), registry.register(unique_name("pin", 5), record("P"))
    absent = "00000000-0000-0000-0000-000000000001"
    with SchemaLookups(RegistrySettings(registry.url), store, ()):
        found = StoredSchemas(store, SchemaPins(3)).find([number, absent])
    assert [found[number] is None, found[absent]] == [False, None]
    store.add(RegisteredSchema(absent, "AVRO", record("P")))
    again = StoredSchemas(store, SchemaPins(3, tuple(store.absent(3))))
    assert again.find([absent]) == {absent: None}, "as in the first run of the batch"
    later = StoredSchemas(store, SchemaPins(4)).find([absent])
    assert later == {absent: RegisteredSchema(absent, "AVRO", record("P"))}
