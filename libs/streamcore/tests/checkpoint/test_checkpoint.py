"""Nothing starts on a checkpoint unless it belongs to the app, has one epoch and is complete."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamcore.checkpoint.checkpoint import AppIdentity, CheckpointRoot
from streamcore.checkpoint.epoch import create_epoch, raise_epoch, read_epoch
from streamcore.checkpoint.offset_log import CutBounds
from streamcore.cuts.cut_clock import CutClock
from streamcore.cuts.cut_id import CutId
from streamcore.errors import ConfigError, CorruptState, Retryable
from streamcore.offsets import StreamOffsets
from streamcore.storage import ObjectStore
from streamcore.storage.atomic_files import (
    discard,
    file_error,
    list_names,
    make_folder,
    read_json,
    remove_folder,
    write_json,
    write_text,
    writing,
)
from streamcore.storage.location import Location, location
from tests.harness.cut_ids import cut_id

SHOP = AppIdentity("shop", 16)
OFFSETS = 'v1\n{"batchWatermarkMs":0}\n{"shop":{"0":17}}\n'
COMMIT = 'v1\n{"nextBatchWatermarkMs":0}\n'


@pytest.fixture
def root(any_place: ObjectStore) -> CheckpointRoot:
    root = CheckpointRoot(location(any_place.url) / "checkpoint")
    assert root.initialise(SHOP) == 1
    return root


def run_batches(root: CheckpointRoot, planned: int, committed: int, first: int = 0) -> None:
    """Write the logs of Spark after planning batches ``first .. planned`` and committing up to ``committed``."""
    for log, last, text in (("offsets", planned, OFFSETS), ("commits", committed, COMMIT)):
        make_folder(root.spark / log)
        for batch in range(first, last + 1):
            write_text(root.spark / log / str(batch), text)
            write_text(root.spark / log / f".{batch}.crc", "checksum")
    start, previous = StreamOffsets(CutClock(), {}), ""
    for batch in range(first, committed + 1):
        bounds = CutBounds(start, StreamOffsets(CutClock.at(batch), {("shop", 0): 17}), previous)
        root.offsets.write(batch, bounds)
        start, previous = bounds.end, bounds.id(batch).digest
    write_text(root.spark / "metadata", '{"id":"f81d4fae-7dec-11d0-a765-00a0c91e6bf6"}')


def planned_cut(root: CheckpointRoot, batch: int) -> CutId:
    """Return the identity under which the checkpoint planned a batch."""
    bounds = root.offsets.read(batch)
    assert bounds is not None
    return bounds.id(batch)


def test_a_new_root_is_created_with_its_identity_and_epoch(tmp_path: Path) -> None:
    root = CheckpointRoot(tmp_path / "a" / "b")
    assert root.identity() is None
    assert root.initialise(SHOP, epoch=4) == 4
    assert root.identity() == SHOP
    assert root.initialise(SHOP) == 4, "an existing root keeps its epoch"
    assert (root.last_planned(), root.last_committed()) == (None, None)


def test_after_a_checkpoint_that_was_deleted_at_its_end_the_app_begins_anew_in_a_later_epoch(
    root: CheckpointRoot,
) -> None:
    run_batches(root, 5, 5)
    write_text(root.path / "status.json", "{}")
    root.delete()
    assert root.identity() is None
    assert sorted(list_names(root.path)) == ["ended.json", "status.json"]
    assert root.initialise(AppIdentity("shop", 8)) == 2, "the markers of epoch 1 are still in Kafka"
    assert (root.last_planned(), root.last_committed()) == (None, None)
    assert root.initialise(AppIdentity("shop", 8)) == 2
    assert sorted(list_names(root.path)) == ["app.json", "epoch.json", "status.json"]


def test_what_a_crash_leaves_of_a_deleted_checkpoint_is_deleted_at_the_next_start(root: CheckpointRoot) -> None:
    run_batches(root, 5, 5)
    write_json(root.ended_path, {"epoch": 1})  # a crash before the first file was deleted
    assert root.initialise(SHOP) == 2
    assert root.last_planned() is None
    write_json(root.ended_path, {"epoch": 1})  # a crash before the note was removed
    assert root.initialise(SHOP) == 2


@pytest.mark.parametrize(
    ("identity", "message"),
    [
        (AppIdentity("retail", 16), "belongs to app shop, not retail; give retail a checkpoint of its own"),
        (AppIdentity("shop", 8), "it has 16 shards, the app is set to 8; set it to 16"),
        (AppIdentity("shop", 16, 2), "output version 1, the app is set to 2; set it back to 1, or take a savepoint"),
    ],
)
def test_another_app_or_other_settings_are_rejected(identity: AppIdentity, message: str, root: CheckpointRoot) -> None:
    with pytest.raises(ConfigError, match=message):
        root.initialise(identity)
    assert root.identity() == SHOP


@pytest.mark.parametrize(("planned", "committed"), [(0, -1), (0, 0), (5, 4), (5, 5), (130, 129)])
@pytest.mark.quick_cases(2)
def test_the_logs_that_spark_leaves_after_a_crash_or_a_stop_are_accepted(
    planned: int, committed: int, root: CheckpointRoot
) -> None:
    run_batches(root, planned, committed, first=max(0, planned - 100))
    assert root.initialise(SHOP) == 1
    assert root.last_planned() == planned
    assert root.last_committed() == (committed if committed >= 0 else None)


Damage = Callable[[CheckpointRoot], None]


def location_for(root: CheckpointRoot, name: str) -> Location:
    return root.path / name


def remove(*names: str) -> Damage:
    def damage(root: CheckpointRoot) -> None:
        for name in names:
            discard(location_for(root, name))

    return damage


def write(name: str, text: str) -> Damage:
    def damage(root: CheckpointRoot) -> None:
        write_text(location_for(root, name), text)

    return damage


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (remove("spark/metadata"), r"spark/metadata is missing or empty \(Spark would take this for a new query\)"),
        (write("spark/metadata", ""), "spark/metadata is missing or empty"),
        (remove("spark/offsets/3"), "spark/offsets/3 is missing between 0 and 6"),
        (remove("spark/commits/2"), "spark/commits/2 is missing between 0 and 5"),
        (remove("spark/commits/5", "spark/commits/4"), "spark/commits/4 is missing"),
        (
            remove("spark/offsets/6", "spark/offsets/5"),
            "spark/offsets/5 is missing .batch 5 is committed, the last planned is 4.",
        ),
        (remove(*(f"spark/offsets/{n}" for n in range(7))), "spark/commits has batches, spark/offsets has none"),
        (write("spark/offsets/6", ""), r"spark/offsets/6 is cut short \(the disk was full"),
        (write("spark/offsets/6", "v1\n"), "spark/offsets/6 is cut short"),
        (write("spark/offsets/5", "{}\n{}\n"), "spark/offsets/5 is cut short"),
        (write("spark/commits/5", "v"), "spark/commits/5 is cut short"),
        (remove("offsets/5"), "offsets/5 is missing .batch 5 is committed"),
        (write("offsets/7", "{}"), "spark/offsets/7 is missing .offsets has batch 7, the last planned is 6."),
    ],
)
@pytest.mark.quick_cases(6)
def test_a_damaged_log_is_rejected_with_the_file_and_the_remedy(
    damage: Damage, message: str, root: CheckpointRoot
) -> None:
    run_batches(root, 6, 5)
    damage(root)
    with pytest.raises(ConfigError, match=message + ".*restore from a savepoint, or start with a new checkpoint"):
        root.initialise(SHOP)


def test_a_checkpoint_behind_the_written_output_is_rejected(tmp_path: Path, root: CheckpointRoot) -> None:
    run_batches(root, 6, 5)
    for written in (4, 5):
        root.check_history(planned_cut(root, written), 1)
    with pytest.raises(ConfigError, match="batch 7 of epoch 1 was written, and here the next one is 6"):
        root.check_history(cut_id(7), 1)
    with pytest.raises(ConfigError, match=r"offsets/6 is missing \(batch 6 was written\)"):
        root.check_history(cut_id(6), 1)
    new = CheckpointRoot(tmp_path / "new")
    new.initialise(SHOP)
    with pytest.raises(ConfigError, match="another copy of this checkpoint"):
        new.check_history(cut_id(0), 1)


def test_a_batch_that_another_copy_of_the_checkpoint_wrote_is_rejected(root: CheckpointRoot) -> None:
    run_batches(root, 6, 5)
    with pytest.raises(ConfigError, match="batch 5 of epoch 1 was written, and here that batch has other offsets"):
        root.check_history(cut_id(5), 1)


def test_a_marker_that_is_too_old_is_rejected(root: CheckpointRoot) -> None:
    run_batches(root, 6, 5)
    root.check_marker(None, 1, every=6)
    root.check_marker(cut_id(2), 1, every=3)
    for marker, shown in ((None, "no batch of this app"), (cut_id(1), "batch 1")):
        with pytest.raises(ConfigError, match=f"batch 5 of epoch 1 is committed, and the markers topic shows {shown}"):
            root.check_marker(marker, 1, every=3)


def test_temporary_files_of_a_crash_do_not_count_as_batches(root: CheckpointRoot) -> None:
    run_batches(root, 2, 1)
    write_text(root.spark / "offsets" / ".3.7c9e6679-7425-40de-944b-e07fc1f90ae7.tmp", "v1")
    root.initialise(SHOP)
    assert root.planned_batches() == (0, 1, 2)


def test_other_keyed_stages_than_those_of_the_committed_batches_are_rejected(root: CheckpointRoot) -> None:
    add_stage(root, 0)
    root.check_stages(1)
    assert list_names(root.stages) == ["0"], "a check removes nothing"
    root.remove_other_stages(2)
    assert list_names(root.stages) == ["0"], "a task of a dead process may still write there"
    root.remove_other_stages(1)
    assert list_names(root.stages) == []
    run_batches(root, 2, 2)
    root.check_stages(1)
    with pytest.raises(ConfigError, match=r"\(1, the app has 2\).*`feature_stage`.*or the folder stages/0 was lost"):
        root.check_stages(2)
    add_stage(root, 0)
    root.check_stages(2)
    for other in (1, 3):
        with pytest.raises(ConfigError, match=rf"\(2, the app has {other}\).*restore the app from a savepoint"):
            root.check_stages(other)


def test_a_lost_stage_is_named(root: CheckpointRoot) -> None:
    run_batches(root, 2, 2)
    add_stage(root, 1)
    with pytest.raises(ConfigError, match="stages/0 is missing"):
        root.check_stages(3)


def add_stage(root: CheckpointRoot, stage: int) -> None:
    index = root.stages / str(stage) / "1" / "2.index"
    make_folder(index.parent)
    write_text(index, "of an attempt")


def test_without_the_files_of_spark_nothing_is_removed_and_no_app_begins_anew(root: CheckpointRoot) -> None:
    run_batches(root, 2, 2)
    add_stage(root, 0)
    remove_folder(root.spark)
    root.check_stages(2)
    assert list_names(root.stages) == ["0"]
    with pytest.raises(
        ConfigError, match=r"spark/offsets has no batch \(offsets has batch 2.*restore from a savepoint"
    ):
        root.initialise(SHOP)
    assert list_names(root.stages) == ["0"]


def test_lost_files_are_not_recreated_while_batches_exist(root: CheckpointRoot) -> None:
    run_batches(root, 2, 2)
    discard(root.epoch_path)
    with pytest.raises(CorruptState, match="epoch is missing"):
        root.initialise(SHOP)
    create_epoch(root.epoch_path, 3)
    discard(root.app_path)
    with pytest.raises(ConfigError, match=r"app.json is missing though batches exist"):
        root.initialise(SHOP)
    assert read_epoch(root.epoch_path) == 3


def test_an_interrupted_creation_is_repeated(root: CheckpointRoot) -> None:
    discard(root.app_path)
    assert root.initialise(SHOP) == 1
    assert root.identity() == SHOP


def test_a_newer_format_is_rejected(root: CheckpointRoot) -> None:
    entries = read_json(root.app_path)
    assert entries is not None
    write_json(root.app_path, {**entries, "format_version": 99})
    with pytest.raises(ConfigError, match="format 99, this program reads 6"):
        root.initialise(SHOP)


def test_the_epoch_never_decreases(root: CheckpointRoot) -> None:
    assert [raise_epoch(root.epoch_path) for _ in range(3)] == [2, 3, 4]
    assert root.initialise(SHOP) == 4
    with pytest.raises(CorruptState, match="first epoch is 1"):
        create_epoch(root.epoch_path, 0)


@given(text=st.binary(max_size=60))
def test_any_bytes_in_the_epoch_file_give_an_epoch_or_an_error(
    text: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("epoch") / "epoch.json"
    path.write_bytes(text)
    epoch, rejected = 0, False
    try:
        epoch = read_epoch(path)
    except CorruptState as error:
        rejected = str(path) in str(error)
    assert rejected or epoch >= 1


def test_an_interrupted_write_keeps_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "epoch.json"
    create_epoch(path, 7)

    def raise_disk_full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", raise_disk_full)
    with pytest.raises(
        Retryable,
        match=r"epoch.json: disk full \(\d+ bytes free\); make room there; start the app again",
    ):
        create_epoch(path, 8)
    monkeypatch.undo()
    assert read_epoch(path) == 7
    assert [p.name for p in tmp_path.iterdir()] == ["epoch.json"]


def test_the_error_for_a_folder_without_permission_names_the_remedy() -> None:
    error = file_error(Path("/x/epoch.json"), PermissionError(errno.EACCES, "Permission denied"))
    assert isinstance(error, ConfigError)
    assert "/x/epoch.json: Permission denied; give this user the right" in str(error)


def test_two_concurrent_writers_of_a_file_use_separate_temporary_files(tmp_path: Path) -> None:
    """This covers two processes with one process id, in two pods."""
    path = tmp_path / "state"
    with writing(path) as one:
        one.write(b"one")
        with writing(path) as other:
            other.write(b"other")
        assert path.read_bytes() == b"other"
    assert path.read_bytes() == b"one"
    assert [*tmp_path.iterdir()] == [path]
