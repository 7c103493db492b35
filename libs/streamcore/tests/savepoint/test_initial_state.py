"""The initial state of shards after a restore, in a folder or a bucket: each its own rows, once, always the same."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl
import pytest

from streamcore.app import App
from streamcore.errors import CorruptState
from streamcore.savepoint import Savepoint, SavepointRepository
from streamcore.savepoint.app_description import check_app_compatibility
from streamcore.savepoint.create import write_manifest
from streamcore.savepoint.initial_state import InitialBlobStore, copy_files, initial_blobs
from streamcore.savepoint.state_files import live_rows, read_cells, save_shard
from streamcore.state.blob_store import MemoryBlobs
from streamcore.state.state_log import HEAD
from streamcore.storage import ObjectStore
from streamcore.topology.simulation import Simulation
from tests.harness.apps.versioned_shop import Version, moment, simulated

SHARDS = 3
CELLS = {"watermark_groups": [{"watermark_ms": 7, "partitions": {}}]}


@dataclass(frozen=True)
class Restored:
    """A savepoint of the shop, and the folder that is filled from it."""

    simulation: Simulation
    savepoint: Savepoint
    folder: ObjectStore

    @property
    def app(self) -> App:
        return self.simulation.local.app

    def first(self, stage: int, shard: int, blobs: MemoryBlobs) -> InitialBlobStore:
        return InitialBlobStore(blobs, self.folder, self.app, stage, shard)


@pytest.fixture
def restored(any_place: ObjectStore) -> Restored:
    simulation = simulated(Version(), SHARDS)
    app, to = simulation.local.app, SavepointRepository(any_place, "shop").create("one")
    receipts = [save_shard(to, app, stage, shard, blobs) for (stage, shard), blobs in simulation.blobs.items()]
    savepoint = Savepoint(to, write_manifest(to, "one", app, moment(), receipts))
    restored = Restored(simulation, savepoint, any_place.under("initial"))
    refill(restored)
    return restored


def refill(restored: Restored) -> None:
    plan = check_app_compatibility(restored.savepoint.manifest, restored.app)
    copy_files(restored.folder, restored.savepoint, plan, CELLS, restored.app.state.buckets)


def live_lines(app: App, stage: int, blobs: MemoryBlobs) -> dict[str, list[str]]:
    found = live_rows(app, stage, blobs)
    return {name: sorted(lines(frame)) for name, frame in found.items() if frame.height}


def lines(frame: pl.DataFrame) -> list[str]:
    return [repr(row) for row in frame.select(sorted(frame.columns)).rows()]


@pytest.mark.slow
def test_each_shard_of_each_stage_starts_with_exactly_its_own_rows(restored: Restored) -> None:
    seen = 0
    for (stage, shard), before in restored.simulation.blobs.items():
        kept = MemoryBlobs()
        assert restored.first(stage, shard, kept).get(HEAD) is not None
        assert live_lines(restored.app, stage, kept) == live_lines(restored.app, stage, before), (stage, shard)
        assert read_cells(kept) == CELLS
        seen += sum(map(len, live_lines(restored.app, stage, kept).values()))
    assert seen == restored.savepoint.manifest.total_rows > 0


@pytest.mark.slow
def test_an_uncommitted_attempt_is_repeated_byte_for_byte(restored: Restored) -> None:
    for stage, shard in restored.simulation.blobs:
        first, again = MemoryBlobs(), MemoryBlobs()
        restored.first(stage, shard, first).get(HEAD)
        restored.first(stage, shard, again).get(HEAD)
        assert first.blobs == again.blobs == dict(initial_blobs(restored.folder, restored.app, stage, shard))


@pytest.mark.slow
def test_a_shard_with_a_committed_head_does_not_read_its_initial_state(restored: Restored) -> None:
    kept = MemoryBlobs()
    restored.first(0, 1, kept).get(HEAD)
    restored.folder.remove()
    before = dict(kept.blobs)
    later = restored.first(0, 1, kept)
    assert later.get(HEAD) == before[HEAD]
    assert kept.blobs == before


@pytest.mark.slow
def test_writes_of_the_first_cut_override_the_initial_state(restored: Restored) -> None:
    kept = MemoryBlobs()
    blobs = restored.first(0, 0, kept)
    blobs.get(HEAD)
    begun = {name: blobs.get(name) for name in kept.blobs}
    assert begun == kept.blobs
    blobs.put(HEAD, b"mine")
    blobs.put("bucket/0", b"full")
    blobs.remove("log/1")
    assert (blobs.get(HEAD), blobs.get("bucket/0"), blobs.get("log/1")) == (b"mine", b"full", None)
    assert (kept.blobs[HEAD], kept.blobs["bucket/0"], "log/1" in kept.blobs) == (b"mine", b"full", False)


def test_a_damaged_truncated_or_missing_copy_is_rejected_and_nothing_is_written(restored: Restored) -> None:
    path = next(file.path for file in restored.savepoint.manifest.files if (file.stage, file.shard) == (0, 2))
    content = restored.folder.read(path)
    assert content is not None
    for wrong, message in (
        (content[:-1] + b"?", "its digest differs"),
        (content[:-1], "bytes, not"),
        (None, "missing"),
    ):
        restored.folder.discard(path) if wrong is None else restored.folder.write(path, wrong)
        kept = MemoryBlobs()
        with pytest.raises(CorruptState, match=message):
            restored.first(0, 2, kept).get(HEAD)
        assert kept.blobs == {}


@pytest.mark.slow
@pytest.mark.parametrize("content", [None, b"", b"{}", b'{"files": 3}'])
def test_a_folder_without_a_valid_index_is_rejected(restored: Restored, content: bytes | None) -> None:
    restored.folder.remove()
    if content is not None:
        restored.folder.write("index.json", content)
    with pytest.raises(CorruptState, match="restore the savepoint to a new checkpoint"):
        restored.first(0, 0, MemoryBlobs()).get(HEAD)


def test_a_damaged_savepoint_fills_no_initial_state(restored: Restored) -> None:
    file = restored.savepoint.manifest.files[-1]
    restored.savepoint.folder.write(file.path, restored.savepoint.content(file)[:-1] + b"?")
    restored.folder.remove()
    with pytest.raises(CorruptState, match=f"savepoint one: {file.path} is not what was written"):
        refill(restored)
    assert restored.folder.read("index.json") is None
