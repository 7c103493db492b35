"""Tumbling windows, watermarks and late events.

Event time is the time in the events, and the watermark follows it: the latest time seen, less the disorder that is
allowed (5 seconds here). A window fires when the watermark reaches its end, so disorder within the bound changes
nothing. An event whose window has fired is late: it goes to the lane ``late`` with the reason.

::

    event time     10:00            10:01            10:02
                     |--- window 1 ---|--- window 2 ---|
    arrives 1        . a 10:00:10     |                |      watermark 10:00:05
            2        |     b 10:00:58 |                |                10:00:53
            3        |                | c 10:01:03     |                10:00:58
            4        |    d 10:00:59  |                |      in time: window 1 is still open
            5        |                |   e 10:01:07   |                10:01:02, window 1 fires: a, b, d
            6        |   f 10:00:50   |                |      late: window 1 has fired

The watermark moves between cuts (micro-batches), never within one: here a cut holds one event. In Flink:
``forBoundedOutOfOrderness``, ``TumblingEventTimeWindows``, ``sideOutputLateData``.
"""

from __future__ import annotations

import streamcore as sc

ORDERS = sc.StreamSchema.parse(
    {
        "name": "orders",
        "event_time": "at",
        "keys": [["shop"]],
        "fields": {
            "at": "timestamp not null",
            "shop": "string not null",
            "order": "string not null",
            "amount": "decimal(12,2) not null",
        },
    }
)

revenue = (
    sc.source(ORDERS, sc.bounded_out_of_orderness("5s"))
    .key_by("shop")
    .window(sc.Tumbling("1m"))
    .late_to("late")
    .aggregate(orders=sc.Count(), revenue=sc.Sum("amount"))
)
topology = sc.Topology(
    "revenue",
    revenue.select("shop", "window_start", "window_end", "orders", "revenue").sink("revenue", key="shop"),
)

ROWS = [
    ("2026-03-02 10:00:10", "Lyon", "a", "20.00"),
    ("2026-03-02 10:00:58", "Lyon", "b", "5.50"),
    ("2026-03-02 10:01:03", "Lyon", "c", "8.00"),
    ("2026-03-02 10:00:59", "Lyon", "d", "1.25"),
    ("2026-03-02 10:01:07", "Lyon", "e", "4.00"),
    ("2026-03-02 10:00:50", "Lyon", "f", "99.00"),
]


def results() -> sc.SimulationResult:
    """Run one cut for each event; then the stream ends, and with it every window."""
    return sc.simulate(topology, {"orders": sc.event_table(ORDERS, ROWS)}, cut_rows=1)


if __name__ == "__main__":
    print(results().text())
