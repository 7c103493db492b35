"""The tables of a local run: the PostgreSQL of this machine, if the settings name it, with the tables that they name.

Promises: only the server with the data of ``default_folder`` is started, stopped or changed: it is named by an address
of this machine and ``DEFAULT_PORT``. Its password is read from its file, and no document needs to name it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, TypeVar

from headgate.console.messages import Print
from headgate.local.servers.base import HOST
from headgate.local.servers.postgres import DEFAULT_PORT, EmbeddedPostgres, local_postgres
from streamcore.topology.kernel import TopologyStage

if TYPE_CHECKING:
    import pyarrow as pa

    from headgate.programs.runnable import Runnable
    from streamcore.app import App

    R = TypeVar("R", bound=Runnable)

_HERE: Final = (HOST, "localhost", "::1")


class LocalTables:
    """The local PostgreSQL of one run."""

    def __init__(self, print_message: Print) -> None:
        self._print_message = print_message
        self._server: EmbeddedPostgres | None = None
        self._started = False

    def start(self, program: R) -> R:
        """Start the server and create the missing tables, if the settings name it; return the program with its login.

        Raises the errors of ``EmbeddedPostgres.start`` and of a sink's ``open``.
        """
        sink = getattr(program.settings, "postgres", None)
        if sink is None or sink.host not in _HERE or sink.port != DEFAULT_PORT:
            return program
        from streamcore.sinks.postgres.ddl import create_tables

        server = self._server = local_postgres(self._print_message)
        self._started = server.running is None
        server.start()
        program = program.save(
            postgres={**program.document["postgres"], "password_file": str(server.password_file), "password_env": None}
        )
        columns = table_columns(program.service.build_app(program.settings))
        created = create_tables(getattr(program.settings, "postgres"), columns)  # noqa: B009 - a service with sinks
        names = ", ".join(str(spec.table) for spec in sink.tables.values())
        self._print_message(
            f"postgres: the rows go to {names}{' (new)' if created else ''}; look at them with\n"
            f'  PGPASSWORD="$(cat {server.password_file})" psql -h {server.host} -p {server.port} -U {server.user} '
            f"{server.database}"
        )
        return program

    def stop(self) -> None:
        """Stop the server in order, if this run started it."""
        if self._server is not None and self._started:
            self._print_message("postgres: stopping")
            self._server.stop()


def table_columns(app: App) -> Mapping[str, pa.Schema]:
    """Return the columns of each lane that a sink of an app with a topology may take."""
    stage = next(one for one in app.stages if isinstance(one, TopologyStage))
    return stage.topology.table_columns
