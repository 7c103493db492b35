"""Computes the expected alerts from the generated events with DuckDB. Shares no code with the product."""

from __future__ import annotations

from collections.abc import Sequence

import duckdb
import polars as pl

from bench.harness.generated_rules import PANE_MS, PANES, EventRules, WindowAggregate, WindowRule

_DECLINED = "e.status = 7"
_EVENT_SQL = {
    0: "e.type = r.type and e.country = r.country and e.amount > r.low",
    1: 'e."user" = r."user" and e.amount >= r.low',
    2: f"e.merchant = r.merchant and {_DECLINED} and e.amount between r.low and r.high",
    3: "e.type = r.type and e.currency <> 0 and e.risk > r.risk",
    4: "e.country = r.country and e.status > 6 and e.risk >= r.risk",
}
#: By rule family: a condition that every matching event meets. It limits the rows of the join.
_FIRST = {
    0: "amount > (select min(low) from r{f})",
    1: '"user" in (select "user" from r{f})',
    2: "status = 7 and amount >= (select min(low) from r{f})",
    3: "risk > (select min(risk) from r{f})",
    4: "risk >= (select min(risk) from r{f})",
}


def event_pairs(events: pl.DataFrame, rules: EventRules) -> pl.DataFrame:
    """Return rule, partition and offset of each match of an event and a rule."""
    matches = []
    with duckdb.connect() as db:
        db.register("events", events.to_arrow())
        for family in range(5):
            table = rules.table.filter(pl.col("family") == family)
            if family == 3:  # two types: one row for each
                table = pl.concat([table, table.with_columns(type=pl.col("type2"))])
            if not table.height:
                continue
            db.register(f"r{family}", table.to_arrow())
            first = _FIRST[family].format(f=family)
            sql = (
                f'select r.rule as rule, e.partition as partition, e."offset" as "offset" '
                f"from (select * from events where {first}) e join r{family} r on {_EVENT_SQL[family]}"
            )
            matches.append(_to_frame(db.sql(sql)))
    return pl.concat(matches).select(
        pl.col("rule").cast(pl.Int64), pl.col("partition").cast(pl.Int64), pl.col("offset").cast(pl.Int64)
    )


def window_totals(events: pl.DataFrame, aggregates: Sequence[WindowAggregate]) -> pl.DataFrame:
    """Return, by user and pane with events, the totals of the window that ends with the pane, and event counts.

    A total never falls within a window. So a rule fires in a window if the total at its end reaches the bound, and the
    rule fires in the window's last pane if that pane also has an event of the rule.
    """
    filters = {aggregate.own: aggregate.filter or "true" for aggregate in aggregates}
    panes = [f'count(*) filter ({condition}) as "{name}"' for name, condition in filters.items()]
    panes += [
        f'{aggregate.pane} filter ({aggregate.filter or "true"}) as "{aggregate.column}"' for aggregate in aggregates
    ]
    totals = [f'{aggregate.over}("{aggregate.column}") over w as "{aggregate.column}"' for aggregate in aggregates]
    counters = [f'"{name}"' for name in filters]
    sql = f"""
        with panes as (select "user", ts // {PANE_MS} as pane, {", ".join(panes)} from events group by all)
        select "user", pane, {", ".join(counters + totals)} from panes
        window w as (partition by "user" order by pane range between {PANES - 1} preceding and current row)"""
    with duckdb.connect() as db:
        db.register("events", events.to_arrow())
        frame = _to_frame(db.sql(sql))
    return frame.select(pl.all().cast(pl.Int64))


def bounds(totals: pl.DataFrame, column: str, count: int, hits: float) -> list[int]:
    """Return ``count`` bounds that together are reached in about the share ``hits`` of the windows.

    Where many windows have the same total, the bound is the one whose share is nearest, so that a thousand rules over
    counts fire about as often as a hundred.
    """
    ordered = totals[column].drop_nulls().sort()
    shares = [totals.height * hits / count * (0.5 + i / count) for i in range(count)]
    return [_nearest_bound(ordered, share) for share in shares]


def _nearest_bound(ordered: pl.Series, reached_by: float) -> int:
    """Return the bound that about ``reached_by`` of the ordered totals reach."""
    at = int(ordered[max(0, len(ordered) - max(1, round(reached_by)))])
    reach, above = (len(ordered) - int(ordered.search_sorted(at, side)) for side in ("left", "right"))
    return at if reach / reached_by <= reached_by / max(above, 0.5) else at + 1


def window_firings(totals: pl.DataFrame, rules: list[WindowRule]) -> pl.DataFrame:
    """Return rule, user and last pane of each window in which a rule fires."""
    firings = []
    for rule in rules:
        fired = totals.filter((pl.col(rule.aggregate.column) >= rule.bound) & (pl.col(rule.aggregate.own) > 0))
        firings.append(fired.select(pl.lit(rule.rule).alias("rule"), "user", "pane"))
    return pl.concat(firings)


def _to_frame(result: duckdb.DuckDBPyRelation) -> pl.DataFrame:
    frame = pl.from_arrow(result.to_arrow_table())
    assert isinstance(frame, pl.DataFrame), "a table is a frame"
    return frame
