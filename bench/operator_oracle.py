"""What the jobs must give, worked out by DuckDB over the generated numbers, and what a side gave, read from its topic.

Shares no code with the product. Amounts are in cents, times in epoch milliseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any

import duckdb
import orjson
import polars as pl

from bench.jobs import Job, Kind

_READ = 'select *, ts as "end" from events where {value} < 0'
_WINDOWS = """
    select "user", start, start + {size} as "end", sum({value}) as revenue, count(*) as orders
    from (select "user", {value}, unnest(range(ts - ts % {slide}, ts - {size}, -{slide})) as start from events)
    group by all"""
_SESSIONS = """
    select "user", min(ts) as start, max(ts) + {gap} as "end", sum({value}) as revenue, count(*) as orders
    from (select *, sum(begins::int) over (partition by "user" order by ts, number) as session
          from (select *, coalesce(ts - lag(ts) over w {apart} {gap}, true) as begins
                from events window w as (partition by "user" order by ts, number)))
    group by "user", session"""
_TOTALS = """
    select "user", orders, revenue
    from (select "user", row_number() over w as orders, sum({value}) over w as revenue
          from events window w as (partition by "user" order by "offset" rows unbounded preceding))
    where orders % {every} = 0"""

_SQL = {Kind.READ: _READ, Kind.WINDOWS: _WINDOWS, Kind.SESSIONS: _SESSIONS, Kind.PROCESS: _TOTALS}


def expected(job: Job, events: pl.DataFrame, *, watermark_ms: int, touching_merge: bool) -> pl.DataFrame:
    """The rows that must come out when the last watermark is ``watermark_ms``.

    ``touching_merge``: whether two events that are a whole gap apart are in one session.
    """
    sql = _SQL[job.kind].format(
        size=job.size_ms,
        slide=job.slide_ms,
        gap=job.gap_ms,
        every=job.every,
        value=job.value,
        apart=">" if touching_merge else ">=",
    )
    ended = f' where "end" <= {watermark_ms}' if job.kind in (Kind.WINDOWS, Kind.SESSIONS) else ""
    with duckdb.connect() as db:
        db.register("events", events.to_arrow())
        found = pl.from_arrow(db.sql(f"select * from ({sql}){ended}").to_arrow_table())
    assert isinstance(found, pl.DataFrame), "a table was asked for"
    return found.select(pl.col(columns(job)).cast(pl.Int64))


def columns(job: Job) -> list[str]:
    """Of both frames."""
    if job.kind is Kind.READ:
        return ["user"]
    window = [] if job.kind is Kind.PROCESS else ["start", "end"]
    return ["user", *window, "orders", "revenue"]


def found(job: Job, values: Iterable[bytes | None]) -> pl.DataFrame:
    """The rows of a topic."""
    bodies = [orjson.loads(value or b"{}") for value in values]
    scale = 100 if job.value == "amount" else 1
    readers: dict[str, Callable[[Any], int]] = {
        "user": lambda body: int(body["user_id"][1:]),
        "orders": lambda body: int(body["orders"]),
        "revenue": lambda body: round(float(body["revenue"]) * scale),
        "start": lambda body: _epoch_ms(body["start"]),
        "end": lambda body: _epoch_ms(body["end"]),
    }
    read = {name: [readers[name](body) for body in bodies] for name in columns(job)}
    return pl.DataFrame(read, schema=dict.fromkeys(columns(job), pl.Int64))


def _epoch_ms(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1000)
