"""Sinks on a real server: each test has an app and an alias of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headgate.local.servers.opensearch import EmbeddedOpenSearch
from tests.harness.servers.search_index import SearchIndex, index_on


@pytest.fixture
def search_index(opensearch: EmbeddedOpenSearch) -> Iterator[SearchIndex]:
    """On the shared server; its indexes are deleted with the test."""
    one = index_on(opensearch)
    yield one
    one.ask("DELETE", f"/{one.alias}-0*")
