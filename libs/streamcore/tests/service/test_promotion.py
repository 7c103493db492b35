"""A promoted standby creates the checkpoint of its epoch once, whatever dies meanwhile, or leaves no trace."""

from __future__ import annotations

import fcntl
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from streamcore.app import App
from streamcore.checkpoint import epochs
from streamcore.checkpoint.checkpoint import AppIdentity
from streamcore.checkpoint.epoch import read_epoch
from streamcore.checkpoint.epochs import EpochStore, NewerEpochExists
from streamcore.checkpoint.offset_log import CutBounds
from streamcore.checkpoint.origin import RestoreOrigin
from streamcore.control.commands import Promote
from streamcore.cuts.cut_clock import CutClock
from streamcore.cuts.writer_id import WriterId
from streamcore.errors import ConfigError, CorruptState, Fenced, Retryable
from streamcore.kafka.delivery import OutRecord
from streamcore.kafka.readers import read_topic
from streamcore.kafka.topics import TopicSpec, ensure_topics
from streamcore.leases.acquire import LeaseHeld, lease_for
from streamcore.offsets import StreamOffsets
from streamcore.savepoint import Savepoint
from streamcore.service.config.settings import ServiceSettings
from streamcore.service.promotion import settings_for_epoch, standalone_checkpoint, take_over
from streamcore.service.spark_savepoints import ServiceSavepoints
from streamcore.spark.runtime import Runtime
from streamcore.storage import atomic_files as files
from tests.harness.apps.versioned_shop import Version, initial_of, moment, save, simulated
from tests.harness.cut_ids import cut_id
from tests.harness.faults.hanging_transaction import LENIENT, make_hanging_transaction
from tests.harness.servers import processes
from tests.harness.servers.checkpoint_files import on_disk

if TYPE_CHECKING:
    from conftest import NewBroker

BATCH = 7


class Crash(BaseException):
    """kill -9."""


@dataclass
class Standby:
    """One process with what it needs for a promote, without a session."""

    settings: ServiceSettings
    app: App

    def __post_init__(self) -> None:
        self.start = Runtime(self.app.name, None, self.settings.spark_session)
        self.savepoints = ServiceSavepoints(self.settings, self.app, self.start)

    def go(
        self, epoch: int, restore: str | None = None, *, allow_empty: bool = False, discard_newer: bool = False
    ) -> None:
        go = Promote("1", epoch, restore, allow_empty, discard_newer)
        take_over(go, self.settings, self.savepoints, self.start)


@dataclass
class Shop:
    """An app, and the folder of its checkpoints and savepoints. There is a savepoint ``one`` of epoch 1."""

    folder: Path
    version: Version = Version()  # noqa: RUF009 - a value
    bootstrap: str = "nowhere:1"

    @property
    def settings(self) -> ServiceSettings:
        return ServiceSettings.model_validate(
            {
                "app": "shop",
                "kafka": {"bootstrap": self.bootstrap},
                "checkpoint": str(self.folder / "shop"),
                "shards": 2,
            }
        )

    @property
    def epochs(self) -> EpochStore:
        return EpochStore(self.folder / "shop")

    def standby(self, version: Version | None = None) -> Standby:
        return Standby(self.settings, (version or self.version).topology("shop").app(shards=2))

    def save_savepoint(self) -> Savepoint:
        simulation = simulated(self.version, shards=2)
        place = Path(self.settings.savepoints_root)
        return save(simulation.local.app, simulation.blobs, place, moment(BATCH))

    def contents(self) -> dict[str, bytes]:
        every = (
            path
            for path in on_disk(self.epochs.root).rglob("*")
            if path.is_file() and not path.name.startswith("lease.")
        )
        return {path.relative_to(on_disk(self.epochs.root)).as_posix(): path.read_bytes() for path in every}

    def all_files(self) -> set[str]:
        return {str(path) for path in on_disk(self.epochs.root).rglob("*")}


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    new_shop = Shop(tmp_path)
    new_shop.save_savepoint()
    return new_shop


@pytest.mark.slow
def test_a_promoted_standby_starts_without_state_if_allowed_and_continues_the_next_time(shop: Shop) -> None:
    first = shop.standby()
    first.go(1, allow_empty=True)
    root = shop.epochs.checkpoint(1)
    assert (read_epoch(root.epoch_path), root.path.name) == (1, "e1")
    assert settings_for_epoch(shop.settings, 1).checkpoint == root.path
    assert settings_for_epoch(shop.settings, 1).savepoints_root == shop.settings.savepoints_root
    with pytest.raises(ConfigError, match="in use by"):
        shop.standby().go(1)
    first.start.release()
    before = shop.contents()
    shop.standby().go(1, "nothing")
    assert shop.contents() == before


@pytest.mark.slow
def test_a_promoted_standby_restores_the_savepoint_once(shop: Shop) -> None:
    first = shop.standby()
    first.go(2, "one")
    root = shop.epochs.checkpoint(2)
    origin = RestoreOrigin.read(root.restored_from_path)
    assert origin is not None
    assert (origin.savepoint, origin.batch, origin.rewinds) == ("one", BATCH, False)
    assert initial_of(on_disk(root.path), first.app)
    first.start.release()
    shutil.rmtree(shop.folder / "savepoints")
    shop.standby().go(2, "one")


@pytest.mark.slow
def test_the_restore_origin_records_that_newer_batches_were_discarded(shop: Shop) -> None:
    shop.standby().go(2, "one", discard_newer=True)
    origin = RestoreOrigin.read(shop.epochs.checkpoint(2).restored_from_path)
    assert origin is not None
    assert origin.rewinds


def test_a_rejected_promote_changes_nothing(shop: Shop) -> None:
    standby, another = shop.standby(), shop.standby(Version(joined=False))
    for who, epoch, restore in (
        (standby, 1, None),
        (standby, 2, "nothing"),
        (standby, 1, "one"),  # its own epoch
        (another, 2, "one"),  # state that no operator takes
    ):
        with pytest.raises(ConfigError):
            who.go(epoch, restore)
    assert not on_disk(shop.epochs.root).exists()
    shop.standby().go(3, allow_empty=True)
    before = shop.all_files()
    with pytest.raises(NewerEpochExists, match="epoch 2 is over"):
        standby.go(2, "one")
    assert shop.all_files() == before


@pytest.mark.slow
def test_a_promote_from_an_unreadable_savepoint_leaves_nothing_and_can_be_repeated(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    standby = shop.standby()
    folder = shop.folder / "savepoints" / "shop" / "one"
    file = next(folder.rglob("shard-*.parquet"))
    content = file.read_bytes()
    file.write_bytes(content[:-1])
    with pytest.raises(CorruptState):
        standby.savepoints.verify("one")
    with pytest.raises(CorruptState):
        standby.go(2, "one")
    assert shop.all_files() == set()
    with monkeypatch.context() as without:
        without.setattr(EpochStore, "discard_partial", lambda *_: None)
        with pytest.raises(CorruptState):
            standby.go(2, "one")
        assert shop.all_files() != set(), "the protection removes it"
    file.write_bytes(content)
    assert "rows in" in standby.savepoints.verify("one")
    standby.go(2, "one")


@pytest.mark.slow
def test_a_promote_whose_storage_becomes_unavailable_keeps_no_lease(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    standby = shop.standby()

    def raise_unavailable(*_: object) -> bytes | None:
        raise Retryable("the place is away")

    def fail_while_making(*_: object) -> None:
        monkeypatch.setattr(epochs, "read_whole", raise_unavailable)
        raise Retryable("it was being made")

    with monkeypatch.context() as patched:
        patched.setattr(ServiceSavepoints, "make", fail_while_making)
        with pytest.raises(Retryable, match="it was being made"):
            standby.go(2, "one")
    monkeypatch.undo()
    shop.standby().go(2, "one")


@pytest.mark.slow
def test_a_promote_that_crashes_releases_the_lease(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    standby = shop.standby()

    def crash(*_: object) -> None:
        raise Crash

    with monkeypatch.context() as patched:
        patched.setattr(ServiceSavepoints, "make", crash)
        patched.setattr(EpochStore, "discard_partial", crash)
        with pytest.raises(Crash):
            standby.go(2, "one")
    shop.standby().go(2, "one")


@pytest.mark.slow
@pytest.mark.parametrize(("restore", "allow_empty"), [("one", False), (None, True)])
def test_a_promote_that_dies_after_any_write_is_repeated_to_the_same_checkpoint(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, restore: str | None, *, allow_empty: bool
) -> None:
    shop.standby().go(2, restore, allow_empty=allow_empty)
    wanted = shop.contents()
    died = 0
    for writes in range(20):
        shutil.rmtree(on_disk(shop.epochs.root))
        if not crash_after_writes(shop.standby(), writes, monkeypatch, restore):
            break
        died += 1
        assert shop.epochs.existing() in ((), (2,))
        shop.standby().go(2, restore, allow_empty=allow_empty)
        assert shop.contents() == wanted
    assert died >= 3, "lease, epoch and identity are written at least"


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(("restore", "allow_empty"), [("one", False), (None, True)])
def test_a_lost_response_to_the_last_write_does_not_reject_the_promote(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, restore: str | None, *, allow_empty: bool
) -> None:
    shop.standby().go(2, restore, allow_empty=allow_empty)
    wanted = shop.contents()
    shutil.rmtree(on_disk(shop.epochs.root))
    lose_response(monkeypatch, succeeds=True)
    standby = shop.standby()
    standby.go(2, restore, allow_empty=allow_empty)
    standby.start.lease.check()
    assert shop.contents() == wanted


@pytest.mark.slow
def test_a_promote_whose_last_write_failed_is_rejected_and_leaves_nothing(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    lose_response(monkeypatch, succeeds=False)
    with pytest.raises(Retryable, match="no answer"):
        shop.standby().go(2, "one")
    assert shop.all_files() == set()


def test_a_promote_never_continues_the_checkpoint_of_another_app(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    def make_for_another_app(*_: object) -> None:
        monkeypatch.undo()
        shop.epochs.checkpoint(2).initialise(AppIdentity("another", 2), epoch=2)
        raise Retryable("no answer")

    monkeypatch.setattr(ServiceSavepoints, "make", make_for_another_app)
    with pytest.raises(ConfigError, match="belongs to app another"):
        shop.standby().go(2, "one")


def lose_response(monkeypatch: pytest.MonkeyPatch, *, succeeds: bool) -> None:
    """Lose the response to the write of an identity, which succeeds or not."""
    real = files.write_whole

    def write(path: Path, content: bytes) -> None:
        if path.name == "app.json" and not succeeds:
            raise Retryable("no answer")
        real(path, content)
        if path.name == "app.json":
            raise Retryable("no answer")

    monkeypatch.setattr(files, "write_whole", write)


@pytest.mark.slow
def test_a_promote_ignores_the_files_of_an_interrupted_restore(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    shop.standby().go(2, allow_empty=True)
    wanted = shop.contents()
    shutil.rmtree(on_disk(shop.epochs.root))
    assert crash_after_writes(shop.standby(), 4, monkeypatch)
    assert "e2/restored_from.json" in shop.contents()
    shop.standby().go(2, allow_empty=True)
    assert shop.contents() == wanted


def crash_after_writes(
    standby: Standby, writes: int, monkeypatch: pytest.MonkeyPatch, restore: str | None = "one"
) -> bool:
    """Kill the standby after so many writes, which frees its lease. Return False if it needed no more writes."""
    real, left = files.write_whole, [writes]

    def write(path: Path, content: bytes) -> None:
        if not left[0]:
            raise Crash
        left[0] -= 1
        real(path, content)

    with monkeypatch.context() as patched:
        patched.setattr(files, "write_whole", write)
        patched.setattr(EpochStore, "discard_partial", lambda *_: None)
        try:
            standby.go(2, restore, allow_empty=restore is None)
        except Crash:
            return True
        finally:
            standby.start.release()
    return False


@pytest.mark.slow
def test_the_lease_of_an_epoch_ends_with_the_next_one(shop: Shop) -> None:
    first = shop.standby()
    first.go(1, allow_empty=True)
    first.start.lease.check()
    shop.standby().go(2, "one")
    with pytest.raises(Fenced, match="epoch 2 has begun"):
        first.start.lease.check()


def test_a_planned_batch_counts_as_written_if_a_sink_may_have_its_rows(shop: Shop) -> None:
    """Kafka has no marker of a batch whose rows a sink committed before the process died."""
    first, second = shop.standby(), shop.standby()
    first.go(2, "one")
    plan_batch(shop, 2)
    first.start.release()
    second.app = replace(second.app, tables=frozenset({"windows"}))
    second.savepoints = ServiceSavepoints(second.settings, second.app, second.start)
    with pytest.raises(NewerEpochExists, match="batch 0 of epoch 2 is committed, which is newer than the savepoint"):
        second.go(3, "one")
    assert shop.epochs.existing() == (2,)


@pytest.mark.kafka
@pytest.mark.slow
def test_a_promote_learns_whether_a_batch_in_a_hanging_transaction_was_written(
    shop: Shop, new_broker: NewBroker
) -> None:
    shop.bootstrap = new_broker(extra=LENIENT).start()
    standby, kafka, markers = shop.standby(), shop.settings.kafka, shop.settings.markers_topic
    lane = next(iter(standby.app.lanes.values()))  # the topics of the other lanes do not exist yet
    ensure_topics(kafka, [TopicSpec(lane, 1), TopicSpec(markers, 1, compacted=True)])
    for epoch, commit in ((2, False), (3, True)):
        standby.go(epoch, "one")
        plan_batch(shop, epoch)
        standby.start.release()
        writer, records = WriterId("shop", epoch), [OutRecord(lane, None, b"%d" % epoch)]
        make_hanging_transaction(kafka, writer, markers, cut_id(0), records, commit=commit)
        standby = shop.standby()
    with pytest.raises(NewerEpochExists, match="batch 0 of epoch 3 is committed, which is newer than the savepoint"):
        standby.go(4, "one")
    processes.wait_until(lambda: [one.value for one in read_topic(kafka, lane)] == [b"3"], "the records of epoch 3", 20)


def plan_batch(shop: Shop, epoch: int) -> None:
    """Plan the first batch of the epoch."""
    bounds = CutBounds(StreamOffsets(CutClock(), {}), StreamOffsets(CutClock.at(1), {}))
    shop.epochs.checkpoint(epoch).offsets.write(0, bounds)


def test_a_process_that_is_not_promoted_leaves_epochs_alone(shop: Shop) -> None:
    assert standalone_checkpoint(shop.settings) == shop.epochs.root
    shop.standby().go(1, allow_empty=True)
    with pytest.raises(ConfigError, match="name e1 in it as the checkpoint"):
        standalone_checkpoint(shop.settings)


def test_a_lease_whose_folder_is_removed_meanwhile_is_not_acquired(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process releases and removes the folder after this one opened the lock file and before it locks it."""
    root, lock = tmp_path / "e1", fcntl.flock

    def remove_then_lock(descriptor: int, how: int) -> None:
        shutil.rmtree(root)
        lock(descriptor, how)

    monkeypatch.setattr(fcntl, "flock", remove_then_lock)
    with pytest.raises(LeaseHeld, match="it was removed a moment ago"):
        lease_for(root).acquire()
