"""Where the etl service's rows end besides Kafka: a Delta table in the workspace's folder, or a table in a PostgreSQL.

Knows how each is made, told to the app, read and deleted; what the app makes of events is in ``etl_documents``.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Protocol

from headgate.local.services.database import Address, Database, Schema, connected, database_of
from headgate.local.services.service import Server
from headgate.local.shop.expected_rows import COLUMNS, Row
from headgate.talk import Say
from streamcore.service.postgres import TableDocument

#: The lane of its rows; also the folder of the Delta table.
LANE: Final = "events"
_SCHEMA: Final = "etl"
_TABLES: Final = {LANE: TableDocument(table=f"{_SCHEMA}.event", key=("id",))}
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
#: In the order of ``COLUMNS``.
_SELECT: Final = """
select id, (extract(epoch from at) * 1000)::bigint, type, source, "user", ip, country, product, quantity, card, status,
       amount, currency, euros
from etl.event
"""


class EtlTable(Protocol):
    """One of them. ``target``: what the app's routes call it; ``what``: what people call it."""

    @property
    def target(self) -> str: ...

    @property
    def what(self) -> str: ...

    def server(self, folder: Path) -> Server | None:
        """What must run for it; None: nothing."""
        ...

    def entry(self, folder: Path) -> Mapping[str, object]:
        """Of the app's settings."""
        ...

    def forget(self, folder: Path, say: Say) -> None:
        """Delete what an earlier shop of this folder left."""
        ...

    def prepare(self, folder: Path) -> None:
        """What the app does not make itself."""
        ...

    def rows(self, folder: Path) -> tuple[Row, ...]:
        """All that it holds, by another client than the app's."""
        ...

    def how_to_look(self, folder: Path) -> str:
        """For people."""
        ...


class DeltaTable:
    """In the workspace's folder."""

    target = "delta"
    what = "the Delta table"

    def server(self, folder: Path) -> None:
        """A folder is all it needs."""

    def entry(self, folder: Path) -> Mapping[str, object]:
        """Partitioned by the type of the event."""
        uri = str(self._place(folder).absolute())
        return {"delta": {"tables": {LANE: {"uri": uri, "partition_by": ["type"]}}}}

    def forget(self, folder: Path, say: Say) -> None:
        """The whole folder."""
        if self._place(folder).exists():
            say(f"deleting the old table {self._place(folder)}")
            shutil.rmtree(self._place(folder))

    def prepare(self, folder: Path) -> None:
        """The app makes it."""

    def rows(self, folder: Path) -> tuple[Row, ...]:
        """Of the newest version; none while there is no table."""
        if not (self._place(folder) / "_delta_log").exists():
            return ()
        import polars as pl

        decimals = pl.col("amount", "euros").cast(pl.String)
        frame = pl.read_delta(str(self._place(folder))).with_columns(decimals, at_ms=pl.col("at").dt.epoch("ms"))
        return tuple(frame.select(*COLUMNS).rows())

    def how_to_look(self, folder: Path) -> str:
        """Its folder."""
        return f"the Delta table: {self._place(folder)}"

    def _place(self, folder: Path) -> Path:
        return folder / "delta" / LANE


class PostgresTable:
    """``address``: of somebody else's database; None: our own, in the workspace's folder."""

    target = "postgres"
    what = "PostgreSQL"

    def __init__(self, address: Address | None = None) -> None:
        self._address = address
        self._database: Database | None = None

    @property
    def database(self) -> Database:
        """There is one after ``server``."""
        assert self._database is not None, "server() comes first"
        return self._database

    def server(self, folder: Path) -> Server:
        """PostgreSQL."""
        ledger = f"{_SCHEMA}.headgate_ledger"  # with the table, so that it goes with it
        self._database = database_of(self._address, folder, _TABLES, ledger)
        return self._database

    def entry(self, folder: Path) -> Mapping[str, object]:  # noqa: ARG002 - the server knows where it is
        """With the login's name and its password's."""
        return {"postgres": self.database.document()}

    def forget(self, folder: Path, say: Say) -> None:
        """The schema, unless it is somebody else's."""
        self._schema(folder).drop(say)

    def prepare(self, folder: Path) -> None:
        """Schema and table."""
        file = folder / "tables.sql"
        file.write_text(_CREATE, encoding="utf-8")
        self._schema(folder).apply([file])

    def rows(self, folder: Path) -> tuple[Row, ...]:
        """Of the table; none while there is none."""
        with connected(self.database.document()) as connection:
            if not self._schema(folder).is_there(connection):
                return ()
            rows = connection.execute(_SELECT).fetchall()
        return tuple(tuple(v if v is None or isinstance(v, int) else str(v) for v in row) for row in rows)

    def how_to_look(self, folder: Path) -> str:
        """A command line."""
        return f"table {_SCHEMA}.event: {self._schema(folder).how_to_look()}"

    def _schema(self, folder: Path) -> Schema:
        return Schema(self.database, _SCHEMA, folder)
