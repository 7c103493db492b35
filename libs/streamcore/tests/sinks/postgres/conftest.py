"""A database of a test's own for sinks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

from tests.harness.servers.postgres_table import SinkDatabase

if TYPE_CHECKING:
    from conftest import Database, NewDatabase

#: A database for sinks, which are closed with the test.
NewSinkDatabase = Callable[["Database"], SinkDatabase]


@pytest.fixture
def new_sink_database() -> Iterator[NewSinkDatabase]:
    databases: list[SinkDatabase] = []

    def create(database: Database) -> SinkDatabase:
        databases.append(SinkDatabase(database))
        return databases[-1]

    yield create
    for bench in databases:
        for sink in bench.opened:
            sink.close()


@pytest.fixture
def sink_database(new_database: NewDatabase, new_sink_database: NewSinkDatabase) -> SinkDatabase:
    """Return an empty database."""
    return new_sink_database(new_database())
