"""Sliding windows and several aggregates at once.

A window of ten minutes that starts every five: each request is in two windows. The aggregates of one window are named
columns, computed together in one pass; slices of five minutes are stored once and shared by the windows that overlap,
so a window that slides often does not cost more state. Sketches (here quantiles) merge like sums do.

::

    10:00            10:05            10:10            10:15
      |---------------- window 1 --------|
                       |---------------- window 2 --------|
      |                |                 |                |
      r1  r2  r3       r4  r5            r6               r7

In Flink: ``SlidingEventTimeWindows`` with one ``AggregateFunction`` that computes everything by hand.
"""

from __future__ import annotations

import streamcore as sc

REQUESTS = sc.StreamSchema.parse(
    {
        "name": "requests",
        "event_time": "at",
        "keys": [["service"]],
        "fields": {
            "at": "timestamp not null",
            "service": "string not null",
            "path": "string not null",
            "customer": "string",
            "took_ms": "long not null",
        },
    }
)

latency = (
    sc.source(REQUESTS, sc.bounded_out_of_orderness("10s"))
    .key_by("service")
    .window(sc.Sliding("10m", "5m"))
    .aggregate(
        requests=sc.Count(),
        customers=sc.CountDistinct("customer"),  # nulls are not counted
        p50_max=sc.Quantiles("took_ms", (0.5, 1.0)),
        worst_ms=sc.Max("took_ms"),
        slowest=sc.TopN("path", by="took_ms", n=2),
    )
)
topology = sc.Topology(
    "latency",
    latency.select("window_start", "requests", "customers", "p50_max", "worst_ms", "slowest").sink("latency"),
)

ROWS = [
    ("2026-03-02 10:01:00", "api", "/cart", "ann", 40),
    ("2026-03-02 10:02:30", "api", "/search", "bob", 310),
    ("2026-03-02 10:04:59", "api", "/cart", "ann", 35),
    ("2026-03-02 10:05:00", "api", "/pay", None, 900),
    ("2026-03-02 10:09:10", "api", "/cart", "cid", 50),
    ("2026-03-02 10:12:00", "api", "/search", "ann", 280),
    ("2026-03-02 10:15:00", "api", "/cart", "bob", 45),
]


def results() -> sc.SimulationResult:
    """Return a row for each window: from 09:55, the first that holds r1, to 10:15, the last that holds r7."""
    return sc.simulate(topology, {"requests": sc.event_table(REQUESTS, ROWS)})


if __name__ == "__main__":
    print(results().text())
