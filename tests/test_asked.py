"""A running service does what it is asked, once, and says so: drained by request, a standby that is told to go."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import orjson
import pytest

from streamcore.service.mailbox import FileMailbox
from streamcore.service.report import Phase, Report
from tests.conftest import NewApp
from tests.harness import orders
from tests.harness.app import RULES_APP, AppUnderTest
from tests.harness.processes import wait_until
from tests.harness.scene import Scene

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(900)]
LIMIT_S = 240.0


def said(app: AppUnderTest) -> Report:
    """What it said last."""
    text = FileMailbox(app.checkpoint).last_report()
    return (None if text is None else Report.from_json(text)) or Report(Phase.STARTING)


def await_report(app: AppUnderTest, holds: Callable[[Report], bool], what: str) -> Report:
    wait_until(lambda: holds(said(app)), what, LIMIT_S)
    return said(app)


def ask(app: AppUnderTest, **request: object) -> None:
    FileMailbox(app.checkpoint).ask(orjson.dumps(request).decode())


def send(scene: Scene, count: int) -> None:
    scene.send(orders.orders(count, seed=1, start_ms=scene.next_day()))


def test_a_standby_owns_nothing_runs_when_it_is_told_and_drains_when_it_is_asked(new_app: NewApp) -> None:
    scene = new_app("asked")
    app = scene.app
    app.start((*RULES_APP, "--standby"))
    await_report(app, lambda report: report.phase is Phase.STANDBY, "a standby")
    assert not (app.checkpoint / "lease.json").exists()
    assert not (app.checkpoint / "app.json").exists()
    ask(app, id="s", do="savepoint")
    refused = await_report(app, lambda report: "s" in report.answers, "an answer to what nobody can do")
    assert not refused.answers["s"].ok

    ask(app, id="g", do="go", epoch=4, restore=None)
    running = await_report(app, lambda report: report.committed > 0, "a first cut")
    assert running.answers["g"].ok
    assert (running.phase, running.epoch) == (Phase.RUNNING, 4)
    send(scene, 500)
    scene.settle()
    idle = await_report(app, lambda report: report.batch > running.batch and report.lag_rows == 0, "nothing waits")
    assert idle.lag_s == 0

    ask(app, id="d", do="drain", savepoint=None)
    assert app.wait_for_end() == 0
    drained = said(app)
    assert drained.phase is Phase.DRAINED
    assert drained.answers["d"].ok
    assert drained.batch == app.lines[-1].batch

    # The request is still there, and was answered: the next start runs.
    app.start()
    again = await_report(app, lambda report: report.phase is Phase.RUNNING and report.committed > 0, "a second life")
    assert (again.epoch, again.answers["d"].ok) == (4, True)
    assert app.drain() == 0
    scene.check_counts()


def test_a_standby_is_refused_what_another_owns_or_is_in_another_epoch_and_may_be_told_again(
    new_app: NewApp, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = new_app("owned")
    owner = scene.app
    owner.start()
    owner.wait_for_cuts(1)
    # A mailbox of its own: both would read the same file.
    monkeypatch.setenv("HEADGATE_REPORTS", str(tmp_path / "box"))
    other = AppUnderTest(tmp_path / "other", owner.settings)
    box = FileMailbox(tmp_path / "box")

    def answer_to(identity: str) -> Report:
        def known() -> Report:
            return Report.from_json(box.last_report() or "") or Report(Phase.STARTING)

        wait_until(lambda: identity in known().answers, f"an answer to {identity}", LIMIT_S)
        return known()

    with other:
        other.start((*RULES_APP, "--standby"))
        box.ask('{"id":"1","do":"go","epoch":1}')
        refused = answer_to("1")
        assert not refused.answers["1"].ok
        assert "in use by" in refused.answers["1"].message
        assert owner.drain() == 0
        box.ask('{"id":"2","do":"go","epoch":2}')
        assert "is in epoch 1" in answer_to("2").answers["2"].message
        box.ask('{"id":"3","do":"go","epoch":1}')
        assert answer_to("3").answers["3"].ok
        other.wait_for_cuts(1)
        assert other.drain() == 0
