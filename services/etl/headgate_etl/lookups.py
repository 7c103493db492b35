"""Builds the enrichments that run the lookups of a document. A client is imported when a lookup needs it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import polars as pl

from headgate_etl.documents import LookupDocument, OnMissing, RedisValue
from streamcore.enrich import BatchLookupClient, Caching, Enrichment, LookupClient, LookupRetries, OnFailure


def enrichment(name: str, document: LookupDocument, adds: Mapping[str, pl.DataType]) -> Enrichment:
    """Build the enrichment that runs the lookup. ``adds``: the types of the added fields, by name."""
    return Enrichment(
        name,
        _client(document),
        key=(document.key,),
        columns=adds,
        concurrency=document.concurrency,
        timeout_ms=document.timeout_ms,
        retries=LookupRetries(document.attempts, document.pause_ms),
        cache=Caching(document.cache_entries, document.cache_ms, document.missing_cache_ms),
        failure_budget_ms=document.failure_budget_ms,
        on_failure=OnFailure.LANE if document.failed is OnMissing.DEAD_LETTER else OnFailure.NULL_COLUMNS,
    )


def _client(document: LookupDocument) -> Callable[[], LookupClient | BatchLookupClient]:
    if document.postgres is not None:
        from streamcore.enrich.postgres_lookup import PostgresLookup

        database = document.postgres
        return partial(
            PostgresLookup,
            database.host,
            database.port,
            database.database,
            database.user,
            database.query,
            document.adds,
            document.timeout_ms,
            database.password_file,
            database.password_env,
            database.sslmode.value,
            database.ca_file,
        )
    if document.redis is not None:
        from streamcore.enrich.redis_lookup import RedisLookup

        server = document.redis
        return partial(
            RedisLookup,
            server.host,
            server.port,
            server.database,
            server.record_key,
            document.adds,
            server.value is RedisValue.JSON,
            server.user,
            server.password_file,
            server.password_env,
            server.tls,
            server.ca_file,
        )
    from headgate_etl.http_lookup import JsonOverHttp

    assert document.url is not None, "the document is checked: it has one of the three"
    return partial(
        JsonOverHttp,
        document.url,
        document.concurrency,
        document.timeout_ms,
        document.max_response_bytes,
        document.token_file,
        document.ca_file,
        document.body,
        document.headers,
        document.secret_headers,
    )
