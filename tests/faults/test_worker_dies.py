"""The app continues by itself after the death of Python workers; the death of one fails its task and not the query."""

from __future__ import annotations

import pytest

from streamcore.checkpoint.checkpoint import CheckpointRoot
from tests.harness.apps import orders
from tests.harness.apps import published_rules as rules
from tests.harness.apps.rules_app import AppUnderTest
from tests.harness.apps.rules_scene import Scene
from tests.harness.oracles.lane_reader import check_transactions
from tests.harness.servers import processes

pytestmark = [pytest.mark.kafka, pytest.mark.spark]


DEATHS = 2


def test_the_app_continues_after_the_death_of_one_python_worker_and_of_all_of_them(live: Scene) -> None:
    wanted = rules.all_kinds("worker-")
    with live.live_rules(*wanted):
        pid = live.app.pid
        sent = live.send(orders.orders(10_000, seed=2, start_ms=live.next_day()))
        retries = live.app.retries
        for _ in range(DEATHS):
            cuts = len(live.app.this_start)
            live.app.wait_for_cuts(cuts + 1)
            kill_a_busy_worker(live.app)
        live.app.wait_for_cuts(len(live.app.this_start) + 1)
        assert live.app.retries == retries
        live.app.kill_all_workers()
        live.tick(sent[-1].order.ts + orders.HOUR_MS)
        live.settle()
    assert live.app.pid == pid
    live.check_against(wanted, sent)
    live.check_counts()
    check_transactions(live.outputs)


def kill_a_busy_worker(app: AppUnderTest) -> None:
    """Kill a worker that has a task: the workers are suspended until the next cut waits for them."""
    offsets = CheckpointRoot(app.checkpoint).offsets
    with processes.suspended(workers := processes.python_workers(app.pid)):
        app.wait_for(lambda: offsets.read(max(app.batches) + 1) is not None, "a cut that is planned")
        processes.kill(workers[0].pid)
