"""A run without faults: the alerts equal the oracle's row for row, and every record is accounted for."""

from __future__ import annotations

import json

import pytest

from headgate_rules.app import build_app
from headgate_rules.settings import RulesSettings
from streamcore.engine.in_process import InProcessApp, RawRecord, control_record
from streamcore.wire.lanes import ALERTS
from tests.harness.apps import orders
from tests.harness.apps import published_rules as rules
from tests.harness.apps.orders import Sent
from tests.harness.apps.rules_scene import Scene, check_same
from tests.harness.oracles.lane_reader import check_transactions
from tests.harness.oracles.rule_alerts import Alert, RuleUnderTest

pytestmark = [pytest.mark.kafka, pytest.mark.spark]
COUNT = 6_000


def test_alerts_equal_those_of_the_oracle_and_of_the_kernels_in_this_process(live: Scene) -> None:
    wanted = rules.all_kinds("clean-")
    with live.live_rules(*wanted):
        sent = live.send(orders.orders(COUNT, seed=1, start_ms=live.next_day()))
        end_ms = sent[-1].order.ts + orders.HOUR_MS
        live.tick(end_ms)
        live.settle()
    live.check_against(wanted, sent)
    live.check_counts()
    check_transactions(live.outputs)
    check_same(live.alerts_of(wanted), in_process(live, wanted, sent, end_ms))


def in_process(live: Scene, wanted: list[RuleUnderTest], sent: list[Sent], end_ms: int) -> list[Alert]:
    """Run the same app and input without Spark and Kafka, with other cuts."""
    app = InProcessApp(build_app(RulesSettings.model_validate(live.app.settings)))
    raw = [RawRecord(0, s.partition, s.offset, s.order.value) for s in sent]
    ticks = [RawRecord(0, p, 2**40, order.value) for p, order in orders.ticks(end_ms)]
    control = [control_record(n, rule.id, rule.value) for n, rule in enumerate(wanted)]
    cuts = [control, *(raw[n : n + 777] for n in range(0, len(raw), 777)), ticks]
    records = [record for n, cut in enumerate(cuts) for record in app.cut(cut, end_ms + 1_000 * n)]
    return [json.loads(record.value or b"") for record in records if record.lane == ALERTS]
