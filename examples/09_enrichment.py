"""Lookups in an external store, and duplicate events.

An enrichment adds columns by asynchronous lookups: many at a time, with a time-out, retries and a cache; keys that
repeat within a cut are looked up once. Rows whose lookup failed for good go to their own lane with the reason,
and are also a side output, so that a topology can continue with a default. Deduplication passes the first event of an
id, for a horizon of event time.

::

    events --> enrich by customer --> by event id: the first within a day --> lane "orders"
                   |  failed: segment "unknown" --^          |
                   '--> lane "unanswered"                    '--> lane "duplicates"

In Flink: ``AsyncDataStream.unorderedWait`` with a cache of your own, and a ``ValueState`` with TTL per id.
"""

from __future__ import annotations

import asyncio

import polars as pl

import streamcore as sc

ORDERS = sc.StreamSchema.parse(
    {
        "name": "orders",
        "event_time": "at",
        "keys": [["event_id"]],
        "fields": {
            "at": "timestamp not null",
            "event_id": "string not null",
            "customer": "string not null",
            "amount": "decimal(12,2) not null",
        },
    }
)


class Customers:
    """The client of a store, here a dictionary. A real one opens a pool of connections in ``open``."""

    KNOWN = {"ann": "gold", "bob": "new"}

    async def open(self) -> None:
        """Open the client: called once, in the worker."""

    async def get(self, key: sc.Key) -> sc.Answer:
        await asyncio.sleep(0)  # where a real one waits
        if key == "eve":
            raise ConnectionError("the store is away")  # tried again, then the row has failed
        return {"segment": self.KNOWN[str(key)]} if key in self.KNOWN else None  # None: there is no such customer

    async def close(self) -> None:
        """Close the client: called at the end."""


SEGMENTS = sc.Enrichment(
    "segments",
    Customers,
    key=("customer",),
    columns={"segment": pl.String()},
    retries=sc.LookupRetries(attempts=2, pause_ms=1),
    cache=sc.Caching(max_entries=10_000, found_ttl_ms=60_000),
)
enriched = sc.source(ORDERS).enrich(SEGMENTS, failed_to="unanswered")
fallback = enriched.side("failed").map(segment=pl.lit("unknown")).select(*enriched.schema)
once = enriched.union(fallback).key_by("event_id").deduplicate("1d", name="once", duplicates_to="duplicates")
topology = sc.Topology(
    "segments", once.select("event_id", "customer", "segment", "amount").sink("orders", key="event_id")
)

ROWS = [
    ("2026-03-02 10:00:00", "e1", "ann", "20.00"),
    ("2026-03-02 10:00:04", "e2", "zoe", "5.00"),  # an unknown customer: the segment is null
    ("2026-03-02 10:00:05", "e1", "ann", "20.00"),  # sent again
    ("2026-03-02 10:00:09", "e3", "eve", "7.50"),  # the lookup fails
    ("2026-03-02 10:00:12", "e4", "bob", "9.99"),
]


def results() -> sc.SimulationResult:
    """Run one cut: rows whose lookup failed come after the others."""
    return sc.simulate(topology, {"orders": sc.event_table(ORDERS, ROWS)})


if __name__ == "__main__":
    found = results()
    print(found.text("orders", "duplicates", "unanswered"))
    print()
    print("\n".join(f"{name} {count}" for name, count in sorted(found.counters.items())))
