"""The function that Spark calls for a keyed stage before the last: its output and its files are those of a shard in
memory, whatever attempts have died before, in whatever process."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import pyarrow as pa
import pytest

from streamcore.engine.in_process import InProcessApp
from streamcore.engine.shard import ShardOutput
from streamcore.engine.shuffle import ShuffleBlock
from streamcore.savepoint.state_files import live_rows
from streamcore.spark import worker
from streamcore.spark.wire import PackedApp, StageFolder
from streamcore.state.cut_files import CutFiles
from streamcore.storage import LocalObjectStore
from tests.harness.apps import orders
from tests.in_process.test_duplicates import Run, deliveries, new_app

RETAINED = 3
BLOCKS = pa.schema({"shard": pa.int32(), "kind": pa.int32(), "clock_ms": pa.int64(), "blob": pa.binary()})


@dataclass(slots=True)
class FileStages(InProcessApp):
    """Runs all stages but the last as Spark's tasks do. Some attempts die before a shard's files are written, some
    after it; and some run in another process."""

    folder: LocalObjectStore = field(default_factory=lambda: LocalObjectStore(Path()))
    chance: random.Random = field(default_factory=lambda: random.Random(1))
    batch: int = -1
    packed: PackedApp = field(init=False)

    def __post_init__(self) -> None:
        InProcessApp.__post_init__(self)
        self.packed = PackedApp.pack(self.app)

    def run(self, blocks: Sequence[ShuffleBlock]) -> list[ShardOutput]:
        self.batch += 1
        for stage in range(len(self.app.stages) - 1):
            for _ in range(self.chance.choice([0, 0, 1, 2])):
                for _ in zip(range(self.chance.randrange(8)), self._attempt(stage, blocks), strict=False):
                    pass  # it dies after some of its blocks
            rows = pa.Table.from_batches(self._attempt(stage, blocks)).to_pylist()
            blocks = [ShuffleBlock(**row) for row in rows]
        last = len(self.app.stages) - 1
        self.outputs = [self._step(last, shard, blocks) for shard in range(self.app.shards)]
        return self.outputs

    def _attempt(self, stage: int, blocks: Sequence[ShuffleBlock]) -> Iterator[pa.RecordBatch]:
        if self.chance.random() < 0.3:  # another process, which has no tables
            self.packed = replace(self.packed, identity=str(self.chance.random()))
        rows = [asdict(block) for block in self.chance.sample(blocks, len(blocks))]
        batches = pa.Table.from_pylist(rows, BLOCKS).to_batches(max_chunksize=3)
        return worker.run_file_stage(
            self.packed, stage, batches, StageFolder.of(self.folder, stage, RETAINED), self.batch
        )


@pytest.mark.slow
@pytest.mark.parametrize("memory_bytes", [None, 4_000])
def test_attempts_that_die_and_other_processes_change_no_byte(tmp_path: Path, memory_bytes: int | None) -> None:
    settings = {} if memory_bytes is None else {"state_memory_bytes": memory_bytes, "local_dir": str(tmp_path)}
    app = new_app(tmp_path, "1m", shards=3, **settings)
    cuts = deliveries(7)[:10]
    plain, in_files = Run(app), Run(app)
    store = LocalObjectStore(tmp_path / "stages")
    in_files.process = FileStages(app, partitions=range(orders.PARTITIONS), folder=store, chance=random.Random(7))
    assert in_files.all(cuts) == plain.all(cuts)
    assert plain.counters["deduplication.orders.duplicates"] > 30
    assert counts(in_files) == counts(plain)
    for shard in range(3):
        folder = StageFolder.of(store, 0, RETAINED).shard(shard)
        files = CutFiles(folder, in_files.process.batch)
        assert sum(name.endswith(".index") for name in folder.files()) == RETAINED
        if memory_bytes is not None:
            continue  # what a cold run still has of expired ids depends on the memory of its process
        stored, wanted = live_rows(app, 0, files), live_rows(app, 0, plain.process.blobs[(0, shard)])
        assert {name: rows.sort("__hash").rows() for name, rows in stored.items()} == {
            name: rows.sort("__hash").rows() for name, rows in wanted.items()
        }


def counts(run: Run) -> dict[str, int]:
    """Return what was counted. The room that a process has made for its tables depends on how it came to them."""
    return {name: count for name, count in run.counters.items() if not name.endswith(".bytes") and "cold" not in name}
