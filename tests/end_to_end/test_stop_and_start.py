"""A drain neither loses nor repeats output, nor does a second process on the checkpoint disturb it; the marker prevents
that a commit that Spark lost is written again."""

from __future__ import annotations

from collections import Counter

import orjson
import pytest

from streamcore.checkpoint.checkpoint import CheckpointRoot
from streamcore.control.channel import FileChannel
from streamcore.control.status import DriverPhase, DriverStatus
from tests.conftest import NewApp
from tests.harness.apps import orders
from tests.harness.apps import published_rules as rules
from tests.harness.apps.rules_scene import Scene
from tests.harness.oracles.lane_reader import batch_of, check_transactions, text
from tests.harness.servers import processes
from tests.harness.servers.checkpoint_files import forget_last_commit

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]
COUNT = 4_500


def test_a_stop_under_load_loses_nothing_and_a_lost_commit_is_repeated_only_if_the_marker_is_ignored(
    new_app: NewApp,
) -> None:
    scene = new_app("stop", events_per_cut=500)
    expected = rules.all_kinds()
    scene.publish(*expected)
    scene.send(orders.orders(COUNT, seed=21, start_ms=scene.next_day()))

    scene.app.start()
    stopped_at = stop_under_load(scene)
    check_nothing_after(scene, stopped_at)

    lost = forget_last_commit(scene.app.checkpoint)
    assert lost == stopped_at
    scene.app.start()
    scene.tick(scene.sent[-1].order.ts + orders.HOUR_MS)
    scene.settle()
    again = scene.app.this_start[0]
    assert (again.batch, again.outcome) == (lost, "skipped")
    assert again.lanes["alerts"] > 0, "there was something to repeat"
    scene.check_against(expected)
    scene.check_counts()
    check_transactions(scene.outputs)

    scene.send(orders.orders(COUNT, seed=22, start_ms=scene.next_day()))
    lost = forget_last_commit_after(scene)
    scene.start_faulty("--unprotected")
    scene.app.wait_for_cuts(1)
    assert last_status(scene).results["d"].ok, "the request is still there, was answered, and does not end this start"
    again = scene.app.this_start[0]
    assert (again.batch, again.outcome) == (lost, "committed"), "with the protection off it writes again"
    alerts = Counter(record.key for record in scene.outputs.read("alerts"))
    repeated = {key for key, count in alerts.items() if count == 2}
    assert len(repeated) == again.lanes["alerts"] > 0
    assert {int(text(r, "batch")) for r in scene.outputs.read("alerts") if r.key in repeated} == {lost}
    session = scene.app.pid
    scene.app.kill_driver()
    processes.wait_until(lambda: not processes.members(session), "the end of all processes of a killed driver", 60)


def stop_under_load(scene: Scene) -> int:
    """Send SIGTERM to all processes under load; return the last committed batch."""
    scene.app.wait_for_cuts(3)
    session = scene.app.pid
    assert scene.app.drain_session() == 0
    log = scene.app.log.read_text(errors="replace")
    assert "Traceback" not in log
    assert "trying again" not in log
    processes.wait_until(lambda: not processes.members(session), "the end of the JVM and its workers", 60)
    assert scene.app.input_records < scene.count, "it stopped under load"
    committed = CheckpointRoot(scene.app.checkpoint).last_committed()
    assert committed is not None
    return committed


def forget_last_commit_after(scene: Scene) -> int:
    before = len(scene.app.this_start)
    scene.app.wait_for_cuts(before + 3)
    drain_by_command(scene)
    return forget_last_commit(scene.app.checkpoint)


def drain_by_command(scene: Scene) -> None:
    """Drain the app by a request to it, after a second process was rejected."""
    assert scene.app.run_second_process().returncode == 2
    assert last_status(scene).phase is DriverPhase.RUNNING, "the second process wrote no status"
    FileChannel(scene.app.checkpoint).send(orjson.dumps({"id": "d", "command": "drain", "savepoint": None}).decode())
    assert scene.app.wait_for_end() == 0


def last_status(scene: Scene) -> DriverStatus:
    status = DriverStatus.from_json(FileChannel(scene.app.checkpoint).last_status() or "")
    assert status is not None
    return status


def check_nothing_after(scene: Scene, last: int) -> None:
    """Check that everything up to the batch is reported, and that no topic has output of the next one."""
    assert max(scene.app.batches) == last
    written = {batch_of(r)[1] for lane in ("alerts", "status") for r in scene.outputs.read(lane)}
    assert max(written) == last
    assert len(scene.outputs.read("alerts")) == scene.app.lane("alerts")
    assert CheckpointRoot(scene.app.checkpoint).last_planned() in (last, last + 1)
