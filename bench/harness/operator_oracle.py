"""Computes the expected rows of a job with DuckDB over the generated numbers, and reads the rows that a side wrote.

Shares no code with the product. Amounts are in cents, times in epoch milliseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any

import duckdb
import orjson
import polars as pl

from bench.harness.jobs import Job, Kind

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

#: Types are 0 view, 2 cart_add, 4 checkout, 5 payment, 6 refund; statuses 7 and 8 are failures.
_ANALYTICS = """
    with marked as (
        select *, case when status not in (7, 8) then type end as step,
               coalesce(ts - lag(ts) over w {apart} {gap}, true) as begins
        from events window w as (partition by "user" order by ts, number)
    ), numbered as (
        select *, sum(begins::int) over (partition by "user" order by ts, number) as session,
               case step when 5 then amount when 6 then -amount end as money
        from marked
    ), one as (
        select *, min(ts) filter (step = 0) over (partition by "user", session) as t1 from numbered
    ), two as (
        select *, min(ts) filter (step = 2 and ts >= t1) over (partition by "user", session) as t2 from one
    ), three as (
        select *, min(ts) filter (step = 4 and ts >= t2) over (partition by "user", session) as t3 from two
    ), four as (
        select *, min(ts) filter (step = 5 and ts >= t3) over (partition by "user", session) as t4 from three
    )
    select "user", min(ts) as start, max(ts) + {gap} as "end", coalesce(sum(money), 0) as revenue, count(*) as orders,
           count(distinct merchant) as pages, coalesce(arg_min(merchant, (ts, merchant)), -1) as first_page,
           coalesce(arg_max(merchant, (ts, merchant)), -1) as last_page,
           (count(*) filter (step = 5) > 0)::int as converted,
           any_value((t1 is not null)::int + (t2 is not null)::int + (t3 is not null)::int + (t4 is not null)::int)
           as funnel_step
    from four group by "user", session"""

_SQL = {
    Kind.READ: _READ,
    Kind.WINDOWS: _WINDOWS,
    Kind.SESSIONS: _SESSIONS,
    Kind.ANALYTICS: _ANALYTICS,
    Kind.PROCESS: _TOTALS,
}


_ENDING = (Kind.WINDOWS, Kind.SESSIONS, Kind.ANALYTICS)


def expected_rows(job: Job, events: pl.DataFrame, *, watermark_ms: int, touching_merge: bool) -> pl.DataFrame:
    """Return the expected rows when the last watermark is ``watermark_ms``.

    ``touching_merge``: whether two events that are exactly a gap apart are in one session.
    """
    sql = _SQL[job.kind].format(
        size=job.size_ms,
        slide=job.slide_ms,
        gap=job.gap_ms,
        every=job.every,
        value=job.value,
        apart=">" if touching_merge else ">=",
    )
    ended = f' where "end" <= {watermark_ms}' if job.kind in _ENDING else ""
    with duckdb.connect() as db:
        db.register("events", events.to_arrow())
        rows = pl.from_arrow(db.sql(f"select * from ({sql}){ended}").to_arrow_table())
    assert isinstance(rows, pl.DataFrame), "a table is a frame"
    return rows.select(pl.col(columns(job)).cast(pl.Int64))


def columns(job: Job) -> list[str]:
    """Return the names of the columns of the expected and of the written rows."""
    if job.kind is Kind.READ:
        return ["user"]
    window = [] if job.kind is Kind.PROCESS else ["start", "end"]
    more = ["pages", "first_page", "last_page", "converted", "funnel_step"] if job.kind is Kind.ANALYTICS else []
    return ["user", *window, "orders", "revenue", *more]


def read_rows(job: Job, values: Iterable[bytes | None]) -> pl.DataFrame:
    """Decode the JSON rows that a side wrote, as integers: amounts in cents, times in epoch milliseconds."""
    bodies = [orjson.loads(value or b"{}") for value in values]
    scale = 100 if job.value == "amount" else 1
    readers: dict[str, Callable[[Any], int]] = {
        "user": lambda body: int(body["user_id"][1:]),
        "orders": lambda body: int(body["orders"]),
        "revenue": lambda body: round(float(body["revenue"]) * scale),
        "start": lambda body: _epoch_ms(body["start"]),
        "end": lambda body: _epoch_ms(body["end"]),
        "pages": lambda body: int(body["pages"]),
        "first_page": lambda body: _page(body, "first_page"),
        "last_page": lambda body: _page(body, "last_page"),
        "converted": lambda body: int(body["converted"]),
        "funnel_step": lambda body: int(body["funnel_step"]),
    }
    read = {name: [readers[name](body) for body in bodies] for name in columns(job)}
    return pl.DataFrame(read, schema=dict.fromkeys(columns(job), pl.Int64))


def _page(body: Mapping[str, Any], name: str) -> int:
    """Return the number of a merchant, and -1 for null. Spark omits null fields."""
    return int(body[name][1:]) if body.get(name) else -1


def _epoch_ms(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1000)
