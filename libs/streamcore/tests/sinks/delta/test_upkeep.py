"""Upkeep changes files and never contents or the ledger, also with concurrent upkeep and deletes."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pytest
from deltalake import DeltaTable

from streamcore.cuts.writer_id import WriterId
from streamcore.sinks.delta.compaction import DataFile, compact, small_files
from streamcore.sinks.delta.maintenance import MaintenanceRun, run_maintenance
from streamcore.sinks.delta.settings import DeltaSettings, DeltaTableSpec
from streamcore.sinks.delta.sink import DeltaSink
from streamcore.sinks.sink import WriteOutcome
from tests.harness.cut_ids import cut_id
from tests.harness.oracles import delta_log
from tests.harness.oracles.delta_log import Row

_SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("p", pa.large_string()),
        ("price", pa.decimal128(18, 2)),
        ("at", pa.timestamp("ms", "UTC")),
        ("x", pa.float64()),
        ("ok", pa.bool_()),
    ]
)
_TARGET = 1024 * 1024


def _spec(folder: Path) -> DeltaTableSpec:
    return DeltaTableSpec(str(folder), ("p",), target_file_bytes=_TARGET, compact_every=10_000, checkpoint_every=10_000)


def _write_days(folder: Path, cuts: int = 6) -> DeltaSink:
    rows = random.Random(7)
    sink = DeltaSink(DeltaSettings({"rows": _spec(folder)}), {"rows": _SCHEMA})
    sink.open(WriterId("app", 1))
    start = datetime(2024, 1, 1, tzinfo=UTC)
    for batch in range(cuts):
        given = [
            {
                "id": batch * 10 + i,
                "p": rows.choice(["a", "b/c %", None, "é"]),
                "price": Decimal(rows.randrange(-(10**17), 10**17)) / 100,
                "at": start + timedelta(milliseconds=rows.randrange(10**9)),
                "x": rows.choice([1.5, float("inf"), None]),
                "ok": rows.choice([True, False, None]),
            }
            for i in range(10)
        ]
        sink.write(cut_id(batch), {"rows": delta_log.table_of(_SCHEMA, *given)})
    return sink


def _contents(folder: Path) -> list[Row]:
    return sorted(delta_log.rows(folder), key=lambda row: int(str(row["id"])))


def _files(table: DeltaTable) -> list[DataFile]:
    return max(small_files(table, _TARGET).values(), key=len)


@pytest.mark.slow
def test_compaction_keeps_contents_and_ledger_and_leaves_one_file_per_partition(tmp_path: Path) -> None:
    sink = _write_days(tmp_path)
    before, ledger = _contents(tmp_path), delta_log.ledger(tmp_path)
    run_maintenance(MaintenanceRun(_spec(tmp_path), compact=True, checkpoint=True), {}, lambda _: None)
    assert _contents(tmp_path) == before
    assert delta_log.ledger(tmp_path) == ledger
    assert len(delta_log.live_files(tmp_path)) == 4
    assert sink.write(cut_id(5), {"rows": delta_log.table_of(_SCHEMA, {"id": 1})}).outcome == WriteOutcome.SKIPPED
    assert sink.write(cut_id(6), {"rows": delta_log.table_of(_SCHEMA, {"id": 60})}).outcome == WriteOutcome.COMMITTED
    assert len(_contents(tmp_path)) == len(before) + 1
    assert DeltaTable(tmp_path).to_pyarrow_table().num_rows == len(before) + 1, "the library reads it as well"


def test_only_closed_partitions_are_compacted(tmp_path: Path) -> None:
    _write_days(tmp_path)
    run_maintenance(
        MaintenanceRun(_spec(tmp_path), compact=True, checkpoint=False, open=frozenset({("a",)})), {}, lambda _: None
    )
    count: dict[object, int] = {}
    for file in delta_log.live_files(tmp_path):
        partition = file["partitionValues"]
        assert isinstance(partition, dict)
        count[partition["p"]] = count.get(partition["p"], 0) + 1
    assert count.pop("a") > 1
    assert set(count.values()) == {1}


@pytest.mark.slow
def test_one_of_two_concurrent_compactions_gives_up(tmp_path: Path) -> None:
    _write_days(tmp_path)
    before = _contents(tmp_path)
    one, other = DeltaTable(tmp_path), DeltaTable(tmp_path)
    assert [compact(one, _files(one)), compact(other, _files(other))] == [True, False]
    assert _contents(tmp_path) == before


@pytest.mark.slow
def test_the_compaction_of_the_library_would_double_the_rows(tmp_path: Path) -> None:
    """The reason for a compaction of our own. When this fails, the library is fixed: use it again."""
    sink = _write_days(tmp_path)
    one, other = DeltaTable(tmp_path), DeltaTable(tmp_path)
    one.optimize.compact()
    other.optimize.compact()
    assert DeltaTable(tmp_path).count() == 2 * 60
    sink.close()


def test_a_compaction_that_conflicts_with_a_delete_gives_up(tmp_path: Path) -> None:
    _write_days(tmp_path)
    table = DeltaTable(tmp_path)
    files = _files(table)
    DeltaTable(tmp_path).delete("id < 30")
    assert compact(table, files) is False
    assert [row["id"] for row in _contents(tmp_path)] == list(range(30, 60))


def test_a_compaction_accepts_concurrent_appends(tmp_path: Path) -> None:
    sink = _write_days(tmp_path)
    table = DeltaTable(tmp_path)
    files = _files(table)
    sink.write(cut_id(6), {"rows": delta_log.table_of(_SCHEMA, {"id": 60, "p": "a"})})
    assert compact(table, files) is True
    assert [row["id"] for row in _contents(tmp_path)] == list(range(61))
    assert sink.write(cut_id(7), {"rows": delta_log.table_of(_SCHEMA, {"id": 61})}).outcome == WriteOutcome.COMMITTED


@pytest.mark.slow
def test_statistics_of_a_compacted_file_hold_for_every_row(tmp_path: Path) -> None:
    _write_days(tmp_path)
    run_maintenance(MaintenanceRun(_spec(tmp_path), compact=True, checkpoint=False), {}, lambda _: None)
    _check_bounds(tmp_path, delta_log.live_files(tmp_path))


def test_statistics_of_a_written_file_hold_for_every_row(tmp_path: Path) -> None:
    _write_days(tmp_path)
    _check_bounds(tmp_path, delta_log.live_files(tmp_path))


def _check_bounds(folder: Path, files: Sequence[Row]) -> None:
    for file in files:
        stats = orjson.loads(str(file["stats"]))
        assert "x" not in stats["minValues"], "NaN is above every number to a reader, and not in the library's bounds"
        assert "price" not in stats["minValues"], "eighteen digits are more than a double holds"
        partition = file["partitionValues"]
        assert isinstance(partition, dict)
        ids = [row["id"] for row in _rows_of(folder, file)]
        assert (stats["minValues"]["id"], stats["maxValues"]["id"]) == (min(ids), max(ids))
        assert stats["numRecords"] == len(ids)
        at = [row["at"] for row in _rows_of(folder, file)]
        low, high = (_time(stats[k]["at"]) for k in ("minValues", "maxValues"))
        assert (low, high) == (min(at), max(at))


def _rows_of(folder: Path, file: Row) -> list[Mapping[str, Any]]:
    return list(delta_log.rows_of(folder, file, delta_log.columns(folder)))


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text.replace("Z", "+00:00"))


@pytest.mark.slow
def test_the_ledger_survives_a_checkpoint_and_the_retention_of_transactions(tmp_path: Path) -> None:
    sink = _write_days(tmp_path)
    table = DeltaTable(tmp_path)
    table.alter.set_table_properties({"delta.setTransactionRetentionDuration": "interval 1 seconds"})
    time.sleep(1.5)
    run_maintenance(MaintenanceRun(_spec(tmp_path), compact=False, checkpoint=True), {}, lambda _: None)
    for commit in (tmp_path / "_delta_log").glob("*.json"):
        commit.unlink()  # what is left is the checkpoint
    sink.close()
    sink.open(WriterId("app", 1))
    assert sink.write(cut_id(5), {"rows": delta_log.table_of(_SCHEMA, {"id": 50})}).outcome == WriteOutcome.SKIPPED


@pytest.mark.slow
def test_vacuum_deletes_only_old_orphans(tmp_path: Path) -> None:
    _write_days(tmp_path)
    before = _contents(tmp_path)
    old, young = tmp_path / "p=a" / "old.parquet", tmp_path / "p=a" / "young.parquet"
    for orphan in (old, young):
        orphan.write_bytes(b"half a file")
    eight_days_ago = time.time() - 8 * 86_400
    os.utime(old, (eight_days_ago, eight_days_ago))
    run_maintenance(MaintenanceRun(_spec(tmp_path), compact=True, checkpoint=False), {}, lambda _: None)
    assert (old.exists(), young.exists()) == (False, True)
    assert _contents(tmp_path) == before


@pytest.mark.slow
def test_failed_upkeep_is_logged_and_affects_no_cut(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    spec = DeltaTableSpec(str(tmp_path), compact_every=2, checkpoint_every=100)
    sink = DeltaSink(DeltaSettings({"rows": spec}), {"rows": _SCHEMA})
    sink.open(WriterId("app", 1))
    (tmp_path / "compacted").write_text("a file where a folder should be")
    for batch in range(8):
        assert (
            sink.write(cut_id(batch), {"rows": delta_log.table_of(_SCHEMA, {"id": batch})}).outcome
            == WriteOutcome.COMMITTED
        )
        time.sleep(0.1)
    sink.close()
    assert [row["id"] for row in _contents(tmp_path)] == list(range(8))
    assert "upkeep failed" in caplog.text
