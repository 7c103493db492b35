"""Creates the tables of a sink, for local runs and tests."""

from __future__ import annotations

from collections.abc import Mapping

import psycopg
import pyarrow as pa
from psycopg import sql

from streamcore.sinks.postgres.catalog import exists
from streamcore.sinks.postgres.connection import connect
from streamcore.sinks.postgres.errors import translate_error
from streamcore.sinks.postgres.lane_table import lane_tables
from streamcore.sinks.postgres.settings import PostgresSettings


def create_tables(settings: PostgresSettings, columns: Mapping[str, pa.Schema]) -> list[str]:
    """Create the missing tables, with their schemas, and return the statements that made them.

    For local runs: an administrator chooses types, indexes and permissions. Raises the errors of a sink's ``open``.
    """
    try:
        with connect(settings, "headgate tables") as connection:
            missing = [
                table for table in lane_tables(settings, columns).values() if not exists(connection, table.spec.table)
            ]
            for schema in dict.fromkeys(table.spec.table.schema for table in missing):
                if connection.execute("SELECT to_regnamespace(quote_ident(%s))", [schema]).fetchone() == (None,):
                    connection.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(schema)))
            for table in missing:
                connection.execute(sql.SQL(table.create_table()))
            return [table.create_table() for table in missing]
    except psycopg.Error as error:
        raise translate_error(error, f"{settings}, creating tables") from None
