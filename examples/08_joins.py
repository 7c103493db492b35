"""Two joins: payments within an hour after their orders, and the price that was valid when the order was made.

An interval join pairs rows of a key that are near in event time; an outer join also returns the orders that were not
paid, as soon as the watermark makes that certain. A temporal join reads the other stream as a table that changes, and
takes the row that was valid at the order's event time: an order that arrives late still gets its old price. Both keep
only the rows that the watermark still needs.

::

    event time   08:00     10:00     10:05     10:20        11:00     11:05    11:30
    prices     mug 9.90              mug 10.90
    orders                   o1        o2
    payments                                     o1                              o2
                             |---- o1's hour: paid ----------|
                                       |---- o2's hour: not paid ------|

In Flink: ``intervalJoin`` (inner only in the DataStream API) and ``FOR SYSTEM_TIME AS OF`` in SQL.
"""

from __future__ import annotations

import polars as pl

import streamcore as sc


def stream(name: str, key: str, **fields: str) -> sc.StreamSchema:
    """All three have a time; the rest differs."""
    every = {"at": "timestamp not null", **fields}
    return sc.StreamSchema.parse({"name": name, "event_time": "at", "keys": [[key]], "fields": every})


ORDERS = stream("orders", "order", order="string not null", product="string not null", quantity="long not null")
PAYMENTS = stream("payments", "order", order="string not null", paid="decimal(12,2) not null")
PRICES = stream("prices", "product", product="string not null", price="decimal(12,2) not null")

orders = sc.source(ORDERS, sc.bounded_out_of_orderness("1m"))
payments = sc.source(PAYMENTS, sc.bounded_out_of_orderness("1m"))
prices = sc.source(PRICES, sc.bounded_out_of_orderness("1m"))

paid = orders.key_by("order").join(payments.key_by("order")).left_outer().within(0, "1h", name="paid")
priced = orders.key_by("product").join(prices.key_by("product")).left_outer().as_of_event_time(name="priced")
topology = sc.Topology(
    "orders",
    paid.select("order", pl.col("at_right").alias("paid_at"), "paid").sink("paid", key="order"),
    priced.map(amount=pl.col("price") * pl.col("quantity")).select("order", "product", "amount").sink("priced"),
)

INPUTS = {
    "orders": sc.event_table(
        ORDERS,
        [
            ("2026-03-02 10:00:00", "o1", "mug", 2),
            ("2026-03-02 10:05:00", "o2", "mug", 2),
            ("2026-03-02 10:10:00", "o3", "lamp", 1),  # a product without a price
        ],
    ),
    "payments": sc.event_table(
        PAYMENTS, [("2026-03-02 10:20:00", "o1", "19.80"), ("2026-03-02 11:30:00", "o2", "21.80")]
    ),
    "prices": sc.event_table(PRICES, [("2026-03-02 08:00:00", "mug", "9.90"), ("2026-03-02 10:05:00", "mug", "10.90")]),
}


def results() -> sc.SimulationResult:
    """Run everything in one cut; the order of arrival of the streams does not matter."""
    return sc.simulate(topology, INPUTS)


if __name__ == "__main__":
    print(results().text())
