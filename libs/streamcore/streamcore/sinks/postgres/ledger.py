"""The sink's own row in the database: which epoch owns it, and the last cut that was written.

One row per app and sink, locked by the writer. It also keeps the rows of the last cut that the server refused, so that
the same cut gets the same answer again. Every function works in the caller's transaction.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import orjson
import psycopg
from psycopg import sql

from streamcore.errors import ConfigError, Fenced, Permanent
from streamcore.sinks.postgres.catalog import exists
from streamcore.sinks.postgres.connection import Connection
from streamcore.sinks.postgres.errors import error_text
from streamcore.sinks.postgres.settings import TableName
from streamcore.sinks.sink import RejectedRow
from streamcore.writer_id import WriterId

_CREATE = """\
CREATE TABLE {} (
    app text NOT NULL,
    sink text NOT NULL,
    epoch bigint NOT NULL,
    batch bigint,
    rows bigint NOT NULL DEFAULT 0,
    refused jsonb NOT NULL DEFAULT '[]',
    written_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (app, sink)
)"""
_SELECT = "SELECT epoch, batch, rows, refused::text FROM {} WHERE app = %s AND sink = %s FOR UPDATE"
_INSERT = "INSERT INTO {} (app, sink, epoch) VALUES (%s, %s, %s) ON CONFLICT (app, sink) DO NOTHING"
_TAKE = (
    "UPDATE {} SET epoch = %s, batch = NULL, rows = 0, refused = '[]', written_at = now() WHERE app = %s AND sink = %s"
)
_NOTE = "UPDATE {} SET batch = %s, rows = %s, refused = %s, written_at = now() WHERE app = %s AND sink = %s"


@dataclass(frozen=True, slots=True)
class PostgresLedgerEntry:
    """The contents of the row. ``batch`` None: nothing yet in this epoch. ``rows`` and ``refused`` are of that
    batch."""

    epoch: int
    batch: int | None
    rows: int = 0
    rejected: Sequence[RejectedRow] = ()


@dataclass(frozen=True, slots=True)
class PostgresLedger:
    """The row of one sink of one app."""

    table: TableName
    owner: WriterId
    sink: str

    def create(self, connection: Connection) -> None:
        """Make the table if it is missing, in transactions of its own; ``ConfigError`` names the statement to run
        instead."""
        try:
            if exists(connection, self.table):
                return
            connection.execute(self._sql(_CREATE))
            connection.commit()
        except psycopg.errors.InsufficientPrivilege as error:
            raise self._may_not(error_text(error)) from error
        except (psycopg.errors.DuplicateTable, psycopg.errors.UniqueViolation):
            connection.rollback()  # made by another sink since we looked

    def _may_not(self, reason: str) -> ConfigError:
        create = _CREATE.format(self.table)
        return ConfigError(
            f"postgres ledger {self.table}: {reason}; let its owner run:\n{create};\n"
            f"GRANT SELECT, INSERT, UPDATE ON {self.table} TO the user of the sink, and USAGE on the schema"
        )

    def fence(self, connection: Connection) -> PostgresLedgerEntry:
        """Lock the row and make it ours: ``Fenced`` if a later epoch has it, emptied if an earlier one had."""
        try:
            connection.execute(self._sql(_INSERT), (*self._key, self.owner.epoch))
            found = self.lock_entry(connection)
        except psycopg.errors.InsufficientPrivilege as error:
            raise self._may_not(error_text(error)) from error
        if found.epoch == self.owner.epoch:
            return found
        connection.execute(self._sql(_TAKE), (self.owner.epoch, *self._key))
        return PostgresLedgerEntry(self.owner.epoch, None)

    def lock_entry(self, connection: Connection) -> PostgresLedgerEntry:
        """Return the row, locked until the transaction ends; ``Fenced`` when it is a later epoch's."""
        row = connection.execute(self._sql(_SELECT), self._key).fetchone()
        match row:
            case (int(epoch), int() | None as batch, int(rows), str(refused)):
                if epoch > self.owner.epoch:
                    raise Fenced(f"postgres {self._label}: epoch {epoch} owns it, this is epoch {self.owner.epoch}")
                return PostgresLedgerEntry(epoch, batch, rows, _parse_rejected(refused))
            case _:
                raise Permanent(
                    f"postgres {self._label}: its row is gone from {self.table}; what was written is unknown"
                )

    def record_batch(self, connection: Connection, batch: int, rows: int, refused: Sequence[RejectedRow]) -> None:
        """Record that ``batch`` is written; true from the commit on."""
        kept = orjson.dumps([(one.lane, one.row, one.code, one.reason) for one in refused]).decode()
        connection.execute(self._sql(_NOTE), (batch, rows, kept, *self._key))

    @property
    def _key(self) -> tuple[str, str]:
        return self.owner.app, self.sink

    @property
    def _label(self) -> str:
        return f"sink {self.sink} of app {self.owner.app}"

    def _sql(self, text: str) -> sql.Composed:
        return _compose(text, self.table)


def _compose(text: str, table: TableName) -> sql.Composed:
    # psycopg wants literal texts, to keep values out of them; these are the module's own constants.
    return sql.SQL(text).format(sql.Identifier(table.schema, table.table))


def _parse_rejected(text: str) -> list[RejectedRow]:
    return [RejectedRow(*one) for one in orjson.loads(text)]
