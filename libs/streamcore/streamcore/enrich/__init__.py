"""Enrichment: columns added to rows from a store outside the app, by concurrent lookups with retries and a cache.

Enrichment runs before rows are sent to shards. It is the only exception to the rule that output is a pure function of
the cut and the state: a store answers with its present content. Answers are columns of the rows before they reach a
kernel.
"""

from streamcore.enrich.enricher import EnrichedRows, Enricher
from streamcore.enrich.enricher_pool import close_shared_enrichers, shared_enricher
from streamcore.enrich.spec import (
    ATTEMPTS,
    REASON,
    Answer,
    BatchLookupClient,
    Caching,
    Enrichment,
    Key,
    LookupClient,
    LookupRetries,
    OnFailure,
    ResultOrder,
)

__all__ = [
    "ATTEMPTS",
    "REASON",
    "Answer",
    "BatchLookupClient",
    "Caching",
    "EnrichedRows",
    "Enricher",
    "Enrichment",
    "Key",
    "LookupClient",
    "LookupRetries",
    "OnFailure",
    "ResultOrder",
    "close_shared_enrichers",
    "shared_enricher",
]
