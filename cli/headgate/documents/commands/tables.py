"""``headgate sessions tables``, and the same for etl and rules: the tables of the PostgreSQL sink as SQL."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from headgate.documents.commands.options import FILE
from headgate.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import pyarrow as pa

    from streamcore.app import App


def _command(service: str) -> click.Command:
    @click.command(name="tables", short_help="Print the SQL that makes the tables of a settings file.")
    @click.argument("file", type=FILE)
    def tables(file: Path) -> None:
        from headgate.documents.opened import opened
        from streamcore.sinks.postgres.lane_table import lane_tables

        with opened(service, file) as document:
            settings = getattr(document.settings, "postgres", None)
            if settings is None:
                raise InputError(f"{file}: the document has no entry postgres, so it writes to no table")
            found = [*lane_tables(settings, _columns(service, document.app)).values()]
        for schema in dict.fromkeys(one.spec.table.schema for one in found):
            click.echo(f'CREATE SCHEMA IF NOT EXISTS "{schema}";')
        for one in found:
            statement = one.create_table().replace("CREATE TABLE ", "CREATE TABLE IF NOT EXISTS ", 1)
            click.echo(f"\n-- the rows of {one.lane}\n{statement};")

    tables.help = (
        f"Print the SQL that makes the tables that the settings FILE of the {service} service names, with the columns "
        "of its rows.\n\nThe schemas and names are those of the entry postgres. Pipe it into psql."
    )
    return tables


def _columns(service: str, app: App) -> Mapping[str, pa.Schema]:
    """Return the columns of each lane that a sink of the app may take."""
    if service == "rules":
        from headgate_rules.app import table_columns

        return table_columns()
    from headgate.programs.local_tables import table_columns as columns_of_topology

    return columns_of_topology(app)


etl, sessions, rules = map(_command, ("etl", "sessions", "rules"))
