"""Delta tables in a service's settings: the document that people write, and the sink that it stands for."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from streamcore.service.config.documents import Document, Positive
from streamcore.sinks.delta.settings import DeltaSettings, DeltaStorage, DeltaTableSpec
from streamcore.sinks.sink import RetryPolicy, Sink, SinkFactory, SinkHooks

if TYPE_CHECKING:
    import pyarrow as pa


class DeltaTableDocument(Document):
    """One table; ``DeltaTableSpec`` defines each entry."""

    uri: Annotated[str, Field(description="Location of the table.")]
    partition_by: Annotated[
        tuple[str, ...],
        Field(description="Columns that partition a new table."),
    ] = ()
    merge_schema: Annotated[
        bool,
        Field(description="Whether new columns are added to an existing table."),
    ] = False
    target_file_bytes: Annotated[
        Positive,
        Field(description="Size of a data file in bytes that compaction aims at."),
    ] = 128 * 1024 * 1024
    compact_every: Annotated[
        Positive,
        Field(description="Number of commits between two compactions."),
    ] = 50
    checkpoint_every: Annotated[
        Positive,
        Field(description="Number of commits between two checkpoints of the table's log."),
    ] = 20
    vacuum_retention_hours: Annotated[
        Positive,
        Field(description="Age in hours after which unused files are deleted."),
    ] = 7 * 24

    def spec(self) -> DeltaTableSpec:
        """Return the sink's value."""
        said = self.model_dump(exclude={"vacuum_retention_hours"})
        return DeltaTableSpec(**said, vacuum_retention_ms=self.vacuum_retention_hours * 3_600_000)


class DeltaDocument(Document):
    """A Delta sink. ``tables``: lane -> its table. Secrets are named (a file, a variable), never written here."""

    tables: Annotated[
        dict[str, DeltaTableDocument],
        Field(description="Table of each lane, by the lane's name."),
    ]
    options: Annotated[dict[str, str], Field(description="Storage options that are no secrets.")] = Field(
        default_factory=dict
    )
    secret_files: Annotated[
        dict[str, Path],
        Field(description="Files with the values of secret storage options, by option."),
    ] = Field(default_factory=dict)
    secret_env: Annotated[
        dict[str, str],
        Field(description="Environment variables with the values of secret storage options, by option."),
    ] = Field(default_factory=dict)
    recovery_ms: Annotated[
        Positive,
        Field(description="Time in milliseconds for which writing is retried when the storage is unreachable."),
    ] = 120_000

    def settings(self) -> DeltaSettings:
        """Return the sink's value; ``ConfigError`` for entries that cannot work."""
        tables = {lane: table.spec() for lane, table in self.tables.items()}
        storage = DeltaStorage(self.options, self.secret_files, self.secret_env)
        return DeltaSettings(tables, storage, RetryPolicy(self.recovery_ms))

    def factory(self, columns: Mapping[str, pa.Schema]) -> SinkFactory:
        """Return the factory of the sink; it loads the client when called. ``columns``: lane -> schema of its rows."""
        settings = self.settings()

        def make(hooks: SinkHooks) -> Sink:
            from streamcore.sinks.delta.sink import DeltaSink

            return DeltaSink(settings, columns, hooks)

        return make
