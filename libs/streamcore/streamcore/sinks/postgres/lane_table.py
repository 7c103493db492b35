"""A lane's columns and the table that takes them, as one value, from which statements and checks are built."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from streamcore.errors import ConfigError
from streamcore.sinks.postgres.columns import ColumnType, column_type
from streamcore.sinks.postgres.settings import PostgresSettings, TableSpec

_MAX_NAME_BYTES = 63
#: Characters that would end a quoted name, or start a parameter.
_FORBIDDEN = frozenset('"%\0')


@dataclass(frozen=True, slots=True)
class LaneTable:
    """A lane with its table. ``columns``: all columns of the lane, in order."""

    lane: str
    spec: TableSpec
    columns: Mapping[str, ColumnType]

    @classmethod
    def of(cls, lane: str, spec: TableSpec, schema: pa.Schema) -> LaneTable:
        """Build the value from the lane's schema.

        Raises ``ConfigError`` if the lane lacks a column that ``spec`` names, or has a type that no table holds.
        """
        lane_table = cls(lane, spec, {field.name: column_type(lane, field) for field in schema})
        lane_table._check()
        return lane_table

    @property
    def written_columns(self) -> list[str]:
        """Names of the lane's columns that the table has: all but the ``deleted`` flag."""
        return [name for name in self.columns if name != self.spec.deleted]

    @property
    def required_columns(self) -> list[str]:
        """Columns that may not be null: key and version."""
        return [*self.spec.key, *([self.spec.version] if self.spec.version else [])]

    def create_table(self) -> str:
        """Return a CREATE TABLE statement for a table that fits the lane."""
        lines = [
            f'    "{name}" {self.columns[name].create}{" NOT NULL" if name in self.required_columns else ""}'
            for name in self.written_columns
        ]
        if self.spec.key:
            lines.append(f"    PRIMARY KEY ({self.key_list})")
        return f"CREATE TABLE {self.sql_name} (\n" + ",\n".join(lines) + "\n)"

    @property
    def sql_name(self) -> str:
        """The table's quoted name. Its parts hold no quotes (``TableName.parse``)."""
        return f'"{self.spec.table.schema}"."{self.spec.table.table}"'

    @property
    def key_list(self) -> str:
        """The key's columns, quoted and separated by commas."""
        return ", ".join(f'"{name}"' for name in self.spec.key)

    def _check(self) -> None:
        where = f"postgres lane {self.lane}"
        if missing := [n for n in (*self.required_columns, self.spec.deleted) if n and n not in self.columns]:
            raise ConfigError(f"{where}: table {self.spec.table} names {missing}; the lane has {sorted(self.columns)}")
        if invalid := [n for n in self.columns if not _FORBIDDEN.isdisjoint(n) or len(n.encode()) > _MAX_NAME_BYTES]:
            raise ConfigError(f"{where}: column {invalid[0]!r}: no quotes or %, at most {_MAX_NAME_BYTES} bytes")
        if self.spec.deleted and self.columns[self.spec.deleted].staged != "boolean":
            raise ConfigError(f"{where}: deleted column {self.spec.deleted!r} must be boolean")
        if floating := [n for n in self.spec.key if self.columns[n].staged == "double precision"]:
            raise ConfigError(f"{where}: key column {floating[0]!r} is a double, which no key should be; use a decimal")


def lane_tables(settings: PostgresSettings, columns: Mapping[str, pa.Schema]) -> dict[str, LaneTable]:
    """Return the table of each lane, in the settings' order.

    Raises ``ConfigError`` if a lane is unknown or its columns do not fit.
    """
    if unknown := sorted(settings.tables.keys() - columns.keys()):
        raise ConfigError(f"postgres tables: no lane {unknown[0]!r} with rows; there are {sorted(columns)}")
    return {lane: LaneTable.of(lane, spec, columns[lane]) for lane, spec in settings.tables.items()}
