"""Limits that change while the app runs: control records, broadcast to every shard.

Limits by country come over the app's control topic. Every shard gets every record and keeps it in broadcast state,
before it sees the events of the same cut, so the same limits apply to all events of a cut, on every shard. An
invalid record is a dead letter with the reason, and the previous limit stays in force.

::

    cut           1                2                 3                  4
    control   FR = 100.00      FR = 50.00        FR = "lots"        FR deleted
    payment       p1  80           p2  80            p3  80             p4  80
                  passes          rejected     rejected: still 50.00      passes: no limit

In Flink: ``connect`` with a ``BroadcastStream`` and a ``KeyedBroadcastProcessFunction``, where the order of the two
sides is not defined and differs from run to run.
"""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import polars as pl

import streamcore as sc

PAYMENTS = sc.StreamSchema.parse(
    {
        "name": "payments",
        "event_time": "at",
        "keys": [["card"]],
        "fields": {
            "at": "timestamp not null",
            "payment": "string not null",
            "card": "string not null",
            "country": "string not null",
            "amount": "decimal(12,2) not null",
        },
    }
)


class Limits(sc.ProcessFunction):
    """Payments above the limit of their country."""

    outputs = {sc.MAIN: {"payment": pl.String, "amount": pl.Decimal(12, 2), "above": pl.Decimal(12, 2)}}

    def process_control(self, record: Any, context: sc.ProcessContext) -> None:
        if record.value is None:
            context.broadcast.pop(record.key, None)
        else:
            context.broadcast[record.key] = Decimal(record.value)  # raises on "lots": a dead letter

    def process(self, event: Any, context: sc.ProcessContext) -> Iterator[dict[str, object]]:
        limit = context.broadcast.get(event.country)
        if isinstance(limit, Decimal) and event.amount > limit:
            yield {"payment": event.payment, "amount": event.amount, "above": limit}


rejected = sc.source(PAYMENTS).key_by("card").connect(sc.control_stream()).process(Limits(), name="limits")
topology = sc.Topology("limits", rejected.sink("rejected", key="payment"))

CUTS: list[tuple[dict[str, bytes | None], tuple[str, ...]]] = [
    ({"FR": b"100.00"}, ("2026-03-02 10:00:00", "p1", "c1", "FR", "80.00")),
    ({"FR": b"50.00"}, ("2026-03-02 10:01:00", "p2", "c1", "FR", "80.00")),
    ({"FR": b"lots"}, ("2026-03-02 10:02:00", "p3", "c2", "FR", "80.00")),
    ({"FR": None}, ("2026-03-02 10:03:00", "p4", "c2", "FR", "80.00")),
]


def results() -> sc.SimulationResult:
    """Run cuts that this program makes itself, so it is fixed which payments meet which limits."""
    simulation, result = sc.Simulation(topology), sc.SimulationResult()
    for records, payment in CUTS:
        result.add(simulation.cut({"payments": sc.event_table(PAYMENTS, [payment])}, control=records))
    return result


if __name__ == "__main__":
    print(results().text())
