"""Routes to tables: the rows that a sink gets, and the retail lines in Delta tables, row for row as the oracle's."""

from __future__ import annotations

import itertools
from pathlib import Path

import polars as pl
import pyarrow as pa
import pytest

from headgate_etl.app import build_app, topology
from headgate_etl.sinks import factories
from streamcore.local import LocalApp
from streamcore.sinks.sink import SinkHooks
from streamcore.writer import WriterId
from tests.harness.retail_etl import MODEL, ROOT, records, settings
from tests.harness.small_etl import rates
from tests.oracles.etl_retail import RATES, Expected

LINES = ROOT / "tests" / "data" / "retail_sample.parquet"
NOW_MS = 1_790_000_000_000


@pytest.mark.parametrize("shards", [1, 3])
def test_the_lines_in_delta_tables_equal_the_oracle_and_a_repeated_cut_adds_nothing(
    tmp_path: Path, shards: int
) -> None:
    tables = {lane: {"uri": str(tmp_path / lane), "partition_by": ["currency"]} for lane in ("sales", "returns")}
    routes = [
        {"name": "sales", "when": "quantity > 0", "to": "delta"},
        {"name": "returns", "when": "quantity <= 0", "to": "delta"},
    ]
    found = settings(routes=routes, delta={"tables": tables}, shards=shards)
    app = LocalApp(build_app(found))
    app.cut(rates(1, RATES), NOW_MS)
    (make,) = factories(found, topology(found).table_columns)
    sink = make(SinkHooks())
    sink.open(WriterId("etl", 1))
    source = records(LINES)
    for batch in itertools.count():
        cut = [*itertools.islice(source, 7_000)]
        if not cut:
            break
        rows: dict[str, list[pa.Table]] = {}
        for record in app.cut(cut, NOW_MS):
            if record.lane in tables:
                rows.setdefault(record.lane, []).append(pa.ipc.open_stream(record.value).read_all())
        written = {lane: pa.concat_tables(parts) for lane, parts in rows.items()}
        sink.write(batch, written)
        if batch == 1:
            sink.write(batch, written)
    sink.close()
    expected = Expected(LINES)
    for lane in tables:
        frame = pl.read_delta(str(tmp_path / lane))
        assert frame.schema["amount"] == pl.Decimal(18, 2)
        shown = frame.with_columns(
            pl.col("sold_at").dt.strftime("%Y-%m-%dT%H:%M:%S+00:00"),
            *(pl.col(name).cast(pl.String) for name in ("price", "rate", "amount")),
        ).select(*MODEL)
        assert sorted(map(repr, shown.rows())) == sorted(map(repr, expected.lane(sales=lane == "sales")))
