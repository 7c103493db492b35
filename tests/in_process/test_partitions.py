"""The watermark waits for every partition of a topic, also for one whose backlog the first cuts do not hold."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import orjson
import pytest

from headgate_rules.app import build_app
from headgate_rules.settings import RulesSettings
from streamcore.engine.in_process import InProcessApp, RawRecord, control_record
from streamcore.wire.lanes import ALERTS, LATE
from tests.harness.apps import orders
from tests.harness.apps import published_rules as rules
from tests.harness.apps.orders import Sent
from tests.harness.apps.rules_scene import check_same
from tests.harness.oracles.rule_alerts import Alert, Oracle, RuleUnderTest

COUNT = 2_000
PER_CUT = 300
CLOCK_MS = orders.START_MS + orders.DAY_MS


@pytest.fixture
def app(tmp_path: Path) -> InProcessApp:
    document = {
        "app": "partitions",
        "kafka": {"bootstrap": "nowhere:1"},
        "streams": [{"schema_file": str(orders.write_streams(tmp_path)[0]), "topic": "orders"}],
        "checkpoint": str(tmp_path),
        "jars": str(tmp_path),
        "shards": 2,
        "max_out_of_orderness_ms": orders.DISORDER_MS,
    }
    return InProcessApp(build_app(RulesSettings.model_validate(document)))


@pytest.mark.slow
def test_partitions_that_are_read_one_after_the_other_give_the_same_alerts(app: InProcessApp) -> None:
    wanted = rules.all_kinds()
    app.partitions = range(orders.PARTITIONS)
    alerts, late = run(app, wanted)
    assert late == 0
    check_same(alerts, Oracle(wanted).run(sent()))


@pytest.mark.slow
def test_without_the_list_of_partitions_events_of_the_second_one_are_late(app: InProcessApp) -> None:
    late = run(app, rules.all_kinds())[1]
    assert late > COUNT // 4


def sent() -> list[Sent]:
    """Return the records of one partition, then those of the other."""
    offsets = [0] * orders.PARTITIONS
    result = []
    for order in orders.orders(COUNT, seed=61, step_ms=500):
        result.append(Sent(order, "orders", order.partition, offsets[order.partition]))
        offsets[order.partition] += 1
    return sorted(result, key=lambda s: s.partition)


def run(app: InProcessApp, wanted: Sequence[RuleUnderTest]) -> tuple[list[Alert], int]:
    """Return the alerts and the number of late events of many cuts, with the rules in the first and an end of time in
    the last."""
    cuts = [[control_record(n, rule.id, rule.value) for n, rule in enumerate(wanted)]]
    events = [RawRecord(0, s.partition, s.offset, s.order.value) for s in sent()]
    cuts += [events[n : n + PER_CUT] for n in range(0, COUNT, PER_CUT)]
    cuts.append([RawRecord(0, p, COUNT, order.value) for p, order in orders.ticks(orders.START_MS + orders.DAY_MS)])
    records = [record for n, cut in enumerate(cuts) for record in app.cut(cut, CLOCK_MS + n)]
    alerts = [orjson.loads(r.value or b"") for r in records if r.lane == ALERTS]
    return alerts, sum(r.lane == LATE for r in records)
