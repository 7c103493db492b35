"""What a folder of Parquet files holds, and what the sink rejects at its start."""

from __future__ import annotations

import datetime
from decimal import Decimal
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from streamcore.cuts.writer_id import WriterId
from streamcore.errors import ConfigError
from streamcore.sinks.parquet.settings import ParquetFolderSpec, ParquetSettings
from streamcore.sinks.parquet.sink import ParquetSink
from tests.harness.cut_ids import cut_id
from tests.harness.faults.delta_child import PER_CUT, SCHEMA, cut
from tests.harness.faults.parquet_child import sink
from tests.harness.oracles.parquet_notes import ids

_OWNER = WriterId("app", 1)
_ALL = pa.schema(
    [
        ("day", pa.large_string()),
        ("ok", pa.bool_()),
        ("amount", pa.decimal128(12, 2)),
        ("at", pa.timestamp("ms", "UTC")),
        ("risk", pa.float64()),
        ("n", pa.int64()),
    ]
)
_AT = datetime.datetime(2024, 1, 2, 3, 4, 5, 6000, datetime.UTC)


def _sink(folder: Path, columns: pa.Schema, partition_by: tuple[str, ...] = (), name: str = "parquet") -> ParquetSink:
    spec = ParquetFolderSpec(folder, partition_by)
    return ParquetSink(ParquetSettings({"rows": spec}, name=name), {"rows": columns})


def test_every_type_and_every_partition_value_is_read_back(tmp_path: Path) -> None:
    days = ["a/b =%\n", "ü", None, "plain"]
    rows = [
        {"day": day, "ok": ok, "amount": Decimal("-1.25"), "at": _AT, "risk": 0.5, "n": n}
        for n, (day, ok) in enumerate((day, ok) for day in days for ok in (True, False, None))
    ]
    writer = _sink(tmp_path / "t", _ALL, ("day", "ok"))
    writer.open(_OWNER)
    assert writer.write(cut_id(0), {"rows": pa.Table.from_pylist(rows, schema=_ALL)}).rows == len(rows)
    query = 'SELECT day, ok, amount, epoch_ms("at"), risk, n FROM read_parquet(?, hive_partitioning = true)'
    found = duckdb.execute(f"{query} ORDER BY n", [f"{tmp_path}/t/**/*.parquet"]).fetchall()
    at_ms = int(_AT.timestamp() * 1000)
    expected = [
        (r["day"], None if r["ok"] is None else str(r["ok"]).lower(), r["amount"], at_ms, r["risk"], r["n"])
        for r in rows
    ]
    assert [(row[0], None if row[1] is None else str(row[1]).lower(), *row[2:]) for row in found] == expected


def test_the_order_of_rows_stays_within_a_partition(tmp_path: Path) -> None:
    writer = sink(tmp_path / "t")
    writer.open(_OWNER)
    ids = [30, 3, 27, 6, 9, 1]
    writer.write(cut_id(0), {"rows": pa.table({"id": ids, "day": ["a", "a", "b", "a", "b", "a"]}, schema=SCHEMA)})
    (file,) = (tmp_path / "t" / "day=a").glob("*.parquet")
    assert [row[0] for row in duckdb.execute("SELECT id FROM read_parquet(?)", [str(file)]).fetchall()] == [30, 3, 6, 1]


def test_equal_cuts_give_equal_bytes(tmp_path: Path) -> None:
    contents = []
    for name in ("one", "two"):
        writer = sink(tmp_path / name)
        writer.open(_OWNER)
        writer.write(cut_id(0), {"rows": cut(0)})
        files = sorted((tmp_path / name).rglob("*.parquet"))
        contents.append([(str(file.relative_to(tmp_path / name)), file.read_bytes()) for file in files])
    assert contents[0] == contents[1]
    assert len(contents[0]) == 3


def test_a_folder_of_another_app_lane_or_partition_is_rejected(tmp_path: Path) -> None:
    _sink(tmp_path / "t", SCHEMA, ("day",)).open(_OWNER)
    with pytest.raises(ConfigError, match="has the rows of app app"):
        _sink(tmp_path / "t", SCHEMA, ("day",)).open(WriterId("other", 1))
    with pytest.raises(ConfigError, match="sink parquet"):
        _sink(tmp_path / "t", SCHEMA, ("day",), name="second").open(_OWNER)
    with pytest.raises(ConfigError, match=r"is partitioned by \['day'\], the settings have \[\]"):
        _sink(tmp_path / "t", SCHEMA).open(_OWNER)


def test_a_column_may_come_and_go_and_never_changes_its_type(tmp_path: Path) -> None:
    more = SCHEMA.append(pa.field("n", pa.int64()))
    for batch, columns in enumerate((SCHEMA, more, SCHEMA)):
        writer = _sink(tmp_path / "t", columns)
        writer.open(_OWNER)
        rows = cut(batch).append_column("n", pa.array([1] * PER_CUT)) if columns is more else cut(batch)
        writer.write(cut_id(batch), {"rows": rows})
    assert ids(tmp_path / "t") == list(range(3 * PER_CUT))
    with pytest.raises(ConfigError, match="column n is double here and int64 in the files"):
        _sink(tmp_path / "t", SCHEMA.append(pa.field("n", pa.float64()))).open(_OWNER)


def test_settings_that_contradict_themselves_are_rejected(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no column 'month' to partition by"):
        _sink(tmp_path / "t", SCHEMA, ("month",))
    with pytest.raises(ConfigError, match="every column is one to partition by"):
        _sink(tmp_path / "t", SCHEMA, ("id", "day"))
    with pytest.raises(ConfigError, match="'id' is there twice"):
        _sink(tmp_path / "t", SCHEMA.append(pa.field("ID", pa.int64())))
    inside = {"a": ParquetFolderSpec(tmp_path / "t"), "b": ParquetFolderSpec(tmp_path / "t" / "u")}
    with pytest.raises(ConfigError, match="two lanes write to"):
        ParquetSettings(inside)


def test_a_row_that_does_not_fit_is_rejected_alone(tmp_path: Path) -> None:
    columns = pa.schema([("id", pa.int64()), pa.field("day", pa.large_string(), nullable=False)])
    writer = _sink(tmp_path / "t", columns, ("day",))
    writer.open(_OWNER)
    rows = pa.table({"id": [1, 2], "day": ["x" * 300, "y"]}, schema=columns)
    for _ in range(2):
        written = writer.write(cut_id(0), {"rows": rows})
        assert [(row.row, row.code) for row in written.rejected] == [(0, "partition_too_long")]
        assert written.rows == 1
