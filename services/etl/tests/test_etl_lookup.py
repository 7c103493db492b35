"""Look-ups by HTTP against a real server on the loopback: found, unknown, busy, broken, slow."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar
from urllib.parse import unquote

import pytest

from conftest import NewDatabase
from streamcore.enrich.enricher_pool import close_shared_enrichers
from tests.harness.apps.small_etl import MAP, events, letters, load, rows, run


class Customers(BaseHTTPRequestHandler):
    """The answer depends on the key."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # else the body waits 40 ms for the acknowledgement of the headers
    requests: ClassVar[Counter[str]] = Counter()
    tokens: ClassVar[set[str | None]] = set()

    def do_GET(self) -> None:
        key = unquote(self.path.removeprefix("/customers/"))
        type(self).requests[key] += 1
        type(self).tokens.add(self.headers["Authorization"])
        status, body = 200, json.dumps({"email": f"{key}@shop"}).encode()
        if key == "unknown":
            status, body = 404, b"{}"
        elif key == "broken" or (key == "busy" and type(self).requests[key] == 1):
            status, body = 503, b""
        elif key == "list":
            body = b"[]"
        elif key.startswith("slow"):
            time.sleep(1)
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        with suppress(OSError):  # who asked may have gone
            self.wfile.write(body)

    def do_POST(self) -> None:
        """Answer with what came: the body and a header."""
        document = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        type(self).requests[f"POST {document['who']}"] += 1
        said = f"{document['who']} {self.headers['X-Shop']} {self.headers['X-Key']}"
        body = json.dumps({"ip": said}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing."""


@pytest.fixture
def server() -> Iterator[str]:
    Customers.requests.clear()
    one = ThreadingHTTPServer(("127.0.0.1", 0), Customers)
    one.daemon_threads = True
    thread = threading.Thread(target=one.serve_forever, args=(0.02,))
    thread.start()
    yield f"http://127.0.0.1:{one.server_address[1]}/customers/{{key}}"
    close_shared_enrichers()
    one.shutdown()
    one.server_close()
    thread.join()


def test_look_ups_add_fields_and_rows_whose_look_up_failed_are_dead_letters(server: str, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("open sesame\n")
    look = {"url": server, "key": "id", "adds": ["email"], "timeout_ms": 300, "attempts": 2, "pause_ms": 1}
    mapped = {name: text for name, text in MAP.items() if name != "email"}
    settings = load(tmp_path, mapped, lookup=look | {"token_file": str(token)})
    keys = ("ann", "a/b c", "unknown", "busy", "broken", "list", "slow", "ann")
    output = run(settings, events(*({"id": key} for key in keys)))
    found = {str(row["id"]): row["email"] for row in rows(output)}
    assert found == {"ann": "ann@shop", "a/b c": "a/b c@shop", "unknown": None, "busy": "busy@shop"}
    assert Customers.requests["ann"] == 1
    assert Customers.tokens == {"Bearer open sesame"}
    reasons = sorted(reason for code, reason in letters(output) if code == "failed")
    assert len(reasons) == 3
    assert any("503" in reason for reason in reasons)
    assert any("no JSON object" in reason for reason in reasons)


def test_a_failed_look_up_gives_nulls_where_the_settings_allow_it(server: str, tmp_path: Path) -> None:
    look = {"url": server, "key": "id", "adds": ["email"], "attempts": 1, "failed": "null"}
    mapped = {name: text for name, text in MAP.items() if name != "email"}
    output = run(load(tmp_path, mapped, lookup=look), events({"id": "broken"}))
    assert [row["email"] for row in rows(output)] == [None]
    assert letters(output) == []


def test_lookups_run_one_after_the_other_and_a_key_may_come_from_an_earlier_one(server: str, tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("hush\n")
    base = server.removesuffix("/customers/{key}")
    lookups = {
        "shops": {
            "url": f"{base}/shops",
            "body": '{"who": {key}, "n": 1}',
            "headers": {"X-Shop": "one"},
            "secret_headers": {"X-Key": str(key)},
            "key": "email",
            "adds": ["ip"],
        }
    }
    mapped = {name: text for name, text in MAP.items() if name not in ("email", "ip")}
    look = {"url": server, "key": "id", "adds": ["email"]}
    settings = load(tmp_path, mapped, lookup=look, lookups=lookups)
    output = run(settings, events({"id": 'a"n'}, {"id": "unknown"}))
    assert {str(row["id"]): (row["email"], row["ip"]) for row in rows(output)} == {
        'a"n': ('a"n@shop', 'a"n@shop one hush'),
        "unknown": (None, None),
    }
    assert Customers.requests['POST a"n@shop'] == 1


@pytest.mark.slow
def test_a_third_of_dead_keys_holds_a_cut_no_longer_than_the_budget(server: str, tmp_path: Path) -> None:
    look = {"url": server, "key": "id", "adds": ["email"], "concurrency": 2, "attempts": 3, "pause_ms": 1}
    look |= {"timeout_ms": 150, "failure_budget_ms": 300}
    mapped = {name: text for name, text in MAP.items() if name != "email"}
    keys = [key for n in range(20) for key in (f"a{n}", f"b{n}", "slow" if n == 0 else f"slow{n}")]
    started_s = time.monotonic()
    output = run(load(tmp_path, mapped, lookup=look), events(*({"id": key} for key in keys)))
    held_s = time.monotonic() - started_s
    assert held_s < 20 * 3 * 0.15 / 2 / 2, "all slow keys together would take 4.5 seconds"
    assert len(rows(output)) + len(letters(output)) == 60
    reasons = [reason for code, reason in letters(output) if code == "failed"]
    assert any("no answer within 150 ms" in reason for reason in reasons)
    assert any("not asked for, because calls failed for 300 ms of this cut" in reason for reason in reasons)
    assert not any("Retryable" in reason for reason in reasons)


@pytest.mark.postgres
def test_a_query_of_postgresql_answers_many_keys_at_once(tmp_path: Path, new_database: NewDatabase) -> None:
    database = new_database()
    with database.connect() as connection:
        connection.execute("create table customers (id text primary key, email text)")
        connection.execute("insert into customers values ('ann', 'ann@shop'), ('50%', '50@shop'), ('nil', null)")

    def find(query: str, *keys: str) -> tuple[dict[str, object], list[str]]:
        server = {"host": database.host, "port": database.port, "database": database.name, "user": database.user}
        server |= {"password_file": str(database.password_file), "query": query}
        look = {"postgres": server, "key": "id", "adds": ["email"], "attempts": 1}
        mapped = {name: text for name, text in MAP.items() if name != "email"}
        output = run(load(tmp_path, mapped, lookup=look), events(*({"id": key} for key in keys)))
        close_shared_enrichers()
        return {str(row["id"]): row["email"] for row in rows(output)}, [reason for _, reason in letters(output)]

    many = [f"k{n}" for n in range(250)]
    query = "select id, email from customers where id = any({keys}) and id not like 'x%'"
    found, reasons = find(query, "ann", "50%", "nil", "'; drop table customers; --", *many)
    assert reasons == []
    assert {key: email for key, email in found.items() if email} == {"ann": "ann@shop", "50%": "50@shop"}
    assert len(found) == 254
    assert (
        "the query gives no column email after the key"
        in find("select id from customers where id = any({keys})", "a")[1][0]
    )
    assert (
        "read-only transaction" in find("delete from customers where id = any({keys}) returning id, email", "ann")[1][0]
    )
    casts = "select id, email from customers where id = any({keys}) or 0 = any({keys}::int[])"
    found, reasons = find(casts, "1", "two", "3")
    assert sorted(found) == ["1", "3"]
    assert len(reasons) == 1
    assert "two" in reasons[0], "a value that the server rejects fails its own row only"
    (slow,) = find(f"{query} and pg_sleep(5) is not null", "ann")[1]
    assert "no answer within" in slow or "statement timeout" in slow, "whichever clock is first"
    with database.connect() as connection:
        assert connection.execute("select count(*) from customers").fetchall() == [(3,)]


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[dict[str, object]]:
    """Start a real Redis server with a password; yield the settings of a lookup in it."""
    program = shutil.which("redis-server")
    if program is None:
        pytest.skip("no redis-server on the PATH")
    (tmp_path / "password").write_text("open sesame")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    options = ["--port", str(port), "--bind", "127.0.0.1", "--save", "", "--requirepass", "open sesame"]
    with subprocess.Popen([program, *options], cwd=tmp_path, stdout=subprocess.DEVNULL) as child:
        for _ in range(100):
            with suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                break
            time.sleep(0.05)
        yield {"host": "127.0.0.1", "port": port, "password_file": str(tmp_path / "password")}
        close_shared_enrichers()
        child.terminate()


def _command(port: object, text: str) -> str:
    """Send commands in the server's inline form; return what it said."""
    with socket.create_connection(("127.0.0.1", int(str(port)))) as one, one.makefile("rb") as said:
        one.sendall(f'AUTH "open sesame"\r\n{text}\r\nQUIT\r\n'.encode())
        return said.read().decode()


def test_records_of_redis_are_hashes_or_json(redis: dict[str, object], tmp_path: Path) -> None:
    hashes = "HSET c:ann email ann@shop ip 1.1.1.1\r\nHSET c:nil other x\r\nSET c:text words\r\nSET c:bad odd"
    assert "-" not in _command(redis["port"], f"{hashes}\r\nSET j:ann '{{\"ratio\":0.5}}'\r\nSET j:bad '[]'")
    mapped = {name: text for name, text in MAP.items() if name not in ("email", "ip", "ratio")}
    found = {"redis": redis | {"record_key": "c:{key}"}, "key": "id", "adds": ["email", "ip"]}
    json_too = {"redis": redis | {"record_key": "j:{key}", "value": "json"}, "key": "id", "adds": ["ratio"]}
    output = run(
        load(tmp_path, mapped, lookups={"customers": found, "scores": json_too}),
        events(*({"id": key} for key in ("ann", "nil", "nobody", "text", "bad", *(f"k{n}" for n in range(250))))),
    )
    added = {str(row["id"]): (row["email"], row["ip"], row["ratio"]) for row in rows(output)}
    assert added.pop("ann") == ("ann@shop", "1.1.1.1", 0.5)
    assert {*added.values()} == {(None, None, None)}
    assert len(added) == 252
    reasons = sorted(reason for _, reason in letters(output))
    assert len(reasons) == 2, "one record of another kind fails its own row only"
    assert all("WRONGTYPE" in reason for reason in reasons)


def test_a_wrong_password_and_a_server_that_went_are_reasons_without_the_password(
    redis: dict[str, object], tmp_path: Path
) -> None:
    mapped = {name: text for name, text in MAP.items() if name != "email"}
    (tmp_path / "wrong").write_text("wrong-hush")
    for server, says in (
        (redis | {"password_file": str(tmp_path / "wrong")}, "WRONGPASS"),
        (redis | {"port": 1}, "Connect call failed"),
    ):
        look = {"redis": server, "key": "id", "adds": ["email"], "pause_ms": 1}
        ((_, reason),) = letters(run(load(tmp_path, mapped, lookup=look), events({"id": "ann"})))
        close_shared_enrichers()
        assert says in reason
        assert "hush" not in reason
        assert "Retryable" not in reason
