"""The same topology on Kafka and Spark, and state that outlives a process.

``topology.app`` binds streams and lanes to topics; ``headgate run`` runs the app on Spark until it is stopped, and each
event counts exactly once in its output, through restarts too. Nothing of the topology changes between a test in
this process and that: the same operators, shards and state. So a restart can be tried here: the state after cut 1 is a
few blobs, another simulation continues from them, and both together give the output of an uninterrupted one.

::

    one process       cut 1 -------- cut 2      ->  revenue
    with a restart    cut 1 --+
                            blobs
                              +----- cut 2      ->  the same revenue

To run it on Kafka and Spark, with a broker and topics on this machine::

    headgate run examples/10_kafka_and_spark.py --local

In Flink: ``KafkaSource``, ``KafkaSink`` with ``EXACTLY_ONCE``, checkpoints, and restoring a savepoint.
"""

from __future__ import annotations

import polars as pl

import streamcore as sc

ORDERS = sc.StreamSchema.parse(
    {
        "name": "orders",
        "event_time": "at",
        "keys": [["country"]],
        "fields": {
            "at": "timestamp not null",
            "country": "string not null",
            "amount": "decimal(12,2) not null",
        },
    }
)
orders = sc.source(ORDERS, sc.bounded_out_of_orderness("1m"))
by_hour = orders.key_by("country").window(sc.Tumbling("1h")).late_to("late")
revenue = by_hour.aggregate("revenue", orders=sc.Count(), revenue=sc.Sum("amount"))
topology = sc.Topology(
    "revenue",
    revenue.select("country", "window_start", "orders", "revenue").sink("revenue", key="country"),
    orders.filter(pl.col("amount") >= 1_000).sink("large", key="country"),
)

CUTS = [
    [("2026-03-02 10:10:00", "FR", "20.00"), ("2026-03-02 10:20:00", "DE", "1500.00")],
    [("2026-03-02 10:50:00", "FR", "0.10"), ("2026-03-02 11:30:00", "FR", "7.00")],
    [("2026-03-02 10:59:00", "DE", "5.00"), ("2026-03-02 12:30:00", "DE", "9.00")],
]


def app(topic: str = "shop.orders") -> sc.App:
    """Lanes without a topic of their own get the topology's name and theirs: ``revenue.late``."""
    return topology.app(topics={"orders": topic}, lanes={"revenue": "shop.revenue"}, shards=4)


def results(restart_before: int | None = None) -> sc.SimulationResult:
    """Run all cuts; before one of them another process may take over with nothing but the blobs."""
    simulation, result = sc.Simulation(topology, shards=4), sc.SimulationResult()
    for number, rows in enumerate(CUTS):
        if number == restart_before:
            simulation = sc.Simulation(topology, shards=4, blobs=simulation.blobs)
        result.add(simulation.cut({"orders": sc.event_table(ORDERS, rows)}))
    return result


def main() -> None:
    print(topology.plan().text())
    print(f"reads {[one.topic for one in app().sources]} and {app().control_topic}, with {app().shards} shards")
    print("\n".join(f"lane {lane} -> topic {topic}" for lane, topic in app().lanes.items()), end="\n\n")
    print(results().text())
    print("\na restart changes nothing:", results(restart_before=1).text() == results().text())


if __name__ == "__main__":
    main()
