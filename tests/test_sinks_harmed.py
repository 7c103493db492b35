"""Sinks under whole apps that are harmed: kill -9 of the app and of the server, a server that is away, and the commit
that Spark lost. What is there in the end is what an independent evaluation says, once. (The services themselves, a full
disk, and that this is seen when the protections are off: ``test_services_harmed``.)

``HEADGATE_SINK_KILLS`` random kills of the app (`make sink-test`: 10), and ``HEADGATE_SINK_AWAY_S`` seconds without a
server (`make sink-test`: 30).
"""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

import pytest

from conftest import NewOpenSearch, NewPostgres
from streamcore.kafka.settings import KafkaSettings
from tests.harness.checkpoints import forget_last_commit
from tests.harness.sink_scene import ENTRY, PER_CUT, SinkScene, Target, new_sink_scene
from tests.harness.sink_targets import DeltaTarget, OpenSearchTarget, PostgresTarget, ServerTarget, Targets

KILLS = int(os.environ.get("HEADGATE_SINK_KILLS", "1"))
AWAY_S = float(os.environ.get("HEADGATE_SINK_AWAY_S", "3"))

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(1_200 + 120 * KILLS)]


@pytest.fixture
def targets(tmp_path: Path, new_postgres: NewPostgres, new_opensearch: NewOpenSearch) -> Targets:
    """Makes a target of the test's own, ready to be written to."""

    def make(what: str) -> Target:
        if what == "delta":
            return DeltaTarget(tmp_path / "table")
        if what == "opensearch":
            node = OpenSearchTarget(new_opensearch())
            node.start_server()
            return node
        database = PostgresTarget(new_postgres())
        database.prepare()
        return database

    return make


@pytest.mark.parametrize("what", ["postgres", "delta", "opensearch"])
def test_whatever_is_killed_the_contents_are_right(
    what: str, targets: Targets, tmp_path: Path, kafka: KafkaSettings, spark_jars: Path
) -> None:
    target = targets(what)
    scene = new_sink_scene(tmp_path, kafka, spark_jars, f"harmed-{what}", target)
    scene.send(PER_CUT * 4)
    with scene.app:
        scene.app.start(ENTRY)
        scene.app.wait_for_cuts(2)
        kill_the_app(scene, random.Random(KILLS))
        if isinstance(target, ServerTarget):
            kill_the_server(scene, target)
        scene.send(PER_CUT)
        scene.settle()
        scene.check()
        lose_a_commit(scene)
        scene.check()
        assert scene.app.drain() == 0


def kill_the_app(scene: SinkScene, chance: random.Random) -> None:
    """At random moments, with work before it."""
    for _ in range(KILLS):
        scene.send(PER_CUT * 4)
        scene.app.wait_for_cuts(1 + len(scene.app.this_start))
        time.sleep(chance.uniform(0, 0.8))
        scene.app.kill()
        scene.app.start(ENTRY)
        scene.app.wait_for_cuts(1)


def kill_the_server(scene: SinkScene, target: ServerTarget) -> None:
    """While cuts go through it; it is away for a while, and the app goes on by itself."""
    scene.send(PER_CUT * 6)
    scene.app.wait_for_cuts(1 + len(scene.app.this_start))
    target.kill_server()
    time.sleep(AWAY_S)
    target.start_server()
    scene.app.wait_for_cuts(2 + len(scene.app.this_start))


def lose_a_commit(scene: SinkScene) -> None:
    """The sink has the last cut, and Spark does not know."""
    scene.send(PER_CUT)
    scene.settle()
    assert scene.app.drain() == 0
    with_rows = scene.app.this_start[-1].batch
    while forget_last_commit(scene.app.checkpoint) > _last_with_rows(scene, with_rows):
        pass
    scene.app.start(ENTRY)
    scene.app.wait_for_cuts(1)
    scene.settle()


def _last_with_rows(scene: SinkScene, last: int) -> int:
    return max(batch for batch, cut in scene.app.batches.items() if cut.events and batch <= last)
