"""Two streams in one function: orders and their payments, with shared state and a timer.

Both streams have the order as their key, so an order and its payments meet in one state. An order that is paid in full
comes out once, whichever arrives first; one that is not paid an hour later is a side output, with what is missing. A
payment without an order waits for it, and is reported when it does not come.

::

    event time  10:00   10:05   10:10   10:20   10:30   10:40   ...   11:20           11:30           11:40
    orders       o1      o2                      o4
    payments                    o1 20   o2 5            o3 7
                                paid                                  (timers)
                                                                       o2 lacks 7.50   o4 lacks 9.00   o3: no order

In a cut, the rows of a key are processed in the order of their event times, as far as each stream is in order. So a
backlog of both topics, read in one cut, gives what it gave live. (In Flink the order of the two inputs is not defined.)

In Flink: ``connect`` of two keyed streams and a ``KeyedCoProcessFunction``.
"""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import polars as pl

import streamcore as sc

HOUR_MS = 3_600_000
MONEY = pl.Decimal(12, 2)


def schema(name: str) -> sc.StreamSchema:
    fields = {"at": "timestamp not null", "order": "string not null", "amount": "decimal(12,2) not null"}
    return sc.StreamSchema.parse({"name": name, "event_time": "at", "keys": [["order"]], "fields": fields})


ORDERS, PAYMENTS = schema("orders"), schema("payments")


class Match(sc.CoProcessFunction):
    """Adds up what an order costs and what is paid for it."""

    outputs = {
        sc.MAIN: {"order": pl.String, "amount": MONEY, "payments": pl.List(MONEY)},
        "unpaid": {"order": pl.String, "missing": MONEY},
        "unknown": {"order": pl.String, "paid": MONEY},
    }
    cost = sc.ValueState(MONEY)
    payments = sc.ListState(Decimal, most=100)

    def process1(self, order: Any, context: sc.ProcessContext) -> Iterator[dict[str, object]]:
        self.cost = order.amount
        return self.settle(context)

    def process2(self, payment: Any, context: sc.ProcessContext) -> Iterator[dict[str, object]]:
        self.payments.append(payment.amount)
        return self.settle(context)

    def settle(self, context: sc.ProcessContext) -> Iterator[dict[str, object]]:
        context.timers.clear()
        if self.cost is not None and sum(self.payments) >= self.cost:
            yield {"order": context.key, "amount": self.cost, "payments": list(self.payments)}
            self.forget()
        else:
            context.timers.set(context.event_ms + HOUR_MS)

    def on_timer(self, at_ms: int, context: sc.ProcessContext) -> None:
        paid = sum(self.payments, Decimal(0))
        if self.cost is None:
            context.side("unknown", {"order": context.key, "paid": paid})
        else:
            context.side("unpaid", {"order": context.key, "missing": self.cost - paid})
        self.forget()

    def forget(self) -> None:
        del self.cost
        self.payments.clear()


orders = sc.source(ORDERS, sc.bounded_out_of_orderness(0)).key_by("order")
payments = sc.source(PAYMENTS, sc.bounded_out_of_orderness(0)).key_by("order")
matched = orders.connect(payments).process(Match(), name="match")
topology = sc.Topology(
    "matching",
    matched.sink("paid", key="order"),
    matched.side("unpaid").sink("unpaid", key="order"),
    matched.side("unknown").sink("unknown", key="order"),
)

ORDER_ROWS = [
    ("2026-03-02 10:00:00", "o1", "20.00"),
    ("2026-03-02 10:05:00", "o2", "12.50"),
    ("2026-03-02 10:30:00", "o4", "9.00"),
]
PAYMENT_ROWS = [
    ("2026-03-02 10:10:00", "o1", "20.00"),
    ("2026-03-02 10:20:00", "o2", "5.00"),
    ("2026-03-02 10:40:00", "o3", "7.00"),
]


def results(cut_rows: int = 2, shards: int = 1) -> sc.SimulationResult:
    """Run both streams in cuts; the rows do not depend on the division."""
    inputs = {"orders": sc.event_table(ORDERS, ORDER_ROWS), "payments": sc.event_table(PAYMENTS, PAYMENT_ROWS)}
    return sc.simulate(topology, inputs, cut_rows=cut_rows, shards=shards)


if __name__ == "__main__":
    print(results().text())
