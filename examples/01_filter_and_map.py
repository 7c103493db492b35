"""Stateless ETL: filter, map, sink.

A topology is a value: streams, steps that give new streams, and sinks that end in lanes. Steps are Polars expressions
over whole columns, money is a decimal, and nothing is rounded on the way. A row on which a step fails (here a price
that is not a number) becomes a dead letter with the reason; the other rows are not affected.

In Flink: ``filter``, ``map`` and ``sinkTo`` of a ``DataStream``. The dead letter would be a side output and a
``try``/``catch`` in every function; here the engine does it.
"""

from __future__ import annotations

import polars as pl

import streamcore as sc

# A partner sends prices as text. The schema lists the fields of an event; "not null" is checked before the first step.
LINES = sc.StreamSchema.parse(
    {
        "name": "lines",
        "event_time": "at",
        "keys": [["order"]],
        "fields": {
            "at": "timestamp not null",
            "order": "string not null",
            "product": "string not null",
            "price": "string",
            "quantity": "long not null",
        },
    }
)

PRICE = pl.col("price").str.strip_chars().cast(pl.Decimal(12, 2))  # strict: it fails on "n/a"

amounts = (
    sc.source(LINES)
    .filter(pl.col("quantity") > 0)
    .map(amount=PRICE * pl.col("quantity"))
    .select("order", "product", "quantity", "amount")
)
topology = sc.Topology(
    "amounts",
    amounts.sink("amounts", key="order"),
    amounts.filter(pl.col("amount") >= 100).sink("large"),  # a stream may be used twice
)

ROWS = [
    ("2026-03-02 10:00:00", "o1", "mug", "9.90", 3),
    ("2026-03-02 10:00:01", "o1", "sticker", "0.10", 3),  # 0.1 + 0.1 + 0.1 is 0.30, to the last digit
    ("2026-03-02 10:00:05", "o2", "lamp", "n/a", 1),  # the dead letter
    ("2026-03-02 10:00:09", "o3", "chair", " 129.00 ", 1),
    ("2026-03-02 10:00:12", "o3", "chair", "129.00", 0),  # filtered
]


def results() -> sc.SimulationResult:
    """Run everything in one cut."""
    return sc.simulate(topology, {"lines": sc.event_table(LINES, ROWS)})


if __name__ == "__main__":
    print(topology.text())
    print(results().text())
