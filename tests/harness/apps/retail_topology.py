"""Sessions, revenue and best sellers of the online shop, as one topology."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import yaml

from streamcore.aggregates import Count, Sum, TopN
from streamcore.schema import StreamSchema
from streamcore.topology.stream import source
from streamcore.topology.topology import Topology
from streamcore.watermark import bounded_out_of_orderness
from streamcore.windowing import Session, Sliding, Tumbling
from tests.harness.oracles.retail_windows import DISORDER_MS, HOUR_MS, MINUTE_MS

ROOT = Path(__file__).parents[3]
BEST = 3


def schema() -> StreamSchema:
    return StreamSchema.parse(yaml.safe_load((ROOT / "streams" / "retail.yaml").read_text()))


def retail(name: str = "retail-windows") -> Topology:
    lines = source(schema(), bounded_out_of_orderness(DISORDER_MS)).map(
        amount=pl.col("quantity") * pl.col("unit_price")
    )
    sums = {"lines": Count(), "amount": Sum("amount")}
    by_customer = lines.key_by("customer_id").window(Session(30 * MINUTE_MS)).late_to("late")
    by_country = lines.key_by("country").window(Session(30 * MINUTE_MS))
    by_product = lines.key_by("stock_code").window(Tumbling(HOUR_MS)).aggregate(amount=Sum("amount"))
    hours = by_product.select(pl.col("window_start").alias("hour"), "stock_code", "amount")
    best = hours.key_by("hour").window(Tumbling(HOUR_MS)).aggregate(best=TopN("stock_code", by="amount", n=BEST))
    return Topology(
        name,
        by_customer.aggregate(**sums).sink("customers"),
        by_country.aggregate(**sums).sink("countries"),
        lines.key_by().window(Tumbling(HOUR_MS)).aggregate(**sums).sink("hours"),
        lines.key_by().window(Sliding(3 * HOUR_MS, HOUR_MS)).aggregate(**sums).sink("sliding"),
        best.sink("best"),
    )


def read_lines(path: Path, order: list[int]) -> pl.DataFrame:
    """Return the lines of the file in the order of arrival, with the columns of the stream."""
    lines = pl.read_parquet(path)
    local = pl.col("InvoiceDate").dt.replace_time_zone("Europe/London")
    return lines.select(
        invoice_no="InvoiceNo",
        stock_code="StockCode",
        description="Description",
        quantity=pl.col("Quantity").cast(pl.Int64),
        invoice_date=local.dt.convert_time_zone("UTC").dt.cast_time_unit("ms"),
        unit_price=(pl.col("UnitPrice") * 1000).round().cast(pl.Int64).cast(pl.Decimal(18, 3)) / 1000,
        customer_id=pl.col("CustomerID").cast(pl.Int64),
        country="Country",
    )[order]
