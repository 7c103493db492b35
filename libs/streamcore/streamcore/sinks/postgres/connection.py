"""Opens connections with time limits, and with session settings that do not depend on the server's or role's
defaults."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import psycopg
from psycopg.abc import PQGen

from streamcore.sinks.postgres.settings import PostgresSettings, Timeouts

_WAKE_UP_S = 0.1
T = TypeVar("T")


def _ignore() -> None:
    return None


class Connection(psycopg.Connection[tuple[object, ...]]):
    """A connection whose calls fail after ``answer_ms`` milliseconds without a response.

    The server's own statement time-out is not enough: a frozen server process enforces none, while its operating system
    still answers keep-alives. ``on_response`` is called after each response.
    """

    answer_ms: int | None = None
    on_response: Callable[[], None] = staticmethod(_ignore)

    def wait(self, gen: PQGen[T], interval: float = _WAKE_UP_S, timeout: float | None = None) -> T:
        """Wait for the server, at most ``answer_ms`` if no ``timeout`` is given. psycopg waits for every response
        here."""
        limit_s = self.answer_ms / 1000 if timeout is None and self.answer_ms is not None else timeout
        answer = super().wait(gen, interval, limit_s)
        self.on_response()
        return answer


_SESSION = """
SELECT set_config('statement_timeout', %(statement)s, false), set_config('lock_timeout', %(lock)s, false),
    set_config('idle_in_transaction_session_timeout', %(idle)s, false),
    set_config('tcp_keepalives_idle', %(keepalive_s)s, false),
    set_config('tcp_keepalives_interval', %(interval_s)s, false), set_config('tcp_keepalives_count', '3', false),
    set_config('tcp_user_timeout', %(silence)s, false),
    set_config('TimeZone', 'UTC', false), set_config('DateStyle', 'ISO, YMD', false),
    set_config('synchronous_commit', CASE current_setting('synchronous_commit')
        WHEN 'off' THEN 'on' ELSE current_setting('synchronous_commit') END, false)
"""


def connect(settings: PostgresSettings, name: str) -> Connection:
    """Read the password and connect. ``name``: the application name that the server shows. Raises psycopg's errors."""
    times = settings.timeouts
    idle_s, interval_s = keepalive_s(times)
    connection = Connection.connect(
        host=settings.host,
        port=settings.port,
        dbname=settings.database,
        user=settings.user,
        password=settings.password(),
        sslmode=settings.sslmode.value,
        sslrootcert=_path(settings.ca_file),
        sslcert=_path(settings.cert_file),
        sslkey=_path(settings.key_file),
        connect_timeout=times.connect_ms // 1000,
        keepalives_idle=idle_s,
        keepalives_interval=interval_s,
        keepalives_count=3,
        tcp_user_timeout=times.silence_ms,
        application_name=name,
        client_encoding="UTF8",
    )
    connection.answer_ms = times.statement_ms + times.silence_ms
    try:
        connection.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
        connection.read_only = False
        connection.execute(_SESSION, _values(times))
        connection.commit()
    except BaseException:
        close_quietly(connection)
        raise
    return connection


def keepalive_s(times: Timeouts) -> tuple[int, int]:
    """Return the idle seconds before the first TCP keep-alive probe, and the seconds between probes."""
    return max(1, times.silence_ms // 2_000), max(1, times.silence_ms // 6_000)


def close_quietly(connection: Connection) -> None:
    """Close the connection and ignore errors. The server rolls back an open transaction."""
    with suppress(psycopg.Error):
        connection.close()


def _path(path: Path | None) -> str | None:
    return None if path is None else str(path)


def _values(times: Timeouts) -> dict[str, str]:
    idle_s, interval_s = keepalive_s(times)
    numbers = {
        "statement": times.statement_ms,
        "lock": times.lock_ms,
        "idle": times.idle_ms,
        "silence": times.silence_ms,
        "keepalive_s": idle_s,
        "interval_s": interval_s,
    }
    return {name: str(number) for name, number in numbers.items()}
