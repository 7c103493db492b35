"""Sessions with early results, late events and retractions.

A session ends after 30 minutes without a click. Results should come sooner, so a pane fires early after every second
click, once at the end, and again for a click that comes late but within the allowed lateness. The accumulation mode
decides how a pane relates to earlier ones: it has all clicks again, only the new ones, or all of them after a
retraction of the earlier pane. With retractions, sums over panes stay right downstream, also when a late click merges
two sessions.

::

    event time   10:00    10:10               10:35          11:00    11:05
    arrives        1        2                   5              3        4
                   |------- session 1 -------| 10:40           |---- session 2 ----| 11:35
    5 is late:     |---------------------- one session: no gap of 30 minutes ------| 11:35

In Flink: ``EventTimeSessionWindows``, a ``Trigger`` written by hand, ``allowedLateness``; its DataStream API has no
retractions.
"""

from __future__ import annotations

import polars as pl

import streamcore as sc

CLICKS = sc.StreamSchema.parse(
    {
        "name": "clicks",
        "event_time": "at",
        "keys": [["user"]],
        "fields": {"at": "timestamp not null", "user": "string not null", "page": "string not null"},
    }
)

sessions = (
    sc.source(CLICKS, sc.bounded_out_of_orderness(0))
    .key_by("user")
    .window(sc.Session("30m"))
    .trigger(sc.AfterWatermark(early=sc.AfterCount(2), late=sc.AfterCount(1)))
    .allowed_lateness("1h")
)
PANES = ("user", "window_start", "window_end", "pane", "timing", "is_retraction", "clicks")
MODES = {
    "accumulating": sessions.accumulating(),
    "discarding": sessions.discarding(),
    "retracting": sessions.retracting(),
}
# One topology with all three modes. A sum downstream subtracts the clicks of a retraction.
panes = {mode: windows.aggregate(mode, clicks=sc.Count()) for mode, windows in MODES.items()}
signed = panes["retracting"].map(net=pl.when("is_retraction").then(-pl.col("clicks")).otherwise(pl.col("clicks")))
topology = sc.Topology(
    "sessions",
    *(pane.select(*PANES).sink(mode, key="user") for mode, pane in panes.items()),
    signed.select("user", "net").sink("net", key="user"),
)

ROWS = [
    ("2026-03-02 10:00:00", "ann", "/"),
    ("2026-03-02 10:10:00", "ann", "/mugs"),
    ("2026-03-02 11:00:00", "ann", "/"),
    ("2026-03-02 11:05:00", "ann", "/pay"),
    ("2026-03-02 10:35:00", "ann", "/mugs/7"),
]


def results() -> sc.SimulationResult:
    """Run one cut for each event."""
    return sc.simulate(topology, {"clicks": sc.event_table(CLICKS, ROWS)}, cut_rows=1)


if __name__ == "__main__":
    found = results()
    print(found.text("accumulating", "discarding", "retracting"))
    print(f"\nclicks by the sum of the retracting panes: {found['net']['net'].sum()}")
