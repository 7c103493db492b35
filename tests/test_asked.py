"""A running service does what it is asked, once, and says so: drained by request, a standby that is told to go."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import orjson
import pytest

from streamcore.service.mailbox import FileMailbox
from streamcore.service.report import Answer, Phase, Report
from tests.conftest import NewApp
from tests.harness import orders
from tests.harness.app import RULES_APP, AppUnderTest
from tests.harness.processes import wait_until
from tests.harness.scene import Scene

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(900)]
LIMIT_S = 240.0


def said(folder: Path) -> Report:
    """What the process whose mailbox this is said last."""
    text = FileMailbox(folder).last_report()
    return (None if text is None else Report.from_json(text)) or Report(Phase.STARTING)


def await_report(folder: Path, holds: Callable[[Report], bool], what: str) -> Report:
    wait_until(lambda: holds(said(folder)), what, LIMIT_S)
    return said(folder)


def ask(folder: Path, **request: object) -> None:
    FileMailbox(folder).ask(orjson.dumps(request).decode())


def send(scene: Scene, count: int) -> None:
    scene.send(orders.orders(count, seed=1, start_ms=scene.next_day()))


def test_a_standby_owns_nothing_runs_when_it_is_told_and_drains_when_it_is_asked(new_app: NewApp) -> None:
    scene = new_app("asked")
    app, box = scene.app, scene.app.checkpoint / "standby"
    app.start((*RULES_APP, "--standby"))
    await_report(box, lambda report: report.phase is Phase.STANDBY, "a standby")
    assert {path.name for path in app.checkpoint.iterdir()} == {"standby"}
    assert {path.name for path in app.checkpoint.parent.iterdir()}.isdisjoint({"rehearsal"})
    ask(box, id="s", do="savepoint")
    refused = await_report(box, lambda report: "s" in report.answers, "an answer to what nobody can do")
    assert not refused.answers["s"].ok

    ask(box, id="g", do="go", epoch=4, restore=None)
    running = await_report(box, lambda report: report.committed > 0, "a first cut")
    assert running.answers["g"].ok
    assert (running.phase, running.epoch) == (Phase.RUNNING, 4)
    send(scene, 500)
    scene.settle()
    idle = await_report(box, lambda report: report.batch > running.batch and report.lag_rows == 0, "nothing waits")
    assert idle.lag_s == 0

    ask(box, id="d", do="drain", savepoint=None)
    assert app.wait_for_end() == 0
    drained = said(box)
    assert drained.phase is Phase.DRAINED
    assert drained.answers["d"].ok
    assert drained.batch == app.lines[-1].batch
    scene.check_counts()


def test_an_owner_answers_once_and_a_copy_of_it_touches_neither_its_requests_nor_its_report(new_app: NewApp) -> None:
    app = new_app("owned").app
    app.start()
    box = app.checkpoint
    await_report(box, lambda report: report.committed > 0, "a first cut")
    assert app.second_copy().returncode == 2
    assert said(box).phase is Phase.RUNNING
    ask(box, id="d", do="drain", savepoint=None)
    assert app.wait_for_end() == 0
    # The request is still there, and was answered: the next start runs.
    app.start()
    again = await_report(box, lambda report: report.phase is Phase.RUNNING and report.committed > 0, "a second life")
    assert again.answers["d"].ok
    assert app.drain() == 0


def test_a_standby_is_refused_what_another_owns_or_is_in_another_epoch_and_may_be_told_again(new_app: NewApp) -> None:
    owner = new_app("taken").app
    owner.start()
    owner.wait_for_cuts(1)
    other = AppUnderTest(owner.folder / "other", owner.settings)
    box = owner.checkpoint / "standby"

    def answer_to(identity: str) -> Answer:
        return await_report(box, lambda report: identity in report.answers, "an answer").answers[identity]

    with other:
        other.start((*RULES_APP, "--standby"))
        await_report(box, lambda report: report.phase is Phase.STANDBY, "a standby")
        ask(box, id="1", do="go", epoch=1)
        refused = answer_to("1")
        assert not refused.ok
        assert "in use by" in refused.message
        assert owner.drain() == 0
        ask(box, id="2", do="go", epoch=2)
        assert "is in epoch 1" in answer_to("2").message
        ask(box, id="3", do="go", epoch=1)
        assert answer_to("3").ok
        other.wait_for_cuts(1)
        assert other.drain() == 0
