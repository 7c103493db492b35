"""A running service does what it is asked, once, and says so: a standby that is told to go, other settings, a drain."""

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


def said(folder: Path) -> DriverStatus:
    """What the process whose channel this is said last."""
    text = FileChannel(folder).last_status()
    return (None if text is None else DriverStatus.from_json(text)) or DriverStatus(DriverPhase.STARTING)


def await_report(folder: Path, holds: Callable[[DriverStatus], bool], what: str) -> DriverStatus:
    wait_until(lambda: holds(said(folder)), what, LIMIT_S)
    return said(folder)


def ask(folder: Path, **request: object) -> None:
    FileChannel(folder).send(orjson.dumps(request).decode())


def send(scene: Scene, count: int) -> None:
    scene.send(orders.orders(count, seed=1, start_ms=scene.next_day()))


def answer_to(folder: Path, identity: str) -> CommandResult:
    return await_report(folder, lambda report: identity in report.results, f"an answer to {identity}").results[identity]


def test_a_standby_runs_when_it_is_told_takes_other_settings_as_it_runs_and_drains_when_it_is_asked(
    new_app: NewApp,
) -> None:
    scene = new_app("asked", savepoints=None)
    app, box = scene.app, scene.app.checkpoint / "standby"
    app.start((*RULES_APP, "--standby"))
    await_report(box, lambda report: report.phase is DriverPhase.STANDBY, "a standby")
    assert {path.name for path in app.checkpoint.iterdir()} == {"standby"}
    assert {path.name for path in app.checkpoint.parent.iterdir()}.isdisjoint({"rehearsal"})
    ask(box, id="s", command="savepoint")
    assert not answer_to(box, "s").ok
    ask(box, id="n", command="promote", epoch=4)
    assert "it may not begin with nothing" in answer_to(box, "n").message
    ask(box, id="v", command="verify", savepoint="nothing")
    assert "no savepoint nothing" in answer_to(box, "v").message
    assert {path.name for path in app.checkpoint.iterdir()} == {"standby"}, "what was rejected left nothing"

    ask(box, id="g", command="promote", epoch=4, restore=None, allow_empty=True)
    running = await_report(box, lambda report: report.committed > 0, "a first cut")
    assert running.results["g"].ok
    assert (running.phase, running.epoch) == (DriverPhase.RUNNING, 4)
    send(scene, 500)
    scene.settle()
    idle = await_report(box, lambda report: report.batch > running.batch and report.lag_rows == 0, "nothing waits")
    assert idle.lag_s == 0
    takes_settings(scene, box)
    assert run(["savepoint", "create", "midway", *place(app)]) == 0

    ask(box, id="d", command="drain", savepoint=None)
    assert app.wait_for_end() == 0
    drained = said(box)
    assert drained.phase is DriverPhase.DRAINED
    assert drained.results["d"].ok
    assert drained.batch == app.lines[-1].batch
    scene.check_counts()
    rejected_by_hand(app)


def place(app: AppUnderTest) -> list[str]:
    return ["--service", "rules", "--settings", str(app.folder / "settings.json")]


def takes_settings(scene: Scene, box: Path) -> None:
    """Some are taken at a batch boundary, some need another process, some cannot be used; the app goes on with all."""
    app, pid = scene.app, scene.app.pid
    before = said(box)
    for identity, changed, why in (
        ("c1", {"parallelism": 1, "checkpoint": "elsewhere"}, "another process is needed for another checkpoint, para"),
        ("c2", {"events_per_cut": 0}, "events_per_cut: Input should be greater than 0"),
        ("c3", {"streams": [{"schema_file": "nowhere.yaml", "topic": "x"}]}, "nowhere.yaml: cannot be read"),
        ("c4", {"streams": list(reversed(app.settings["streams"]))}, "its state would be another"),  # type: ignore[call-overload]
    ):
        ask(box, id=identity, command="configure", settings={**app.settings, **changed})
        rejected = answer_to(box, identity)
        assert not rejected.ok
        assert why in rejected.message
    ask(box, id="c5", command="configure", settings={**app.settings, "max_rules": 3, "events_per_cut": 100})
    taken = answer_to(box, "c5")
    assert taken.ok, taken.message
    report = said(box)
    assert (report.epoch, report.phase, app.pid) == (before.epoch, DriverPhase.RUNNING, pid)
    assert report.batch > before.batch
    send(scene, 500)
    scene.settle()
    assert max(cut.events for cut in app.lines if cut.batch > report.batch) <= 100, "so many events a cut, and no more"
    batches = [cut.batch for cut in app.lines]
    assert batches == list(range(len(batches))), "no batch was left out, none ran twice"


def rejected_by_hand(app: AppUnderTest) -> None:
    """The folder of an app that is told to go is not begun in by one that is not."""
    copy = app.second_copy()
    assert copy.returncode == 2
    assert b"it holds those of epochs 4" in copy.stderr


def test_an_owner_answers_once_and_a_copy_of_it_touches_neither_its_requests_nor_its_report(new_app: NewApp) -> None:
    app = new_app("owned").app
    app.start()
    box = app.checkpoint
    await_report(box, lambda report: report.committed > 0, "a first cut")
    assert app.second_copy().returncode == 2
    assert said(box).phase is DriverPhase.RUNNING
    ask(box, id="d", command="drain", savepoint=None)
    assert app.wait_for_end() == 0
    # The request is still there, and was answered: the next start runs.
    app.start()
    again = await_report(
        box, lambda report: report.phase is DriverPhase.RUNNING and report.committed > 0, "a second life"
    )
    assert again.results["d"].ok
    assert app.drain() == 0


def test_who_is_told_to_go_where_another_is_or_something_newer_is_rejected_and_may_be_told_again(
    new_app: NewApp,
) -> None:
    """Two standbys of one app: one epoch has one owner, goes on where it was, and ends when the next one has begun."""
    scene = new_app("taken")
    owner, place = scene.app, str(scene.app.folder / "savepoints")
    owner.settings = {**owner.settings, "savepoints": place}
    boxes = owner.checkpoint.parent / "a", owner.checkpoint.parent / "b"
    other = AppUnderTest(owner.folder / "other", owner.settings)
    with other:
        start_standby(owner, boxes[0])
        start_standby(other, boxes[1])
        for identity, box in zip("ab", boxes, strict=True):
            await_report(box, lambda report: report.phase is DriverPhase.STANDBY, "a standby")
            ask(box, id=identity, command="promote", epoch=1, allow_empty=True)
        answers = [answer_to(box, identity) for identity, box in zip("ab", boxes, strict=True)]
        assert sorted(answer.ok for answer in answers) == [False, True], "one epoch, one owner"
        if answers[1].ok:
            owner, other, boxes = other, owner, boxes[::-1]
        assert "in use by" in answers[0].message + answers[1].message
        mine, theirs = boxes
        send(scene, 500)
        saved = drained_with_savepoint(owner, mine, "first")
        root = owner.checkpoint / "e1"
        before = sorted(path.name for path in owner.checkpoint.iterdir())

        ask(theirs, id="2", command="promote", epoch=2, allow_empty=True)
        rejected = answer_to(theirs, "2")
        assert (rejected.ok, rejected.newer_epoch) == (False, NewerEpochInfo(1, saved.batch))
        assert sorted(path.name for path in owner.checkpoint.iterdir()) == before
        ask(theirs, id="3", command="verify", savepoint="first")
        verified = answer_to(theirs, "3")
        assert verified.ok, verified.message
        # In place: the epoch that is there, gone on with, whatever else is said.
        ask(theirs, id="4", command="promote", epoch=1, restore="nothing")
        assert answer_to(theirs, "4").ok
        other.wait_for_cuts(2)
        assert other.this_start[0].batch == saved.batch + 1

        start_standby(owner, mine)
        await_report(mine, lambda report: report.phase is DriverPhase.STANDBY, "a standby again")
        ask(mine, id="5", command="promote", epoch=2, restore="first")
        newer = answer_to(mine, "5")
        assert not newer.ok
        assert newer.newer_epoch is not None
        assert newer.newer_epoch.batch > saved.batch
        assert CheckpointRoot(root).identity() is not None
        # A person accepts it: a later epoch begins, and the one that still runs ends by itself.
        ask(mine, id="6", command="promote", epoch=2, restore="first", discard_newer=True)
        accepted = answer_to(mine, "6")
        assert accepted.ok, accepted.message
        owner.wait_for_cuts(1)
        assert (owner.this_start[0].epoch, owner.this_start[0].batch) == (2, 0)
        assert other.wait_for_end() == 1
        assert "Fenced" in other.log.read_text()
        assert owner.drain() == 0


def start_standby(app: AppUnderTest, box: Path) -> None:
    """With a channel of its own, as a pod has."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HEADGATE_CONTROL_CHANNEL", str(box))
        app.start((*RULES_APP, "--standby"))


def drained_with_savepoint(app: AppUnderTest, box: Path, name: str) -> SavepointInfo:
    app.wait_for_cuts(2)
    ask(box, id=f"drain-{name}", command="drain", savepoint=name)
    assert app.wait_for_end() == 0
    saved = said(box).results[f"drain-{name}"].savepoint
    assert saved is not None
    return saved
