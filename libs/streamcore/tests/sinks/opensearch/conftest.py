"""Sinks on a real server: each test has an app and an alias of its own."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.harness.servers.search_index import SearchIndex, index_at

#: The address of an Elasticsearch: the tests run on it, instead of the shared OpenSearch, if it is set.
ELASTICSEARCH = "HEADGATE_ELASTICSEARCH_URL"


@pytest.fixture
def search_index(request: pytest.FixtureRequest) -> Iterator[SearchIndex]:
    """On the shared server; its indexes are deleted with the test."""
    url = os.environ.get(ELASTICSEARCH) or request.getfixturevalue("opensearch").url
    one = index_at(url)
    yield one
    one.ask("DELETE", f"/{one.alias}-0*")
