"""The settings of a Delta sink: its tables, their storage and the secrets to reach it.

The settings have the *name* of a file or environment variable with a secret, never the secret, so it is in no ``repr``,
error or log line. ``DeltaStorage.read`` reads the secrets.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from pydantic import Field, PositiveInt
from pydantic.dataclasses import dataclass

from streamcore.errors import ConfigError
from streamcore.settings import STRICT
from streamcore.sinks.lake.options import check_options, read_options
from streamcore.sinks.sink import RetryPolicy

_NAME = re.compile(r"[A-Za-z0-9_-]{1,100}\Z")

#: A request to an object store fails long before ``patience`` ends, so that the sink can repeat it.
_REQUESTS = {"timeout": "30s", "connect_timeout": "5s", "max_retries": "2"}


@dataclass(frozen=True, slots=True, config=STRICT)
class DeltaTableSpec:
    """The table of a lane.

    Files that the newest version does not have are deleted after ``vacuum_retention_hours``: readers of older versions,
    and a cut whose writing takes longer, then no longer find their files.
    """

    uri: Annotated[str, Field(description="Location of the table: a path, or a URI such as s3://bucket/path.")]
    partition_by: Annotated[
        tuple[str, ...],
        Field(description="Columns that partition a new table: of text, whole numbers or booleans."),
    ] = ()
    merge_schema: Annotated[
        bool, Field(description="Whether new columns are added to an existing table when it is opened.")
    ] = False
    target_file_bytes: Annotated[
        PositiveInt, Field(description="Size of a data file in bytes that compaction aims at.")
    ] = 128 * 1024 * 1024
    compact_every: Annotated[PositiveInt, Field(description="Number of commits between two compactions.")] = 50
    checkpoint_every: Annotated[
        PositiveInt, Field(description="Number of commits between two checkpoints of the table's log.")
    ] = 20
    vacuum_retention_hours: Annotated[
        PositiveInt, Field(description="Age in hours after which unused files are deleted.")
    ] = 7 * 24

    def __post_init__(self) -> None:
        if not self.uri or "@" in self.uri.partition("://")[2]:
            raise ConfigError("delta table uri: a path or URI is needed, without user and password")
        if len(set(self.partition_by)) != len(self.partition_by):
            raise ConfigError(f"delta table {self.uri}: partition_by names a column twice")


@dataclass(frozen=True, slots=True, config=STRICT)
class DeltaStorage:
    """How to reach an object store: options with the names that deltalake has for them (``aws_endpoint_url``).

    The library takes other options from the environment.
    """

    options: Annotated[Mapping[str, str], Field(description="Storage options that are no secrets, by option.")] = Field(
        default_factory=dict
    )
    secret_files: Annotated[
        Mapping[str, Path],
        Field(description="Files with the values of secret storage options, by option."),
    ] = Field(default_factory=dict)
    secret_env: Annotated[
        Mapping[str, str],
        Field(description="Environment variables with the values of secret storage options, by option."),
    ] = Field(default_factory=dict)

    def __post_init__(self) -> None:
        check_options("delta storage", self.options, self.secret_files, self.secret_env)

    def read(self) -> dict[str, str]:
        """Return all options, with the secrets; ``ConfigError`` names a setting that is missing, never a secret."""
        options = _REQUESTS | dict(self.options)
        return read_options("delta storage", options, self.secret_files, self.secret_env)


@dataclass(frozen=True, slots=True, config=STRICT)
class DeltaSettings:
    """One Delta sink."""

    tables: Annotated[Mapping[str, DeltaTableSpec], Field(description="Table of each lane, by the lane's name.")]
    storage: Annotated[DeltaStorage, Field(description="How to reach an object store.")] = DeltaStorage()
    patience: Annotated[RetryPolicy, Field(description="How long and how often writing is retried.")] = RetryPolicy()
    name: Annotated[
        str,
        Field(description="Name of the sink, unique in the app. A table's ledger has it: never change it for a table."),
    ] = "delta"

    def __post_init__(self) -> None:
        if not self.tables:
            raise ConfigError(f"delta sink {self.name}: no tables")
        for part in (self.name, *self.tables):
            if not _NAME.match(part):
                raise ConfigError(f"delta sink: name {part!r}: use A-Z, a-z, 0-9, _ and -, at most 100")
        uris = [spec.uri.rstrip("/") for spec in self.tables.values()]
        if twice := {uri for uri in uris if uris.count(uri) > 1}:
            raise ConfigError(f"delta sink {self.name}: two lanes have the table {min(twice)}; give each its own")
