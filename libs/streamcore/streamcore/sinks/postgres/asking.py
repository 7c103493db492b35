"""A transaction for who prepares or compares tables, beside the sink: local runs, tests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg

from streamcore.sinks.postgres.connecting import Connection, connect
from streamcore.sinks.postgres.failures import translated
from streamcore.sinks.postgres.settings import PostgresSettings


@contextmanager
def transaction(settings: PostgresSettings, name: str) -> Iterator[Connection]:
    """Committed at the end, or rolled back. ``name`` is what the server shows as the application. Raises what a sink's
    ``open`` does."""
    try:
        with connect(settings, name) as connection:
            yield connection
    except psycopg.Error as error:
        raise translated(error, f"{settings}, {name}") from None
