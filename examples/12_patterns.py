"""Patterns: events of a card that follow one another, compared with each other.

A thief tries a stolen card with small payments that grow, and then pays a large sum. The pattern is a value: steps with
their contiguity (``followed_by``), quantifiers (``times_or_more``, ``greedy``) and conditions. A condition over earlier
events (``matched``) is one on a partial match. Events are looked at in order of event time, whatever the order of their
arrival, and a partial match whose time is over can be had as well.

::

    event time  10:00  10:01  10:02  10:03      10:04         10:05  10:06            10:30
    card c1       1      3             9         480
                 |- grows, grows, grows -|- over 20 times the last: a match
    card c2                     5                    2 (less)
                              |------------- nothing larger follows: its time is over ----|

In Flink: ``CEP.pattern(stream, pattern)`` with ``IterativeCondition``, ``AfterMatchSkipStrategy`` and a side output of
``TimedOutPartialMatchHandler``.
"""

from __future__ import annotations

import polars as pl

import streamcore as sc

PAYMENTS = sc.StreamSchema.parse(
    {
        "name": "payments",
        "event_time": "at",
        "keys": [["card"]],
        "fields": {"at": "timestamp not null", "card": "string not null", "amount": "long not null"},
    }
)

tried = sc.matched("tried")
pattern = (
    sc.Pattern.begin("tried", sc.skip_past_last_event())
    .where(pl.col("amount") < 20)
    .where((tried.count() == 0) | (sc.candidate("amount") > tried.last("amount")))
    .times_or_more(2)
    .greedy()
    .followed_by("paid")
    .where(sc.candidate("amount") > 20 * tried.last("amount"))
    .within("15m")
)

stolen = (
    sc.source(PAYMENTS, sc.bounded_out_of_orderness("1m"))
    .key_by("card")
    .pattern(pattern)
    .timed_out_to("given_up")
    .select("stolen", tries=tried.count(), tried=tried.sum("amount"), paid=sc.matched("paid").last("amount"))
)
topology = sc.Topology("stolen-cards", stolen.sink("stolen", key="card"))

ROWS = [
    ("2026-03-02 10:00:00", "c1", 1),
    ("2026-03-02 10:02:00", "c2", 5),
    ("2026-03-02 10:03:00", "c1", 9),
    ("2026-03-02 10:02:30", "c1", 3),
    ("2026-03-02 10:04:00", "c1", 480),
    ("2026-03-02 10:05:00", "c2", 2),
    ("2026-03-02 10:30:00", "c3", 100),
]


def results(cut_rows: int = 2) -> sc.SimulationResult:
    """Run the input in cuts; the rows do not depend on the division."""
    return sc.simulate(topology, {"payments": sc.event_table(PAYMENTS, ROWS)}, cut_rows=cut_rows)


if __name__ == "__main__":
    print(results().text())
