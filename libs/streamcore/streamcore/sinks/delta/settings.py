"""The settings of a Delta sink, as people write them and as the sink reads them: tables, their storage, the login.

Promises that a secret is read when a table is opened and at no other time: the settings hold the *name* of a file or
of an environment variable, so no ``repr``, error or log line can carry it. Knows no client library.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from pydantic import Field, PositiveInt
from pydantic.dataclasses import dataclass

from streamcore.errors import ConfigError
from streamcore.sinks.sink import STRICT, RetryPolicy

_NAME = re.compile(r"[A-Za-z0-9_-]{1,100}\Z")
_SECRET = re.compile(r"secret|token|password|sas|account_key|(?<!_)access_key(?!_id)|credential", re.IGNORECASE)

#: A request to an object store ends well within the sink's patience, which is what tries again.
_REQUESTS = {"timeout": "30s", "connect_timeout": "5s", "max_retries": "2"}


@dataclass(frozen=True, slots=True, config=STRICT)
class DeltaTableSpec:
    """One table.

    Files that no reader of the newest version needs are kept for ``vacuum_retention_hours``; readers of older versions,
    and a cut that takes longer than this to write, lose theirs.
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
            raise ConfigError("delta table uri: a path or URI without user and password")
        if len(set(self.partition_by)) != len(self.partition_by):
            raise ConfigError(f"delta table {self.uri}: partition_by names a column twice")


@dataclass(frozen=True, slots=True, config=STRICT)
class DeltaStorage:
    """How to reach an object store, by the storage's own names of options (``aws_endpoint_url``, ``aws_region``).

    Options that are not given are taken from the environment, as other clients do.
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
        if shown := [name for name in self.options if _SECRET.search(name)]:
            raise ConfigError(f"delta storage option {shown[0]}: a secret; name its file in secret_files or secret_env")
        names = [name.lower() for group in (self.options, self.secret_files, self.secret_env) for name in group]
        if twice := {name for name in names if names.count(name) > 1}:
            raise ConfigError(f"delta storage option {min(twice)} is given twice")

    def read(self) -> dict[str, str]:
        """All options, secrets read now; ``ConfigError`` names the missing setting, never a value that was read."""
        options = _REQUESTS | dict(self.options)
        for name, path in self.secret_files.items():
            options[name] = _from_file(name, path)
        for name, variable in self.secret_env.items():
            if not (value := os.environ.get(variable, "")):
                raise ConfigError(f"delta storage option {name}: environment variable {variable} is empty")
            options[name] = value
        return options


def _from_file(name: str, path: Path) -> str:
    try:
        value = path.read_text(encoding="utf-8").rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not UTF-8 text"
        raise ConfigError(f"delta storage option {name}: cannot read {path}: {reason}") from None
    if not value:
        raise ConfigError(f"delta storage option {name}: file {path} is empty")
    return value


@dataclass(frozen=True, slots=True, config=STRICT)
class DeltaSettings:
    """One Delta sink. Secrets are named (a file, a variable), never written here."""

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
                raise ConfigError(f"delta sink: name {part!r}: letters, digits, _ and -, at most 100")
        places = [spec.uri.rstrip("/") for spec in self.tables.values()]
        if twice := {uri for uri in places if places.count(uri) > 1}:
            raise ConfigError(f"delta sink {self.name}: two lanes have the table {min(twice)}; give each its own")
