"""A transaction for code that prepares or compares tables outside the sink: local runs, tests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg

from streamcore.sinks.postgres.connection import Connection, connect
from streamcore.sinks.postgres.errors import translate_error
from streamcore.sinks.postgres.settings import PostgresSettings


@contextmanager
def open_transaction(settings: PostgresSettings, name: str) -> Iterator[Connection]:
    """Yield a connection; commit at the end, or roll back on an error.

    ``name``: the application name that the server shows. Raises the errors of a sink's ``open``.
    """
    try:
        with connect(settings, name) as connection:
            yield connection
    except psycopg.Error as error:
        raise translate_error(error, f"{settings}, {name}") from None
