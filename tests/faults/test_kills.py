"""kill -9 at any moment, and at the worst ones: every alert once, and a reader beside it never sees anything else.

``HEADGATE_KILLS`` random kills (`make kill-test`: 20), after two at points of the protocol and one of the JVM.
"""

from __future__ import annotations

import os
import random
import time

import pytest

from streamcore.kafka.data_clients import Isolation
from tests.conftest import NewApp
from tests.harness.apps import orders
from tests.harness.apps import published_rules as rules
from tests.harness.apps.orders import Order
from tests.harness.apps.rules_scene import Scene
from tests.harness.faults.faulty_app import attempts
from tests.harness.oracles.lane_reader import LANES, check_transactions
from tests.harness.oracles.lane_watcher import Watcher

KILLS = int(os.environ.get("HEADGATE_KILLS", "2"))
PER_CUT = 500
FUTURE_MS = 300_000  # the app's limit, by its default

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900 + 120 * KILLS)]


def test_kills_at_any_moment_neither_lose_nor_repeat_alerts_and_no_reader_sees_part_of_a_cut(new_app: NewApp) -> None:
    scene = new_app("kills", events_per_cut=PER_CUT)
    wanted = rules.all_kinds()
    scene.publish(*wanted)
    scene.send(orders.orders(PER_CUT * (10 + 3 * KILLS), seed=31))
    with scene.app, Watcher(scene.outputs) as watcher:
        die_before_the_commit(scene)
        watcher.count_while_dead()
        die_between_the_commit_and_sparks(scene)
        watcher.count_while_dead()
        lose_the_jvm(scene)
        kill_at_random(scene, watcher, random.Random(KILLS))
        scene.start_faulty()
        scene.tick(scene.sent[-1].order.ts + orders.HOUR_MS)
        scene.settle()
        assert scene.app.drain() == 0
        watcher.check()
    scene.check_against(wanted)
    scene.check_counts()
    check_transactions(scene.outputs)
    check_replays(scene)


def die_before_the_commit(scene: Scene) -> None:
    """In a batch whose output depends on its clock: events that are a little too far ahead are dead letters.

    Read again with a later clock some of them would be events.
    """
    scene.start_faulty("--die", "before_commit", "--when", "deadletters")
    scene.app.wait_for_cuts(2)
    now_ms = time.time_ns() // 1_000_000
    ahead = [Order(n, now_ms + FUTURE_MS + 2_000 * n, "ahead", "view") for n in range(1, 60)]
    scene.send_raw(scene.probe_topic, [(None, order.value) for order in ahead])
    assert scene.app.wait_for_end() < 0, "it died by the signal"


def die_between_the_commit_and_sparks(scene: Scene) -> None:
    """The output of a batch is in Kafka, and Spark does not know."""
    scene.start_faulty("--die", "committed", "--when", "alerts")
    assert scene.app.wait_for_end() < 0, "it died by the signal"


def lose_the_jvm(scene: Scene) -> None:
    """Spark's JVM is killed: the driver ends with one sentence that names it."""
    scene.start_faulty()
    scene.app.wait_for_cuts(1)
    pid = scene.app.kill_jvm()
    assert scene.app.wait_for_end() == 1
    *_, last = scene.app.log.read_text().splitlines()
    assert f"Permanent: the JVM of Spark (process {pid}) ended: signal 9" in last


def kill_at_random(scene: Scene, watcher: Watcher, chance: random.Random) -> None:
    """All processes of the app, or the driver alone; some kills come while it starts.

    After the driver alone, the next start comes at once: what is left of the last one is still there.
    """
    for number in range(KILLS):
        scene.start_faulty()
        if number % 5 == 4:
            time.sleep(chance.uniform(2, 15))
        else:
            scene.app.wait_for_cuts(chance.randrange(1, 4))
            time.sleep(chance.uniform(0, 1.5))
        if chance.random() < 0.5:
            scene.app.kill()
            watcher.count_while_dead()
        else:
            scene.app.kill_driver()


def check_replays(scene: Scene) -> None:
    """Batches ran twice, one was skipped as written before, and all attempts at a batch are the same bytes."""
    tried = attempts(scene.capture)
    repeated = [batch for batch, texts in tried.items() if len(texts) > 1]
    assert repeated, "batches with output ran again"
    assert [b for b in repeated if len(set(tried[b])) > 1] == [], "the same bytes, in the same order"
    assert "skipped" in {cut.outcome for cut in scene.app.lines}
    letters = [batch for batch in repeated if f"{scene.app.name}.deadletters" in tried[batch][0]]
    assert letters, "among them the batch whose output depends on the clock"
    sizes = {how: sum(len(scene.outputs.read(lane, how)) for lane in LANES) for how in Isolation}
    assert sizes[Isolation.UNCOMMITTED] > sizes[Isolation.COMMITTED], "there were records to be taken back"
