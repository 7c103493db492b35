"""A stopped app is saved only if no batch is left half written, unless that is accepted."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest

from streamcore.checkpoint.checkpoint import CheckpointRoot
from streamcore.checkpoint.offset_log import CutBounds
from streamcore.cuts.cut_clock import CutClock
from streamcore.errors import ConfigError
from streamcore.offsets import StreamOffsets
from streamcore.savepoint import SavepointRepository
from streamcore.spark.savepoint_writer import take_savepoint_of_stopped
from streamcore.storage import LocalObjectStore
from tests.harness.apps.versioned_shop import Version
from tests.harness.servers.checkpoint_files import on_disk

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BOUNDS = CutBounds(StreamOffsets(CutClock(), {}), StreamOffsets(CutClock.at(1), {}))


def make_stopped(folder: Path, committed: int, begun: int) -> CheckpointRoot:
    """Return a checkpoint with the last batch that Spark committed, and the last that was planned."""
    root = CheckpointRoot(folder)
    (on_disk(root.spark) / "commits").mkdir(parents=True)
    for batch in range(committed + 1):
        (on_disk(root.spark) / "commits" / str(batch)).touch()
    for batch in range(begun + 1):
        root.offsets.write(batch, BOUNDS)
    return root


def take(root: CheckpointRoot, *, accept_unsettled: bool = False) -> None:
    """Take a savepoint without Spark: whatever is not rejected fails."""
    savepoints = SavepointRepository(LocalObjectStore(on_disk(root.path) / "savepoints"), "shop")
    app = Version().topology("shop").app()
    take_savepoint_of_stopped(
        cast("SparkSession", None), app, root, savepoints, "one", accept_unsettled=accept_unsettled
    )


def test_a_planned_and_uncommitted_batch_must_be_settled_before_a_savepoint(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="batch 3 was begun and not finished; settle it first"):
        take(make_stopped(tmp_path, committed=2, begun=3))
    assert not (tmp_path / "savepoints").exists()


def test_a_savepoint_without_a_known_epoch_fails(tmp_path: Path) -> None:
    with pytest.raises(Exception, match="the epoch is missing"):
        take(make_stopped(tmp_path, committed=2, begun=3), accept_unsettled=True)


def test_a_savepoint_without_a_batch_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no batch is committed yet"):
        take(CheckpointRoot(tmp_path))
