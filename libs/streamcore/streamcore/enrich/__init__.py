"""Enrichment: columns added to rows from a store outside, many look-ups at a time, with time-outs, retries and a cache.

Lives in stage 1 and is the one named exception to the law that an output is a pure function of the cut and the state: a
store answers what it holds at the moment. What it answered becomes part of the rows before anything decides on them.
"""

from streamcore.enrich.kept import close_kept, kept
from streamcore.enrich.runner import Enriched, Enricher
from streamcore.enrich.values import (
    ATTEMPTS,
    REASON,
    Answer,
    BatchLookUp,
    Caching,
    Enrichment,
    Key,
    LookUp,
    OnFailure,
    Order,
    Retries,
)

__all__ = [
    "ATTEMPTS",
    "REASON",
    "Answer",
    "BatchLookUp",
    "Caching",
    "Enriched",
    "Enricher",
    "Enrichment",
    "Key",
    "LookUp",
    "OnFailure",
    "Order",
    "Retries",
    "close_kept",
    "kept",
]
