"""A savepoint of a service under load is restored in another folder after a kill: its alerts equal the oracle's."""

from __future__ import annotations

import json
from pathlib import Path

import orjson
import pytest

from headgate.main import run
from streamcore.checkpoint.checkpoint import CheckpointRoot
from streamcore.control.channel import FileChannel
from streamcore.control.status import DriverStatus
from tests.conftest import NewApp
from tests.harness.apps import orders
from tests.harness.apps import published_rules as rules
from tests.harness.apps.rules_app import AppUnderTest
from tests.harness.apps.rules_scene import Scene
from tests.harness.servers.processes import wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(1_200)]
COUNT = 2_400


def savepoint(app: AppUnderTest, *words: str) -> int:
    """Run a command on the savepoints of the app, which are beside its first checkpoint."""
    settings = str(app.folder / "settings.json")
    where = ["--service", "rules", "--settings", settings, "--savepoints", str(app.folder / "savepoints")]
    return run(["savepoint", *words, *where])


def kill_within_a_batch(scene: Scene, after: int) -> int:
    """Kill the app while a batch after this one is planned and not committed; return the last committed batch."""
    root = CheckpointRoot(scene.app.checkpoint)

    def begun() -> bool:
        last = root.last_committed() or 0
        return last > after and root.offsets.batches()[-1] > last

    wait_until(begun, "a batch that has begun", 120)
    scene.app.kill()
    committed = root.last_committed()
    assert committed is not None
    return committed


def test_a_service_restored_from_a_savepoint_gives_the_output_of_an_uninterrupted_one(
    new_app: NewApp, capsys: pytest.CaptureFixture[str]
) -> None:
    scene = new_app("saved", events_per_cut=300)
    scene.app.settings = {**scene.app.settings, "savepoints": str(scene.app.folder / "savepoints")}
    expected, app = rules.all_kinds(), scene.app
    scene.publish(*expected)
    scene.send(orders.orders(COUNT, seed=31, start_ms=scene.next_day()))

    app.start()
    app.wait_for_cuts(1)
    assert savepoint(app, "create", "midway", "-o", "json") == 0
    midway = json.loads(capsys.readouterr().out)
    assert (midway["epoch"], midway["settled"]) == (1, True)
    committed = kill_within_a_batch(scene, midway["batch"])

    assert savepoint(app, "create", "too-early") == 1
    assert f"batch {committed + 1} was begun and not finished; settle it first" in capsys.readouterr().err
    settled = settle(scene, "settled")
    assert settled.batch > committed

    first = app.checkpoint
    app.settings = {**app.settings, "checkpoint": str(app.folder / "e2"), "parallelism": 1}
    (app.folder / "settings.json").write_text(json.dumps(app.settings))
    assert savepoint(app, "plan", "settled") == 0
    assert savepoint(app, "restore", "settled") == 0
    assert "epoch 2, continues after batch" in capsys.readouterr().out
    app.start()
    scene.send(orders.orders(COUNT, seed=32, start_ms=scene.next_day()))
    scene.tick(scene.sent[-1].order.ts + orders.HOUR_MS)
    scene.settle()
    assert app.this_start[0].batch == 0
    assert app.drain() == 0
    scene.check_against(expected)
    scene.check_counts()
    check_restore_of_an_old_savepoint_is_rejected(app, first, capsys)


def settle(scene: Scene, name: str) -> DriverStatus:
    """Start the app with a request to drain with a savepoint: it finishes the batch that was begun, and ends."""
    channel = FileChannel(scene.app.checkpoint)
    channel.send(orjson.dumps({"id": "settle", "command": "drain", "savepoint": name}).decode())
    scene.app.start()
    assert scene.app.wait_for_end() == 0
    report = DriverStatus.from_json(channel.last_status() or "")
    assert report is not None
    answer = report.results["settle"]
    assert answer.ok, answer.message
    assert answer.savepoint is not None
    assert answer.savepoint.name == name
    return report


def check_restore_of_an_old_savepoint_is_rejected(
    app: AppUnderTest, first: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Check that an app does not start from a savepoint if later batches were already written."""
    assert first.exists()
    app.settings = {**app.settings, "checkpoint": str(app.folder / "e3")}
    (app.folder / "settings.json").write_text(json.dumps(app.settings))
    assert savepoint(app, "restore", "midway", "--epoch", "3") == 0
    app.start()
    assert app.wait_for_end() == 2
    assert "was written after it: going on would write that again" in app.log.read_text()
