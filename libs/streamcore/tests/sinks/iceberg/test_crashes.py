"""Whatever process dies at any moment, each cut is in the Iceberg table once."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.table import Transaction

from streamcore.cuts.cut_id import CutId
from streamcore.cuts.writer_id import WriterId
from streamcore.errors import Fenced, Retryable
from streamcore.sinks.iceberg.catalog import SingleCommitTransaction
from streamcore.sinks.iceberg.sink import IcebergSink
from streamcore.sinks.iceberg.table import OpenIcebergTable
from streamcore.sinks.sink import SinkHooks, WriteOutcome
from tests.harness.cut_ids import cut_id
from tests.harness.faults import iceberg_child, killable
from tests.harness.faults.delta_child import PER_CUT, SCHEMA, cut
from tests.harness.faults.iceberg_child import TABLE, settings, sink
from tests.harness.oracles import iceberg_files

_OWNER = WriterId("app", 1)
_CUTS = 5


def _run(folder: Path, death: str = "never", at: int = 1) -> int | None:
    return killable.run(iceberg_child.main, folder, _CUTS, death, at)


def _ids(folder: Path) -> list[int]:
    return iceberg_files.ids(folder, TABLE)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("death", "at"),
    [
        ("created", 1),
        ("fenced", 1),
        ("ledger-read", 1),
        ("before-commit", 3),
        ("commit", 3),
        ("lost", 1),
        ("lost", 4),
        ("committed", 5),
    ],
)
def test_a_process_killed_at_any_step_leaves_a_table_that_its_successor_completes(
    tmp_path: Path, death: str, at: int
) -> None:
    assert _run(tmp_path, death, at) == -signal.SIGKILL
    assert _run(tmp_path) == 0
    assert _ids(tmp_path) == list(range(_CUTS * PER_CUT))


@pytest.mark.slow
def test_data_files_without_a_commit_are_invisible_to_readers(tmp_path: Path) -> None:
    assert _run(tmp_path, "commit", 2) == -signal.SIGKILL
    files = {*(tmp_path / "warehouse").rglob("*.parquet")}
    assert {*iceberg_files.live_files(tmp_path, TABLE)} < files, "the cut had written its files"
    assert _ids(tmp_path) == list(range(PER_CUT))


@pytest.mark.slow
def test_kills_at_random_moments_neither_lose_nor_repeat_rows(tmp_path: Path) -> None:
    killable.run_and_kill((60, 90, 120, 150, 180, 210), iceberg_child.main, tmp_path, 30)
    assert killable.run(iceberg_child.main, tmp_path, 30) == 0
    assert _ids(tmp_path) == list(range(30 * PER_CUT))


class _Forgetful(IcebergSink):
    """The protection off: a commit has neither its cut nor its epoch."""

    def _entries(self, lane: str, cut: CutId | None) -> tuple[Mapping[str, str], Mapping[str, str]]:
        ledger, summary = super()._entries(lane, None)
        return ledger, summary


@pytest.mark.slow
def test_without_the_ledger_a_replayed_cut_is_written_twice(tmp_path: Path) -> None:
    for _ in range(2):
        writer = _Forgetful(settings(tmp_path), {"rows": SCHEMA})
        writer.open(_OWNER)
        assert writer.write(cut_id(0), {"rows": cut(0)}).outcome == WriteOutcome.COMMITTED
        writer.close()
    assert _ids(tmp_path) == sorted([*range(PER_CUT)] * 2)


def test_a_replayed_cut_is_skipped_and_reports_the_same_rows(tmp_path: Path) -> None:
    for expected in (WriteOutcome.COMMITTED, WriteOutcome.SKIPPED):
        writer = sink(tmp_path)
        writer.open(_OWNER)
        written = writer.write(cut_id(3), {"rows": cut(3)})
        assert (written.outcome, written.rows) == (expected, PER_CUT)
        writer.close()
    found = iceberg_files.metadata(tmp_path, TABLE)
    assert {name: value for name, value in found["properties"].items() if name.startswith("headgate")} == {
        "headgate.app.iceberg.rows.epoch": "1",
        "headgate.app.iceberg.rows.batch": "3",
        "headgate.app.iceberg.rows.digest": cut_id(3).digest,
    }
    assert found["snapshots"][-1]["summary"]["headgate.batch"] == "3"


def test_a_cut_without_rows_commits_nothing(tmp_path: Path) -> None:
    writer = sink(tmp_path)
    writer.open(_OWNER)
    before = iceberg_files.metadata(tmp_path, TABLE)
    assert writer.write(cut_id(0), {}).outcome == WriteOutcome.EMPTY
    assert iceberg_files.metadata(tmp_path, TABLE) == before


def test_an_owner_of_an_earlier_epoch_is_fenced_at_its_commit(tmp_path: Path) -> None:
    old, new = sink(tmp_path), sink(tmp_path)
    old.open(_OWNER)
    old.write(cut_id(0), {"rows": cut(0)})
    new.open(WriterId("app", 2))
    with pytest.raises(Fenced, match="epoch 2 owns lane rows"):
        old.write(cut_id(1), {"rows": cut(1)})
    assert new.write(cut_id(0), {"rows": cut(1)}).outcome == WriteOutcome.COMMITTED, "a new epoch numbers cuts from 0"
    assert _ids(tmp_path) == list(range(2 * PER_CUT))
    with pytest.raises(Fenced):
        sink(tmp_path).open(_OWNER)


def test_with_the_retries_of_the_library_an_owner_of_an_earlier_epoch_is_not_fenced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The protection off."""
    monkeypatch.setattr(SingleCommitTransaction, "commit_transaction", Transaction.commit_transaction)
    old, new = sink(tmp_path), sink(tmp_path)
    old.open(_OWNER)
    new.open(WriterId("app", 2))
    assert old.write(cut_id(0), {"rows": cut(0)}).outcome == WriteOutcome.COMMITTED


def test_an_epoch_that_starts_between_the_files_and_the_commit_fences_the_writer(tmp_path: Path) -> None:
    new = sink(tmp_path)

    def overtake(step: str) -> None:
        if step == "before-commit":
            new.open(WriterId("app", 2))

    old = sink(tmp_path, SinkHooks(on_step=overtake))
    old.open(_OWNER)
    with pytest.raises(Fenced):
        old.write(cut_id(0), {"rows": cut(0)})
    assert _ids(tmp_path) == []


def test_another_copy_of_the_checkpoint_is_fenced(tmp_path: Path) -> None:
    one, other = sink(tmp_path), sink(tmp_path)
    one.open(_OWNER)
    other.open(_OWNER)
    one.write(cut_id(0), {"rows": cut(0)})
    with pytest.raises(Fenced, match="another copy of the checkpoint"):
        other.write(cut_id(0, history=1), {"rows": cut(1)})
    assert _ids(tmp_path) == list(range(PER_CUT))


def test_a_commit_whose_answer_was_lost_is_not_written_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    append = OpenIcebergTable.append
    lost: list[pa.Table] = []

    def lose(self: OpenIcebergTable, rows: pa.Table, *entries: Mapping[str, str]) -> None:
        append(self, rows, *entries)
        if rows.num_rows and not lost:
            lost.append(rows)
            raise Retryable("the answer was lost")

    monkeypatch.setattr(OpenIcebergTable, "append", lose)
    writer = sink(tmp_path)
    writer.open(_OWNER)
    assert writer.write(cut_id(0), {"rows": cut(0)}).outcome == WriteOutcome.SKIPPED
    assert writer.write(cut_id(1), {"rows": cut(1)}).outcome == WriteOutcome.COMMITTED
    assert _ids(tmp_path) == list(range(2 * PER_CUT))


@pytest.mark.slow
def test_another_writer_of_the_table_delays_a_cut_and_harms_nothing(tmp_path: Path) -> None:
    mine, other = sink(tmp_path), IcebergSink(settings(tmp_path), {"rows": SCHEMA})
    mine.open(_OWNER)
    other.open(WriterId("other", 1))
    other.write(cut_id(0), {"rows": cut(1)})
    assert mine.write(cut_id(0), {"rows": cut(0)}).outcome == WriteOutcome.COMMITTED
    assert _ids(tmp_path) == list(range(2 * PER_CUT))


@pytest.mark.slow
def test_two_processes_of_one_epoch_write_the_same_cuts_once(tmp_path: Path) -> None:
    sink(tmp_path).open(_OWNER)
    assert 0 in killable.run_together(2, iceberg_child.main, tmp_path, 15), (
        "the slower one may be fenced: the ledger is ahead"
    )
    assert _ids(tmp_path) == list(range(15 * PER_CUT))


def test_expired_snapshots_do_not_make_the_sink_forget_its_cut(tmp_path: Path) -> None:
    mine, other = sink(tmp_path), sink(tmp_path)
    mine.open(_OWNER)
    mine.write(cut_id(0), {"rows": cut(0)})
    other.open(WriterId("other", 1))
    other.write(cut_id(0), {"rows": cut(1)})
    table = other._lanes["rows"].table._table  # the library's own expiry
    ours = [s.snapshot_id for s in table.metadata.snapshots if s.summary and s.summary["headgate.app"] == "app"]
    table.maintenance.expire_snapshots().by_ids(ours).commit()
    again = sink(tmp_path)
    assert again.open(_OWNER) == cut_id(0)
    assert again.write(cut_id(0), {"rows": cut(0)}).outcome == WriteOutcome.SKIPPED
