"""PostgreSQL as people write it in a service's settings."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from streamcore.service.config.documents import Document, NotNegative, Positive
from streamcore.sinks.postgres.settings import PostgresSettings, SslMode, TableName, TableSpec, Timeouts
from streamcore.sinks.sink import RetryPolicy, SinkFactory

if TYPE_CHECKING:
    import pyarrow as pa


class TableDocument(Document):
    """The table of a lane, as ``schema.table``. Without a key, rows are appended."""

    table: Annotated[str, Field(description="Table as schema.table.")]
    key: Annotated[
        tuple[str, ...],
        Field(description="Key columns; without them rows are appended."),
    ] = ()
    version: Annotated[
        str | None,
        Field(description="Column by which a newer row replaces an older one."),
    ] = None
    deleted: Annotated[
        str | None,
        Field(description="Boolean column that marks a deletion; without it nothing is deleted."),
    ] = None

    def spec(self) -> TableSpec:
        """Return the sink's value."""
        return TableSpec(TableName.parse(self.table), self.key, self.version, self.deleted)


class TimeoutsDocument(Document):
    """One statement, waiting for a lock, silence within a transaction, and a connection without an answer."""

    connect_ms: Annotated[
        Annotated[int, Field(ge=2_000)],
        Field(description="Time to connect, in milliseconds."),
    ] = 10_000
    statement_ms: Annotated[
        Positive,
        Field(description="Time for one statement, in milliseconds."),
    ] = 60_000
    lock_ms: Annotated[Positive, Field(description="Time to wait for a lock, in milliseconds.")] = 10_000
    idle_ms: Annotated[
        Positive,
        Field(description="Silence within a transaction after which the server ends it, in milliseconds."),
    ] = 60_000
    silence_ms: Annotated[
        Positive,
        Field(description="Time without a response after which a connection counts as lost, in milliseconds."),
    ] = 30_000


class PatienceDocument(Document):
    """How long the sink tries when the server is away, all attempts together, and its pauses."""

    recovery_ms: Annotated[
        Positive,
        Field(description="Time for which writing is retried when the server is unreachable, in milliseconds."),
    ] = 120_000
    pause_ms: Annotated[
        Positive,
        Field(description="Pause after the first failure, in milliseconds; it doubles with each further one."),
    ] = 100
    pause_max_ms: Annotated[
        Positive,
        Field(description="Longest pause between two attempts, in milliseconds."),
    ] = 3_000


class PostgresDocument(Document):
    """How to reach PostgreSQL, and which lane goes to which table. The password is named, never written here."""

    host: Annotated[str, Field(description="Host of the server.")]
    port: Annotated[Positive, Field(description="Port of the server.")] = 5432
    database: Annotated[str, Field(description="Database on the server.")]
    user: Annotated[str, Field(description="User name.")]
    password_file: Annotated[
        Path | None,
        Field(description="File with the password; without it and password_env no password is sent."),
    ] = None
    password_env: Annotated[
        str | None,
        Field(description="Environment variable with the password."),
    ] = None
    sslmode: Annotated[SslMode, Field(description="TLS mode, as PostgreSQL names it.")] = SslMode.PREFER
    ca_file: Annotated[
        Path | None,
        Field(description="PEM file of the certificate authority; without it the system's are trusted."),
    ] = None
    cert_file: Annotated[Path | None, Field(description="PEM file of the client's certificate.")] = None
    key_file: Annotated[
        Path | None,
        Field(description="PEM file of the key of the client's certificate."),
    ] = None
    ledger: Annotated[
        str,
        Field(description="Table in which the sink records its batches, as schema.table."),
    ] = "public.headgate_ledger"
    max_refused: Annotated[
        NotNegative,
        Field(description="Rows of a batch that the server may refuse before the batch fails."),
    ] = 1_000
    timeouts: Annotated[TimeoutsDocument, Field(description="Time limits of the connection.")] = TimeoutsDocument()
    patience: Annotated[
        PatienceDocument,
        Field(description="How long and how often writing is retried."),
    ] = PatienceDocument()
    tables: Annotated[
        Mapping[str, TableDocument],
        Field(description="Table of each lane, by the lane's name."),
    ]

    def settings(self) -> PostgresSettings:
        """Return the sink's value; ``ConfigError`` for entries that cannot work together."""
        plain = self.model_dump(exclude={"ledger", "timeouts", "patience", "tables"})
        return PostgresSettings(
            **plain,
            ledger=TableName.parse(self.ledger),
            timeouts=Timeouts(**self.timeouts.model_dump()),
            patience=RetryPolicy(**self.patience.model_dump()),
            tables={lane: table.spec() for lane, table in self.tables.items()},
        )

    def factory(self, columns: Mapping[str, pa.Schema], name: str = "postgres") -> SinkFactory:
        """Return the factory of the sink. ``columns``: of the rows of each lane. ``name``: unique in the app."""
        from streamcore.sinks.postgres.sink import PostgresSink

        settings = self.settings()
        return lambda hooks: PostgresSink(name, settings, columns, hooks)
