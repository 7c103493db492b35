"""Whatever process dies at any moment, each cut is in the folder once: by its notes, and for who lists its files."""

from __future__ import annotations

import itertools
import signal
from pathlib import Path

import pytest

from streamcore.cuts.cut_id import CutId
from streamcore.cuts.writer_id import WriterId
from streamcore.errors import Fenced
from streamcore.sinks.parquet.notes import FolderLog, FolderNote
from streamcore.sinks.parquet.sink import ParquetSink
from streamcore.sinks.sink import SinkHooks, WriteOutcome
from tests.harness.cut_ids import cut_id
from tests.harness.faults import killable, parquet_child
from tests.harness.faults.delta_child import PER_CUT, SCHEMA, cut
from tests.harness.faults.parquet_child import settings, sink
from tests.harness.oracles.parquet_notes import counted_files, ids, listed_ids
from tests.harness.servers.s3_server import ENDPOINT, S3Location, environment, new_location

_OWNER = WriterId("app", 1)
_CUTS = 5


@pytest.fixture(params=["disk", "s3"])
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path | S3Location:
    """Return a folder on a disk, or in a bucket of a real S3 server."""
    if request.param == "disk":
        return tmp_path / "t"
    if not ENDPOINT:
        pytest.skip("no S3 server: name one (tests/harness/servers/s3_server.py)")
    for name, value in environment().items():
        monkeypatch.setenv(name, value)
    return new_location(tmp_path)


def _uri(place: Path | S3Location) -> str:
    return place.uri if isinstance(place, S3Location) else str(place)


def _folder(place: Path | S3Location) -> Path:
    return place.copy() if isinstance(place, S3Location) else place


def _run(place: Path | S3Location, death: str = "never", at: int = 1) -> int | None:
    return killable.run(parquet_child.main, _uri(place), _CUTS, death, at)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("death", "at"),
    [("fenced", 1), ("file-written", 1), ("file-written", 8), ("before-commit", 3), ("committed", 1), ("committed", 4)],
)
def test_a_process_killed_at_any_step_leaves_a_folder_that_its_successor_completes(
    place: Path | S3Location, death: str, at: int
) -> None:
    assert _run(place, death, at) == -signal.SIGKILL
    assert _run(place) == 0
    assert ids(_folder(place)) == list(range(_CUTS * PER_CUT))
    assert listed_ids(_folder(place)) == list(range(_CUTS * PER_CUT)), "the files of the killed cut were replaced"


@pytest.mark.slow
def test_files_without_a_note_do_not_count(tmp_path: Path) -> None:
    assert _run(tmp_path / "t", "before-commit", 2) == -signal.SIGKILL
    assert listed_ids(tmp_path / "t") == list(range(2 * PER_CUT)), "the cut had written its files"
    assert ids(tmp_path / "t") == list(range(PER_CUT))


@pytest.mark.slow
def test_kills_at_random_moments_neither_lose_nor_repeat_rows(place: Path | S3Location) -> None:
    killable.run_and_kill((20, 30, 40, 50, 60, 70), parquet_child.main, _uri(place), 40)
    assert killable.run(parquet_child.main, _uri(place), 40) == 0
    assert ids(_folder(place)) == listed_ids(_folder(place)) == list(range(40 * PER_CUT))


class _Forgetful(ParquetSink):
    """The protection off: never sees which cut was written last."""

    def _is_written(self, note: FolderNote, cut: CutId) -> bool:
        return False


class _Random(ParquetSink):
    """The protection off: files have another name each time."""

    _numbers = itertools.count()

    def _file_name(self, cut: CutId, lane: str) -> str:
        return f"{next(self._numbers)}.parquet"


class _Unconditional(FolderLog):
    """The protection off: a note is written wherever it is missing."""

    def create(self, number: int, note: FolderNote) -> bool:
        return super().create(self.read_last()[0] + 1, note)


def test_without_the_note_a_replayed_cut_counts_twice(tmp_path: Path) -> None:
    for _ in range(2):
        writer = _Forgetful(settings(tmp_path / "t"), {"rows": SCHEMA})
        writer.open(_OWNER)
        assert writer.write(cut_id(0), {"rows": cut(0)}).outcome == WriteOutcome.COMMITTED
        writer.close()
    assert ids(tmp_path / "t") == sorted([*range(PER_CUT)] * 2)


def test_without_names_of_the_cut_who_lists_files_sees_a_killed_cut_twice(tmp_path: Path) -> None:
    def stop(step: str) -> None:
        if step == "before-commit":
            raise KeyboardInterrupt

    writer = _Random(settings(tmp_path / "t"), {"rows": SCHEMA}, SinkHooks(on_step=stop))
    writer.open(_OWNER)
    with pytest.raises(KeyboardInterrupt):
        writer.write(cut_id(0), {"rows": cut(0)})
    writer = _Random(settings(tmp_path / "t"), {"rows": SCHEMA})
    writer.open(_OWNER)
    writer.write(cut_id(0), {"rows": cut(0)})
    assert ids(tmp_path / "t") == list(range(PER_CUT))
    assert listed_ids(tmp_path / "t") == sorted([*range(PER_CUT)] * 2)


def test_an_owner_of_an_earlier_epoch_is_fenced_at_its_note(place: Path | S3Location) -> None:
    old, new = sink(_uri(place)), sink(_uri(place))
    old.open(_OWNER)
    old.write(cut_id(0), {"rows": cut(0)})
    new.open(WriterId("app", 2))
    with pytest.raises(Fenced, match="epoch 2 owns lane rows"):
        old.write(cut_id(1), {"rows": cut(1)})
    assert new.write(cut_id(0), {"rows": cut(1)}).outcome == WriteOutcome.COMMITTED, "a new epoch numbers cuts from 0"
    assert ids(_folder(place)) == list(range(2 * PER_CUT))
    with pytest.raises(Fenced):
        sink(_uri(place)).open(_OWNER)


def test_without_the_condition_an_owner_of_an_earlier_epoch_is_not_fenced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streamcore.sinks.parquet.sink.FolderLog", _Unconditional)
    old, new = sink(tmp_path / "t"), sink(tmp_path / "t")
    old.open(_OWNER)
    new.open(WriterId("app", 2))
    assert old.write(cut_id(0), {"rows": cut(0)}).outcome == WriteOutcome.COMMITTED


def test_another_copy_of_the_checkpoint_is_fenced_and_its_files_do_not_count(tmp_path: Path) -> None:
    one, other = sink(tmp_path / "t"), sink(tmp_path / "t")
    one.open(_OWNER)
    other.open(_OWNER)
    one.write(cut_id(0), {"rows": cut(0)})
    with pytest.raises(Fenced, match="another copy of the checkpoint"):
        other.write(cut_id(0, history=1), {"rows": cut(1)})
    assert ids(tmp_path / "t") == list(range(PER_CUT))


def test_a_replayed_cut_is_skipped_and_reports_the_same_rows(place: Path | S3Location) -> None:
    for expected in (WriteOutcome.COMMITTED, WriteOutcome.SKIPPED):
        writer = sink(_uri(place))
        writer.open(_OWNER)
        written = writer.write(cut_id(3), {"rows": cut(3)})
        assert (written.outcome, written.rows) == (expected, PER_CUT)
        writer.close()
    assert len(counted_files(_folder(place))) == 3, "three days"


class _LostAnswer(FolderLog):
    """The server makes the note, and its answer is lost, once."""

    lost = False

    def create(self, number: int, note: FolderNote) -> bool:
        made = super().create(number, note)
        if note.files and not _LostAnswer.lost:
            _LostAnswer.lost = True
            return False
        return made


def test_a_note_whose_answer_was_lost_is_not_written_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamcore.sinks.parquet.sink.FolderLog", _LostAnswer)
    writer = sink(tmp_path / "t")
    writer.open(_OWNER)
    assert writer.write(cut_id(0), {"rows": cut(0)}).outcome == WriteOutcome.SKIPPED
    assert _LostAnswer.lost
    assert writer.write(cut_id(1), {"rows": cut(1)}).outcome == WriteOutcome.COMMITTED
    assert ids(tmp_path / "t") == list(range(2 * PER_CUT))


@pytest.mark.slow
def test_two_processes_of_one_epoch_write_the_same_cuts_once(place: Path | S3Location) -> None:
    sink(_uri(place)).open(_OWNER)
    assert 0 in killable.run_together(2, parquet_child.main, _uri(place), 20), (
        "the slower one may be fenced: the notes are ahead"
    )
    assert ids(_folder(place)) == list(range(20 * PER_CUT))


def test_a_sink_that_lost_ownership_does_not_retry(tmp_path: Path) -> None:
    def raise_fenced() -> None:
        raise Fenced("another process has the lease")

    writer = sink(tmp_path / "t", SinkHooks(still_owner=raise_fenced))
    other = sink(tmp_path / "t")
    writer.open(_OWNER)
    other.open(_OWNER)
    other.write(cut_id(1), {"rows": cut(1)})
    with pytest.raises(Fenced, match="lease"):
        writer.write(cut_id(0), {"rows": cut(0)})
