"""Whatever process dies at any moment, each cut is in the table once."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from pathlib import Path

import pytest

from streamcore.cuts.cut_id import CutId
from streamcore.cuts.writer_id import WriterId
from streamcore.errors import Fenced
from streamcore.sinks.delta.sink import DeltaSink
from streamcore.sinks.sink import SinkHooks, WriteOutcome
from tests.harness.cut_ids import cut_id
from tests.harness.faults import delta_child, killable
from tests.harness.faults.delta_child import PER_CUT, SCHEMA, cut, settings, sink
from tests.harness.oracles import delta_log

_OWNER = WriterId("app", 1)
_CUTS = 7
#: By itself, or by the kernel at the forbidden system call.
_KILLED = (-signal.SIGKILL, -signal.SIGSYS)


def _run(folder: Path, death: str = "never", at: int = 1) -> int | None:
    return killable.run(delta_child.main, folder, _CUTS, death, at)


def _ids(folder: Path) -> list[int]:
    return sorted(int(str(row["id"])) for row in delta_log.rows(folder))


@pytest.mark.parametrize(
    ("death", "at"),
    [
        ("created", 1),
        ("fenced", 1),
        ("ledger-read", 1),
        ("before-commit", 3),
        ("commit", 3),
        ("committed", 1),
        ("committed", 5),
        ("compacted", 1),
        ("vacuumed", 1),
        ("checkpointed", 1),
    ],
)
def test_a_process_killed_at_any_step_leaves_a_table_that_its_successor_completes(
    tmp_path: Path, death: str, at: int
) -> None:
    assert _run(tmp_path / "t", death, at) in _KILLED
    assert _run(tmp_path / "t") == 0
    assert _ids(tmp_path / "t") == list(range(_CUTS * PER_CUT))


@pytest.mark.slow
def test_data_files_without_a_commit_are_invisible_to_readers(tmp_path: Path) -> None:
    assert _run(tmp_path / "t", "commit", 2) in _KILLED
    files = {str(p.relative_to(tmp_path / "t")) for p in (tmp_path / "t").glob("day=*/*.parquet")}
    listed = {str(file["path"]) for file in delta_log.live_files(tmp_path / "t")}
    assert listed < files, "the cut had written its files"
    assert _ids(tmp_path / "t") == list(range(PER_CUT))


def test_kills_at_random_moments_neither_lose_nor_repeat_rows(tmp_path: Path) -> None:
    killable.run_and_kill((40, 60, 80, 100, 120, 140), delta_child.main, tmp_path / "t", 40)
    assert killable.run(delta_child.main, tmp_path / "t", 40) == 0
    assert _ids(tmp_path / "t") == list(range(40 * PER_CUT))


class _Forgetful(DeltaSink):
    """The protection off: a commit has neither its cut nor its epoch."""

    def _marks(self, lane: str, cut: CutId) -> Mapping[str, int]:
        return {}


def test_without_the_application_transaction_a_replayed_cut_is_written_twice(tmp_path: Path) -> None:
    for _ in range(2):
        writer = _Forgetful(settings(tmp_path / "t"), {"rows": SCHEMA})
        writer.open(_OWNER)
        assert writer.write(cut_id(0), {"rows": cut(0)}).outcome == WriteOutcome.COMMITTED
        writer.close()
    assert _ids(tmp_path / "t") == sorted([*range(PER_CUT)] * 2)


def test_without_the_application_transaction_an_owner_of_an_earlier_epoch_is_not_fenced(tmp_path: Path) -> None:
    old, new = _Forgetful(settings(tmp_path / "t"), {"rows": SCHEMA}), sink(tmp_path / "t")
    old.open(_OWNER)
    new.open(WriterId("app", 2))
    assert old.write(cut_id(0), {"rows": cut(0)}).outcome == WriteOutcome.COMMITTED


def test_a_replayed_cut_is_skipped_and_reports_the_same_rows(tmp_path: Path) -> None:
    for expected in (WriteOutcome.COMMITTED, WriteOutcome.SKIPPED):
        writer = sink(tmp_path / "t")
        writer.open(_OWNER)
        written = writer.write(cut_id(3), {"rows": cut(3)})
        assert (written.outcome, written.rows) == (expected, PER_CUT)
        writer.close()
    assert delta_log.ledger(tmp_path / "t") == {
        "app.1.delta.rows": 3,
        "app.1.delta.rows.digest": int(cut_id(3).digest, 16),
        "app.epoch.delta.rows": 1,
    }


def test_a_cut_without_rows_commits_nothing(tmp_path: Path) -> None:
    writer = sink(tmp_path / "t")
    writer.open(_OWNER)
    before = len(delta_log.actions(tmp_path / "t"))
    assert writer.write(cut_id(0), {}).outcome == WriteOutcome.EMPTY
    assert len(delta_log.actions(tmp_path / "t")) == before


def test_an_owner_of_an_earlier_epoch_is_fenced_at_its_commit(tmp_path: Path) -> None:
    old, new = sink(tmp_path / "t"), sink(tmp_path / "t")
    old.open(_OWNER)
    old.write(cut_id(0), {"rows": cut(0)})
    new.open(WriterId("app", 2))
    with pytest.raises(Fenced, match="epoch 2 owns lane rows"):
        old.write(cut_id(1), {"rows": cut(1)})
    assert new.write(cut_id(0), {"rows": cut(1)}).outcome == WriteOutcome.COMMITTED, "a new epoch numbers cuts from 0"
    assert _ids(tmp_path / "t") == list(range(2 * PER_CUT))
    with pytest.raises(Fenced):
        sink(tmp_path / "t").open(_OWNER)


def test_an_epoch_that_starts_between_the_files_and_the_commit_fences_the_writer(tmp_path: Path) -> None:
    new = sink(tmp_path / "t")

    def overtake(step: str) -> None:
        if step == "before-commit":
            new.open(WriterId("app", 2))

    old = sink(tmp_path / "t", SinkHooks(on_step=overtake))
    old.open(_OWNER)
    with pytest.raises(Fenced):
        old.write(cut_id(0), {"rows": cut(0)})
    assert _ids(tmp_path / "t") == []


@pytest.mark.slow
def test_two_processes_of_one_epoch_write_the_same_cuts_once(tmp_path: Path) -> None:
    sink(tmp_path / "t").open(_OWNER)
    assert 0 in killable.run_together(2, delta_child.main, tmp_path / "t", 30), (
        "the slower one may be fenced: the ledger is ahead"
    )
    assert _ids(tmp_path / "t") == list(range(30 * PER_CUT))


def test_a_sink_that_lost_ownership_does_not_retry(tmp_path: Path) -> None:
    def raise_fenced() -> None:
        raise Fenced("another process has the lease")

    writer = sink(tmp_path / "t", SinkHooks(still_owner=raise_fenced))
    other = sink(tmp_path / "t")
    writer.open(_OWNER)
    other.open(_OWNER)
    other.write(cut_id(0), {"rows": cut(0)})
    with pytest.raises(Fenced, match="lease"):
        writer.write(cut_id(0), {"rows": cut(0)})
