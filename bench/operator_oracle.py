"""What the jobs must give, worked out by DuckDB over the generated numbers, and what a side gave, read from its topic.

Shares no code with the product. Amounts are in cents, times in epoch milliseconds.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

import duckdb
import orjson
import polars as pl

from bench.jobs import Job, Kind

_WINDOWS = """
    select "user", start, start + {size} as "end", sum({value}) as revenue, count(*) as orders
    from (select "user", {value}, unnest(range(ts - ts % {slide}, ts - {size}, -{slide})) as start from events)
    group by all"""
_SESSIONS = """
    select "user", min(ts) as start, max(ts) + {gap} as "end", sum({value}) as revenue, count(*) as orders
    from (select *, sum(begins) over (partition by "user" order by ts, number) as session
          from (select *, (ts - lag(ts) over (partition by "user" order by ts, number) {apart} {gap})::int as begins
                from events))
    group by "user", session"""
_TOTALS = """
    select "user", orders, revenue
    from (select "user", row_number() over w as orders, sum({value}) over w as revenue
          from events window w as (partition by "user" order by "offset" rows unbounded preceding))
    where orders % {every} = 0"""


def expected(job: Job, events: pl.DataFrame, *, watermark_ms: int, touching_merge: bool) -> pl.DataFrame:
    """The rows that must come out when the last watermark is ``watermark_ms``.

    ``touching_merge``: whether two events that are a whole gap apart are in one session.
    """
    sql = {Kind.WINDOWS: _WINDOWS, Kind.SESSIONS: _SESSIONS, Kind.PROCESS: _TOTALS}[job.kind].format(
        size=job.size_ms,
        slide=job.slide_ms,
        gap=job.gap_ms,
        every=job.every,
        value=job.value,
        apart=">" if touching_merge else ">=",
    )
    ended = "" if job.kind is Kind.PROCESS else f' where "end" <= {watermark_ms}'
    with duckdb.connect() as db:
        db.register("events", events.to_arrow())
        found = pl.from_arrow(db.sql(f"select * from ({sql}){ended}").to_arrow_table())
    assert isinstance(found, pl.DataFrame), "a table was asked for"
    return found.select(pl.col(columns(job)).cast(pl.Int64))


def columns(job: Job) -> list[str]:
    """Of both frames."""
    window = [] if job.kind is Kind.PROCESS else ["start", "end"]
    return ["user", *window, "orders", "revenue"]


def found(job: Job, values: Iterable[bytes | None]) -> pl.DataFrame:
    """The rows of a topic."""
    bodies = [orjson.loads(value or b"{}") for value in values]
    scale = 100 if job.value == "amount" else 1
    read = {
        "user": [int(body["user_id"][1:]) for body in bodies],
        "orders": [body["orders"] for body in bodies],
        "revenue": [round(float(body["revenue"]) * scale) for body in bodies],
    }
    if job.kind is not Kind.PROCESS:
        read |= {name: [_epoch_ms(body[name]) for body in bodies] for name in ("start", "end")}
    return pl.DataFrame(read, schema=dict.fromkeys(columns(job), pl.Int64))


def _epoch_ms(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1000)
