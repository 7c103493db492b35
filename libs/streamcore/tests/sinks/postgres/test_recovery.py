"""Other epochs, commits without a response, locks of other sessions, lost connections, a ledger that went back."""

from __future__ import annotations

import logging
import os
import re
import subprocess
import threading
import time
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from conftest import open_database
from streamcore.errors import ConfigError, Fenced, Permanent, Retryable
from streamcore.sinks.postgres.settings import SslMode, Timeouts
from streamcore.sinks.postgres.sink import PostgresStep
from streamcore.sinks.sink import RetryPolicy, SinkHooks, WriteOutcome
from tests.harness.cut_ids import cut_id
from tests.harness.faults.postgres_proxy import Wire
from tests.harness.servers.postgres_table import CREATE, spec

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.sinks.postgres.conftest import NewSinkDatabase

    from conftest import NewPostgres
    from headgate.local.servers.postgres import EmbeddedPostgres
    from tests.harness.servers.postgres_table import SinkDatabase

pytestmark = pytest.mark.postgres
ONE = Decimal("1.00")
APPEND, KEYED = spec(), spec("orders", "id")
LEDGER = "SELECT epoch, batch, rows FROM headgate_ledger"


@pytest.fixture
def append_database(sink_database: SinkDatabase) -> SinkDatabase:
    sink_database.run("CREATE TABLE orders (id text, amount numeric, v bigint)")
    return sink_database


def test_a_later_epoch_fences_the_earlier_one_and_numbers_its_batches_from_zero(append_database: SinkDatabase) -> None:
    old = append_database.sink(APPEND)
    append_database.write(old, 5, ("a", ONE, 1))
    new = append_database.sink(APPEND, epoch=2)
    assert append_database.rows(LEDGER) == [(2, None, 0)]
    with pytest.raises(Fenced, match="epoch 2 owns it, this is epoch 1"):
        append_database.write(old, 6, ("b", ONE, 1))
    with pytest.raises(Fenced):
        append_database.sink(APPEND, epoch=1)
    assert append_database.write(new, 0, ("c", ONE, 1)).outcome is WriteOutcome.COMMITTED
    assert append_database.rows("SELECT id FROM orders ORDER BY id") == [("a",), ("c",)]


def test_apps_and_sinks_have_ledger_rows_of_their_own(append_database: SinkDatabase) -> None:
    from streamcore.cuts.writer_id import WriterId
    from streamcore.sinks.postgres.sink import PostgresSink
    from tests.harness.servers.postgres_table import ORDERS, orders

    for app, name in (("shop", "one"), ("shop", "two"), ("store", "one")):
        sink = PostgresSink(name, append_database.settings(APPEND), {"orders": ORDERS})
        sink.open(WriterId(app, 1))
        assert sink.write(cut_id(0), {"orders": orders((app, ONE, 1))}).outcome is WriteOutcome.COMMITTED
        sink.close()
    assert len(append_database.rows()) == 3


@pytest.fixture
def wire(append_database: SinkDatabase) -> Iterator[Wire]:
    wire = Wire(append_database.database.host, append_database.database.port)
    yield wire
    wire.close()


def test_the_ledger_settles_a_commit_whose_response_is_lost(append_database: SinkDatabase, wire: Wire) -> None:
    def lose(step: str) -> None:
        if step == PostgresStep.RECORDED and not losses:
            losses.append(step)
            wire.lose_answers()
            threading.Timer(0.5, wire.cut).start()

    losses: list[str] = []
    sink = append_database.sink(APPEND, port=wire.port, hooks=SinkHooks(on_step=lose))
    written = append_database.write(sink, 0, ("a", ONE, 1), ("b", ONE, 1))
    assert (losses, written.outcome, written.rows) == ([PostgresStep.RECORDED], WriteOutcome.COMMITTED, 2)
    assert append_database.rows() == [("a", ONE, 1), ("b", ONE, 1)]


def test_a_frozen_server_is_reported_and_used_again_when_it_resumes(
    new_postgres: NewPostgres, new_sink_database: NewSinkDatabase, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "streamcore.outages")
    server = new_postgres()
    server.start()
    sink_database = new_sink_database(open_database(server))
    sink_database.run(CREATE)
    frozen: list[float] = []

    def freeze(step: str) -> None:
        if step == PostgresStep.LOCKED and not frozen:
            frozen.append(time.monotonic())
            server.pause()

    def resume_when_reported() -> None:
        if len(frozen) == 1 and caplog.messages:
            frozen.append(time.monotonic())
            server.resume()

    short = Timeouts(statement_ms=500, silence_ms=500, connect_ms=2_000)
    sink = sink_database.sink(KEYED, timeouts=short, hooks=SinkHooks(on_step=freeze, still_owner=resume_when_reported))
    assert sink_database.write(sink, 0, ("a", ONE, 1)).outcome is WriteOutcome.COMMITTED
    assert 1 < frozen[1] - frozen[0] < 10
    assert sink_database.rows() == [("a", ONE, 1)]
    settings = sink_database.settings(KEYED)
    where = re.escape(f"PostgreSQL {settings.host}:{settings.port}/{settings.database}")
    away, back = caplog.messages
    assert re.match(
        rf"{where} is unavailable since \d\d:\d\d:\d\d UTC: postgres .*\. Until it is back .*\. Start the", away
    )
    assert re.fullmatch(rf"{where} is back after \d+ s", back)


def test_the_sink_reconnects_when_an_administrator_ends_its_session(append_database: SinkDatabase) -> None:
    def end(step: str) -> None:
        if step == PostgresStep.STAGED and not ended:
            ended.extend(append_database.rows(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {ours}"))

    ours = "application_name = 'headgate shop db' AND datname = current_database()"
    ended: list[object] = []
    sink = append_database.sink(APPEND, hooks=SinkHooks(on_step=end))
    assert append_database.write(sink, 0, ("a", ONE, 1)).outcome is WriteOutcome.COMMITTED
    assert ended == [(True,)]
    assert append_database.rows() == [("a", ONE, 1)]


def test_the_sink_waits_for_a_row_that_another_session_locks(sink_database: SinkDatabase) -> None:
    sink_database.run(CREATE, "INSERT INTO orders VALUES ('a', 1, 1)")
    sink = sink_database.sink(KEYED, timeouts=Timeouts(lock_ms=100))
    with sink_database.database.connect() as other:
        other.execute("BEGIN")
        other.execute("UPDATE orders SET v = 5")
        threading.Timer(1, other.execute, ("COMMIT",)).start()
        assert sink_database.write(sink, 0, ("a", ONE, 2)).rows == 1
    assert sink_database.rows() == [("a", ONE, 2)]


def test_the_sink_writes_nothing_when_its_patience_ends_and_continues_in_a_later_attempt(
    sink_database: SinkDatabase,
) -> None:
    sink_database.run(CREATE, "INSERT INTO orders VALUES ('a', 1, 1)")
    sink = sink_database.sink(KEYED, timeouts=Timeouts(lock_ms=50), patience=RetryPolicy(400, 10, 50))
    with sink_database.database.connect() as other:
        other.execute("BEGIN")
        other.execute("UPDATE orders SET v = 5")
        with pytest.raises(Retryable, match=r"lock timeout \(55P03\); \d+ attempts within 400 ms"):
            sink_database.write(sink, 0, ("a", ONE, 2))
        other.execute("ROLLBACK")
    assert sink_database.rows() == [("a", ONE, 1)]
    assert sink_database.write(sink, 0, ("a", ONE, 2)).outcome is WriteOutcome.COMMITTED


def test_a_sink_whose_app_lost_its_checkpoint_does_not_retry(sink_database: SinkDatabase) -> None:
    def raise_fenced() -> None:
        raise Fenced("another process owns the app")

    sink_database.run(CREATE)
    sink = sink_database.sink(KEYED, hooks=SinkHooks(still_owner=raise_fenced), timeouts=Timeouts(lock_ms=50))
    with sink_database.database.connect() as other:
        other.execute("BEGIN")
        other.execute("LOCK TABLE orders")
        with pytest.raises(Fenced, match="another process"):
            sink_database.write(sink, 0, ("a", ONE, 2))
    assert sink_database.rows() == []


def test_a_table_that_was_dropped_meanwhile_is_a_config_error(sink_database: SinkDatabase) -> None:
    sink_database.run(CREATE)
    sink = sink_database.sink(KEYED)
    sink_database.run("DROP TABLE orders")
    with pytest.raises(ConfigError, match=r"orders.* does not exist \(42P01\)"):
        sink_database.write(sink, 0, ("a", ONE, 2))


@pytest.mark.parametrize("loss", ["UPDATE headgate_ledger SET batch = NULL", "DELETE FROM headgate_ledger"])
def test_a_ledger_that_lost_a_committed_cut_stops_the_sink(append_database: SinkDatabase, loss: str) -> None:
    sink = append_database.sink(APPEND)
    append_database.write(sink, 4, ("a", ONE, 1))
    append_database.run(loss)
    with pytest.raises(Permanent, match=r"lost commits it confirmed|its row was deleted"):
        append_database.write(sink, 5, ("b", ONE, 1))
    assert append_database.rows() == [("a", ONE, 1)]


def make_certificate(folder: Path) -> tuple[Path, Path]:
    """Return a self-signed certificate for the name ``localhost``, and its key."""
    cert, key = folder / "server.crt", folder / "server.key"
    subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    options = ["-newkey", "rsa:2048", "-nodes", "-days", "2", "-out", str(cert), "-keyout", str(key)]
    subprocess.run(["openssl", "req", "-x509", *options, *subject], check=True, capture_output=True)
    return cert, key


def start_with_tls(server: EmbeddedPostgres, folder: Path) -> Path:
    """Start the server with TLS and return its certificate."""
    server.start()
    for path in (paths := make_certificate(folder)):
        copy = server.files.data / path.name
        copy.touch(mode=0o600)
        copy.write_bytes(path.read_bytes())
        if account := server.files.account:
            os.chown(copy, account.uid, account.gid)
    with open_database(server).connect() as connection:
        connection.execute("ALTER SYSTEM SET ssl = on")
        connection.execute("SELECT pg_reload_conf()")
        while connection.execute("SHOW ssl").fetchone() != ("on",):
            time.sleep(0.05)
    return paths[0]


def test_with_tls_the_sink_writes_only_to_a_server_with_a_valid_certificate(
    new_postgres: NewPostgres, new_sink_database: NewSinkDatabase, tmp_path: Path
) -> None:
    server = new_postgres()
    cert = start_with_tls(server, tmp_path)
    sink_database = new_sink_database(replace(open_database(server), host="localhost"))
    sink_database.run(CREATE)
    proven: dict[str, Any] = {"sslmode": SslMode.VERIFY_FULL, "ca_file": cert}
    sink = sink_database.sink(KEYED, **proven)
    assert sink_database.write(sink, 0, ("a", ONE, 1)).rows == 1
    encrypted = (
        "SELECT bool_and(ssl) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE application_name ~ '^head'"
    )
    assert sink_database.rows(encrypted) == [(True,)]
    with pytest.raises(ConfigError, match="does not match host name"):
        sink_database.sink(KEYED, **proven, host="127.0.0.1")
    other = tmp_path / "other"
    other.mkdir()
    with pytest.raises(ConfigError, match="certificate verify failed"):
        sink_database.sink(KEYED, **{**proven, "ca_file": make_certificate(other)[0]})
