"""Search documents of real invoice lines, out of order, in-process, against an oracle in SQL.

The lines are those of `tests/data`, or of the file that `HEADGATE_RETAIL` names.
"""

from __future__ import annotations

import os
from pathlib import Path

import polars as pl
import pytest

from tests.harness.apps import search_app as search
from tests.harness.apps.search_app import ROOT, App
from tests.harness.oracles.retail_search import DISORDER_MS, SPANS, Oracle, Row

pytestmark = pytest.mark.slow

WHOLE = os.environ.get("HEADGATE_RETAIL")
LINES = Path(WHOLE or ROOT / "tests" / "data" / "retail_sample.parquet")
CUT_ROWS = 40_000 if WHOLE else 2_500
SETTINGS = search.settings(
    max_out_of_orderness_ms=DISORDER_MS,
    spans=[{"name": name, "span_ms": span_ms, "step_ms": step_ms} for name, span_ms, step_ms in SPANS],
)


@pytest.fixture(scope="module")
def oracle() -> Oracle:
    return Oracle(LINES)


def read(order: list[int]) -> pl.DataFrame:
    """Read the file's lines as they arrive; money in cents."""
    local = pl.col("InvoiceDate").dt.replace_time_zone("Europe/London")
    return pl.read_parquet(LINES).select(
        id="StockCode",
        name="Description",
        at=local.dt.convert_time_zone("UTC").dt.cast_time_unit("ms"),
        quantity=pl.col("Quantity").cast(pl.Int64),
        cents=(pl.col("UnitPrice") * 100 + 0.5).floor().cast(pl.Int64),
    )[order]


def changes(lines: pl.DataFrame) -> pl.DataFrame:
    """Return the product change of each line."""
    return lines.select(
        product_id="id",
        op=pl.when(pl.col("name").is_null()).then(pl.lit("delete")).otherwise(pl.lit("upsert")),
        name="name",
        description=pl.lit(None, pl.String),
        category=pl.lit("gifts"),
        price=_money("cents"),
        currency=pl.lit("GBP"),
        in_stock=pl.lit(value=True),
        updated_at="at",
    )


def sales(lines: pl.DataFrame) -> pl.DataFrame:
    """Return a payment or a refund for each line."""
    sold = lines.with_columns(total=pl.col("quantity").abs() * pl.col("cents"))
    nothing = {name: pl.lit(None, pl.String) for name in ("user_id", "session_id", "card", "country", "ip")}
    return sold.select(
        event_id=pl.lit("e"),
        ts="at",
        type=pl.when(pl.col("quantity") < 0).then(pl.lit("refund")).otherwise(pl.lit("payment")),
        product_id="id",
        quantity=pl.col("quantity").abs(),
        amount=_money("total"),
        currency=pl.lit("GBP"),
        status=pl.lit("ok"),
        **nothing,
    )


def _money(cents: str) -> pl.Expr:
    whole = pl.col(cents).cast(pl.Decimal(16, 2))
    return (whole / pl.lit(100).cast(pl.Decimal(16, 2))).cast(pl.Decimal(12, 2))


@pytest.mark.parametrize(("cut_rows", "shards"), [(CUT_ROWS, 1), (CUT_ROWS // 3, 3)], ids=["one shard", "small cuts"])
def test_documents_equal_the_oracles_row_for_row(oracle: Oracle, cut_rows: int, shards: int) -> None:
    lines, app, clock_ms = read(oracle.order), App(SETTINGS, shards), 0
    for start in range(0, lines.height, cut_rows):
        some = lines[start : start + cut_rows]
        clock_ms += 700
        app.cut(changes(some), sales(some), clock_ms)
        if start // cut_rows == 4:
            app.restart()
    app.cut(None, None, clock_ms + SETTINGS.refresh_ms)
    assert document_rows(app) == oracle.documents()
    assert len(app.dead) == int((lines["cents"] < 0).sum())
    assert app.index.tombstones.keys() - app.index.documents.keys() == products_without_document(lines, app)


def products_without_document(lines: pl.DataFrame, app: App) -> set[str]:
    """Return the products of the lines that have no document in the index."""
    return set(lines["id"].unique()) - app.index.documents.keys()


def document_rows(app: App) -> list[Row]:
    """Return the documents of the index as rows of the oracle, in order of product."""
    rows: list[Row] = []
    for name, document in sorted(app.index.documents.items()):
        figures = [document[f"{what}_{span}"] for span, *_ in SPANS for what in ("units", "revenue")]
        at = document["updated_at"]
        rows.append((name, document["name"], _cents(document["price"]), round(at.timestamp() * 1000), *figures))  # type: ignore[attr-defined]
    return [tuple(_cents(v) if n >= 4 and n % 2 else v for n, v in enumerate(row)) for row in rows]


def _cents(value: object) -> int:
    return int(value * 100)  # type: ignore[operator]


def test_the_oracle_reports_deletions_and_decreases(oracle: Oracle) -> None:
    documents = oracle.documents()
    assert oracle.deleted_products() > 0
    assert any(row[4] for row in documents)
    assert any(row[6] and not row[4] for row in documents)
    assert any(not row[6] for row in documents)
