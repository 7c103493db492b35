"""SIGKILL of an app without transactions: no alert is lost, and those of the cut in which it dies may come twice."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.conftest import NewApp
from tests.harness.apps import orders
from tests.harness.apps import published_rules as rules
from tests.harness.apps.rules_scene import check_same
from tests.harness.oracles.lane_reader import repeated_alerts
from tests.harness.oracles.rule_alerts import Oracle

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]
PER_CUT = 500


def test_kills_lose_no_alert_and_repeat_those_of_cuts_without_a_marker(new_app: NewApp) -> None:
    scene = new_app("at-least-once", events_per_cut=PER_CUT, checkpointing_mode="at-least-once")
    expected = rules.all_kinds()
    scene.publish(*expected)
    scene.send(orders.orders(PER_CUT * 5, seed=19))
    with scene.app:
        scene.start_faulty("--die", "before_commit", "--when", "alerts")
        assert scene.app.wait_for_end() < 0, "it died by the signal"
        repeated = Counter(str(alert["alert_id"]) for alert in scene.outputs.alerts())
        assert repeated, "visible before the commit"
        scene.start_faulty()
        scene.tick(scene.sent[-1].order.ts + orders.HOUR_MS)
        scene.settle()
        assert scene.app.drain() == 0
    found = scene.alerts_of(expected)
    assert set(repeated) <= set(repeated_alerts(found))
    once = {str(alert["alert_id"]): alert for alert in found}
    check_same(list(once.values()), Oracle(expected).run(scene.sent))
