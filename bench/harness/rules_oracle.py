"""What must come out, worked out by DuckDB over the generated numbers. Shares no code with the product."""

from __future__ import annotations

from collections.abc import Sequence

import duckdb
import polars as pl

from bench.harness.generated_rules import PANE_MS, PANES, EventRules, Totalled, WindowRule

_DECLINED = "e.status = 7"
_EVENT_SQL = {
    0: "e.type = r.type and e.country = r.country and e.amount > r.low",
    1: 'e."user" = r."user" and e.amount >= r.low',
    2: f"e.merchant = r.merchant and {_DECLINED} and e.amount between r.low and r.high",
    3: "e.type = r.type and e.currency <> 0 and e.risk > r.risk",
    4: "e.country = r.country and e.status > 6 and e.risk >= r.risk",
}
#: What every match of a family has in common: it keeps the join small.
_FIRST = {
    0: "amount > (select min(low) from r{f})",
    1: '"user" in (select "user" from r{f})',
    2: "status = 7 and amount >= (select min(low) from r{f})",
    3: "risk > (select min(risk) from r{f})",
    4: "risk >= (select min(risk) from r{f})",
}


def event_pairs(events: pl.DataFrame, rules: EventRules) -> pl.DataFrame:
    """All (rule, partition, offset) of an event that matches a rule."""
    found = []
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
            found.append(_frame(db.sql(sql)))
    return pl.concat(found).select(
        pl.col("rule").cast(pl.Int64), pl.col("partition").cast(pl.Int64), pl.col("offset").cast(pl.Int64)
    )


def window_totals(events: pl.DataFrame, wanted: Sequence[Totalled]) -> pl.DataFrame:
    """For each user and pane with data: the totals of the window that ends with the pane, and which rows were in it.

    Every total only grows, so a rule fires in a window exactly when the total at the end reaches the bound, and it
    does so in the window's last pane exactly when that pane has an event of the rule.
    """
    own = {one.own: one.filter or "true" for one in wanted}
    panes = [f'count(*) filter ({which}) as "{name}"' for name, which in own.items()]
    panes += [f'{one.pane} filter ({one.filter or "true"}) as "{one.column}"' for one in wanted]
    totals = [f'{one.over}("{one.column}") over w as "{one.column}"' for one in wanted]
    counters = [f'"{name}"' for name in own]
    sql = f"""
        with panes as (select "user", ts // {PANE_MS} as pane, {", ".join(panes)} from events group by all)
        select "user", pane, {", ".join(counters + totals)} from panes
        window w as (partition by "user" order by pane range between {PANES - 1} preceding and current row)"""
    with duckdb.connect() as db:
        db.register("events", events.to_arrow())
        found = _frame(db.sql(sql))
    return found.select(pl.all().cast(pl.Int64))


def bounds(totals: pl.DataFrame, column: str, count: int, hits: float) -> list[int]:
    """Bounds that a share of about ``hits`` of the windows reach, all together; some rarer, some more common.

    Where many windows have the same total, the bound is the one whose share is nearest, so that a thousand rules over
    counts fire about as often as a hundred.
    """
    ordered = totals[column].drop_nulls().sort()
    shares = [totals.height * hits / count * (0.5 + i / count) for i in range(count)]
    return [_nearest(ordered, share) for share in shares]


def _nearest(ordered: pl.Series, wanted: float) -> int:
    """Return the bound that about so many of the totals reach."""
    at = int(ordered[max(0, len(ordered) - max(1, round(wanted)))])
    reach, above = (len(ordered) - int(ordered.search_sorted(at, side)) for side in ("left", "right"))
    return at if reach / wanted <= wanted / max(above, 0.5) else at + 1


def window_firings(totals: pl.DataFrame, rules: list[WindowRule]) -> pl.DataFrame:
    """All (rule, user, end pane) that fire."""
    found = []
    for rule in rules:
        hit = totals.filter((pl.col(rule.of.column) >= rule.bound) & (pl.col(rule.of.own) > 0))
        found.append(hit.select(pl.lit(rule.rule).alias("rule"), "user", "pane"))
    return pl.concat(found)


def _frame(result: duckdb.DuckDBPyRelation) -> pl.DataFrame:
    found = pl.from_arrow(result.to_arrow_table())
    assert isinstance(found, pl.DataFrame), "a table was asked for"
    return found
