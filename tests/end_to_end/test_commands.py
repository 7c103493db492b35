"""Commands to a running service: promote, configure, verify, savepoint and drain, each executed and answered once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import orjson
import pytest

from headgate.main import run
from streamcore.checkpoint.checkpoint import CheckpointRoot
from streamcore.control.channel import FileChannel
from streamcore.control.status import CommandResult, DriverPhase, DriverStatus, NewerEpochInfo, SavepointInfo
from tests.conftest import NewApp
from tests.harness.apps import orders
from tests.harness.apps.rules_app import RULES_APP, AppUnderTest
from tests.harness.apps.rules_scene import Scene
from tests.harness.servers.processes import wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(900)]
LIMIT_S = 240.0


def last_status(folder: Path) -> DriverStatus:
    """Return the last status that the process wrote to this channel."""
    text = FileChannel(folder).last_status()
    return (None if text is None else DriverStatus.from_json(text)) or DriverStatus(DriverPhase.STARTING)


def await_status(folder: Path, holds: Callable[[DriverStatus], bool], what: str) -> DriverStatus:
    wait_until(lambda: holds(last_status(folder)), what, LIMIT_S)
    return last_status(folder)


def send_command(folder: Path, **request: object) -> None:
    FileChannel(folder).send(orjson.dumps(request).decode())


def send(scene: Scene, count: int) -> None:
    scene.send(orders.orders(count, seed=1, start_ms=scene.next_day()))


def await_result(folder: Path, identity: str) -> CommandResult:
    return await_status(folder, lambda report: identity in report.results, f"an answer to {identity}").results[identity]


def test_a_standby_is_promoted_reconfigured_and_drained_by_commands(
    new_app: NewApp,
) -> None:
    scene = new_app("commands", savepoints=None)
    app, channel = scene.app, scene.app.checkpoint / "standby"
    app.start((*RULES_APP, "--standby"))
    await_status(channel, lambda report: report.phase is DriverPhase.STANDBY, "a standby")
    assert {path.name for path in app.checkpoint.iterdir()} == {"standby"}
    assert {path.name for path in app.checkpoint.parent.iterdir()}.isdisjoint({"rehearsal"})
    send_command(channel, id="s", command="savepoint")
    assert not await_result(channel, "s").ok
    send_command(channel, id="n", command="promote", epoch=4)
    assert "it may not begin with nothing" in await_result(channel, "n").message
    send_command(channel, id="v", command="verify", savepoint="nothing")
    assert "no savepoint nothing" in await_result(channel, "v").message
    assert {path.name for path in app.checkpoint.iterdir()} == {"standby"}, "rejected commands left no file"

    send_command(channel, id="g", command="promote", epoch=4, restore=None, allow_empty=True)
    running = await_status(channel, lambda report: report.committed > 0, "a first cut")
    assert running.results["g"].ok
    assert (running.phase, running.epoch) == (DriverPhase.RUNNING, 4)
    send(scene, 500)
    scene.settle()
    idle = await_status(channel, lambda report: report.batch > running.batch and report.lag_rows == 0, "nothing waits")
    assert idle.lag_s == 0
    check_reconfiguration(scene, channel)
    assert run(["savepoint", "create", "midway", *app_options(app)]) == 0

    send_command(channel, id="d", command="drain", savepoint=None)
    assert app.wait_for_end() == 0
    drained = last_status(channel)
    assert drained.phase is DriverPhase.DRAINED
    assert drained.results["d"].ok
    assert drained.batch == app.reported_cuts[-1].batch
    scene.check_counts()
    check_second_copy_is_rejected(app)


def app_options(app: AppUnderTest) -> list[str]:
    return ["--service", "rules", "--settings", str(app.folder / "settings.json")]


def check_reconfiguration(scene: Scene, channel: Path) -> None:
    """Check that settings that need a new process or are invalid are rejected, and that others apply at run time."""
    app, pid = scene.app, scene.app.pid
    before = last_status(channel)
    for identity, changed, why in (
        ("c1", {"parallelism": 1, "checkpoint": "elsewhere"}, "another process is needed for another checkpoint, para"),
        ("c2", {"events_per_cut": 0}, "events_per_cut: Input should be greater than 0"),
        ("c3", {"streams": [{"schema_file": "nowhere.yaml", "topic": "x"}]}, "nowhere.yaml: cannot be read"),
        ("c4", {"streams": list(reversed(app.settings["streams"]))}, "its state would be another"),  # type: ignore[call-overload]
    ):
        send_command(channel, id=identity, command="configure", settings={**app.settings, **changed})
        rejected = await_result(channel, identity)
        assert not rejected.ok
        assert why in rejected.message
    send_command(
        channel, id="c5", command="configure", settings={**app.settings, "max_rules": 3, "events_per_cut": 100}
    )
    accepted = await_result(channel, "c5")
    assert accepted.ok, accepted.message
    report = last_status(channel)
    assert (report.epoch, report.phase, app.pid) == (before.epoch, DriverPhase.RUNNING, pid)
    assert report.batch > before.batch
    send(scene, 500)
    scene.settle()
    assert max(cut.events for cut in app.reported_cuts if cut.batch > report.batch) <= 100, (
        "the new limit of events in a cut holds"
    )
    batches = [cut.batch for cut in app.reported_cuts]
    assert batches == list(range(len(batches))), "no batch was left out, none ran twice"


def check_second_copy_is_rejected(app: AppUnderTest) -> None:
    """Check that a process without a command rejects the folder of a promoted app."""
    copy = app.run_second_process()
    assert copy.returncode == 2
    assert b"it holds those of epochs 4" in copy.stderr


def test_a_promote_is_rejected_while_the_lease_is_held_or_newer_state_exists_and_can_be_repeated(
    new_app: NewApp,
) -> None:
    """Two standbys of one app: an epoch has one owner, continues in place, and ends when the next one begins."""
    scene = new_app("taken")
    owner, place = scene.app, str(scene.app.folder / "savepoints")
    owner.settings = {**owner.settings, "savepoints": place}
    channels = owner.checkpoint.parent / "a", owner.checkpoint.parent / "b"
    other = AppUnderTest(owner.folder / "other", owner.settings)
    with other:
        start_standby(owner, channels[0])
        start_standby(other, channels[1])
        for identity, channel in zip("ab", channels, strict=True):
            await_status(channel, lambda report: report.phase is DriverPhase.STANDBY, "a standby")
            send_command(channel, id=identity, command="promote", epoch=1, allow_empty=True)
        answers = [await_result(channel, identity) for identity, channel in zip("ab", channels, strict=True)]
        assert sorted(answer.ok for answer in answers) == [False, True], "one epoch, one owner"
        if answers[1].ok:
            owner, other, channels = other, owner, channels[::-1]
        assert "in use by" in answers[0].message + answers[1].message
        mine, theirs = channels
        send(scene, 500)
        saved = drain_with_savepoint(owner, mine, "first")
        root = owner.checkpoint / "e1"
        before = sorted(path.name for path in owner.checkpoint.iterdir())

        send_command(theirs, id="2", command="promote", epoch=2, allow_empty=True)
        rejected = await_result(theirs, "2")
        assert (rejected.ok, rejected.newer_epoch) == (False, NewerEpochInfo(1, saved.batch))
        assert sorted(path.name for path in owner.checkpoint.iterdir()) == before
        send_command(theirs, id="3", command="verify", savepoint="first")
        verified = await_result(theirs, "3")
        assert verified.ok, verified.message
        # In place: the existing epoch continues, whatever else the command contains.
        send_command(theirs, id="4", command="promote", epoch=1, restore="nothing")
        assert await_result(theirs, "4").ok
        other.wait_for_cuts(2)
        assert other.this_start[0].batch == saved.batch + 1

        start_standby(owner, mine)
        await_status(mine, lambda report: report.phase is DriverPhase.STANDBY, "a standby again")
        send_command(mine, id="5", command="promote", epoch=2, restore="first")
        newer = await_result(mine, "5")
        assert not newer.ok
        assert newer.newer_epoch is not None
        assert newer.newer_epoch.batch > saved.batch
        assert CheckpointRoot(root).identity() is not None
        # A person accepts it: a later epoch begins, and the one that still runs ends by itself.
        send_command(mine, id="6", command="promote", epoch=2, restore="first", discard_newer=True)
        accepted = await_result(mine, "6")
        assert accepted.ok, accepted.message
        owner.wait_for_cuts(1)
        assert (owner.this_start[0].epoch, owner.this_start[0].batch) == (2, 0)
        assert other.wait_for_end() == 1
        assert "Fenced" in other.log.read_text()
        assert owner.drain() == 0


def start_standby(app: AppUnderTest, channel: Path) -> None:
    """Start a standby with a channel of its own, as a pod has."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HEADGATE_CONTROL_CHANNEL", str(channel))
        app.start((*RULES_APP, "--standby"))


def drain_with_savepoint(app: AppUnderTest, channel: Path, name: str) -> SavepointInfo:
    app.wait_for_cuts(2)
    send_command(channel, id=f"drain-{name}", command="drain", savepoint=name)
    assert app.wait_for_end() == 0
    saved = last_status(channel).results[f"drain-{name}"].savepoint
    assert saved is not None
    return saved
