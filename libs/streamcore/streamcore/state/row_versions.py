"""Versions of stored rows, so that a program can read the rows of an older one.

Every stored row has the version of its table's layout, in a column of its own: the log writes one bucket a cut anew,
so for a while after an upgrade rows of several versions lie beside each other. Rows of an older version are brought up
step by step when they are loaded; rows that cannot be are refused before anything runs. Rows without the column are
of version 1, so a table may begin to count when it first changes.
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
    """The current version and the steps that lead there: ``migrations[1]`` makes version 2 of version 1.

    ``what`` names the owner in messages.
    """

    what: str
    current: int
    migrations: Mapping[int, Callable[[T], T]]

    def __post_init__(self) -> None:
        if self.current < 1:
            raise ConfigError(f"{self.what}: version {self.current}; versions are 1, 2, 3 and so on")
        if odd := sorted(n for n in self.migrations if not 1 <= n < self.current):
            raise ConfigError(f"{self.what}: migrations from {odd}, which do not lead to version {self.current}")

    def check(self, stored: int) -> None:
        """``ConfigError`` unless rows of that version can be read."""
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

    def upgrade(self, value: T, stored: int, to: int | None = None) -> T:
        """Return the value of version ``stored`` as one of version ``to`` (the current one)."""
        for version in range(stored, self.current if to is None else to):
            try:
                value = self.migrations[version](value)
            except Exception as error:
                raise ConfigError(
                    f"{self.what}: the migration from version {version} failed: {type(error).__name__}: {error}"
                ) from error
        return value


def with_version(rows: pl.DataFrame, version: int) -> pl.DataFrame:
    """Return the rows with their version."""
    return rows.with_columns(pl.lit(version, dtype=pl.Int64).alias(VERSION))


def split_by_version(rows: pl.DataFrame) -> dict[int, pl.DataFrame]:
    """Return the rows of each version, oldest first, without the version column; the order of rows is kept."""
    if VERSION not in rows.columns:
        return {1: rows}
    found = sorted(rows[VERSION].unique().to_list())
    if len(found) == 1:
        return {found[0]: rows.drop(VERSION)}
    return {version: rows.filter(pl.col(VERSION) == version).drop(VERSION) for version in found}


class VersionedTable:
    """A ``StateTable`` around another, which only ever sees rows of the current version."""

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
