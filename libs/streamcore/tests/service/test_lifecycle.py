"""The answers of a service process that cannot continue. Without a session: later requests are tested elsewhere."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from streamcore.checkpoint.checkpoint import AppIdentity, CheckpointRoot
from streamcore.checkpoint.epochs import EpochStore
from streamcore.control.channel import FileChannel
from streamcore.control.commands import Promote
from streamcore.control.status import DriverPhase, DriverStatus, SavepointInfo
from streamcore.engine.lag import Lag
from streamcore.errors import ConfigError, Retryable
from streamcore.leases.acquire import lease_for
from streamcore.service import lifecycle as life
from streamcore.service.config.settings import CheckpointRetention, ServiceSettings
from streamcore.service.lifecycle import ServiceProcess, StartMode
from streamcore.spark.runtime import Runtime
from streamcore.storage.location import Location
from tests.harness.servers.otlp_collector import Collector, collecting


class Sessionless(Runtime):
    """Raises nothing: it is the owner."""

    def _run(self) -> None:
        self._session.set_result(SimpleNamespace(stop=lambda: None))  # type: ignore[arg-type]

    def check_alive(self) -> None:
        """Nothing can have ended."""


class Making:
    """Creates an empty checkpoint."""

    def __init__(self, epochs: EpochStore) -> None:
        self.epochs = epochs

    def admit(self, go: Promote) -> None:
        """It may be."""

    def make(self, go: Promote) -> None:
        self.epochs.checkpoint(go.epoch).initialise(AppIdentity("shop", 2), epoch=go.epoch)


class Rejecting(Making):
    """Its object store is unavailable."""

    def make(self, go: Promote) -> None:
        raise Retryable("the place is away")


class Builds:
    """Builds the runner for the warm-up, and then none."""

    def __call__(self, _: object, runtime: Runtime, __: object) -> Any:
        if runtime._lease is not None:  # it is promoted, perhaps before it warmed up
            raise Retryable("no broker answered")
        return SimpleNamespace(warm_up=lambda *_: None)


def standby(
    folder: Path,
    kind: type[Making],
    monkeypatch: pytest.MonkeyPatch,
    builds: Any = Builds,
    telemetry: dict[str, str] | None = None,
) -> tuple[ServiceProcess[ServiceSettings], EpochStore]:
    monkeypatch.setattr(life, "Runtime", Sessionless)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    settings = ServiceSettings.model_validate(
        {
            "app": "shop",
            "kafka": {"bootstrap": "nowhere:1"},
            "checkpoint": str(folder / "shop"),
            "shards": 2,
            "telemetry": telemetry or {},
        }
    )
    epochs, box = EpochStore(folder / "shop"), FileChannel(folder / "box", exclusive=True)
    box.send('{"id":"1","command": "promote","epoch":1,"allow_empty":true}')
    make_savepoints: Any = lambda *_: kind(epochs)  # noqa: E731
    return ServiceProcess("shop", settings, builds, box, StartMode(standby=True), make_savepoints), epochs


def published_status(folder: Path) -> DriverStatus:
    report = DriverStatus.from_json(FileChannel(folder / "box").last_status() or "")
    assert report is not None
    return report


def test_a_promote_is_not_rejected_once_its_checkpoint_exists(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rejection would mean that the epoch does not exist."""
    one, epochs = standby(tmp_path, Making, monkeypatch)
    with pytest.raises(Retryable, match="no broker answered"):
        one.run()
    assert epochs.existing() == (1,)
    report = published_status(tmp_path)
    assert (report.phase, report.results) == (DriverPhase.FAILED, {})
    assert "no broker answered" in report.message


def test_a_promote_that_created_nothing_is_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, epochs = standby(tmp_path, Rejecting, monkeypatch)
    one._reporter.reject = stop_after(one, one._reporter.reject)  # type: ignore[method-assign]
    one.run()
    assert epochs.folders() == ()
    assert "the place is away" in published_status(tmp_path).results["1"].message


def test_a_promote_to_a_checkpoint_that_another_process_owns_can_be_retried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, epochs = standby(tmp_path, Making, monkeypatch)
    one._reporter.reject = stop_after(one, one._reporter.reject)  # type: ignore[method-assign]
    with lease_for(epochs.checkpoint(1).path):
        one.run()
    answer = published_status(tmp_path).results["1"]
    assert (answer.ok, answer.retryable) == (False, True)
    assert "in use by process" in answer.message


def stop_after(one: ServiceProcess[ServiceSettings], reject: Any) -> Any:
    """Return a ``reject`` that also stops the process."""

    def reject_and_stop(identity: str, why: Exception | str) -> None:
        reject(identity, why)
        one.stop()

    return reject_and_stop


class Saving(Making):
    """Takes empty savepoints."""

    def create(self, name: str, _: object) -> SavepointInfo:
        return SavepointInfo(name, 0, 1, "digest", 0)


class Idle:
    """A runner that does nothing until it is drained."""

    def __init__(self) -> None:
        self.drained = threading.Event()

    def warm_up(self, *_: object) -> None:
        """Nothing to warm up."""

    def run(self) -> None:
        assert self.drained.wait(30)

    def drain(self, *, finish_open_batch: bool) -> None:
        self.drained.set()

    def lag(self) -> Lag:
        return Lag()


class Owner(Idle):
    """A runner that made its checkpoint, and ends as ``ends`` says: a function of the process."""

    def __init__(self, runtime: Runtime, checkpoint: Location, ends: Callable[[], None]) -> None:
        super().__init__()
        CheckpointRoot(checkpoint).initialise(AppIdentity("shop", 2), epoch=runtime.epoch)
        self.app = None
        self._ends = ends

    def run(self) -> None:
        self._ends()


def end_owner(folder: Path, monkeypatch: pytest.MonkeyPatch, end: str, retention: str) -> ServiceProcess[Any]:
    """Run a process that owns its checkpoint until it ends in that way."""
    monkeypatch.setattr(life, "Runtime", Sessionless)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    document = {"app": "shop", "kafka": {"bootstrap": "nowhere:1"}, "checkpoint": str(folder / "shop"), "shards": 2}
    settings = ServiceSettings.model_validate({**document, "checkpoint_retention": retention})
    box = FileChannel(folder / "box", exclusive=True)

    def end_so() -> None:
        if end == "failure":
            raise Retryable("no broker answered")
        if end == "open batch":  # a drain while the app waits to repeat a batch that failed
            offsets = folder / "shop" / "spark" / "offsets"
            offsets.mkdir(parents=True)
            (offsets / "0").write_text("planned")
        if end in ("SIGTERM", "SIGINT"):
            one._on_signal(signal.Signals[end], None)
            assert one._stopping.wait(30)
        if end == "drain":
            box.send('{"id":"1","command":"drain","savepoint":null}')
            assert one._stopping.wait(30)

    def build(settings: ServiceSettings, runtime: Runtime, _: object) -> Any:
        return Owner(runtime, settings.checkpoint, end_so)

    make_savepoints: Any = lambda *_: None  # noqa: E731
    one: ServiceProcess[Any] = ServiceProcess("shop", settings, lambda: build, box, StartMode(), make_savepoints)
    with suppress(Retryable):
        one.run()
    return one


@pytest.mark.parametrize(
    ("end", "retention", "deleted"),
    [
        ("input", "delete-on-cancellation", True),
        ("drain", "delete-on-cancellation", True),
        ("SIGINT", "delete-on-cancellation", True),
        ("SIGTERM", "delete-on-cancellation", False),
        ("failure", "delete-on-cancellation", False),
        ("open batch", "delete-on-cancellation", False),
        ("input", "retain-on-cancellation", False),
        ("drain", "retain-on-cancellation", False),
    ],
)
def test_a_checkpoint_is_deleted_after_an_end_that_somebody_wants_only(
    end: str, retention: str, deleted: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    end_owner(tmp_path, monkeypatch, end, retention)
    assert (CheckpointRoot(tmp_path / "shop").identity() is None) is deleted
    phase = published_status(tmp_path).phase
    assert phase is (DriverPhase.FAILED if end == "failure" else DriverPhase.DRAINED)


def test_a_standby_rejects_that_its_checkpoint_is_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, epochs = standby(tmp_path, Making, monkeypatch)
    one._settings = one._settings.model_copy(update={"checkpoint_retention": CheckpointRetention.DELETE})
    with pytest.raises(ConfigError, match="a rollback go on from the checkpoint of the one before"):
        one.run()
    assert epochs.folders() == ()


@pytest.fixture
def collector() -> Iterator[str]:
    with collecting() as url:
        yield url


@pytest.mark.slow
def test_the_spans_of_a_driver_are_in_the_trace_of_the_upgrade(
    collector: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The promote precedes the telemetry, and the savepoint of the drain follows the last cut."""
    one, _ = standby(tmp_path, Saving, monkeypatch, lambda: lambda *_: Idle(), {"otlp_endpoint": collector})
    trace, promote_span, drain_span = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331", "00f067aa0ba902b7"
    box = FileChannel(tmp_path / "box", exclusive=True)
    box.send(
        f'{{"id":"1","command": "promote","epoch":1,"allow_empty":true,"traceparent":"00-{trace}-{promote_span}-01"}}'
    )

    def stop() -> None:
        while not (box.last_status() and published_status(tmp_path).phase is DriverPhase.RUNNING):
            time.sleep(0.05)
        box.send(f'{{"id":"2","command": "drain","savepoint":"last","traceparent":"00-{trace}-{drain_span}-01"}}')

    asking = threading.Thread(target=stop, daemon=True)
    asking.start()
    one.run()
    asking.join()
    answer = published_status(tmp_path).results["2"]
    assert answer.savepoint is not None
    assert (answer.ok, answer.savepoint.name) == (True, "last")
    found = {span.name: (span.trace_id.hex(), span.parent_span_id.hex()) for span in Collector.spans()}
    assert found == {"promote": (trace, promote_span), "drain": (trace, drain_span), "savepoint": (trace, drain_span)}
    by_name = {span.name: span for span in Collector.spans()}
    drain, savepoint = by_name["drain"], by_name["savepoint"]
    assert drain.start_time_unix_nano <= savepoint.start_time_unix_nano
    assert savepoint.end_time_unix_nano <= drain.end_time_unix_nano
