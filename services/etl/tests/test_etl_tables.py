"""Routes to tables: the retail lines in Delta and in PostgreSQL, row for row the oracle's, also when a cut repeats.

The lines are those of `tests/data`, or of the file that `HEADGATE_RETAIL` names.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Mapping
from pathlib import Path

import polars as pl
import pyarrow as pa
import pytest

from conftest import NewDatabase
from headgate_etl.app import build_app, build_topology
from headgate_etl.settings import EtlSettings
from streamcore.cuts.writer_id import WriterId
from streamcore.engine.in_process import InProcessApp
from streamcore.service.config.sinks import sink_factories
from streamcore.sinks.sink import SinkHooks
from tests.harness.apps.retail_etl import MODEL, ROOT, records, settings
from tests.harness.apps.small_etl import rates
from tests.harness.cut_ids import cut_id
from tests.harness.oracles import iceberg_files
from tests.harness.oracles.parquet_notes import counted_files
from tests.harness.oracles.retail_etl_sql import RATES, Expected

WHOLE = os.environ.get("HEADGATE_RETAIL")
LINES = Path(WHOLE or ROOT / "tests" / "data" / "retail_sample.parquet")
CUT_RECORDS = 100_000 if WHOLE else 7_000
NOW_MS = 1_790_000_000_000
LANES = ("sales", "returns")
_CREATE = """create table {} (
    id text primary key, invoice text not null, stock text not null, description text, quantity bigint not null,
    sold_at timestamptz not null, price numeric(12,3) not null, customer text, country text not null,
    currency text not null, rate numeric(12,6) not null, amount numeric(18,2) not null)"""


def table_routes(target: str) -> dict[str, object]:
    """Return the lines' two routes, to tables."""
    conditions = zip(LANES, ("quantity > 0", "quantity <= 0"), strict=True)
    return {"routes": [{"name": lane, "when": when, "to": target} for lane, when in conditions]}


def write_tables(found: EtlSettings) -> None:
    """Run all lines through the app into its sink; the second cut is written twice."""
    app = InProcessApp(build_app(found))
    app.cut(rates(1, RATES), NOW_MS)
    (make,) = sink_factories(found, build_topology(found).table_columns)
    sink = make(SinkHooks())
    sink.open(WriterId("etl", 1))
    source = records(LINES)
    for batch in itertools.count():
        cut = [*itertools.islice(source, CUT_RECORDS)]
        if not cut:
            break
        rows: dict[str, list[pa.Table]] = {}
        for record in app.cut(cut, NOW_MS):
            if record.lane in LANES:
                rows.setdefault(record.lane, []).append(pa.ipc.open_stream(record.value).read_all())
        written = {lane: pa.concat_tables(parts) for lane, parts in rows.items()}
        sink.write(cut_id(batch), written)
        if batch == 1:
            sink.write(cut_id(batch), written)
    sink.close()


def check_tables(frames: Mapping[str, pl.DataFrame]) -> None:
    """Compare the tables with the oracle, every value as text."""
    expected = Expected(LINES)
    for lane, frame in frames.items():
        shown = frame.with_columns(
            pl.col("sold_at").dt.strftime("%Y-%m-%dT%H:%M:%S+00:00"),
            *(pl.col(name).cast(pl.String) for name in ("price", "rate", "amount")),
        ).select(*MODEL)
        assert sorted(map(repr, shown.rows())) == sorted(map(repr, expected.lane(sales=lane == "sales")))


@pytest.mark.parametrize("shards", [1, 3])
def test_delta_tables_equal_the_oracle(tmp_path: Path, shards: int) -> None:
    tables = {lane: {"uri": str(tmp_path / lane), "partition_by": ["currency"]} for lane in LANES}
    write_tables(settings(**table_routes("delta"), delta={"tables": tables}, shards=shards))
    frames = {lane: pl.read_delta(str(tmp_path / lane)) for lane in LANES}
    assert frames["sales"].schema["amount"] == pl.Decimal(18, 2)
    check_tables(frames)


@pytest.mark.slow
def test_parquet_files_equal_the_oracle(tmp_path: Path) -> None:
    tables = {lane: {"uri": str(tmp_path / lane), "partition_by": ["currency"]} for lane in LANES}
    write_tables(settings(**table_routes("parquet"), parquet={"tables": tables}, shards=2))
    frames = {lane: pl.read_parquet(counted_files(tmp_path / lane), hive_partitioning=True) for lane in LANES}
    check_tables(frames)


@pytest.mark.slow
def test_iceberg_tables_equal_the_oracle(tmp_path: Path) -> None:
    catalog = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"file://{tmp_path}/warehouse"}
    tables = {lane: {"table": f"shop.{lane}", "partition_by": ["currency"]} for lane in LANES}
    document = {"catalog": {"options": catalog}, "tables": tables}
    write_tables(settings(**table_routes("iceberg"), iceberg=document, shards=2))
    check_tables({lane: pl.read_parquet(iceberg_files.live_files(tmp_path, f"shop.{lane}")) for lane in LANES})


@pytest.mark.postgres
def test_postgresql_tables_equal_the_oracle(new_database: NewDatabase) -> None:
    database = new_database()
    document = {
        "host": database.host,
        "port": database.port,
        "database": database.name,
        "user": database.user,
        "password_file": str(database.password_file),
        "tables": {lane: {"table": f"public.{lane}", "key": ["id"]} for lane in LANES},
    }
    with database.connect() as connection:
        for lane in LANES:
            connection.execute(_CREATE.format(lane))
        write_tables(settings(**table_routes("postgres"), postgres=document))
        frames = {}
        for lane in LANES:
            rows = connection.execute(f"select {', '.join(MODEL)} from {lane}").fetchall()
            frames[lane] = pl.DataFrame(rows, schema=[*MODEL], orient="row", infer_schema_length=None)
    check_tables({lane: f.with_columns(pl.col("sold_at").dt.convert_time_zone("UTC")) for lane, f in frames.items()})
