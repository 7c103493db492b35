"""A new rule is backfilled from the topic while the app runs; then it counts as if it had always been live."""

from __future__ import annotations

import pytest

from headgate.main import run
from tests.harness.apps import orders
from tests.harness.apps.orders import Sent
from tests.harness.apps.published_rules import document
from tests.harness.apps.rules_scene import Scene, check_same
from tests.harness.oracles.lane_reader import as_object
from tests.harness.oracles.rule_alerts import Oracle, RuleUnderTest

pytestmark = [pytest.mark.kafka, pytest.mark.spark]
DAY_MS = 86_400_000


def busy(version: int = 1) -> RuleUnderTest:
    """Return an early rule with a tumbling window: thirty orders in a day."""
    return RuleUnderTest(
        document(
            "backfill-busy",
            version=version,
            where="kind = 'pay'",
            group_by=["user"],
            within={"tumbling": "1d"},
            having="count(*) >= 30",
        ),
        where=lambda o: o.kind == "pay",
        size_ms=DAY_MS,
        slide_ms=DAY_MS,
        figures=lambda inside: {"count(*)": len(inside)},
        having=lambda f: int(str(f["count(*)"])) >= 30,
    )


def test_a_backfilled_rule_counts_as_if_it_had_always_been_live(live: Scene) -> None:
    start_ms, rule = live.next_day(), busy()
    events = orders.orders(4_000, seed=77, start_ms=start_ms, step_ms=5_000)
    before = live.send(events[:2_000])
    live.settle()
    live.publish(rule)
    live.settle()
    kafka = ["--app", live.app.name, "--bootstrap", live.kafka.bootstrap]
    streams = ["--streams", str(live.app.folder / "streams"), "--topic", live.orders_topic]
    assert run(["rules", "backfill", rule.id, "--from", str(start_ms), *streams, *kafka]) == 0
    live.published = len(live.outputs.read("status"))
    after = live.send(events[2_000:])
    live.settle()

    late = {(s.topic, s.partition, s.offset) for s in after}

    def is_live(_: RuleUnderTest, event: Sent) -> bool:
        return (event.topic, event.partition, event.offset) in late

    wanted = Oracle([rule], is_live).run([*before, *after])
    found = live.alerts_of([rule])
    assert len(found) > 10
    check_same(found, wanted)
    assert not [a for a in found if a["incomplete"]]
    fills = [a for a in map(as_object, live.outputs.read("status")) if a["subject"] == "backfill"]
    assert [a["status"] for a in fills] == ["accepted"]
    live.control((rule.id, None))
    live.settle()
