"""What an Iceberg table holds, in which catalogues, and what the sink rejects at its start."""

from __future__ import annotations

import datetime
import zoneinfo
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from conftest import NewDatabase
from streamcore.cuts.writer_id import WriterId
from streamcore.errors import ConfigError, Fenced, Retryable
from streamcore.sinks.iceberg.settings import IcebergCatalog, IcebergSettings, IcebergTableSpec
from streamcore.sinks.iceberg.sink import IcebergSink
from streamcore.sinks.sink import RetryPolicy, WriteOutcome
from tests.harness.cut_ids import cut_id
from tests.harness.faults.delta_child import PER_CUT, SCHEMA, cut
from tests.harness.faults.iceberg_child import TABLE, options, sink
from tests.harness.oracles import iceberg_files

_OWNER = WriterId("app", 1)
_ALL = pa.schema(
    [
        ("day", pa.large_string()),
        ("ok", pa.bool_()),
        ("amount", pa.decimal128(12, 2)),
        ("at", pa.timestamp("ms", "UTC")),
        ("risk", pa.float64()),
        pa.field("n", pa.int64(), nullable=False),
    ]
)


def _sink(
    folder: Path, columns: pa.Schema, partition_by: tuple[str, ...] = (), *, merge_schema: bool = False
) -> IcebergSink:
    tables = {"rows": IcebergTableSpec(TABLE, partition_by, merge_schema)}
    return IcebergSink(
        IcebergSettings(IcebergCatalog(options(folder)), tables, patience=RetryPolicy(300, 10, 100)), {"rows": columns}
    )


def test_every_type_and_every_partition_value_is_read_back(tmp_path: Path) -> None:
    at = datetime.datetime(2024, 1, 2, 3, 4, 5, 6000, zoneinfo.ZoneInfo("UTC"))
    rows = [
        {"day": day, "ok": ok, "amount": Decimal("-1.25"), "at": at, "risk": float("nan"), "n": n}
        for n, (day, ok) in enumerate((day, ok) for day in ("a/b =%\n", "", None) for ok in (True, False, None))
    ]
    writer = _sink(tmp_path, _ALL, ("day", "ok"))
    writer.open(_OWNER)
    assert writer.write(cut_id(0), {"rows": pa.Table.from_pylist(rows, schema=_ALL)}).rows == len(rows)
    files = iceberg_files.live_files(tmp_path, TABLE)
    found = [row for file in files for row in pq.ParquetFile(file).read().to_pylist()]
    assert len(files) == len(rows)
    assert sorted(map(repr, found)) == sorted(map(repr, rows))


@pytest.mark.slow
def test_a_missing_column_is_named_with_the_statement_that_adds_it(tmp_path: Path) -> None:
    more = SCHEMA.append(pa.field("n", pa.int64())).append(pa.field("price", pa.decimal128(9, 3)))
    _sink(tmp_path, SCHEMA).open(_OWNER)
    statement = r"run ALTER TABLE shop.rows ADD COLUMNS \(n bigint, price decimal\(9,3\)\), or set merge_schema"
    with pytest.raises(ConfigError, match=statement):
        _sink(tmp_path, more).open(_OWNER)
    writer = _sink(tmp_path, more, merge_schema=True)
    writer.open(_OWNER)
    rows = cut(0).append_column("n", pa.array([7] * PER_CUT)).append_column("price", pa.nulls(PER_CUT, more[3].type))
    assert writer.write(cut_id(0), {"rows": rows}).outcome == WriteOutcome.COMMITTED
    older = _sink(tmp_path, SCHEMA)
    assert older.open(_OWNER) == cut_id(0)
    older.write(cut_id(1), {"rows": cut(1)})
    files = iceberg_files.live_files(tmp_path, TABLE)
    assert sorted(n or 0 for file in files for n in pq.ParquetFile(file).read()["n"].to_pylist()) == [0] * 10 + [7] * 10


@pytest.mark.slow
def test_old_snapshots_are_expired_and_no_row_is_lost(tmp_path: Path) -> None:
    tables = {"rows": IcebergTableSpec(TABLE, keep_snapshots=4)}
    writer = IcebergSink(IcebergSettings(IcebergCatalog(options(tmp_path)), tables), {"rows": SCHEMA})
    writer.open(_OWNER)
    for batch in range(12):
        writer.write(cut_id(batch), {"rows": cut(batch)})
    assert 4 <= len(iceberg_files.metadata(tmp_path, TABLE)["snapshots"]) <= 5
    assert iceberg_files.ids(tmp_path, TABLE) == list(range(12 * PER_CUT))
    assert IcebergSink(writer._settings, {"rows": SCHEMA}).open(_OWNER) == cut_id(11)


@pytest.mark.parametrize(
    ("columns", "partition_by", "message"),
    [
        (pa.schema([("id", pa.float64()), ("day", pa.large_string())]), ("day",), "id is double here and int64"),
        (SCHEMA, (), r"is partitioned by \['day'\], the settings have \[\]"),
    ],
)
def test_a_table_that_does_not_fit_is_rejected(
    tmp_path: Path, columns: pa.Schema, partition_by: tuple[str, ...], message: str
) -> None:
    sink(tmp_path).open(_OWNER)
    with pytest.raises(ConfigError, match=message):
        _sink(tmp_path, columns, partition_by).open(_OWNER)


def test_a_row_that_does_not_fit_is_rejected_alone(tmp_path: Path) -> None:
    writer = _sink(tmp_path, _ALL)
    writer.open(_OWNER)
    rows = pa.table({**{name: [None, None] for name in _ALL.names}, "n": [1, None]})
    for _ in range(2):
        written = writer.write(cut_id(0), {"rows": rows.cast(pa.schema([f.with_nullable(True) for f in _ALL]))})
        assert [(row.row, row.code) for row in written.rejected] == [(1, "null")]
        assert written.rows == 1


@pytest.mark.parametrize(
    ("catalog", "message"),
    [
        ({"type": "hive", "uri": "x"}, "must be sql or rest"),
        ({"type": "sql"}, "uri is missing"),
        ({"type": "sql", "uri": "postgresql+psycopg://me:hush@db/lake"}, "the uri has a user"),
        ({"type": "rest", "uri": "http://x", "token": "hush"}, "token is a secret"),
    ],
)
def test_settings_that_cannot_work_are_rejected(catalog: Mapping[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as rejected:
        IcebergCatalog(catalog)
    assert "hush" not in str(rejected.value)


def test_a_catalogue_that_is_away_is_retried_and_then_named(tmp_path: Path) -> None:
    catalog = IcebergCatalog({"type": "rest", "uri": "http://127.0.0.1:9", "warehouse": "x"})
    tables = {"rows": IcebergTableSpec(TABLE)}
    writer = IcebergSink(IcebergSettings(catalog, tables, patience=RetryPolicy(50, 10, 20)), {"rows": SCHEMA})
    with pytest.raises(Retryable, match="open of lane rows failed in"):
        writer.open(_OWNER)


@pytest.mark.postgres
def test_a_catalogue_in_postgresql_holds_the_promise_too(tmp_path: Path, new_database: NewDatabase) -> None:
    database = new_database()
    secret = tmp_path / "uri"
    password = database.password_file.read_text().strip()
    at = f"{database.host}:{database.port}/{database.name}"
    secret.write_text(f"postgresql+psycopg://{database.user}:{password}@{at}")

    def writer(**more: Any) -> IcebergSink:
        catalog = IcebergCatalog({"type": "sql", "warehouse": f"file://{tmp_path}/warehouse"}, {"uri": secret})
        tables = {"rows": IcebergTableSpec(TABLE, ("day",))}
        return IcebergSink(IcebergSettings(catalog, tables, **more), {"rows": SCHEMA})

    old, new = writer(), writer()
    old.open(_OWNER)
    assert old.write(cut_id(0), {"rows": cut(0)}).outcome == WriteOutcome.COMMITTED
    new.open(WriterId("app", 2))
    with pytest.raises(Fenced, match="epoch 2 owns lane rows"):
        old.write(cut_id(1), {"rows": cut(1)})
    assert new.write(cut_id(0), {"rows": cut(1)}).outcome == WriteOutcome.COMMITTED
    again = writer()
    assert again.open(WriterId("app", 2)) == cut_id(0)
    assert again.write(cut_id(0), {"rows": cut(1)}).outcome == WriteOutcome.SKIPPED
    for each in (old, new, again):
        each.close()
    secret.write_text(secret.read_text().replace(password, "wrong-hush"))
    with pytest.raises(ConfigError, match="check login") as rejected:
        writer(patience=RetryPolicy(50, 10, 20)).open(_OWNER)
    assert "hush" not in f"{rejected.value} {rejected.value.__cause__}"
