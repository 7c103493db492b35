"""After a start with a clock a day ahead, partitions become idle, cuts go on, and events of tomorrow are rejected.

Cuts are planned, written and run as on Spark; the topics and the clocks are the test's.
"""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest

from streamcore.app import App, Source
from streamcore.checkpoint.checkpoint import AppIdentity
from streamcore.checkpoint.epochs import EpochStore
from streamcore.checkpoint.offset_log import CutBounds, OffsetLog
from streamcore.cuts.cut_clock import CutClock, CutTimer, wall_clock_ms
from streamcore.engine.in_process import InProcessApp, RawRecord
from streamcore.engine.planner import Planner
from streamcore.errors import ConfigError
from streamcore.kernel import Cut, KernelOutput
from streamcore.offsets import StreamOffsets, TopicPartition
from streamcore.schema import StreamSchema
from streamcore.service.config.settings import ServiceSettings
from streamcore.spark.runner import Runner, RunSettings
from streamcore.spark.runtime import Runtime
from streamcore.state.blob_store import MemoryBlobs
from streamcore.storage.location import location
from streamcore.watermark import ascending_timestamps
from streamcore.wire.lanes import DEAD_LETTERS, Record
from tests.harness.apps.stateless_kernel import StatelessKernel

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
TRUE_MS = 1_790_000_000_000
IDLE_MS = 15_000
SCHEMA = StreamSchema.parse({"name": "s", "event_time": "ts", "keys": [[]], "fields": {"ts": "timestamp not null"}})


class NoKernel(StatelessKernel):
    """A kernel that does nothing with its cuts."""

    def step(self, cut: Cut) -> KernelOutput:
        return KernelOutput()


APP = App("a", (Source(SCHEMA, "t", watermark=ascending_timestamps(IDLE_MS)),), "c", {}, (NoKernel,), shards=1)


class Driver:
    """An app whose process restarts. ``ahead_ms``: by how much its wall clock is wrong."""

    def __init__(self, folder: Path) -> None:
        self.log = OffsetLog(folder)
        self.true_ms, self.ahead_ms = TRUE_MS, 0
        self.records: list[RawRecord] = []
        self.cuts: list[CutBounds] = []
        self.app = InProcessApp(APP, partitions=(0, 1))
        self.start()

    def start(self) -> None:
        """Start another process: its monotonic clock starts at zero, and it loads the offset log and the state."""
        begun_ms = self.true_ms
        timer = CutTimer(lambda: self.true_ms + self.ahead_ms, lambda: self.true_ms - begun_ms)
        self.planner = Planner(APP, self.log, self, timer=timer)
        self.app = InProcessApp(APP, self.app.blobs, partitions=(0, 1))

    def earliest(self) -> dict[TopicPartition, int]:
        return {("c", 0): 0, ("t", 0): 0, ("t", 1): 0}

    def latest(self) -> dict[TopicPartition, int]:
        return self.earliest() | {("t", p): len(self.records_of_partition(p)) for p in (0, 1)}

    def for_timestamp(self, time_ms: int) -> dict[TopicPartition, int]:
        raise AssertionError(f"no offset for time {time_ms} is needed to plan a cut")

    def records_of_partition(self, partition: int) -> list[RawRecord]:
        return [record for record in self.records if record.partition == partition]

    def send(self, partition: int, ts: int) -> None:
        self.records.append(
            RawRecord(0, partition, len(self.records_of_partition(partition)), orjson.dumps({"ts": ts}))
        )

    def cut(self) -> list[Record]:
        """Plan and run the next cut; while it waits for input, 100 ms pass with each poll."""

        limit_ms = self.true_ms + 60_000

        def wait() -> None:
            assert self.true_ms < limit_ms, "no cut comes"
            self.true_ms += 100

        self.cuts.append(self.planner.plan_cut(len(self.cuts), wait, lambda: None))
        return self.run(self.cuts[-1])

    def run(self, cut: CutBounds) -> list[Record]:
        start, end = cut.start.offsets, cut.end.offsets
        records = [r for r in self.records if start["t", r.partition] <= r.offset < end["t", r.partition]]
        return self.app.cut_at(records, cut.end.clock)

    @property
    def watermark_ms(self) -> int:
        return self.app.outputs[0].watermark_ms


@pytest.fixture
def driver(tmp_path: Path) -> Driver:
    """An app of two busy partitions that was started with a clock a day ahead, and then with the true clock."""
    driver = Driver(tmp_path / "offsets")
    driver.ahead_ms = DAY_MS
    driver.start()
    driver.send(0, TRUE_MS)
    driver.send(1, TRUE_MS)
    driver.cut()
    driver.ahead_ms = 0
    driver.start()
    return driver


@pytest.mark.slow
def test_without_input_there_is_a_cut_each_second(driver: Driver) -> None:
    before_ms = driver.true_ms
    for _ in range(5):
        driver.cut()
    assert driver.true_ms - before_ms == 5_000
    assert {cut.end.clock.clock_ms for cut in driver.cuts} == {driver.cuts[0].end.clock.clock_ms}, "it never goes back"
    assert driver.cuts[-1].end.clock.ahead_ms == driver.cuts[0].end.clock.clock_ms - driver.true_ms > DAY_MS - HOUR_MS


def test_a_silent_partition_becomes_idle_in_time_even_across_a_restart(driver: Driver) -> None:
    idle = []
    for second in range(20):
        if second == 5:
            driver.start()
        event_ms = driver.true_ms
        driver.send(0, event_ms)
        driver.cut()
        driver.true_ms += 900
        quiet_ms = driver.cuts[-1].end.clock.elapsed_ms - driver.cuts[0].end.clock.elapsed_ms
        idle.append(quiet_ms >= IDLE_MS)
        assert driver.watermark_ms == (event_ms if idle[-1] else TRUE_MS)
    assert idle.index(True) in {14, 15, 16}


def test_an_event_of_tomorrow_is_a_dead_letter_and_a_current_one_is_not(driver: Driver) -> None:
    driver.send(0, driver.true_ms + 23 * HOUR_MS)
    driver.send(0, driver.true_ms + 60_000)
    dead = [dict(record.headers) for record in driver.cut() if record.lane == DEAD_LETTERS]
    assert [letter["reason_code"] for letter in dead] == [b"from_the_future"]
    assert driver.app.outputs[0].events == 1


def test_a_start_with_a_clock_far_behind_that_of_the_last_cut_is_rejected_before_spark_starts(tmp_path: Path) -> None:
    document = {"app": "a", "kafka": {"bootstrap": "nowhere:1"}, "checkpoint": str(tmp_path)}
    settings = ServiceSettings.model_validate(document)
    root = EpochStore(location(str(tmp_path))).checkpoint(1)
    runtime = Runtime("a", None, settings.spark_session)
    run = RunSettings(settings.kafka, root.path, settings.spark_session, settings.markers_topic)
    tomorrow = StreamOffsets(CutClock(wall_clock_ms() + DAY_MS), {})
    runtime.acquire(root.path, 1, lambda: None)
    try:
        root.initialise(AppIdentity("a", 1))
        root.offsets.write(0, CutBounds(StreamOffsets(CutClock(), {}), tomorrow))
        with pytest.raises(ConfigError, match=r"the clock of the last cut, .* at most 1 h 0 min are accepted"):
            Runner(APP, run, runtime).run()
    finally:
        runtime.release()


def test_a_restored_app_starts_with_the_clock_of_its_savepoint(tmp_path: Path) -> None:
    log = OffsetLog(tmp_path)
    assert log.last() is None
    log.write_start(StreamOffsets(CutClock(7, 1, 3), {}))
    assert log.last() == StreamOffsets(CutClock(7, 1, 3), {})
    log.write(0, CutBounds(StreamOffsets(CutClock(7, 1, 3), {}), StreamOffsets(CutClock(9, 0, 5), {})))
    assert log.last() == StreamOffsets(CutClock(9, 0, 5), {})


def test_a_replay_uses_the_times_of_the_first_run(driver: Driver) -> None:
    driver.send(0, driver.true_ms + 60_000)
    driver.send(0, driver.true_ms + 23 * HOUR_MS)
    blobs = {key: MemoryBlobs({**stored.blobs}) for key, stored in driver.app.blobs.items()}
    first = driver.cut(), driver.watermark_ms
    driver.true_ms += 10 * DAY_MS
    driver.app.blobs = blobs
    driver.start()
    batch = len(driver.cuts) - 1
    again = driver.planner.plan_cut(batch, lambda: None, lambda: None)
    assert again == driver.cuts[-1]
    assert (driver.run(again), driver.watermark_ms) == first
