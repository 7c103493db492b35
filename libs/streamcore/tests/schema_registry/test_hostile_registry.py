"""Whatever stands at the address of the registry, a look-up ends with an answer or a message, in a bounded time."""

from __future__ import annotations

import json
import logging
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from streamcore.decode.registry.registered_types import RejectedSchema, SchemaCache, read_avro
from streamcore.decode.reject_codes import RejectCode
from streamcore.errors import ConfigError, Retryable
from streamcore.outages import Outages
from streamcore.schema_registry.client import RegistryClient
from streamcore.schema_registry.lookups import SchemaLookups
from streamcore.schema_registry.schemas import RegisteredSchema, SchemaReference
from streamcore.schema_registry.settings import RegistrySettings
from streamcore.schema_registry.store import SchemaStore
from streamcore.schema_registry.waiting import SchemaPins, StoredSchemas
from streamcore.storage import LocalObjectStore
from tests.harness.servers.processes import wait_until

pytestmark = pytest.mark.slow
SECRET = "s3cret-of-the-registry"
#: Sends the answer to a request of this path.
Answer = Callable[[socket.socket, str], None]


def page(body: bytes, status: str = "200 OK", headers: str = "") -> bytes:
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n{headers}\r\n".encode("latin-1") + body


@dataclass
class Server:
    """A server that says to each request whatever ``answer`` sends."""

    answer: Answer
    paths: list[str] = field(default_factory=list)
    listener: socket.socket = field(default_factory=lambda: socket.create_server(("127.0.0.1", 0)))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.listener.getsockname()[1]}"

    def run(self) -> None:
        while True:
            try:
                peer, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.serve, args=(peer,), daemon=True).start()

    def serve(self, peer: socket.socket) -> None:
        with suppress(OSError), peer, peer.makefile("rb") as lines:
            while request := lines.readline():
                while lines.readline().strip():
                    pass
                self.paths.append(request.split()[1].decode())
                self.answer(peer, self.paths[-1])


@pytest.fixture
def serve() -> Iterator[Callable[[Answer | bytes], Server]]:
    servers: list[Server] = []

    def start(answer: Answer | bytes) -> Server:
        servers.append(Server((lambda peer, _: peer.sendall(answer)) if isinstance(answer, bytes) else answer))
        threading.Thread(target=servers[-1].run, daemon=True).start()
        return servers[-1]

    yield start
    for server in servers:
        server.listener.close()


def fails(url: str, timeout_ms: int = 5_000) -> str:
    """Ask for a schema, and return the message of the failure."""
    client = RegistryClient(RegistrySettings(url, request_timeout_ms=timeout_ms))
    with closing(client), pytest.raises(Retryable) as error:
        client.schema(1)
    return str(error.value)


REFERENCE = '"references":[{"name":"n","subject":"s","version":1}]'
WRONG = {
    "deep JSON": page(b"[" * 100_000),
    "a deep schema beside it": page(b'{"schema":"x","more":' + b"[" * 100_000 + b"}"),
    "a number of 10,000 digits": page(b'{"schema":"x","id":' + b"1" * 10_000 + b"}"),
    "references that are a number": page(b'{"schema":"x","references":7}'),
    "references that are true": page(b'{"schema":"x","references":true}'),
    "a reference that is a text": page(b'{"schema":"x","references":["a"]}'),
    "a page of another character set": page("\xff\xfe<html>".encode("utf-16")),
    "less than was announced": page(b'{"schema":"x"}').replace(b"Content-Length: 14", b"Content-Length: 99"),
    "no HTTP": b"SSH-2.0-OpenSSH_9.6\r\n\r\n",
    "a status that is no number": b"HTTP/1.1 2OO OK\r\n\r\n",
    "a length that is no number": b"HTTP/1.1 200 OK\r\nContent-Length: much\r\n\r\n{",
    "chunks of a wrong size": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    "a header without end": b"HTTP/1.1 200 OK\r\nX: " + b"x" * 200_000,
    "a thousand headers": b"HTTP/1.1 200 OK\r\n" + b"X: 1\r\n" * 1_000 + b"\r\n",
}


@pytest.mark.parametrize("what", WRONG)
def test_an_answer_that_is_none_is_an_outage(serve: Callable[[Answer | bytes], Server], what: str) -> None:
    def answer(peer: socket.socket, _: str) -> None:
        peer.sendall(WRONG[what])
        peer.shutdown(socket.SHUT_WR)

    said = fails(serve(answer).url)
    assert "\n" not in said
    assert len(said) < 600


def test_a_redirect_is_not_followed_and_says_what_to_do(serve: Callable[[Answer | bytes], Server]) -> None:
    other = serve(page(b'{"schema":"x"}'))
    moved = page(b"", "302 Found", f"Location: {other.url.replace('//', f'//user:{SECRET}@')}/login?token={SECRET}\r\n")
    said = fails(serve(moved).url)
    assert other.paths == []
    assert "schema_registry.url" in said
    assert SECRET not in said


def test_what_a_server_says_is_one_line_of_the_log(serve: Callable[[Answer | bytes], Server]) -> None:
    said = fails(serve(page(json.dumps({"message": "a\nFATAL: b\x1b[31m" * 99}).encode(), "500 Oops\x1b[31m")).url)
    assert said.isprintable()
    assert "a FATAL: b" in said


def test_a_slow_answer_ends_with_the_time_of_a_request(serve: Callable[[Answer | bytes], Server]) -> None:
    def drip(peer: socket.socket, path: str) -> None:
        peer.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n" + (b"\r\n" if path.endswith("1") else b"X: "))
        for _ in range(600):
            peer.sendall(b"x")
            time.sleep(0.05)

    url = serve(drip).url
    for number in (1, 2):  # slow in its body, slow in its headers
        with closing(RegistryClient(RegistrySettings(url, request_timeout_ms=500))) as client:
            began = time.monotonic()
            with pytest.raises(Retryable, match="500 ms"):
                client.schema(number)
        assert time.monotonic() - began < 15


def test_an_answer_without_end_is_cut_off(serve: Callable[[Answer | bytes], Server]) -> None:
    def flood(peer: socket.socket, _: str) -> None:
        peer.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            peer.sendall(b" " * (1 << 20))

    assert "more than 16777216 bytes" in fails(serve(flood).url, 60_000)


def problem_at(url: str) -> str:
    """Ask for a schema, and return why it cannot be read."""
    with closing(RegistryClient(RegistrySettings(url, request_timeout_ms=60_000))) as client:
        found = client.schema(1)
    assert found is not None
    assert found.references == ()
    return found.problem


def test_a_schema_with_references_that_lead_on_for_ever_is_unusable(serve: Callable[[Answer | bytes], Server]) -> None:
    def deeper(peer: socket.socket, path: str) -> None:
        number = path.count("x")
        more = [{"name": f"n{number}", "subject": "x" * (number + 1), "version": 1}]
        peer.sendall(page(json.dumps({"schema": "s", "references": more}).encode()))

    assert problem_at(serve(deeper).url) == "it uses others more than 50 deep inside each other"


def test_a_schema_with_too_many_references_is_unusable_and_stays_so(
    serve: Callable[[Answer | bytes], Server], tmp_path: Path
) -> None:
    more = [{"name": f"n{n}", "subject": "s", "version": 1} for n in range(1_001)]

    def wide(peer: socket.socket, path: str) -> None:
        peer.sendall(page(json.dumps({"schema": '"string"', "references": more if "ids" in path else []}).encode()))

    url = serve(wide).url
    lookups = lookups_at(url, tmp_path, 60_000)
    lookups._store.want(1, [7])
    lookups.answer()
    stored = lookups._store.read(7)
    assert stored is not None
    assert "more than 1000 others" in stored.problem
    found = SchemaCache(read_avro).find(StoredSchemas(lookups._store, SchemaPins(2)), [7])[7]
    assert found == RejectedSchema(RejectCode.UNUSABLE_SCHEMA, f"schema 7: {stored.problem}")


def test_references_may_be_a_circle(serve: Callable[[Answer | bytes], Server]) -> None:
    server = serve(page(('{"schema":"x",' + REFERENCE + "}").encode()))
    with closing(RegistryClient(RegistrySettings(server.url))) as client:
        assert client.schema(1) == RegisteredSchema(1, "AVRO", "x", (SchemaReference("n", "x"),))
    assert len(server.paths) == 2


def test_the_texts_of_references_have_a_limit_together(serve: Callable[[Answer | bytes], Server]) -> None:
    text = "x" * (4 << 20)

    def large(peer: socket.socket, path: str) -> None:
        names = [f"n{n}" for n in range(40)] if "ids" in path else []
        more = [{"name": name, "subject": name, "version": 1} for name in names]
        peer.sendall(page(json.dumps({"schema": text, "references": more}).encode()))

    server = serve(large)
    assert problem_at(server.url) == "it uses others of more than 16777216 characters together"
    assert len(server.paths) < 8


def test_a_type_that_is_null_is_avro(serve: Callable[[Answer | bytes], Server]) -> None:
    server = serve(page(b'{"schema":"\\"string\\"","schemaType":null,"references":null}'))
    with closing(RegistryClient(RegistrySettings(server.url))) as client:
        assert client.schema(1) == RegisteredSchema(1, "AVRO", '"string"')


@pytest.mark.parametrize("secret", [f"{SECRET}\nX-More: 1", f"{SECRET}€", f"{SECRET}\x00"])
def test_a_token_that_no_header_can_have_is_an_outage_and_not_shown(
    serve: Callable[[Answer | bytes], Server], tmp_path: Path, secret: str
) -> None:
    file = tmp_path / "token"
    file.write_text(secret)
    settings = RegistrySettings(serve(page(b"{}")).url, token_file=file)
    with closing(RegistryClient(settings)) as client, pytest.raises(Retryable, match="token") as error:
        client.schema(1)
    assert SECRET not in f"{error.value} {error.value.__cause__!r} {error.value.__context__!r}"


@pytest.mark.parametrize(
    "url",
    [
        "http://r:99999",
        "http://r:port",
        "http://a..b",
        f"http://{'a' * 64}",
        "http://r/ü",
        "http://r/a b",
        "http://[::1",
    ],
)
def test_an_address_that_cannot_be_one_is_an_error_at_the_start(url: str) -> None:
    with pytest.raises(ConfigError, match="schema_registry url"):
        RegistrySettings(url)


def test_a_key_with_a_pass_phrase_is_an_outage_and_asks_nobody(tmp_path: Path) -> None:
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    options = ["-newkey", "rsa:2048", "-passout", "pass:abcd", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(["openssl", "req", "-x509", *options, "-subj", "/CN=c"], check=True, capture_output=True)
    settings = RegistrySettings("https://127.0.0.1:1", cert_file=certificate, key_file=key)
    with closing(RegistryClient(settings)) as client, pytest.raises(Retryable, match="pass phrase"):
        client.schema(1)


@dataclass
class Clock:
    ahead_s: float = 0

    def __call__(self) -> float:
        return time.monotonic() + self.ahead_s


def lookups_at(url: str, folder: Path, timeout_ms: int, topics: int = 1) -> SchemaLookups:
    settings = RegistrySettings(url, request_timeout_ms=timeout_ms)
    names = [f"topic{n}" for n in range(topics)]
    return SchemaLookups(
        settings, SchemaStore.of(LocalObjectStore(folder), url), names, Outages(logging.getLogger("t"))
    )


def test_a_registry_that_hangs_does_not_hold_up_cuts_that_need_it_not(
    serve: Callable[[Answer | bytes], Server], tmp_path: Path
) -> None:
    server = serve(lambda *_: time.sleep(60))
    lookups, clock = lookups_at(server.url, tmp_path, 200), Clock()
    lookups._outages.now_s = clock
    for _ in range(100):  # plans of cuts
        lookups.prefetch()
        clock.ahead_s += 0.1
    assert len(server.paths) <= 6, "at most a tenth of the time is spent"


def test_a_plan_does_not_wait_for_a_request_of_a_task(
    serve: Callable[[Answer | bytes], Server], tmp_path: Path
) -> None:
    server = serve(lambda *_: time.sleep(60))
    lookups = lookups_at(server.url, tmp_path, 30_000)
    with lookups:
        lookups._store.want(1, [7])
        wait_until(lambda: bool(server.paths), "a request", 20)
        began = time.monotonic()
        lookups.prefetch()
        assert time.monotonic() - began < 10


def test_a_slow_registry_holds_up_a_plan_for_a_bounded_time(
    serve: Callable[[Answer | bytes], Server], tmp_path: Path
) -> None:
    def slow(peer: socket.socket, path: str) -> None:
        time.sleep(0.1)
        if path.endswith("versions"):
            return peer.sendall(page(json.dumps([*range(1, 21)]).encode()))
        document = {"id": int(path.rpartition("/")[2]), "schema": "x"}
        return peer.sendall(page(json.dumps(document).encode()))

    lookups, clock = lookups_at(serve(slow).url, tmp_path, 5_000), Clock()
    lookups._outages.now_s = clock
    lookups.prefetch()
    assert lookups._store.read(20) is not None, "the newest first"
    assert lookups._store.read(1) is None
    while lookups._store.read(1) is None:  # each of the next plans gets further
        clock.ahead_s += 100
        lookups.prefetch()


def test_an_answer_of_any_kind_does_not_end_the_thread(
    serve: Callable[[Answer | bytes], Server], tmp_path: Path
) -> None:
    answers = [*WRONG.values(), page(b'{"schema":"x"}')]

    def one_after_the_other(peer: socket.socket, _: str) -> None:
        peer.sendall(answers.pop(0))
        peer.close()

    lookups = lookups_at(serve(one_after_the_other).url, tmp_path, 500)
    for _ in range(2 * len(WRONG) + 2):
        lookups._store.want(1, [7])
        try:
            lookups.answer()
        except Retryable:
            continue
        break
    assert lookups._store.read(7) == RegisteredSchema(7, "AVRO", "x")


def test_an_id_that_means_another_schema_now_is_reported_and_the_first_one_stays(
    serve: Callable[[Answer | bytes], Server], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    text = ["one"]

    def answer(peer: socket.socket, path: str) -> None:
        document: object = [1] if path.endswith("versions") else {"id": 5, "schema": text[0]}
        peer.sendall(page(json.dumps(document).encode()))

    url = serve(answer).url
    lookups_at(url, tmp_path, 5_000).prefetch()
    text[0] = "other"  # the registry was set up anew, and the app starts again
    lookups = lookups_at(url, tmp_path, 5_000)
    lookups.prefetch()
    assert [one.getMessage() for one in caplog.records if one.levelno >= logging.WARNING] == [
        f"schema registry {url}: schema 5 is not the one that it was when the app first saw the id; records with it "
        "are still decoded by that one. Ids are given once: if the registry was set up anew, give it another url"
    ]
    assert lookups._store.read(5) == RegisteredSchema(5, "AVRO", "one")
