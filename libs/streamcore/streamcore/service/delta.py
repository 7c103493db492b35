"""Delta tables in a service's settings: the document that people write, and the sink that it stands for."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import Field

from streamcore.service.documents import Document, Positive
from streamcore.sinks.delta.settings import DeltaSettings, DeltaStorage, DeltaTableSpec
from streamcore.sinks.sink import Patience, Sink, SinkFactory, SinkHooks

if TYPE_CHECKING:
    import pyarrow as pa


class DeltaTableDocument(Document):
    """One table; ``DeltaTableSpec`` says what each entry means."""

    uri: str
    partition_by: tuple[str, ...] = ()
    merge_schema: bool = False
    target_file_bytes: Positive = 128 * 1024 * 1024
    compact_every: Positive = 50
    checkpoint_every: Positive = 20
    vacuum_retention_hours: Positive = 7 * 24

    def spec(self) -> DeltaTableSpec:
        """The sink's value."""
        said = self.model_dump(exclude={"vacuum_retention_hours"})
        return DeltaTableSpec(**said, vacuum_retention_ms=self.vacuum_retention_hours * 3_600_000)


class DeltaDocument(Document):
    """A Delta sink. ``tables``: lane -> its table. Secrets are named (a file, a variable), never written here."""

    tables: dict[str, DeltaTableDocument]
    options: dict[str, str] = Field(default_factory=dict)
    secret_files: dict[str, Path] = Field(default_factory=dict)
    secret_env: dict[str, str] = Field(default_factory=dict)
    recovery_ms: Positive = 120_000

    def settings(self) -> DeltaSettings:
        """The sink's value; ``ConfigError`` for what cannot be."""
        tables = {lane: table.spec() for lane, table in self.tables.items()}
        storage = DeltaStorage(self.options, self.secret_files, self.secret_env)
        return DeltaSettings(tables, storage, Patience(self.recovery_ms))

    def factory(self, columns: Mapping[str, pa.Schema]) -> SinkFactory:
        """Makes the sink. ``columns``: lane -> what its rows look like. Loads the client when it is called."""
        settings = self.settings()

        def make(hooks: SinkHooks) -> Sink:
            from streamcore.sinks.delta.sink import DeltaSink

            return DeltaSink(settings, columns, hooks)

        return make
