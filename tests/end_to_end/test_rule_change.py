"""A rule that changes under load: no state is lost, and every alert is of the version live in its cut."""

from __future__ import annotations

import pytest

from streamcore.kafka.readers import Record
from tests.harness.apps import orders
from tests.harness.apps import published_rules as rules
from tests.harness.apps.orders import Sent
from tests.harness.apps.rules_scene import Scene, check_same
from tests.harness.oracles.lane_reader import as_object, batch_of
from tests.harness.oracles.rule_alerts import Oracle, RuleUnderTest

pytestmark = [pytest.mark.kafka, pytest.mark.spark]


def test_a_new_version_becomes_live_under_load_at_one_cut_with_the_state_of_the_old_one(live: Scene) -> None:
    old = [rules.large_order(900, prefix="change-"), rules.many_payments(4, prefix="change-")]
    new = [rules.large_order(700, version=2, prefix="change-"), rules.many_payments(6, version=2, prefix="change-")]
    with live.live_rules(*old):
        before = live.app.events
        events = orders.orders(16_000, seed=3, start_ms=live.next_day(), step_ms=40)
        sent = live.send(events)
        live.app.wait_for(lambda: live.app.events > before, "the first of the orders")
        positions = {rule.id: p.offset for rule, p in zip(new, live.publish(*new), strict=True)}
        live.tick(events[-1].ts + orders.HOUR_MS)
        live.settle()

    batches = _batches_of_changes(live)
    starts = {rule: live.app.offsets_after(batches[offset] - 1) for rule, offset in positions.items()}

    def is_live(rule: RuleUnderTest, event: Sent) -> bool:
        after = event.offset >= starts[rule.id][f"{event.topic}-{event.partition}"]
        return after is (rule.document["version"] == 2)

    wanted = Oracle([*old, *new], is_live).run(sent)
    check_same(live.alerts_of(old), wanted)
    fired = {(alert["rule"], alert["version"]) for alert in wanted}
    assert len(fired) == 4, f"both versions of both rules fired: {fired}"
    _check_epochs(live)


def _batches_of_changes(live: Scene) -> dict[int, int]:
    """Return the batch that answered each control offset, from which the record counts."""
    return {_offset(record): batch_of(record)[1] for record in live.outputs.read("status")}


def _offset(record: Record) -> int:
    control = as_object(record)["control"]
    assert isinstance(control, dict)
    return int(control["offset"])


def _check_epochs(live: Scene) -> None:
    """Check that all alerts and answers of a cut name one epoch of the rule set, and that epochs never decrease."""
    epochs: dict[int, set[object]] = {}
    for record in [*live.outputs.read("alerts"), *live.outputs.read("status")]:
        epochs.setdefault(batch_of(record)[1], set()).add(as_object(record)["rules_epoch"])
    assert all(len(found) == 1 for found in epochs.values())
    in_order = [int(str(epochs[batch].pop())) for batch in sorted(epochs)]
    assert in_order == sorted(in_order)
