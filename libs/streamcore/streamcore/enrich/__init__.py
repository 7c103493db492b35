"""Enrichment: columns added to rows from a store outside, many look-ups at a time, with time-outs, retries and a cache.

Lives in stage 1 and is the one named exception to the law that an output is a pure function of the cut and the state: a
store answers with its content of the moment. The answers become part of the rows before anything decides on them.
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
