"""Versions of stored rows, so that a program can read the rows of an older one.

A column of every stored row holds the version of its layout. The state log rewrites one bucket per cut, so after an
upgrade it holds rows of several versions for a while. Rows of an older version are migrated step by step when they are
loaded; rows that cannot be migrated are rejected before the app runs. Rows without the column have version 1, so a
table needs no version before its first change.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

import polars as pl

from streamcore.errors import ConfigError
from streamcore.state.table import StateTable

#: int64 column: the version of the row's layout.
VERSION = "__version"

T = TypeVar("T")


@dataclass(frozen=True)
class Versions(Generic[T]):
    """The current version, and the migrations to it: ``migrations[1]`` turns version 1 into version 2.

    ``what`` names the owner in messages.
    """

    what: str
    current: int
    migrations: Mapping[int, Callable[[T], T]]

    def __post_init__(self) -> None:
        if self.current < 1:
            raise ConfigError(f"{self.what}: version {self.current}; versions are 1, 2, 3 and so on")
        if unreachable := sorted(n for n in self.migrations if not 1 <= n < self.current):
            raise ConfigError(
                f"{self.what}: migrations from {unreachable}, which do not lead to version {self.current}"
            )

    def check(self, stored: int) -> None:
        """Raise ``ConfigError`` unless stored rows of that version can be read."""
        if stored > self.current:
            raise ConfigError(
                f"{self.what}: state is of version {stored} and this program of version {self.current}; run the newer "
                "program, or restore a savepoint from before the upgrade"
            )
        if missing := [n for n in range(stored, self.current) if n not in self.migrations]:
            raise ConfigError(
                f"{self.what}: state of version {stored} cannot be brought to version {self.current}; give a migration "
                f"from version {missing[0]}"
            )

    def upgrade(self, value: T, stored: int, to_version: int | None = None) -> T:
        """Return a value of version ``stored`` migrated to ``to_version``, by default the current one."""
        for version in range(stored, self.current if to_version is None else to_version):
            try:
                value = self.migrations[version](value)
            except Exception as error:
                raise ConfigError(
                    f"{self.what}: the migration from version {version} failed: {type(error).__name__}: {error}"
                ) from error
        return value


def with_version(rows: pl.DataFrame, version: int) -> pl.DataFrame:
    """Return the rows with a column of their version."""
    return rows.with_columns(pl.lit(version, dtype=pl.Int64).alias(VERSION))


def split_by_version(rows: pl.DataFrame) -> dict[int, pl.DataFrame]:
    """Return the rows by version, the oldest version first, without the version column, in their order."""
    if VERSION not in rows.columns:
        return {1: rows}
    versions = sorted(rows[VERSION].unique().to_list())
    if len(versions) == 1:
        return {versions[0]: rows.drop(VERSION)}
    return {version: rows.filter(pl.col(VERSION) == version).drop(VERSION) for version in versions}


class VersionedTable:
    """A ``StateTable`` that adds versions to another, which receives rows of the current version only."""

    def __init__(self, table: StateTable, versions: Versions[pl.DataFrame]) -> None:
        self._table = table
        self.versions = versions

    def changes(self) -> pl.DataFrame:
        return with_version(self._table.changes(), self.versions.current)

    def rows(self, bucket: int, buckets: int) -> pl.DataFrame:
        return with_version(self._table.rows(bucket, buckets), self.versions.current)

    def load(self, rows: pl.DataFrame) -> None:
        for version, group in split_by_version(rows).items():
            self.versions.check(version)
            self._table.load(self.versions.upgrade(group, version))
