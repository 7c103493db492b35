"""SIGKILL while events come twice: with ``deduplicate`` the alerts are those of the events that came first.

``HEADGATE_KILLS`` random kills (0), after one at a point of the protocol; with random kills after two.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal

import pytest

from tests.conftest import NewApp
from tests.harness.apps import orders
from tests.harness.apps import published_rules as rules
from tests.harness.apps.orders import Order, Sent
from tests.harness.apps.rules_scene import Scene
from tests.harness.oracles.lane_reader import check_transactions

KILLS = int(os.environ.get("HEADGATE_KILLS", "0"))
PER_CUT = 500
COUNT = PER_CUT * 6

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900 + 120 * KILLS)]


def test_kills_neither_lose_events_nor_let_a_copy_count(new_app: NewApp) -> None:
    scene = new_app("once", deduplicate="1h", events_per_cut=PER_CUT)
    chance = random.Random(KILLS)
    expected = rules.all_kinds()
    scene.publish(*expected)
    first, near = send_with_near_copies(scene, orders.orders(COUNT, seed=33), chance)
    far = send_far_copies(scene, [sent.order for sent in first[: COUNT // 2]], chance)
    with scene.app:
        for when in ("before_commit", "committed") if KILLS else ("committed",):
            scene.start_faulty("--die", when, "--when", "alerts")
            assert scene.app.wait_for_end() < 0, "it died by the signal"
        for _ in range(KILLS):
            scene.start_faulty()
            scene.app.wait_for_cuts(chance.randrange(1, 4))
            time.sleep(chance.uniform(0, 1))
            scene.app.kill()
        scene.start_faulty()
        scene.tick(first[-1].order.ts + 2 * orders.HOUR_MS)
        scene.settle()
        assert scene.app.drain() == 0
    scene.check_against(expected, first)
    scene.check_counts()
    check_transactions(scene.outputs)
    same, other = near + far, COUNT // 4
    assert scene.app.counter("deduplication.orders.duplicates") == same + other + 1, "of two ticks one counts"
    assert scene.app.counter("deduplication.orders.other_content") == other


def send_with_near_copies(scene: Scene, events: Sequence[Order], chance: random.Random) -> tuple[list[Sent], int]:
    """Send each order, and of some a copy within the next ones of its partition. Return the orders without the copies,
    and the number of copies."""
    arrivals = [(float(number), order, True) for number, order in enumerate(events)]
    copied = [number for number in range(len(events)) if chance.random() < 0.3]
    arrivals += [(number + chance.uniform(0.1, 200), events[number], False) for number in copied]
    arrivals.sort(key=lambda arrival: arrival[0])
    sent = scene.send([order for _, order, _ in arrivals])
    return [one for one, (_, _, is_first) in zip(sent, arrivals, strict=True) if is_first], len(copied)


def send_far_copies(scene: Scene, events: Sequence[Order], chance: random.Random) -> int:
    """Send a copy of each order to the other partition, after all others; half have another amount. Return how many
    have the same content."""
    changed = set(chance.sample(range(len(events)), len(events) // 2))
    for partition in range(orders.PARTITIONS):
        values = [
            (replace(order, amount=Decimal(99_999)) if number in changed else order).value
            for number, order in enumerate(events)
            if order.partition != partition
        ]
        scene.count += len(orders.send_raw(scene.kafka, scene.orders_topic, [(None, v) for v in values], partition))
    return len(events) - len(changed)
