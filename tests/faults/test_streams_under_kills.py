"""SIGKILL around the cuts that accept a stream's document and the key of a rule: the app has them in the same cut as
without the kill."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from headgate.main import run
from streamcore.engine.publication import StreamPublication
from tests.conftest import NewApp
from tests.harness.apps import orders
from tests.harness.apps import published_rules as rules
from tests.harness.apps.orders import Order
from tests.harness.apps.rules_scene import Scene
from tests.harness.faults.faulty_app import read_attempts
from tests.harness.oracles.lane_reader import as_object, batch_of, check_transactions

PER_CUT = 400

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]


def test_a_document_is_in_force_from_one_cut_on_whatever_is_killed(
    new_app: NewApp, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """``orders`` rejects fields that it does not declare, so each record tells by which document it was decoded."""
    scene = new_app("streams", events_per_cut=PER_CUT)
    expected = rules.all_kinds()
    scene.publish(*expected)
    document = changed(tmp_path, 2, coupon="string")
    change = StreamPublication(document)
    coupon = rules.document("coupon", where="coupon = 'X'")
    grouped: dict[str, Any] = {"group_by": ["lower(coupon)"], "within": {"tumbling": "1h"}, "having": "count(*) = 10"}
    pairs = rules.document("pairs", "{count}", where="coupon is not null", **grouped)
    with scene.app:
        scene.start_faulty()
        scene.settle()
        assert scene.app.drain() == 0
        # 1. The app dies in the cut that accepts the document, after it is in the checkpoint, before the output.
        ((_, offset), *_) = positions = [
            (p.partition, p.offset)
            for p in scene.control(
                (change.key, change.encode()),
                ("coupon", json.dumps(coupon).encode()),
                ("pairs", json.dumps(pairs).encode()),
            )
        ]
        events = orders.orders(PER_CUT * 5, seed=35)
        too_early = send_with_coupons(scene, events[0].ts)
        scene.send(events)
        scene.start_faulty("--die", "before_commit", "--when", "alerts")
        assert scene.app.wait_for_end() < 0, "it died by the signal"
        # 2. It dies in the first cut with the document, between Kafka's commit and Spark's: the next one has the key.
        scene.start_faulty("--die", "committed", "--when", "status")
        assert scene.app.wait_for_end() < 0, "it died by the signal"
        # 3. It goes on.
        scene.start_faulty()
        with_coupons = send_with_coupons(scene, events[-1].ts)
        scene.tick(events[-1].ts + 2 * orders.HOUR_MS)
        scene.settle()
        # 4. The command gets its answers from the running app.
        publish_by_command(scene, tmp_path)
        scene.settle()
        assert scene.app.drain() == 0
    scene.check_against(expected)
    answers = [(as_object(record), batch_of(record)[1]) for record in scene.outputs.read("status")]
    by_offset = {_offset(answer): (answer["status"], batch) for answer, batch in answers}
    assert [by_offset[at][0] for _, at in positions] == ["accepted"] * 3
    assert by_offset[offset + 1][1] == by_offset[offset + 2][1] == by_offset[offset][1] + 1
    assert by_offset[offset + 3][0] == "rejected"
    assert by_offset[offset + 4][0] == "accepted"
    shown = capsys.readouterr().out
    assert "field coupon: not every string is a long" in shown
    assert f"accepted   orders version 3 from batch {by_offset[offset + 4][1]} on\n" in shown
    listed = json.loads(shown[shown.rindex("[") :])
    assert {(one["stream"], one["version"], one["from"]) for one in listed} >= {("orders", 3, "published")}
    assert len(answers) == scene.published, "each record is answered once"
    alerts = [alert for alert in scene.outputs.alerts() if alert["rule"] == "coupon"]
    assert sorted(str(alert["source"]) for alert in alerts) == sorted(map(str, with_coupons))
    assert {str(one["key"]) for one in scene.outputs.alerts() if one["rule"] == "pairs"} == {
        "{'lower(coupon)': 'x'}",
        "{'lower(coupon)': 'y'}",
    }
    assert len(scene.outputs.read("deadletters")) == 2 * len(too_early), "those in the cut that accepts the document"
    check_transactions(scene.outputs)
    attempts = read_attempts(scene.capture)
    repeated = [texts for texts in attempts.values() if len(texts) > 1]
    assert len(repeated) >= 2, "both cuts ran again"
    assert all(len(set(texts)) == 1 for texts in repeated), "with the same bytes, in the same order"


def publish_by_command(scene: Scene, folder: Path) -> None:
    """Publish a document that the app rejects and one that it takes."""
    target = ["--app", scene.app.name, "--bootstrap", scene.kafka.bootstrap]
    changed(folder, 3, coupon="long")
    assert run(["streams", "publish", str(folder / "orders.yaml"), *target]) == 1
    changed(folder, 3, coupon="string", channel="string")
    assert run(["streams", "publish", str(folder / "orders.yaml"), *target]) == 0
    scene.published += 2
    orders.write_streams(folder)
    assert run(["streams", "list", "--streams", str(folder), *target, "-o", "json"]) == 0


def _offset(answer: Mapping[str, Any]) -> int:
    return int(answer["control"]["offset"])


def changed(folder: Path, version: int, **fields: str) -> dict[str, object]:
    """Write a later document of the orders to ``orders.yaml``, and return it."""
    file = orders.write_streams(folder)[0]
    document: dict[str, dict[str, str]] = yaml.safe_load(file.read_text())
    later = {**document, "version": version, "fields": document["fields"] | fields}
    (folder / "orders.yaml").write_text(yaml.safe_dump(later, sort_keys=False))
    return later


def send_with_coupons(scene: Scene, at_ms: int) -> list[dict[str, object]]:
    """Send orders with the new field to one partition; return the places of those that the rule is for."""
    sent = [json.loads(Order(100_000 + n, at_ms, "coupons", "coupon").value) for n in range(20)]
    values = [json.dumps(order | {"coupon": "X" if n % 2 else "Y"}).encode() for n, order in enumerate(sent)]
    scene.count += len(values)
    offsets = orders.send_raw(scene.kafka, scene.orders_topic, [(None, value) for value in values])
    return [{"topic": scene.orders_topic, "partition": 0, "offset": offset} for offset in offsets[1::2]]
