"""PostgreSQL as people write it in a service's settings."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from streamcore.service.documents import Document, NotNegative, Positive
from streamcore.sinks.postgres.settings import PostgresSettings, SslMode, TableName, TableSpec, Timeouts
from streamcore.sinks.sink import Patience, SinkFactory

if TYPE_CHECKING:
    import pyarrow as pa


class TableDocument(Document):
    """The table of a lane, as ``schema.table``. Without a key, rows are appended."""

    table: str
    key: tuple[str, ...] = ()
    version: str | None = None
    deleted: str | None = None

    def spec(self) -> TableSpec:
        """The sink's value."""
        return TableSpec(TableName.parse(self.table), self.key, self.version, self.deleted)


class TimeoutsDocument(Document):
    """One statement, waiting for a lock, silence within a transaction, and a connection without an answer."""

    connect_ms: Annotated[int, Field(ge=2_000)] = 10_000
    statement_ms: Positive = 60_000
    lock_ms: Positive = 10_000
    idle_ms: Positive = 60_000
    silence_ms: Positive = 30_000


class PatienceDocument(Document):
    """How long the sink tries when the server is away, all attempts together, and its pauses."""

    recovery_ms: Positive = 120_000
    pause_ms: Positive = 100
    pause_max_ms: Positive = 3_000


class PostgresDocument(Document):
    """How to reach PostgreSQL, and which lane goes to which table. The password is named, never written here."""

    host: str
    port: Positive = 5432
    database: str
    user: str
    password_file: Path | None = None
    password_env: str | None = None
    sslmode: SslMode = SslMode.PREFER
    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None
    ledger: str = "public.headgate_ledger"
    max_refused: NotNegative = 1_000
    timeouts: TimeoutsDocument = TimeoutsDocument()
    patience: PatienceDocument = PatienceDocument()
    tables: Mapping[str, TableDocument]

    def settings(self) -> PostgresSettings:
        """The sink's value; ``ConfigError`` for what cannot work together."""
        plain = self.model_dump(exclude={"ledger", "timeouts", "patience", "tables"})
        return PostgresSettings(
            **plain,
            ledger=TableName.parse(self.ledger),
            timeouts=Timeouts(**self.timeouts.model_dump()),
            patience=Patience(**self.patience.model_dump()),
            tables={lane: table.spec() for lane, table in self.tables.items()},
        )

    def factory(self, columns: Mapping[str, pa.Schema], name: str = "postgres") -> SinkFactory:
        """What makes the sink. ``columns``: of the rows of each lane. ``name``: unique in the app."""
        from streamcore.sinks.postgres.sink import PostgresSink

        settings = self.settings()
        return lambda hooks: PostgresSink(name, settings, columns, hooks)
