"""The local PostgreSQL: start, stop and kill, several processes that use it, and the source of its programs."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from conftest import open_database
from headgate.errors import DatabaseError, SetupError
from headgate.local import processes
from headgate.local.servers import postgres_binaries
from headgate.local.servers.postgres import EmbeddedPostgres, PostgresServerSettings

if TYPE_CHECKING:
    from conftest import NewPostgres

pytestmark = pytest.mark.postgres


def test_rows_survive_a_stop_and_a_kill_on_the_same_port(new_postgres: NewPostgres) -> None:
    server = new_postgres()
    port = server.start()
    with open_database(server).connect() as connection:
        connection.execute("CREATE TABLE kept (n int)")
        connection.execute("INSERT INTO kept VALUES (1)")
    server.stop()
    assert server.running is None
    assert server.start() == port
    with open_database(server).connect() as connection:
        connection.execute("INSERT INTO kept VALUES (2)")
    server.kill()
    assert server.running is None
    assert server.start() == port
    with open_database(server).connect() as connection:
        assert connection.execute("SELECT n FROM kept ORDER BY n").fetchall() == [(1,), (2,)]


def test_a_second_start_uses_the_running_server_and_another_port_is_rejected(new_postgres: NewPostgres) -> None:
    first = new_postgres()
    port = first.start()
    second = EmbeddedPostgres(PostgresServerSettings(first.settings.folder))
    assert second.start() == port
    assert second.running == first.running
    with pytest.raises(DatabaseError, match="use that port"):
        EmbeddedPostgres(PostgresServerSettings(first.settings.folder, port=1)).start()
    second.stop()
    assert first.running is None


def test_a_port_in_use_by_another_program_is_rejected(tmp_path: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        with pytest.raises(DatabaseError, match=r"port \d+ is used by another program"):
            EmbeddedPostgres(PostgresServerSettings(tmp_path, other.getsockname()[1])).start()


def test_the_server_listens_on_loopback_requires_a_password_and_syncs_to_disk(new_postgres: NewPostgres) -> None:
    server = new_postgres()
    server.start()
    assert server.password_file.stat().st_mode & 0o077 == 0
    with open_database(server).connect() as connection:
        shown = {
            name: connection.execute("SELECT current_setting(%s)", (name,)).fetchone()
            for name in ("fsync", "listen_addresses", "password_encryption")
        }
    assert shown == {
        "fsync": ("on",),
        "listen_addresses": ("127.0.0.1",),
        "password_encryption": ("scram-sha-256",),
    }
    with pytest.raises(Exception, match="password authentication failed"):
        open_database(server).connect(password="wrong")


def test_an_error_about_a_setting_quotes_the_server(new_postgres: NewPostgres) -> None:
    with pytest.raises(DatabaseError, match="unrecognized configuration parameter"):
        new_postgres(no_such_setting="1").start()


def test_the_server_ends_with_its_parent_however_that_ends(tmp_path: Path) -> None:
    program = f"""
        import os, signal
        from pathlib import Path
        from headgate.local.servers.base import Lifetime
        from headgate.local.servers.postgres import EmbeddedPostgres, PostgresServerSettings
        settings = PostgresServerSettings(Path({str(tmp_path / "server")!r}), lifetime=Lifetime.WITH_PARENT)
        server = EmbeddedPostgres(settings)
        server.start()
        os.kill(os.getpid(), signal.SIGKILL)
    """
    child = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], check=False, timeout=120)
    assert child.returncode == -signal.SIGKILL
    server = EmbeddedPostgres(PostgresServerSettings(tmp_path / "server"))
    started = server.files.read_run()
    assert started is not None
    assert processes.wait_for_end(started.pid, str(server.files.data), 30_000)
    server.delete()


def test_without_a_server_and_a_download_the_error_says_how_to_install_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(postgres_binaries, "find_installed", lambda: None)
    monkeypatch.setattr("platform.machine", lambda: "abacus")
    with pytest.raises(SetupError, match=r"apt install postgresql.*dnf install.*brew install"):
        postgres_binaries.ensure(tmp_path)


def test_an_installed_server_is_found_unless_it_is_too_old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, version in (("new", "16.2"), ("old", "9.6.1")):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "initdb").touch()
        (folder / "postgres").write_text(f"#!/bin/sh\necho 'postgres (PostgreSQL) {version}'\n")
        (folder / "postgres").chmod(0o755)
    monkeypatch.setattr(
        postgres_binaries, "_candidate_folders", lambda: iter([tmp_path / "none", tmp_path / "old", tmp_path / "new"])
    )
    assert postgres_binaries.find_installed() == postgres_binaries.Binaries(tmp_path / "new", 16)


@pytest.mark.slow
def test_downloaded_programs_work_too(tmp_path: Path) -> None:
    """The pinned archive is downloaded once and then used from the cache."""
    settings = PostgresServerSettings(tmp_path / "server")
    server = EmbeddedPostgres(settings, postgres_binaries.fetch_pinned(EmbeddedPostgres(settings).binaries_root))
    with server, open_database(server).connect() as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)
    server.delete()
