"""Measures the search app in this process, without Spark and Kafka: ``taskset -c 0 python -m bench.kernels.search``.

The input is views and sales of 10,000 products, of which few have most of the events, and a product change every
hundred events, in cuts of 20,000 events. The figure covers the work from decoded rows to rows for the index, with the
commit of the state to memory. The clock advances with the event time. The documents are compared with DuckDB's at the
end.
"""

from __future__ import annotations

import os

os.environ["POLARS_MAX_THREADS"] = "1"

import argparse
import time

import duckdb
import numpy as np
import polars as pl

from bench.harness.cpu import load_average
from bench.harness.result import show
from bench.harness.yardstick import fixed_work_ms
from headgate_search.settings import SearchSettings
from tests.harness.apps.search_app import App, settings

START_MS = 1_789_948_800_000
CHANGE_EVERY = 100


def events(count: int, products: int, per_second: int) -> pl.DataFrame:
    """Return events: nine views for each payment, up to five seconds out of order."""
    draw = np.random.default_rng(7)
    ids = np.minimum(draw.zipf(1.3, count) - 1, draw.integers(0, products, count))
    paid = draw.random(count) < 0.1
    times = START_MS + np.arange(count) * 1_000 // per_second - draw.integers(0, 5_000, count)
    nulls = {n: pl.lit(None, pl.String) for n in ("user_id", "session_id", "currency", "card", "country", "ip")}
    return pl.DataFrame(
        {
            "product_id": "p" + pl.Series(ids).cast(pl.String),
            "ts": pl.Series(times).cast(pl.Datetime("ms", "UTC")),
            "type": np.where(paid, "payment", "view"),
            "quantity": np.where(paid, draw.integers(1, 4, count), 0),
            "amount": pl.Series(np.where(paid, draw.integers(100, 9_999, count), 0)).cast(pl.Decimal(12, 2)),
            "status": pl.Series(paid).replace_strict({True: "ok", False: None}, return_dtype=pl.String),
        }
    ).with_columns(event_id=pl.lit("e"), **nulls)


def changes(count: int, products: int, per_second: int) -> pl.DataFrame:
    """Return product changes: every product once, then new prices; one change in twenty is a deletion."""
    draw = np.random.default_rng(8)
    price_changes = count // CHANGE_EVERY
    ids = np.concatenate([np.arange(products), draw.integers(0, products, price_changes)])
    times = np.concatenate(
        [np.full(products, START_MS), START_MS + np.arange(price_changes) * 1_000 * CHANGE_EVERY // per_second]
    )
    deleted = np.concatenate([np.zeros(products, dtype=bool), draw.random(price_changes) < 0.05])
    return pl.DataFrame(
        {
            "product_id": "p" + pl.Series(ids).cast(pl.String),
            "op": np.where(deleted, "delete", "upsert"),
            "name": "Product " + pl.Series(ids).cast(pl.String),
            "price": pl.Series(draw.integers(100, 99_999, len(ids))).cast(pl.Decimal(12, 2)),
            "updated_at": pl.Series(times).cast(pl.Datetime("ms", "UTC")),
        }
    ).with_columns(
        description=pl.lit("A product with a description of some words, as in most shops."),
        category=pl.lit("things"),
        currency=pl.lit("EUR"),
        in_stock=pl.lit(value=True),
    )


def expected_documents(happened: pl.DataFrame, changed: pl.DataFrame, app: SearchSettings) -> pl.DataFrame:
    """Return the documents that DuckDB computes, ordered by id: id, price and figures."""
    watermark = int(happened["ts"].dt.epoch("ms").max()) - app.max_out_of_orderness_ms  # type: ignore[arg-type]
    conditions = {s.name: f"{watermark} < epoch_ms(ts) // {s.step_ms} * {s.step_ms} + {s.span_ms}" for s in app.spans}
    sums = ", ".join(
        f"count(*) filter (type = 'view' and {when}) as views_{name}, "
        f"coalesce(sum(quantity) filter ({when}), 0)::bigint as units_{name}, "
        f"coalesce(sum(amount) filter ({when}), 0)::decimal(38, 2) as revenue_{name}"
        for name, when in conditions.items()
    )
    names = ", ".join(
        f"coalesce({m}_{s.name}, 0) as {m}_{s.name}" for s in app.spans for m in ("views", "units", "revenue")
    )
    with duckdb.connect() as connection:
        connection.register("e", happened.to_arrow())
        connection.register("c", changed.with_row_index("row").to_arrow())
        return pl.DataFrame(
            connection.sql(
                f"""
                with last as (select product_id as id, arg_max(op, [epoch_ms(updated_at), row]) as op,
                                     arg_max(price, [epoch_ms(updated_at), row]) as price from c group by all),
                     f as (select product_id as id, {sums} from e group by all)
                select id, price, {names} from last left join f using (id) where op = 'upsert' order by id
                """
            ).to_arrow_table()
        )


def read_index(app: App) -> pl.DataFrame:
    """Return the documents of the index, with the columns of ``expected_documents``."""
    names = [f"{m}_{s.name}" for s in app.settings.spans for m in ("views", "units", "revenue")]
    rows = [(name, row["price"], *(row[n] for n in names)) for name, row in sorted(app.index.documents.items())]
    return pl.DataFrame(rows, schema=["id", "price", *names], orient="row")


def main() -> None:
    """Measure, compare with DuckDB, and print one JSON object."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--products", type=int, default=10_000)
    parser.add_argument("--per-second", type=int, default=2_000, help="events a second of event time and clock")
    parser.add_argument("--cut", type=int, default=20_000, help="events a cut")
    parser.add_argument("--refresh-ms", type=int, default=10_000)
    parser.add_argument("--shards", type=int, default=1)
    arguments = parser.parse_args()
    rate = arguments.per_second
    happened = events(arguments.events, arguments.products, rate)
    changed = changes(arguments.events, arguments.products, rate)
    app = App(settings(refresh_ms=arguments.refresh_ms), arguments.shards)
    yardstick_ms, cpu, seconds, done = fixed_work_ms(), 0.0, 0.0, 0
    for start in range(0, arguments.events, arguments.cut):
        end = arguments.products + (start + arguments.cut) // CHANGE_EVERY
        inputs = {"products": changed[done:end], "shop": happened[start : start + arguments.cut]}
        done = end
        began, begin = time.process_time(), time.perf_counter()
        result = app.simulation.cut(inputs, clock_ms=START_MS + (start + arguments.cut) * 1_000 // rate)
        cpu, seconds = cpu + time.process_time() - began, seconds + time.perf_counter() - begin
        app.index.apply(result["documents"])
    clock_ms = START_MS + arguments.events * 1_000 // rate
    app.cut(None, None, clock_ms + arguments.refresh_ms)
    show(
        {
            "workload": "search-in-process",
            "events": arguments.events,
            "changes": changed.height,
            "products": arguments.products,
            "documents_sent": app.index.sent,
            "output_equals_duckdb": read_index(app).rows()
            == expected_documents(happened, changed, app.settings).rows(),
            "cpu_s_per_million_events": round(cpu / arguments.events * 1e6, 2),
            "events_per_second": round(arguments.events / seconds),
            "yardstick_ms": [round(yardstick_ms, 1), round(fixed_work_ms(), 1)],
            "load_average": load_average(),
        }
    )


if __name__ == "__main__":
    main()
