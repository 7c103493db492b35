"""What the sessions must be: SQL in DuckDB over the events, and funnels in plain Python. No import of the product.

Times are epoch milliseconds, money is in hundredths.
"""

from __future__ import annotations

from collections.abc import Sequence

import duckdb
import polars as pl

FUNNEL = ("view", "cart_add", "checkout", "payment")
Row = tuple[object, ...]

_SESSIONS = """
    with gaps as (
        select distinct on (event_id) event_id, user_id, epoch_ms(ts) as ms, product_id as page,
               case when type = 'checkout' then {long} else {short} end as gap,
               case when coalesce(status, 'ok') in ('declined', 'failed') then null else type end as step,
               case when step = 'payment' then cast(amount * 100 as bigint)
                    when step = 'refund' then -cast(amount * 100 as bigint) end as money
        from events where user_id is not null
    ), reached as (
        select *, max(ms + gap) over (partition by user_id order by ms, event_id
                                      rows between unbounded preceding and 1 preceding) as reach
        from gaps
    ), numbered as (
        select *, sum(case when reach is null or ms >= reach then 1 else 0 end)
                      over (partition by user_id order by ms, event_id rows unbounded preceding) as session
        from reached
    )
    select user_id, min(ms), max(ms), count(*), count(distinct page), arg_min(page, (ms, page)),
           arg_max(page, (ms, page)), count(*) filter (step = 'payment') > 0, coalesce(sum(money), 0)::bigint,
           list((ms, step)) filter (step is not null)
    from numbered group by user_id, session
"""


def sessions(events: pl.DataFrame, *, gap_ms: int, checkout_gap_ms: int) -> set[Row]:
    """Return user, first and last time, events, pages, first and last page, converted, money, step, bounce of each."""
    with duckdb.connect() as db:
        db.register("events", events.to_arrow())
        rows = db.sql(_SESSIONS.format(short=gap_ms, long=checkout_gap_ms)).fetchall()
    return {(*row[:-1], funnel_steps(row[-1] or []), row[3] == 1 and not row[7]) for row in rows}


def funnel_steps(taken: Sequence[tuple[int, str]]) -> int:
    """Return the number of completed steps of the funnel, each at or after the one before."""
    after = -(10**18)
    for count, step in enumerate(FUNNEL):
        times = [at for at, what in taken if what == step and at >= after]
        if not times:
            return count
        after = min(times)
    return len(FUNNEL)
