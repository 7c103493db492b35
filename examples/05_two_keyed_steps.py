"""Two keyed steps: the best three products of each hour, and the plan of the engine.

The first step computes the revenue of each product and hour, the second the best three products of each hour. The
second window needs no extra step: a result row of a window has the window's last millisecond as its event time, so
it falls into the same hour. Each change of the key is one shuffle and one stage with its own state, and the plan
shows them before the app runs.

::

    orders --(by product)--> revenue of the hour --(all)--> top 3 of the hour --> lane "top"
             stage 1                               stage 2

In Flink: ``keyBy.window.aggregate`` and then ``windowAll`` with a ``ProcessAllWindowFunction``.
"""

from __future__ import annotations

import polars as pl

import streamcore as sc

ORDERS = sc.StreamSchema.parse(
    {
        "name": "orders",
        "event_time": "at",
        "keys": [["product"]],
        "fields": {
            "at": "timestamp not null",
            "product": "string not null",
            "price": "decimal(10,2) not null",
            "quantity": "long not null",
        },
    }
)


def a_row_each(rows: pl.DataFrame) -> pl.DataFrame:
    """From a list of structs to rows with a rank. Columns that begin with ``__`` are the engine's; they stay."""
    return rows.with_columns(rank=pl.int_ranges(1, pl.col("top").list.len() + 1)).explode("top", "rank").unnest("top")


revenue = (
    sc.source(ORDERS, sc.bounded_out_of_orderness("1m"))
    .map(amount=pl.col("price") * pl.col("quantity"))
    .key_by("product")
    .window(sc.Tumbling("1h"))
    .aggregate("revenue", revenue=sc.Sum("amount"))
)
top = revenue.key_by().window(sc.Tumbling("1h")).aggregate("best", top=sc.TopN("product", by="revenue", n=3))
topology = sc.Topology(
    "top-products",
    top.flat_map(a_row_each).select("window_start", "rank", "product", "revenue").sink("top"),
)

ROWS = [
    ("2026-03-02 10:02:00", "mug", "9.90", 2),
    ("2026-03-02 10:05:00", "lamp", "45.00", 1),
    ("2026-03-02 10:20:00", "chair", "129.00", 1),
    ("2026-03-02 10:21:00", "sticker", "0.10", 30),
    ("2026-03-02 10:59:59", "mug", "9.90", 3),
    ("2026-03-02 11:00:00", "sticker", "0.10", 10),
    ("2026-03-02 11:30:00", "mug", "9.90", 1),
]


def results(shards: int = 1) -> sc.SimulationResult:
    """Return the best products; the number of shards changes only where they are computed."""
    return sc.simulate(topology, {"orders": sc.event_table(ORDERS, ROWS)}, shards=shards)


if __name__ == "__main__":
    print(topology.text())
    print(topology.plan().text())
    print(topology.mermaid())
    print(results().text())
