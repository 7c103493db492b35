"""The PostgreSQL of a service of ``headgate up``: a local one in the workspace's folder, or one that the user names.

Promises: only data that was created for this workspace is written or deleted: the comment of a schema names the folder
of its workspace, and a schema of another folder is rejected. No password is printed or passed as an argument.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from headgate.console.messages import Print
from headgate.errors import DatabaseError, InputError
from headgate.local.servers.postgres import EmbeddedPostgres, PostgresServerSettings
from streamcore.sinks.postgres.settings import PostgresSettings, SslMode, TableName, TableSpec
from streamcore.sinks.postgres.transaction import open_transaction as _sink_transaction

if TYPE_CHECKING:
    from streamcore.sinks.postgres.connection import Connection

_CLIENT: Final = "headgate up"

Tables = Mapping[str, TableSpec]


@dataclass(frozen=True, slots=True)
class PostgresAddress:
    """The address of an external server. With a certificate file, the server must prove its identity."""

    host: str
    port: int
    database: str
    user: str
    password_file: Path | None = None
    password_env: str | None = None
    ca_file: Path | None = None

    @classmethod
    def parse(cls, text: str, user: str) -> PostgresAddress:
        """Parse ``HOST:PORT/DATABASE``; raises ``InputError`` for another form."""
        address, slash, database = text.rpartition("/")
        host, colon, port = address.rpartition(":")
        if not (slash and colon and host and database and port.isdigit() and 0 < int(port) < 65_536):
            raise InputError(f"--postgres {text}: write HOST:PORT/DATABASE, such as 127.0.0.1:5432/shop")
        return cls(host, int(port), database, user)


class Database(Protocol):
    """A PostgreSQL database as a ``Server``."""

    def start(self, print_message: Print) -> None:
        """Start a local server; raise an error if an external one does not answer."""
        ...

    def raise_if_ended(self) -> None:
        """Raise an error if a local server has ended."""
        ...

    def stop(self, print_message: Print) -> None:
        """Stop a local server."""
        ...

    def settings(self) -> PostgresSettings:
        """Return the address and login, and the service's tables. Called after ``start``."""
        ...


class LocalDatabase:
    """A local server with its data in ``folder``; see ``EmbeddedPostgres``."""

    def __init__(self, folder: Path, tables: Tables, ledger: TableName) -> None:
        self._folder = folder
        self._tables = tables
        self._ledger = ledger
        self._server: EmbeddedPostgres | None = None

    def start(self, print_message: Print) -> None:
        """Start the server unless it runs."""
        self._server = EmbeddedPostgres(PostgresServerSettings(self._folder), print_message=print_message)
        self._server.start()

    def raise_if_ended(self) -> None:
        """Raise ``DatabaseError`` with the last error of its log if the server has ended."""
        if self._server is not None and self._server.running is None:
            files = self._server.files
            raise DatabaseError(f"the local PostgreSQL ended; last in its log {files.log}: {files.last_error()}")

    def stop(self, print_message: Print) -> None:
        """Stop the server in order."""
        if self._server is not None and self._server.running is not None:
            print_message("postgres: stopping")
            self._server.stop()

    def settings(self) -> PostgresSettings:
        """Return the address on this machine, with the file of the password."""
        assert self._server is not None, "call start() first"
        server = self._server
        return PostgresSettings(
            host=server.host,
            port=server.port,
            database=server.database,
            user=server.user,
            password_file=server.password_file,
            ledger=self._ledger,
            tables=self._tables,
        )


class ExternalDatabase:
    """An external server: checked, but never started or stopped. The app itself notices its failures during the run."""

    def __init__(self, address: PostgresAddress, tables: Tables, ledger: TableName) -> None:
        sslmode = SslMode.VERIFY_FULL if address.ca_file else SslMode.PREFER
        self._settings = PostgresSettings(**asdict(address), sslmode=sslmode, ledger=ledger, tables=tables)

    def start(self, print_message: Print) -> None:
        """Raise an error if the server cannot be reached."""
        with open_transaction(self._settings):
            print_message(f"postgres: {self._settings} answers")

    def raise_if_ended(self) -> None:
        """Do nothing: the app waits for the server, and ends if that takes too long."""

    def stop(self, print_message: Print) -> None:
        """Do nothing: the server is an external one."""

    def settings(self) -> PostgresSettings:
        """Return the settings of the address."""
        return self._settings


def choose_database(address: PostgresAddress | None, folder: Path, tables: Tables, ledger: TableName) -> Database:
    """Return the database at the address; without an address a local one in the workspace's folder."""
    if address is None:
        return LocalDatabase(folder / "postgres", tables, ledger)
    return ExternalDatabase(address, tables, ledger)


def open_transaction(settings: PostgresSettings) -> AbstractContextManager[Connection]:
    """Open a transaction; raise an error of ``streamcore.errors`` when there is no server or it rejects the login."""
    return _sink_transaction(settings, _CLIENT)


class Schema:
    """One schema of the database, created for one workspace."""

    def __init__(self, database: Database, name: str, folder: Path) -> None:
        self._database = database
        self._name = name
        self._mark = f"headgate up in {folder}"

    def drop(self, print_message: Print) -> None:
        """Delete the schema of an earlier workspace of this folder. Raises ``InputError`` if it belongs to another
        folder."""
        with open_transaction(self._database.settings()) as connection:
            if self.exists(connection):
                print_message(f"postgres: deleting the old schema {self._name}")
                connection.execute(f'drop schema "{self._name}" cascade'.encode())

    def apply(self, files: Sequence[Path]) -> None:
        """Create the schema if it is missing, and run the SQL files, which must be repeatable."""
        with open_transaction(self._database.settings()) as connection:
            if not self.exists(connection):
                mark = self._mark.replace("'", "''")
                connection.execute(f'create schema "{self._name}"'.encode())
                connection.execute(f"comment on schema \"{self._name}\" is '{mark}'".encode())
            for file in files:
                connection.execute(file.read_bytes())

    def exists(self, connection: Connection) -> bool:
        """Return whether the schema exists. Raises ``InputError`` if it belongs to another folder."""
        comment = connection.execute(
            "select obj_description(oid, 'pg_namespace') from pg_namespace where nspname = %s", [self._name]
        ).fetchone()
        if comment is not None and comment[0] != self._mark:
            raise InputError(
                f"postgres {self._database.settings()}: schema {self._name} belongs to another"
                " workspace; name another database with --postgres, or delete the schema"
            )
        return comment is not None

    def inspect_command(self) -> str:
        """Return the command line of psql with which a user can look at the schema."""
        server = self._database.settings()
        secret = f'PGPASSWORD="$(cat {server.password_file})" ' if server.password_file else ""
        address = f"-h {server.host} -p {server.port} -U {server.user} {server.database}"
        return f"{secret}psql {address}"
