"""A place of a test's own for sinks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

from tests.harness.servers.postgres_table import Bench

if TYPE_CHECKING:
    from conftest import Database, NewDatabase

#: A database as a place for sinks, which are closed with the test.
NewPlace = Callable[["Database"], Bench]


@pytest.fixture
def new_place() -> Iterator[NewPlace]:
    made: list[Bench] = []

    def create(database: Database) -> Bench:
        made.append(Bench(database))
        return made[-1]

    yield create
    for bench in made:
        for sink in bench.opened:
            sink.close()


@pytest.fixture
def place(new_database: NewDatabase, new_place: NewPlace) -> Bench:
    """Return an empty database."""
    return new_place(new_database())
