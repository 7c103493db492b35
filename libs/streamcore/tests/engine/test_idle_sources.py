"""An app without input makes few requests for its checkpoint, and plans nothing once another process owns it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

import obstore
import pytest

from streamcore.app import App, Source
from streamcore.checkpoint.checkpoint import AppIdentity
from streamcore.checkpoint.epochs import EpochStore
from streamcore.checkpoint.offset_log import CutBounds
from streamcore.cuts.cut_clock import CutClock, CutTimer
from streamcore.engine.planner import Planner
from streamcore.errors import Fenced
from streamcore.offsets import StreamOffsets, TopicPartition
from streamcore.schema import StreamSchema
from streamcore.service.config.settings import ServiceSettings
from streamcore.spark.runner import Runner, RunSettings
from streamcore.spark.runtime import Runtime
from streamcore.storage import ObjectStore, open_object_store
from streamcore.storage.checked_json import encode
from streamcore.storage.location import Location, location
from tests.harness.servers.storage_locations import s3_place

IDLE: Mapping[TopicPartition, int] = {("tx", 0): 0, ("control", 0): 0}


def no_kernel() -> object:
    raise AssertionError("a plan needs no kernel")


def now_ms() -> int:
    return time.time_ns() // 1_000_000


@dataclass
class Quiet:
    """A cluster without new records. ``on_lookup``: called with each lookup of offsets."""

    on_lookup: Callable[[], None] = lambda: None

    def earliest(self) -> Mapping[TopicPartition, int]:
        return IDLE

    def latest(self) -> Mapping[TopicPartition, int]:
        self.on_lookup()
        return IDLE

    def for_timestamp(self, time_ms: int) -> Mapping[TopicPartition, int]:
        raise AssertionError(f"no offset for time {time_ms} is needed to plan a cut")


@dataclass
class Idle:
    """An app that owns epoch 1, with a planned batch. ``looks``: times at which lease and root are checked."""

    runner: Runner
    looks: list[float] = field(default_factory=list)

    def plan(self, batch: int, topics: Quiet, now_ms: Callable[[], int] = now_ms) -> CutBounds:
        """Plan a cut by a clock that is the wall clock and the monotonic one."""
        timer = CutTimer(now_ms, now_ms)
        return self.runner.plan_cut(Planner(self.runner.app, self.runner.root.offsets, topics, timer=timer), batch)

    def steal(self) -> None:
        """Take the lease over, as a process that considers the owner dead."""
        place = open_object_store(self.runner.root.path)
        place.write("lease.json", encode({"token": "theirs", "pid": 7, "host": "far"}))


@contextmanager
def idle(place: Location) -> Iterator[Idle]:
    schema = StreamSchema.parse({"name": "x", "event_time": "ts", "keys": [[]], "fields": {"ts": "timestamp not null"}})
    app = App("shop", (Source(schema, "tx"),), "control", {}, (no_kernel,))  # type: ignore[arg-type]
    document = {"app": "shop", "kafka": {"bootstrap": "nowhere:1"}, "checkpoint": str(place), "shards": 2}
    settings = ServiceSettings.model_validate(document)
    epochs, start = EpochStore(place), Runtime("shop", None, settings.spark_session)
    root = epochs.checkpoint(1)
    run = RunSettings(settings.kafka, root.path, settings.spark_session, settings.markers_topic)
    idle_app = Idle(Runner(app, run, start))

    def record_lookup() -> None:
        idle_app.looks.append(time.monotonic())
        epochs.check_not_superseded(1)

    start.acquire(root.path, 1, record_lookup)
    try:
        root.initialise(AppIdentity("shop", 2))
        root.offsets.write(0, CutBounds(StreamOffsets(CutClock(), IDLE), StreamOffsets(CutClock.at(now_ms()), IDLE)))
        yield idle_app
    finally:
        start.release()


def test_an_idle_app_checks_its_lease_and_the_root_before_each_plan_and_once_a_second(any_place: ObjectStore) -> None:
    with idle(location(any_place.url)) as app:
        began_s = time.monotonic()
        app.plan(1, Quiet())
        assert 2 <= len(app.looks) <= 3 + (time.monotonic() - began_s), "before the cut, each second, before the plan"
        app.looks.clear()
        began_s = time.monotonic()
        app.plan(2, Quiet(), lambda: now_ms() if time.monotonic() > began_s + 3.5 else 0)
        assert 3 <= len(app.looks) <= 3 + (time.monotonic() - began_s)


def test_an_idle_app_in_a_bucket_makes_few_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    requests: list[str] = []
    with idle(location(s3_place(monkeypatch).url)) as app:
        for name in ("get", "put", "delete", "list", "list_with_delimiter"):
            monkeypatch.setattr(obstore, name, count_calls(name, getattr(obstore, name), requests))
        app.plan(1, Quiet())
    assert len(requests) <= 16, requests


def count_calls(name: str, real: Callable[..., object], requests: list[str]) -> Callable[..., object]:
    def request(*arguments: object, **named: object) -> object:
        requests.append(name)
        return real(*arguments, **named)

    return request


@pytest.mark.slow
def test_losing_the_lease_ends_the_wait_for_input_within_seconds(any_place: ObjectStore) -> None:
    with idle(location(any_place.url)) as app:
        stolen: list[float] = []

        def steal() -> None:
            if not stolen:
                app.steal()
                stolen.append(time.monotonic())

        with pytest.raises(Fenced, match="process 7 on far"):
            app.plan(1, Quiet(steal), lambda: 0)
        assert time.monotonic() - stolen[0] < 10


def test_a_process_that_loses_the_lease_at_the_last_moment_plans_nothing(any_place: ObjectStore) -> None:
    """After the last check during the wait, and before the plan is written."""
    with idle(location(any_place.url)) as app:
        with pytest.raises(Fenced, match="process 7 on far"):
            app.plan(1, Quiet(app.steal), lambda: now_ms() + 10_000)
        assert app.runner.root.offsets.batches() == (0,)


def test_a_process_of_an_earlier_epoch_plans_nothing_once_a_later_one_has_started(any_place: ObjectStore) -> None:
    with idle(location(any_place.url)) as app:
        epochs = EpochStore(location(any_place.url))

        def begin() -> None:
            if not epochs.exists(2):
                epochs.checkpoint(2).initialise(AppIdentity("shop", 2), epoch=2)

        with pytest.raises(Fenced, match="epoch 2 has begun"):
            app.plan(1, Quiet(begin), lambda: now_ms() + 10_000)
        assert app.runner.root.offsets.batches() == (0,)
