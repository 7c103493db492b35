"""The function that Spark calls for a keyed stage before the last: its output and its files are those of a shard in
memory, whatever attempts have died before, in whatever process."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import pyarrow as pa
import pytest

from headgate_rules.app import build_app
from streamcore.app import App
from streamcore.engine.in_process import InProcessApp
from streamcore.engine.shard import ShardOutput
from streamcore.engine.shuffle import ShuffleBlock
from streamcore.kernel import COLD_MOVES
from streamcore.savepoint.state_files import live_rows
from streamcore.spark import worker
from streamcore.spark.query import find_direct_kinds
from streamcore.spark.wire import PackedApp, StageFolder
from streamcore.state.blob_store import BlobStore
from streamcore.state.cut_files import CutFiles, sweep_stages
from streamcore.storage import LocalObjectStore
from streamcore.wire.lanes import ALERTS, Record
from tests.harness.apps import orders, published_shop
from tests.harness.apps.published_shop import Shop, rule
from tests.harness.apps.versioned_shop import moment, restore, save
from tests.in_process.test_duplicates import Run, deliveries, new_app
from tests.in_process.test_feature_stage import BOTH, CARDS, buy

RETAINED = 3
BLOCKS = pa.schema({"shard": pa.int32(), "kind": pa.int32(), "clock_ms": pa.int64(), "blob": pa.binary()})


@dataclass(slots=True)
class FileStages(InProcessApp):
    """Runs all stages but the last as Spark's tasks do. Some attempts die before a shard's files are written, some
    after it; some run in another process; and some, which everyone thinks dead, end when later batches are committed.
    ``initial``: the state of a savepoint."""

    folder: LocalObjectStore = field(default_factory=lambda: LocalObjectStore(Path()))
    chance: random.Random = field(default_factory=lambda: random.Random(1))
    batch: int = -1
    initial: LocalObjectStore | None = None
    packed: PackedApp = field(init=False)
    packed_app: App = field(init=False)
    late: list[tuple[int, Iterator[pa.RecordBatch]]] = field(default_factory=list)
    late_ended: int = 0

    def __post_init__(self) -> None:
        InProcessApp.__post_init__(self)
        self._pack()

    def _pack(self) -> None:
        self.packed, self.packed_app = PackedApp.pack(self.app), self.app

    def run(self, blocks: Sequence[ShuffleBlock]) -> list[ShardOutput]:
        self.batch += 1
        if self.app is not self.packed_app:  # a rule has given it another key: the query starts anew
            self._pack()
        if self.batch and self.chance.random() < 0.3:
            sweep_stages(self.folder, self.batch - 1, RETAINED)
        for stage in range(len(self.app.stages) - 1):
            if self.chance.random() < 0.3:
                self.late.append((self.batch + self.chance.randrange(RETAINED - 1), self._attempt(stage, blocks)))
            for _ in range(self.chance.choice([0, 0, 1, 2])):
                for _ in zip(range(self.chance.randrange(8)), self._attempt(stage, blocks), strict=False):
                    pass  # it dies after some of its blocks
            rows = pa.Table.from_batches(self._attempt(stage, blocks)).to_pylist()
            blocks = [ShuffleBlock(**row) for row in rows]
        last = len(self.app.stages) - 1
        self.outputs = [self._step(last, shard, blocks) for shard in range(self.app.shards)]
        for batch, attempt in self.late:
            if batch == self.batch:
                self.late_ended += len([*attempt])
        return self.outputs

    def files(self, stage: int, shard: int) -> CutFiles:
        """Return the blobs after the last batch."""
        return CutFiles(StageFolder.of(self.folder, stage, RETAINED).shard(shard), self.batch)

    def _attempt(self, stage: int, blocks: Sequence[ShuffleBlock]) -> Iterator[pa.RecordBatch]:
        if self.chance.random() < 0.3:  # another process, which has no tables
            self.packed = replace(self.packed, identity=str(self.chance.random()))
        rows = [asdict(block) for block in self.chance.sample(blocks, len(blocks))]
        batches = pa.Table.from_pylist(rows, BLOCKS).to_batches(max_chunksize=3)
        return worker.run_file_stage(
            self.packed,
            stage,
            batches,
            StageFolder.of(self.folder, stage, RETAINED),
            self.batch,
            None if self.batch else self.initial,
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
    assert in_files.process.late_ended > 0
    for shard in range(3):
        folder = StageFolder.of(store, 0, RETAINED).shard(shard)
        files = in_files.process.files(0, shard)
        assert sum(name.endswith(".index") for name in folder.files()) == RETAINED
        if memory_bytes is not None:
            continue  # what a cold run still has of expired ids depends on the memory of its process
        stored, wanted = live_rows(app, 0, files), live_rows(app, 0, plain.process.blobs[(0, shard)])
        assert {name: rows.sort("__hash").rows() for name, rows in stored.items()} == {
            name: rows.sort("__hash").rows() for name, rows in wanted.items()
        }


@pytest.mark.slow
def test_cold_ids_in_files_go_through_a_savepoint_into_files(tmp_path: Path) -> None:
    settings = {"state_memory_bytes": 4_000, "local_dir": str(tmp_path)}
    app, cuts = new_app(tmp_path, "1m", shards=2, **settings), deliveries(9)[:10]
    plain, run = Run(app), Run(app)
    first = FileStages(
        app, partitions=range(orders.PARTITIONS), folder=LocalObjectStore(tmp_path / "a"), chance=random.Random(3)
    )
    run.process = first
    wanted, found = plain.all(cuts), run.all(cuts[:5])
    assert run.counters[f"{COLD_MOVES}.evicted"] > 0
    blobs: dict[tuple[int, int], BlobStore] = {**first.blobs}
    blobs |= {(0, shard): first.files(0, shard) for shard in range(2)}
    saved = save(app, blobs, tmp_path, moment())
    initial = restore(saved, app, tmp_path / "checkpoint")
    run.process = FileStages(
        app,
        {place: one for place, one in initial.items() if place[0]},
        partitions=range(orders.PARTITIONS),
        next_offsets=first.next_offsets,
        folder=LocalObjectStore(tmp_path / "b"),
        chance=random.Random(4),
        initial=LocalObjectStore(tmp_path / "checkpoint" / "initial"),
    )
    found += run.rest(cuts[5:])
    assert found == wanted
    assert plain.counters["deduplication.orders.duplicates"] > 30


@pytest.mark.slow
def test_duplicates_and_features_of_other_keys_are_two_stages_in_files(tmp_path: Path) -> None:
    keys = {"keys": [["user"], ["card"]], "deduplicate": "1h"}
    body = {"feature_stage": True, "shards": 3}
    app = build_app(published_shop.settings(tmp_path, CARDS | keys, **body))
    assert len(app.stages) == 3
    plain = Shop(InProcessApp(app))
    in_files = Shop(FileStages(app, folder=LocalObjectStore(tmp_path / "stages"), chance=random.Random(5)))
    chance, written = random.Random(11), list[list[Record]]()
    events = [
        buy(n, f"u{chance.randrange(5)}", f"c{chance.randrange(5)}", f"d{chance.randrange(3)}") for n in range(90)
    ]
    sent = sorted([*events, *chance.sample(events, 30)], key=lambda one: chance.random())
    for shop in (plain, in_files):
        output = shop.send(rule("both", where="of_card >= 2 and of_device >= 2", **BOTH))
        for start in range(0, len(sent), 10):
            output = [*output, *shop.send(events=sent[start : start + 10])]
        written.append(output)
    assert written[0] == written[1]
    assert sum(one.lane == ALERTS for one in written[0]) > 20
    assert isinstance(in_files.app, FileStages)
    assert in_files.app.late_ended > 0


def test_events_that_go_around_a_stage_go_to_the_last_one(tmp_path: Path) -> None:
    """In front of another stage they would come to it in tasks of their own, and its shards would run twice."""
    app = new_app(tmp_path, "1m")
    assert {*find_direct_kinds(app)} == {1}
    with pytest.raises(AssertionError, match="goes to the last stage"):
        find_direct_kinds(replace(app, stages=(*app.stages, app.stages[-1])))


def counts(run: Run) -> dict[str, int]:
    """Return what was counted. The room that a process has made for its tables depends on how it came to them."""
    return {name: count for name, count in run.counters.items() if not name.endswith(".bytes") and "cold" not in name}
