"""The app continues by itself after the death of Python workers."""

from __future__ import annotations

import pytest

from tests.harness.apps import orders
from tests.harness.apps import published_rules as rules
from tests.harness.apps.rules_scene import Scene
from tests.harness.oracles.lane_reader import check_transactions

pytestmark = [pytest.mark.kafka, pytest.mark.spark]


DEATHS = 2


def test_the_app_goes_on_by_itself_after_the_death_of_a_python_worker_and_of_all_of_them(live: Scene) -> None:
    wanted = rules.all_kinds("worker-")
    with live.live_rules(*wanted):
        pid = live.app.pid
        sent = live.send(orders.orders(10_000, seed=2, start_ms=live.next_day()))
        for _ in range(DEATHS):
            cuts = len(live.app.this_start)
            live.app.wait_for_cuts(cuts + 1)
            live.app.kill_a_worker()
        live.app.wait_for_cuts(len(live.app.this_start) + 1)
        live.app.kill_all_workers()
        live.tick(sent[-1].order.ts + orders.HOUR_MS)
        live.settle()
    assert live.app.pid == pid
    live.check_against(wanted, sent)
    live.check_counts()
    check_transactions(live.outputs)
