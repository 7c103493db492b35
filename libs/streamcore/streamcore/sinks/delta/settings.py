"""The settings of a Delta sink: its tables, where they are stored, and how to log in there.

Promises that a secret is read when a table is opened and at no other time: the settings hold the *name* of a file or
of an environment variable, so no ``repr``, error or log line can carry it. Knows no client library.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from streamcore.errors import ConfigError
from streamcore.sinks.sink import RetryPolicy

_NAME = re.compile(r"[A-Za-z0-9_-]{1,100}\Z")
_SECRET = re.compile(r"secret|token|password|sas|account_key|(?<!_)access_key(?!_id)|credential", re.IGNORECASE)
_HOUR_MS = 3_600_000

#: A request to an object store ends well within the sink's patience, which is what tries again.
_REQUESTS = {"timeout": "30s", "connect_timeout": "5s", "max_retries": "2"}


@dataclass(frozen=True, slots=True)
class DeltaTableSpec:
    """One table.

    ``uri``: a path or a URI (``s3://bucket/path``). ``partition_by``: columns of text, whole numbers, booleans.
    ``merge_schema``: columns that the table lacks are added when it is opened. ``target_file_bytes``: of one data file.
    ``compact_every``, ``checkpoint_every``: commits between two compactions, and between two checkpoints of the
    table's log. ``vacuum_retention_ms``: files that no reader of the newest version needs are kept so long; readers of
    older versions, and a cut that takes longer than this to write, lose theirs.
    """

    uri: str
    partition_by: tuple[str, ...] = ()
    merge_schema: bool = False
    target_file_bytes: int = 128 * 1024 * 1024
    compact_every: int = 50
    checkpoint_every: int = 20
    vacuum_retention_ms: int = 7 * 24 * _HOUR_MS

    def __post_init__(self) -> None:
        if not self.uri or "@" in self.uri.partition("://")[2]:
            raise ConfigError("delta table uri: a path or URI without user and password")
        if len(set(self.partition_by)) != len(self.partition_by):
            raise ConfigError(f"delta table {self.uri}: partition_by names a column twice")
        for name in ("target_file_bytes", "compact_every", "checkpoint_every"):
            if getattr(self, name) <= 0:
                raise ConfigError(f"delta table {self.uri}: {name} must be above zero")
        if self.vacuum_retention_ms < _HOUR_MS or self.vacuum_retention_ms % _HOUR_MS:
            raise ConfigError(f"delta table {self.uri}: vacuum_retention_ms must be whole hours, one at least")


@dataclass(frozen=True, slots=True)
class DeltaStorage:
    """How to reach an object store, by the storage's own names of options (``aws_endpoint_url``, ``aws_region``).

    ``options``: those that anyone may see. ``secret_files``, ``secret_env``: option -> file, or environment variable,
    that holds its value. Options that are not given are taken from the environment, as other clients do.
    """

    options: Mapping[str, str] = field(default_factory=dict)
    secret_files: Mapping[str, Path] = field(default_factory=dict)
    secret_env: Mapping[str, str] = field(default_factory=dict)

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


@dataclass(frozen=True, slots=True)
class DeltaSettings:
    """One sink. ``tables``: lane -> its table. ``name`` is part of the ledger's key: never change it for a table."""

    tables: Mapping[str, DeltaTableSpec]
    storage: DeltaStorage = field(default_factory=DeltaStorage)
    patience: RetryPolicy = field(default_factory=RetryPolicy)
    name: str = "delta"

    def __post_init__(self) -> None:
        if not self.tables:
            raise ConfigError(f"delta sink {self.name}: no tables")
        for part in (self.name, *self.tables):
            if not _NAME.match(part):
                raise ConfigError(f"delta sink: name {part!r}: letters, digits, _ and -, at most 100")
        places = [spec.uri.rstrip("/") for spec in self.tables.values()]
        if twice := {uri for uri in places if places.count(uri) > 1}:
            raise ConfigError(f"delta sink {self.name}: two lanes have the table {min(twice)}; give each its own")
