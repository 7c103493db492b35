"""Where PostgreSQL is, how to log in, and which lane goes to which table.

Promises that the password is read when a connection is made and at no other time: the settings hold the name of a file
or of an environment variable. Refuses settings that cannot work together, before anything is connected.
"""

from __future__ import annotations

import enum
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from streamcore.errors import ConfigError
from streamcore.sinks.sink import RetryPolicy

_NAME = r"[A-Za-z_][A-Za-z0-9_$]{0,62}"
_TABLE = re.compile(rf"({_NAME})\.({_NAME})\Z")
_ENVIRONMENT_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


class SslMode(enum.StrEnum):
    """How the connection is protected, by libpq's own names. Only ``verify-full`` proves who the server is."""

    DISABLE = "disable"
    PREFER = "prefer"
    REQUIRE = "require"
    VERIFY_CA = "verify-ca"
    VERIFY_FULL = "verify-full"


@dataclass(frozen=True, slots=True)
class TableName:
    """Upper and lower case count, as if both parts were quoted."""

    schema: str
    table: str

    @classmethod
    def parse(cls, text: str) -> TableName:
        """Read ``schema.table``; ``ConfigError`` for anything else."""
        if not (match := _TABLE.match(text)):
            raise ConfigError(
                f"postgres table {text!r}: write schema.table (letters, digits, _), such as public.orders"
            )
        return cls(match[1], match[2])

    def __str__(self) -> str:
        return f"{self.schema}.{self.table}"


@dataclass(frozen=True, slots=True)
class TableSpec:
    """How a lane's rows get into a table.

    Without ``key`` they are appended. With it, a row replaces the one with the same key; with ``version`` (a column)
    only if its version is higher. ``deleted`` (a boolean column of the lane, not of the table): true deletes the row
    of that key.
    """

    table: TableName
    key: tuple[str, ...] = ()
    version: str | None = None
    deleted: str | None = None

    def __post_init__(self) -> None:
        where = f"postgres table {self.table}"
        if len(set(self.key)) != len(self.key):
            raise ConfigError(f"{where}: the key {list(self.key)} names a column twice")
        if not self.key and (self.version or self.deleted):
            raise ConfigError(f"{where}: version and deleted need a key; without one, rows are only appended")
        if self.version and self.deleted:
            raise ConfigError(
                f"{where}: a deleted row leaves no version behind, so an older row would bring it back; leave "
                "`deleted` out: the flag is then a column like others, and a view can hide the rows that have it"
            )
        if self.version in self.key or self.deleted in self.key:
            raise ConfigError(f"{where}: version and deleted are not part of the key {list(self.key)}")


@dataclass(frozen=True, slots=True)
class Timeouts:
    """``statement_ms``, ``lock_ms`` and ``idle_ms`` are the server's: one statement, waiting for a lock, and silence of
    ours within a transaction. ``silence_ms``: a connection whose other end does not answer for so long is given up, by
    us and by the server."""

    connect_ms: int = 10_000
    statement_ms: int = 60_000
    lock_ms: int = 10_000
    idle_ms: int = 60_000
    silence_ms: int = 30_000

    def __post_init__(self) -> None:
        if min(self.statement_ms, self.lock_ms, self.idle_ms, self.silence_ms) <= 0:
            raise ConfigError(f"postgres: {self}: all times must be above zero")
        if self.connect_ms < 2_000:
            raise ConfigError(f"postgres connect_ms is {self.connect_ms}: libpq takes no less than 2000")


@dataclass(frozen=True, slots=True)
class PostgresSettings:
    """One database, one login, and the tables of some lanes.

    ``tables``: lane -> table, in the order in which rows go in: tables that others refer to come first.
    ``password_file`` or ``password_env``: at most one; none for logins without a password. ``ledger``: the sink's own
    table, made if it is missing. ``max_refused``: so many rows of one cut may be refused by the server; with more of
    them the sink stops, for then it is rather the table that is wrong. A connection pooler in between must keep a
    session whole.

    Raises ``ConfigError`` for anything that cannot work together.
    """

    database: str
    user: str
    tables: Mapping[str, TableSpec]
    host: str = "127.0.0.1"
    port: int = 5432
    password_file: Path | None = None
    password_env: str | None = None
    sslmode: SslMode = SslMode.PREFER
    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None
    ledger: TableName = TableName("public", "headgate_ledger")
    max_refused: int = 1_000
    timeouts: Timeouts = field(default_factory=Timeouts)
    patience: RetryPolicy = field(default_factory=RetryPolicy)

    def __post_init__(self) -> None:
        if not self.tables:
            raise ConfigError("postgres tables: no lane is there; name at least one")
        if self.max_refused < 0:
            raise ConfigError(f"postgres max_refused is {self.max_refused}: must not be below zero")
        if not 0 < self.port < 65_536:
            raise ConfigError(f"postgres port {self.port}: must be 1 to 65535")
        if self.password_file is not None and self.password_env is not None:
            raise ConfigError("postgres: password_file and password_env: take one of them")
        if self.password_env is not None and not _ENVIRONMENT_NAME.match(self.password_env):
            # The text is not repeated: a password put here by mistake must not come out in a log.
            raise ConfigError("postgres password_env: must be the name of an environment variable")
        if (self.cert_file is None) != (self.key_file is None):
            raise ConfigError("postgres: cert_file and key_file come together")
        if self.ca_file is None and self.sslmode in (SslMode.VERIFY_CA, SslMode.VERIFY_FULL):
            raise ConfigError(f"postgres sslmode {self.sslmode}: needs ca_file")

    def __str__(self) -> str:
        return f"{self.user}@{self.host}:{self.port}/{self.database}"

    def password(self) -> str | None:
        """Read it now. ``ConfigError`` names the missing setting, never a value that was read."""
        if self.password_file is None and self.password_env is None:
            return None
        secret = self._read_password()
        if not secret:
            source = f"file {self.password_file}" if self.password_file else f"variable {self.password_env}"
            raise ConfigError(f"postgres password: {source} is empty or not set")
        return secret

    def _read_password(self) -> str:
        if self.password_file is None:
            return os.environ.get(self.password_env or "", "")
        try:
            return self.password_file.read_text(encoding="utf-8").rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "not UTF-8 text"
            raise ConfigError(f"postgres password: cannot read {self.password_file}: {reason}") from None
