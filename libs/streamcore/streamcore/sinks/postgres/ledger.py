"""The ledger of the PostgreSQL sink: one row per app and sink, with the epoch that owns it and its last batch.

The writer locks the row. It also holds the rejected rows of the last batch, so that a repeated write of that batch
returns an equal result. Every function works in the caller's transaction, unless its docstring names another.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import orjson
import psycopg
from psycopg import sql

from streamcore.cuts.cut_id import CutId
from streamcore.cuts.writer_id import WriterId
from streamcore.errors import ConfigError, Fenced, Permanent
from streamcore.sinks.postgres.catalog import exists
from streamcore.sinks.postgres.connection import Connection
from streamcore.sinks.postgres.errors import error_text
from streamcore.sinks.postgres.settings import TableName
from streamcore.sinks.sink import RejectedRow

_CREATE = """\
CREATE TABLE {} (
    app text NOT NULL,
    sink text NOT NULL,
    epoch bigint NOT NULL,
    batch bigint,
    digest text,
    rows bigint NOT NULL DEFAULT 0,
    rejected jsonb NOT NULL DEFAULT '[]',
    written_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (app, sink)
)"""
_SELECT = "SELECT epoch, batch, digest, rows, rejected::text FROM {} WHERE app = %s AND sink = %s FOR UPDATE"
_INSERT = "INSERT INTO {} (app, sink, epoch) VALUES (%s, %s, %s) ON CONFLICT (app, sink) DO NOTHING"
_TAKE = (
    "UPDATE {} SET epoch = %s, batch = NULL, digest = NULL, rows = 0, rejected = '[]', written_at = now() "
    "WHERE app = %s AND sink = %s"
)
_NOTE = (
    "UPDATE {} SET batch = %s, digest = %s, rows = %s, rejected = %s, written_at = now() WHERE app = %s AND sink = %s"
)


@dataclass(frozen=True, slots=True)
class PostgresLedgerEntry:
    """The contents of a ledger row. ``cut`` is None if the epoch has written none. ``rows`` and ``rejected`` are the
    result of that cut (``WriteResult``)."""

    epoch: int
    cut: CutId | None
    rows: int = 0
    rejected: Sequence[RejectedRow] = ()


@dataclass(frozen=True, slots=True)
class PostgresLedger:
    """Reads and writes the ledger row of one sink of one app. ``owner`` is this process."""

    table: TableName
    owner: WriterId
    sink: str

    def create(self, connection: Connection) -> None:
        """Create the table if it is missing, in a transaction of its own.

        Raises ``ConfigError`` with the statement to run if the user may not create it.
        """
        try:
            if exists(connection, self.table):
                return
            connection.execute(self._sql(_CREATE))
            connection.commit()
        except psycopg.errors.InsufficientPrivilege as error:
            raise self._no_permission(error_text(error)) from error
        except (psycopg.errors.DuplicateTable, psycopg.errors.UniqueViolation):
            connection.rollback()  # another sink created it in the meantime

    def _no_permission(self, reason: str) -> ConfigError:
        create = _CREATE.format(self.table)
        return ConfigError(
            f"postgres ledger {self.table}: {reason}; let its owner run:\n{create};\n"
            f"GRANT SELECT, INSERT, UPDATE ON {self.table} TO the user of the sink, and USAGE on the schema"
        )

    def fence(self, connection: Connection) -> PostgresLedgerEntry:
        """Lock the row and let this epoch own it. An earlier epoch's batch is cleared.

        Raises ``Fenced`` if a later epoch owns the row.
        """
        try:
            connection.execute(self._sql(_INSERT), (*self._key, self.owner.epoch))
            entry = self.lock_entry(connection)
        except psycopg.errors.InsufficientPrivilege as error:
            raise self._no_permission(error_text(error)) from error
        if entry.epoch == self.owner.epoch:
            return entry
        connection.execute(self._sql(_TAKE), (self.owner.epoch, *self._key))
        return PostgresLedgerEntry(self.owner.epoch, None)

    def lock_entry(self, connection: Connection) -> PostgresLedgerEntry:
        """Lock the row until the transaction ends, and return it.

        Raises ``Fenced`` if a later epoch owns it, and ``Permanent`` if it was deleted.
        """
        row = connection.execute(self._sql(_SELECT), self._key).fetchone()
        match row:
            case (int(epoch), int() | None as batch, str() | None as digest, int(rows), str(rejected)):
                if epoch > self.owner.epoch:
                    raise Fenced(f"postgres {self._label}: epoch {epoch} owns it, this is epoch {self.owner.epoch}")
                cut = None if batch is None else CutId(batch, digest or "")
                return PostgresLedgerEntry(epoch, cut, rows, _parse_rejected(rejected))
            case _:
                raise Permanent(
                    f"postgres {self._label}: its row was deleted from {self.table}; the last written batch is unknown"
                )

    def record_cut(self, connection: Connection, cut: CutId, rows: int, rejected: Sequence[RejectedRow]) -> None:
        """Record ``cut`` as written, with its result, in the transaction that writes it."""
        rejected_json = orjson.dumps([(row.lane, row.row, row.code, row.reason) for row in rejected]).decode()
        connection.execute(self._sql(_NOTE), (cut.batch, cut.digest, rows, rejected_json, *self._key))

    @property
    def _key(self) -> tuple[str, str]:
        return self.owner.app, self.sink

    @property
    def _label(self) -> str:
        return f"sink {self.sink} of app {self.owner.app}"

    def _sql(self, text: str) -> sql.Composed:
        return _compose(text, self.table)


def _compose(text: str, table: TableName) -> sql.Composed:
    # psycopg's types demand literal texts, so that no value gets into them; these texts are constants of this module.
    return sql.SQL(text).format(sql.Identifier(table.schema, table.table))


def _parse_rejected(text: str) -> list[RejectedRow]:
    return [RejectedRow(*fields) for fields in orjson.loads(text)]
