"""A service whose checkpoint, lease and savepoints are in a bucket, and which loses its disk.

Needs a server that the environment names (``tests/harness/servers/s3_server.py``); leaves its objects there.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headgate.local import jars
from headgate.local.java import Java
from headgate.main import run
from streamcore.checkpoint.checkpoint import CheckpointRoot
from streamcore.storage import open_object_store
from streamcore.storage.location import location
from tests.conftest import NewApp
from tests.harness.apps import orders
from tests.harness.apps import published_rules as rules
from tests.harness.apps.rules_scene import Scene
from tests.harness.servers.command import HEADGATE, run_command
from tests.harness.servers.processes import wait_until
from tests.harness.servers.storage_locations import s3_place

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]
COUNT = 1_500


@pytest.fixture(scope="module")
def s3_jars(java: Java) -> Path:
    return jars.ensure(jars.JarSet.S3, java)


def root_of(scene: Scene) -> CheckpointRoot:
    return CheckpointRoot(location(str(scene.app.settings["checkpoint"])))


def kill_within_a_batch(scene: Scene, after: int) -> None:
    """Kill the service while a batch is planned and not committed."""
    root = root_of(scene)

    def begun() -> bool:
        last = root.last_committed()
        return last is not None and last > after and root.offsets.batches()[-1] > last

    wait_until(begun, "a batch that has begun", 180)
    scene.app.kill()


def test_a_service_with_its_checkpoint_in_a_bucket_survives_a_kill_and_a_restore(
    new_app: NewApp, s3_jars: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    place = s3_place(monkeypatch)
    where = {"checkpoint": f"{place.url}/shop/e1", "savepoints": f"{place.url}/savepoints"}
    scene = new_app("bucket", events_per_cut=300, **where)
    app, wanted = scene.app, rules.all_kinds()
    app.settings = {**app.settings, "jars": str(s3_jars)}
    scene.publish(*wanted)
    scene.send(orders.orders(COUNT, seed=41, start_ms=scene.next_day()))

    app.start()
    kill_within_a_batch(scene, after=0)
    app.start()
    app.wait_for_cuts(1)
    rejected = app.run_second_process()
    assert rejected.returncode == 2
    assert b"in use by process" in rejected.stderr
    scene.settle()
    assert app.drain() == 0

    settings = ["--service", "rules", "--settings", str(app.folder / "settings.json")]
    # In a process of its own: a JVM of this process would have the jars of the test before.
    created = run_command([*HEADGATE, "savepoint", "create", "stopped", *settings])
    assert created.code == 0, created.err
    assert run(["savepoint", "verify", "stopped", "--savepoints", where["savepoints"], "--app", app.name]) == 0
    app.settings = {**app.settings, "checkpoint": f"{place.url}/shop/e2", "parallelism": 1}
    (app.folder / "settings.json").write_text(json.dumps(app.settings))
    assert run(["savepoint", "restore", "stopped", *settings]) == 0
    assert "epoch 2, continues after batch" in capsys.readouterr().out
    app.start()
    scene.send(orders.orders(COUNT, seed=42, start_ms=scene.next_day()))
    scene.tick(scene.sent[-1].order.ts + orders.HOUR_MS)
    scene.settle()
    assert app.drain() == 0
    scene.check_against(wanted)
    scene.check_counts()
    assert not (app.folder / "checkpoint").exists()
    log = app.log.read_text()
    assert "local-secret" not in log
    assert {"epoch.json", "app.json", "lease.json"} <= {*open_object_store(f"{place.url}/shop/e2").files()}
