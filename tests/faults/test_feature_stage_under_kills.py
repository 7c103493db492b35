"""SIGKILL between Kafka's commit and Spark's, in an app with a stage for features: a rule of a user reads what the
events of a country had, once for each event."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import NewApp
from tests.harness.apps import orders
from tests.harness.apps.published_rules import document
from tests.harness.oracles.lane_reader import as_object

PER_CUT = 300

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]


def test_an_event_has_the_values_of_other_keys_once_whatever_is_killed(new_app: NewApp) -> None:
    """By the second half of the orders every country has had all of its users, so that the values depend on no order
    of arrival."""
    scene = new_app("stage", events_per_cut=PER_CUT, feature_stage=True)
    every = orders.orders(PER_CUT * 4, seed=7)
    half = len(every) // 2
    before, known = every[:half], {(one.country, one.user) for one in every[:half]}
    first = max(one.id for one in before) + 1  # before it no alert, at which the app would die
    after = [
        one for one in every[half:] if one.id >= first and one.country is not None and (one.country, one.user) in known
    ]
    day = {"sliding": "30d", "every": "1d"}
    users = {"name": "users", "of": "count(distinct user)", "by": ["country"], "within": day}
    mine = {"name": "mine", "of": "count(distinct country)", "within": day}
    features: dict[str, Any] = {"group_by": ["user"], "features": [users, mine]}
    both = document("both", where=f"users >= 1 and mine >= 1 and id >= {first}", **features)
    with scene.app:
        scene.control(("both", json.dumps(both).encode()))
        scene.start_faulty("--die", "committed", "--when", "alerts")
        scene.settle()
        scene.tick(orders.START_MS)  # in the cut that accepts the rule, which waits for its key
        scene.settle()
        scene.send(before)
        scene.settle()
        sent = scene.send(after)
        assert scene.app.wait_for_end() < 0, "it died by the signal"
        dead = Path(str(scene.app.settings["checkpoint"])) / "stages" / "0" / "0" / "0-of-dead"
        dead.write_bytes(b"blobs of an attempt that died before it wrote its index")
        scene.start_faulty()
        scene.settle()
        assert scene.app.drain() == 0
    (accepted,) = [as_object(record) for record in scene.outputs.read("status")]
    assert accepted["status"] == "accepted", accepted
    found = {json.dumps(one["source"], sort_keys=True): one["values"] for one in scene.outputs.alerts()}
    assert len(found) == len(scene.outputs.alerts()), "an alert came twice"
    assert not dead.exists(), "a start removes it"
    expected = {
        json.dumps({"topic": one.topic, "partition": one.partition, "offset": one.offset}, sort_keys=True): {
            "users": len({user for country, user in known if country == one.order.country} - {None}),
            "mine": len({country for country, user in known if user == one.order.user} - {None}),
        }
        for one in sent
    }
    assert found == expected
