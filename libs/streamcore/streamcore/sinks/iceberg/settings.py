"""The settings of an Iceberg sink: the catalogue, its tables and the secrets to reach it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from pydantic import Field, NonNegativeInt
from pydantic.dataclasses import dataclass

from streamcore.errors import ConfigError
from streamcore.settings import STRICT
from streamcore.sinks.lake.options import check_options, read_options
from streamcore.sinks.sink import RetryPolicy

_NAME = re.compile(r"[A-Za-z0-9_-]{1,100}\Z")
_TABLE = re.compile(r"[A-Za-z0-9_]+(\.[A-Za-z0-9_]+)+\Z")


@dataclass(frozen=True, slots=True, config=STRICT)
class IcebergTableSpec:
    """The table of a lane."""

    table: Annotated[str, Field(description="Name of the table with its namespace, such as shop.sales.")]
    partition_by: Annotated[
        tuple[str, ...],
        Field(description="Columns that partition a new table, by their values: of text, whole numbers or booleans."),
    ] = ()
    merge_schema: Annotated[
        bool, Field(description="Whether new columns are added to an existing table when it is opened.")
    ] = False
    keep_snapshots: Annotated[
        NonNegativeInt,
        Field(
            description="Snapshots that the table keeps; older ones are expired from time to time. 0: all; each "
            "commit takes about ten milliseconds longer then for each hundred of them."
        ),
    ] = 100

    def __post_init__(self) -> None:
        if not _TABLE.match(self.table):
            raise ConfigError(f"iceberg table {self.table!r}: write namespace.table (A-Z, a-z, 0-9 and _)")
        if len(set(self.partition_by)) != len(self.partition_by):
            raise ConfigError(f"iceberg table {self.table}: partition_by names a column twice")


@dataclass(frozen=True, slots=True, config=STRICT)
class IcebergCatalog:
    """How to reach a catalogue and the storage of its tables: properties with the names that pyiceberg has for them.

    ``type`` is ``sql`` or ``rest``. The URI of an SQL catalogue may have a password; it is in a secret file then.
    """

    options: Annotated[
        Mapping[str, str],
        Field(description="Properties that are no secrets, such as type (sql or rest), uri and warehouse."),
    ] = Field(default_factory=dict)
    secret_files: Annotated[
        Mapping[str, Path],
        Field(description="Files with the values of secret properties, by property."),
    ] = Field(default_factory=dict)
    secret_env: Annotated[
        Mapping[str, str],
        Field(description="Environment variables with the values of secret properties, by property."),
    ] = Field(default_factory=dict)

    def __post_init__(self) -> None:
        check_options("iceberg catalog", self.options, self.secret_files, self.secret_env)
        if self.options.get("type") not in ("sql", "rest"):
            raise ConfigError("iceberg catalog: options.type must be sql or rest")
        if "uri" not in {*self.options, *self.secret_files, *self.secret_env}:
            raise ConfigError("iceberg catalog: options.uri is missing")
        if "@" in self.options.get("uri", "").partition("://")[2].partition("/")[0]:
            raise ConfigError("iceberg catalog: the uri has a user; put it into a file, and name it in secret_files")

    def read(self) -> dict[str, str]:
        """Return all properties, with the secrets; ``ConfigError`` names a setting that is missing, never a secret."""
        return read_options("iceberg catalog", self.options, self.secret_files, self.secret_env)


@dataclass(frozen=True, slots=True, config=STRICT)
class IcebergSettings:
    """One Iceberg sink."""

    catalog: Annotated[IcebergCatalog, Field(description="How to reach the catalogue.")]
    tables: Annotated[Mapping[str, IcebergTableSpec], Field(description="Table of each lane, by the lane's name.")]
    patience: Annotated[RetryPolicy, Field(description="How long and how often writing is retried.")] = RetryPolicy()
    name: Annotated[
        str,
        Field(description="Name of the sink, unique in the app. A table's ledger has it: never change it for a table."),
    ] = "iceberg"

    def __post_init__(self) -> None:
        if not self.tables:
            raise ConfigError(f"iceberg sink {self.name}: no tables")
        for part in (self.name, *self.tables):
            if not _NAME.match(part):
                raise ConfigError(f"iceberg sink: name {part!r}: use A-Z, a-z, 0-9, _ and -, at most 100")
        names = [spec.table for spec in self.tables.values()]
        if twice := {name for name in names if names.count(name) > 1}:
            raise ConfigError(f"iceberg sink {self.name}: two lanes have the table {min(twice)}; give each its own")
