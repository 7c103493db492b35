"""Exactly once when nothing goes wrong: the alerts are the oracle's, row for row, and every record is accounted for."""

from __future__ import annotations

import pytest

from tests.conftest import NewApp
from tests.harness import orders, rules
from tests.harness.outputs import check_transactions

pytestmark = [pytest.mark.kafka, pytest.mark.spark]


def test_x(new_app: NewApp) -> None:
    scene = new_app("clean", events_per_cut=2000)
    r = rules.all_kinds()
    scene.publish(*r)
    sent = scene.send(orders.orders(10_000, seed=1))
    scene.tick(sent[-1].order.ts + orders.HOUR_MS)
    scene.app.start()
    scene.settle()
    for c in scene.app.lines: print(c)
    assert scene.app.drain() == 0
    scene.check_against(r)
    scene.check_counts()
    check_transactions(scene.outputs)
