"""While a broker is stopped or hangs, the app waits and reports it; then it continues by itself."""

from __future__ import annotations

import re
import time
from collections.abc import Callable

import pytest

from headgate.local.servers.kafka import EmbeddedBroker
from streamcore.kafka.settings import KafkaSettings
from tests.conftest import NewApp
from tests.harness.apps import orders
from tests.harness.apps import published_rules as rules
from tests.harness.apps.rules_scene import Scene
from tests.harness.oracles.lane_reader import check_transactions

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]
NewBroker = Callable[..., EmbeddedBroker]
AWAY_S = 10
PART = 4_000


def test_a_broker_that_is_stopped_or_hangs_costs_no_alert_and_each_outage_is_reported_once(
    new_app: NewApp, new_broker: NewBroker
) -> None:
    broker = new_broker()
    scene = new_app("away", KafkaSettings(broker.start()), events_per_cut=500)
    expected = rules.all_kinds()
    scene.publish(*expected)
    events = orders.orders(3 * PART, seed=41)
    scene.send(events[:PART])
    scene.app.start()
    pid = scene.app.pid

    wait_for_more(scene)
    broker.stop()
    scene.app.wait_for_log("unavailable since")
    time.sleep(AWAY_S)
    assert scene.app.input_records < PART, "the broker was stopped under load"
    broker.start()
    scene.send(events[PART : 2 * PART])
    wait_for_more(scene)
    broker.pause()
    scene.app.wait_for_log("unavailable since", 2)
    broker.resume()
    scene.send(events[2 * PART :])
    scene.tick(events[-1].ts + orders.HOUR_MS)
    scene.settle()

    assert scene.app.pid == pid
    assert scene.app.drain() == 0
    scene.check_against(expected)
    scene.check_counts()
    check_transactions(scene.outputs)
    check_messages(scene)


def check_messages(scene: Scene) -> None:
    """Check that each outage has a first and a last message, and that librdkafka prints none of its own."""
    lines = scene.app.log.read_text(errors="replace").splitlines()
    broker = re.escape(f"headgate-rules: Kafka {scene.kafka.bootstrap}")
    messages = [line for line in lines if re.match(broker, line) and "is still unavailable, after" not in line]
    patterns = [
        rf"{broker} is unavailable since \d\d:\d\d:\d\d UTC: .*\. Start the broker.*",
        rf"{broker} is back after \d+ s",
    ]
    assert len(messages) == 4, messages
    for line, pattern in zip(messages, 2 * patterns, strict=True):
        assert re.fullmatch(pattern, line)
    assert "Connection refused" in messages[0]
    assert not [line for line in lines if "[thrd:" in line]


def wait_for_more(scene: Scene) -> None:
    before = scene.app.input_records
    scene.app.wait_for(lambda: scene.app.input_records > before, "more events")
