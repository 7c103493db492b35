"""The settings of a PostgreSQL sink: server, login, and the table of each lane.

The settings hold the name of a file or environment variable, not the password, which is read for each new connection.
Settings that contradict each other raise ``ConfigError`` before the sink connects.
"""

from __future__ import annotations

import enum
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import Field, NonNegativeInt, PlainSerializer, PlainValidator, PositiveInt, WithJsonSchema
from pydantic.dataclasses import dataclass as settings_dataclass

from streamcore.errors import ConfigError
from streamcore.settings import STRICT
from streamcore.sinks.sink import RetryPolicy

_NAME = r"[A-Za-z_][A-Za-z0-9_$]{0,62}"
_TABLE = re.compile(rf"({_NAME})\.({_NAME})\Z")
_ENVIRONMENT_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


class SslMode(enum.StrEnum):
    """TLS mode, by libpq's names. Only ``verify-full`` proves the server's identity."""

    DISABLE = "disable"
    PREFER = "prefer"
    REQUIRE = "require"
    VERIFY_CA = "verify-ca"
    VERIFY_FULL = "verify-full"


@dataclass(frozen=True, slots=True)
class TableName:
    """A table with its schema. Names are case-sensitive, as if both parts were quoted."""

    schema: str
    table: str

    @classmethod
    def parse(cls, text: str) -> TableName:
        """Parse ``schema.table``. Raise ``ConfigError`` for any other text."""
        if not (match := _TABLE.match(text)):
            raise ConfigError(
                f"postgres table {text!r}: write schema.table (A-Z, a-z, 0-9, _ and $), such as public.orders"
            )
        return cls(match[1], match[2])

    def __str__(self) -> str:
        return f"{self.schema}.{self.table}"


def _table_name(written: object) -> TableName:
    return written if isinstance(written, TableName) else TableName.parse(str(written))


#: A table, written as ``schema.table``.
TableField = Annotated[TableName, PlainValidator(_table_name), PlainSerializer(str), WithJsonSchema({"type": "string"})]


@settings_dataclass(frozen=True, slots=True, config=STRICT)
class TableSpec:
    """How a lane's rows are written to a table.

    Without ``key`` rows are appended. With ``key`` a row replaces the row with an equal key; with ``version`` (a
    column) it does so only if its version is higher. ``deleted`` is a boolean column of the lane, not of the table:
    true deletes the row with that key.
    """

    table: Annotated[TableField, Field(description="Table as schema.table.")]
    key: Annotated[tuple[str, ...], Field(description="Key columns; without them rows are appended.")] = ()
    version: Annotated[str | None, Field(description="Column by which a newer row replaces an older one.")] = None
    deleted: Annotated[
        str | None, Field(description="Boolean column that marks a deletion; without it nothing is deleted.")
    ] = None

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


@settings_dataclass(frozen=True, slots=True, config=STRICT)
class Timeouts:
    """Time limits of a connection. The server enforces ``statement_ms``, ``lock_ms`` and ``idle_ms``; the sink and the
    server enforce ``silence_ms``. libpq's minimum for ``connect_ms`` is 2,000."""

    connect_ms: Annotated[int, Field(ge=2_000, description="Time to connect, in milliseconds.")] = 10_000
    statement_ms: Annotated[PositiveInt, Field(description="Time for one statement, in milliseconds.")] = 60_000
    lock_ms: Annotated[PositiveInt, Field(description="Time to wait for a lock, in milliseconds.")] = 10_000
    idle_ms: Annotated[
        PositiveInt,
        Field(description="Silence within a transaction after which the server ends it, in milliseconds."),
    ] = 60_000
    silence_ms: Annotated[
        PositiveInt,
        Field(description="Time without a response after which a connection counts as lost, in milliseconds."),
    ] = 30_000


@settings_dataclass(frozen=True, slots=True, config=STRICT)
class PostgresSettings:
    """One database, one login, and the tables of some lanes.

    ``tables``: lane -> table, in the order in which rows are inserted; a table that others refer to comes first.
    ``password_file`` or ``password_env``: at most one; none for logins without a password. ``ledger``: the sink's own
    table, created if it is missing. ``max_rejected``: if the server rejects more rows of one cut, the sink stops,
    because then the table is probably wrong. A connection pooler must run in session mode.

    Raises ``ConfigError`` for settings that contradict each other.
    """

    host: Annotated[str, Field(description="Host of the server.")]
    database: Annotated[str, Field(description="Database on the server.")]
    user: Annotated[str, Field(description="User name.")]
    tables: Annotated[Mapping[str, TableSpec], Field(description="Table of each lane, by the lane's name.")]
    port: Annotated[int, Field(ge=1, le=65_535, description="Port of the server.")] = 5432
    password_file: Annotated[
        Path | None,
        Field(description="File with the password; without it and password_env no password is sent."),
    ] = None
    password_env: Annotated[str | None, Field(description="Environment variable with the password.")] = None
    sslmode: Annotated[SslMode, Field(description="TLS mode, as PostgreSQL names it.")] = SslMode.PREFER
    ca_file: Annotated[
        Path | None,
        Field(description="PEM file of the certificate authority; verify-ca and verify-full need it."),
    ] = None
    cert_file: Annotated[Path | None, Field(description="PEM file of the client's certificate.")] = None
    key_file: Annotated[Path | None, Field(description="PEM file of the key of the client's certificate.")] = None
    ledger: Annotated[
        TableField,
        Field(
            description="Table in which the sink records its batches, as schema.table.",
            json_schema_extra={"default": "public.headgate_ledger"},
        ),
    ] = TableName("public", "headgate_ledger")
    max_rejected: Annotated[
        NonNegativeInt,
        Field(description="Rows of a batch that the server may reject before the batch fails."),
    ] = 1_000
    timeouts: Annotated[Timeouts, Field(description="Time limits of the connection.")] = Timeouts()
    patience: Annotated[RetryPolicy, Field(description="How long and how often writing is retried.")] = RetryPolicy()

    def __post_init__(self) -> None:
        if not self.tables:
            raise ConfigError("postgres tables: no lane has a table; name at least one")
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
        """Read the password, or return None if the settings name none. ``ConfigError`` names the empty source."""
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
