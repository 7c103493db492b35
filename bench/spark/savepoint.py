"""Measures savepoint and restore of large state, in seconds and bytes: ``python -m bench.spark.savepoint``.

This process generates state (rows that a join stores, with text that does not compress further) and writes it as a
savepoint. A new app on Spark restores it, runs, and takes a savepoint, which must hold the same rows. With
``--standby``, its session runs warm-up cuts before the restore, as in an upgrade. Without it, the first cut is the
first of the session.
"""

from __future__ import annotations

import argparse
import sys
import threading
import time

import numpy as np
import polars as pl

from bench.harness.environment import Environment, create_topic, open_environment
from bench.harness.result import Result, show
from bench.harness.yardstick import Yardstick
from headgate.console.messages import to_stderr
from streamcore.app import App
from streamcore.checkpoint.checkpoint import CheckpointRoot
from streamcore.cuts.cut_clock import CutClock
from streamcore.engine.report import CutReport, Listeners
from streamcore.kafka.topics import TopicSpec, ensure_topics
from streamcore.offsets import StreamOffsets
from streamcore.savepoint import Savepoint, SavepointRepository
from streamcore.savepoint.app_description import check_app_compatibility
from streamcore.savepoint.create import SavepointPosition, write_manifest
from streamcore.savepoint.restore import restore_checkpoint
from streamcore.savepoint.state_files import save_shard
from streamcore.schema import StreamSchema
from streamcore.spark.launch import own_topics
from streamcore.spark.runner import Runner, RunSettings
from streamcore.spark.runtime import Runtime
from streamcore.spark.session import SparkSettings
from streamcore.storage import LocalObjectStore
from streamcore.topology.simulation import Simulation
from streamcore.topology.stream import source
from streamcore.topology.topology import Topology
from streamcore.watermark import bounded_out_of_orderness

_DAY_MS = 86_400_000
_TEXT_BYTES = 64
_ROW_BYTES = 100  # of text, keys, times and hash
_CUT = 100_000
_SHARDS = 8
_LIMIT_S = 600.0


def _stream(name: str) -> StreamSchema:
    fields = {"ts": "timestamp not null", "user": "string not null", f"{name}_text": "string not null"}
    return StreamSchema.parse({"name": name, "event_time": "ts", "keys": [["user"]], "fields": fields})


def topology(name: str) -> Topology:
    """Build a join that stores its rows for a day."""
    orders, views = (source(_stream(one), bounded_out_of_orderness(0)).key_by("user") for one in ("orders", "views"))
    return Topology(name, orders.join(views).within(0, _DAY_MS, name="join").sink("pairs", key="user"))


def _rows(count: int, cut: int) -> pl.DataFrame:
    text = np.random.default_rng(cut).integers(0, 256, (count, _TEXT_BYTES // 2), dtype=np.uint8)
    hexed = [line.tobytes().hex() for line in text]
    at = pl.Series("ts", (cut * count + np.arange(count)) // 100, pl.Int64).cast(pl.Datetime("ms", "UTC"))
    users = pl.Series("user", cut * count + np.arange(count)).cast(pl.String)
    return pl.DataFrame([at, users, pl.Series("orders_text", hexed)])


def make_savepoint(app: App, name: str, megabytes: int, to: SavepointRepository) -> Savepoint:
    """Create a savepoint with about this many megabytes of state."""
    simulation = Simulation(topology(name), shards=_SHARDS, app=app)
    for cut in range(max(1, megabytes * 1_000_000 // _ROW_BYTES // _CUT)):
        simulation.cut({"orders": _rows(_CUT, cut)}, clock_ms=cut)
    folder = to.create("made")
    receipts = [save_shard(folder, app, stage, shard, blobs) for (stage, shard), blobs in simulation.blobs.items()]
    return Savepoint(
        folder,
        write_manifest(folder, "made", app, SavepointPosition(1, 0, StreamOffsets(CutClock.at(1), {}), 0), receipts),
    )


class _WatchedApp:
    """Runs an app in a thread, and records when its cuts were committed."""

    def __init__(self, app: App, settings: RunSettings, start: Runtime) -> None:
        self.cuts: list[float] = []
        self.runner = Runner(app, settings, start, Listeners(self._report))
        self._thread = threading.Thread(target=self.runner.run, daemon=True)

    def start(self) -> None:
        """Start the thread. The app's checkpoint must exist."""
        self._thread.start()

    def _report(self, _: CutReport) -> None:
        self.cuts.append(time.monotonic())

    def wait(self, cuts: int) -> None:
        """Wait until this many cuts are committed."""
        end = time.monotonic() + _LIMIT_S
        while len(self.cuts) < cuts:
            if not self._thread.is_alive() or time.monotonic() > end:
                raise RuntimeError("the app committed no further cut")
            time.sleep(0.02)

    def stop(self) -> None:
        """Stop the app between two cuts."""
        self.runner.drain()
        self._thread.join(_LIMIT_S)


def savepoint(environment: Environment, megabytes: int, *, standby: bool = False, shards: int = _SHARDS) -> Result:
    """Restore generated state, run cuts, and take a savepoint.

    ``standby``: run warm-up cuts first. ``shards``: of the restored app; the state is that of ``_SHARDS`` shards.
    """
    name = environment.new_name("savepoint")
    folder = environment.run_folder(name)
    topics = {"orders": f"{name}.orders", "views": f"{name}.views"}
    app = topology(name).app(topics=topics, shards=_SHARDS)
    for topic in topics.values():
        create_topic(environment.kafka, TopicSpec(topic, 2))
    ensure_topics(environment.kafka, own_topics(app, f"{name}.markers"))
    savepoints = SavepointRepository(LocalObjectStore(folder / "savepoints"), name)
    first, spark = make_savepoint(app, name, megabytes, savepoints), SparkSettings(environment.jars)
    app = topology(name).app(topics=topics, shards=shards)
    environment.print_message(f"savepoint: state of {first.manifest.total_bytes / 1e6:.0f} MB is written")
    checkpoint = folder / "e2"
    settings = RunSettings(environment.kafka, checkpoint, spark, f"{name}.markers", savepoints=savepoints.place.url)
    with Runtime(name, checkpoint, spark) as start, Yardstick() as yardstick:
        start.session()
        watched = _WatchedApp(app, settings, start)
        if standby:
            watched.runner.warm_up(folder / "rehearsal", lambda: False)
        begun = time.monotonic()
        planned = check_app_compatibility(first.manifest, app)
        restore_checkpoint(first, app, planned, CheckpointRoot(checkpoint), 2)
        prepared = time.monotonic()
        watched.start()
        watched.wait(1)
        restored = watched.cuts[0]
        watched.wait(3)
        requested = time.monotonic()
        second = watched.runner.savepoint("second").result(_LIMIT_S)
        saved = time.monotonic()
        watched.wait(len(watched.cuts) + 1)
        watched.stop()
    state_bytes = sum(table.bytes for table in second.manifest.tables)
    same = [(t.name, t.rows) for t in first.manifest.tables] == [(t.name, t.rows) for t in second.manifest.tables]
    return {
        "workload": "savepoint",
        "standby": standby,
        "shards": [_SHARDS, shards],
        "state_mb": round(state_bytes / 1e6, 1),
        "rows": second.manifest.total_rows,
        "restore_prepared_s": round(prepared - begun, 1),
        "restore_first_cut_s": round(restored - begun, 1),
        "savepoint_s": round(saved - requested, 1),
        "size_ratio": round(second.manifest.total_bytes / state_bytes, 2),
        "checked": same and second.verify() == [],
        **yardstick.figures(),
    }


def main() -> int:
    """Measure with a broker and Spark, and print the results."""
    parser = argparse.ArgumentParser(prog="bench.spark.savepoint")
    parser.add_argument("--mb", type=int, default=100)
    parser.add_argument("--standby", action="store_true")
    parser.add_argument("--shards", type=int, default=_SHARDS, help="restore with this number of shards")
    wanted = parser.parse_args()
    show(savepoint(open_environment(to_stderr, fresh=False), wanted.mb, standby=wanted.standby, shards=wanted.shards))
    return 0


if __name__ == "__main__":
    sys.exit(main())
