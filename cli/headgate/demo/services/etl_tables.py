"""The etl service's tables besides Kafka: a Delta table in the workspace's folder, or a table in a PostgreSQL.

Knows how each table is created, configured in the app, read and deleted; ``etl_documents`` holds the app's model.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Protocol

from headgate.console.messages import Print
from headgate.demo.service import Server
from headgate.demo.services.database import Database, PostgresAddress, Schema, choose_database, open_transaction
from headgate.demo.shop.expected_rows import COLUMNS, Row
from streamcore.sinks.postgres.settings import TableName, TableSpec

#: The lane whose rows go to the table; also the name of the Delta table's folder.
LANE: Final = "events"
_SCHEMA: Final = "etl"
_TABLES: Final = {LANE: TableSpec(table=TableName(_SCHEMA, "event"), key=("id",))}
_CREATE: Final = """
create table if not exists etl.event (
    id        text          not null primary key,
    at        timestamptz   not null,
    type      text          not null,
    source    text          not null,
    "user"    text,
    ip        text,
    country   text          not null,
    product   text,
    quantity  bigint,
    card      text,
    status    text,
    amount    numeric(12,2),
    currency  text,
    rate      numeric(12,6),
    euros     numeric(18,2)
);
create index if not exists event_at on etl.event (at);
"""
#: Selects the columns in the order of ``COLUMNS``.
_SELECT: Final = """
select id, (extract(epoch from at) * 1000)::bigint, type, source, "user", ip, country, product, quantity, card, status,
       amount, currency, euros
from etl.event
"""


class EtlTable(Protocol):
    """A table. ``target``: its name in the app's routes; ``display_name``: its name for users."""

    @property
    def target(self) -> str: ...

    @property
    def display_name(self) -> str: ...

    def server(self, folder: Path) -> Server | None:
        """Return the server of the table, or None."""
        ...

    def settings_entry(self, folder: Path) -> Mapping[str, object]:
        """Return the entry of the app's settings that describes the table."""
        ...

    def delete_leftovers(self, folder: Path, print_message: Print) -> None:
        """Delete the rows that an earlier shop of this folder left."""
        ...

    def prepare(self, folder: Path) -> None:
        """Create the objects that the app does not create itself."""
        ...

    def rows(self, folder: Path) -> tuple[Row, ...]:
        """Read all rows, with another client than the app's."""
        ...

    def inspect_command(self, folder: Path) -> str:
        """Return how a user can look at the table."""
        ...


class DeltaTable:
    """A Delta table in the workspace's folder, partitioned by the type of the event."""

    target = "delta"
    display_name = "the Delta table"

    def server(self, folder: Path) -> None:
        """Return None: a folder needs no server."""

    def settings_entry(self, folder: Path) -> Mapping[str, object]:
        """Return the entry of the app's settings."""
        uri = str(self._path(folder).absolute())
        return {"delta": {"tables": {LANE: {"uri": uri, "partition_by": ["type"]}}}}

    def delete_leftovers(self, folder: Path, print_message: Print) -> None:
        """Delete the whole folder."""
        if self._path(folder).exists():
            print_message(f"deleting the old table {self._path(folder)}")
            shutil.rmtree(self._path(folder))

    def prepare(self, folder: Path) -> None:
        """Do nothing: the app creates the table."""

    def rows(self, folder: Path) -> tuple[Row, ...]:
        """Read the rows of the newest version; none if there is no table."""
        if not (self._path(folder) / "_delta_log").exists():
            return ()
        import polars as pl

        decimals = pl.col("amount", "euros").cast(pl.String)
        frame = pl.read_delta(str(self._path(folder))).with_columns(decimals, at_ms=pl.col("at").dt.epoch("ms"))
        return tuple(frame.select(*COLUMNS).rows())

    def inspect_command(self, folder: Path) -> str:
        """Return the path of the table."""
        return f"the Delta table: {self._path(folder)}"

    def _path(self, folder: Path) -> Path:
        return folder / "delta" / LANE


class PostgresTable:
    """``address``: the address of an external database; None: a local one in the workspace's folder."""

    target = "postgres"
    display_name = "PostgreSQL"

    def __init__(self, address: PostgresAddress | None = None) -> None:
        self._address = address
        self._database: Database | None = None

    @property
    def database(self) -> Database:
        """The database, after ``server``."""
        assert self._database is not None, "call server() first"
        return self._database

    def server(self, folder: Path) -> Server:
        """Return the PostgreSQL."""
        ledger = TableName(_SCHEMA, "headgate_ledger")  # in the table's schema, so that both are deleted together
        self._database = choose_database(self._address, folder, _TABLES, ledger)
        return self._database

    def settings_entry(self, folder: Path) -> Mapping[str, object]:  # noqa: ARG002 - the settings of the server are enough
        """Return the entry of the app's settings, with the login."""
        return {"postgres": self.database.settings()}

    def delete_leftovers(self, folder: Path, print_message: Print) -> None:
        """Delete the schema; ``InputError`` if it was created for another workspace."""
        self._schema(folder).drop(print_message)

    def prepare(self, folder: Path) -> None:
        """Create the schema and the table."""
        file = folder / "tables.sql"
        file.write_text(_CREATE, encoding="utf-8")
        self._schema(folder).apply([file])

    def rows(self, folder: Path) -> tuple[Row, ...]:
        """Read the rows; none if there is no table."""
        with open_transaction(self.database.settings()) as connection:
            if not self._schema(folder).exists(connection):
                return ()
            rows = connection.execute(_SELECT).fetchall()
        return tuple(tuple(v if v is None or isinstance(v, int) else str(v) for v in row) for row in rows)

    def inspect_command(self, folder: Path) -> str:
        """Return the command line of psql."""
        return f"table {_SCHEMA}.event: {self._schema(folder).inspect_command()}"

    def _schema(self, folder: Path) -> Schema:
        return Schema(self.database, _SCHEMA, folder)
