"""A function over one key at a time: state, timers, time to live.

For logic that no window can express. State is declared on the class and read like attributes, always that of the
event's card. State with a time to live expires by itself, each element of a list on its own, so the list below has
the payments of the last ten minutes. A timer of event time fires when the watermark reaches it, in order of time,
so a back-test has the same rows as a live run.

::

    event time  10:00  10:04  10:06  10:08       10:16:30                     11:16:30
    card c1      200    250    100     30            450                        timer
                 |------ 550 in ten minutes: alarm        |----- an hour of silence --|
                               |--- 580: has alarmed already
                                       |------------ 480: the first payment has expired

In Flink: ``KeyedProcessFunction`` with ``ListState``, ``StateTtlConfig`` (there by processing time only) and timers.
"""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import polars as pl

import streamcore as sc

LIMIT = Decimal(500)

PAYMENTS = sc.StreamSchema.parse(
    {
        "name": "payments",
        "event_time": "at",
        "keys": [["card"]],
        "fields": {"at": "timestamp not null", "card": "string not null", "amount": "decimal(12,2) not null"},
    }
)


class Velocity(sc.ProcessFunction):
    """Alarms once when a card spends too much in ten minutes, and reports a card that is quiet for an hour."""

    outputs = {
        sc.MAIN: {"card": pl.String, "at": pl.Datetime("ms", "UTC"), "spent": pl.Decimal(12, 2)},
        "quiet": {"card": pl.String, "payments": pl.Int64},
    }
    recent = sc.ListState(Decimal, most=1_000, ttl=sc.Ttl("10m"))
    alarmed = sc.ValueState(default=False, ttl=sc.Ttl("10m"))
    payments = sc.ValueState(default=0)

    def process(self, event: Any, context: sc.ProcessContext) -> Iterator[dict[str, object]]:
        self.recent.append(event.amount)
        self.payments += 1
        context.timers.clear()
        context.timers.after("1h")
        spent = sum(self.recent)
        if spent > LIMIT and not self.alarmed:
            self.alarmed = True
            yield {"card": event.card, "at": event.at, "spent": spent}

    def on_timer(self, at_ms: int, context: sc.ProcessContext) -> None:
        context.side("quiet", {"card": context.key, "payments": self.payments})
        del self.payments


alarms = sc.source(PAYMENTS, sc.bounded_out_of_orderness(0)).key_by("card").process(Velocity(), name="velocity")
topology = sc.Topology("velocity", alarms.sink("alarms", key="card"), alarms.side("quiet").sink("quiet", key="card"))

ROWS = [
    ("2026-03-02 10:00:00", "c1", "200.00"),
    ("2026-03-02 10:00:30", "c2", "499.99"),
    ("2026-03-02 10:04:00", "c1", "250.00"),
    ("2026-03-02 10:06:00", "c1", "100.00"),
    ("2026-03-02 10:08:00", "c1", "30.00"),
    ("2026-03-02 10:16:30", "c1", "450.00"),
]


def results(cut_rows: int = 2) -> sc.SimulationResult:
    """Run the input in cuts; the rows do not depend on the division."""
    return sc.simulate(topology, {"payments": sc.event_table(PAYMENTS, ROWS)}, cut_rows=cut_rows)


if __name__ == "__main__":
    print(results().text())
