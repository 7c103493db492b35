"""The rules app on records of a schema registry: new ids under load, an outage, and kills, against the oracle."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from conftest import NewRegistry
from headgate.main import run
from streamcore.schema_registry.schemas import RegisteredSchema
from streamcore.schema_registry.store import SchemaStore
from streamcore.storage import open_object_store
from tests.conftest import NewApp
from tests.harness.apps import orders, registered_orders
from tests.harness.apps import published_rules as rules
from tests.harness.apps.rules_app import AppUnderTest
from tests.harness.apps.rules_scene import Scene
from tests.harness.faults.faulty_app import read_attempts
from tests.harness.oracles.lane_reader import check_transactions
from tests.harness.servers.schema_registry import EmbeddedRegistry

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.registry, pytest.mark.slow]
COUNT = 600
AWAY_S = 3  # a registry that is away is asked every second
AWAY = "Schema registry .* is unavailable since .* nothing is lost"


def scene_of(new_app: NewApp, registry: EmbeddedRegistry, stem: str) -> Scene:
    scene = new_app(stem, events_per_cut=500, schema_registry={"url": registry.url})
    streams = scene.app.settings["streams"]
    assert isinstance(streams, list)
    streams[0] |= {"format": {"kind": "registry"}, "reject_extra_fields": False}
    return scene


def status_of(app: AppUnderTest, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """Return the answer of ``headgate status`` about the app, which runs."""
    capsys.readouterr()
    command = ["status", "--service", "rules", "--settings", str(app.folder / "settings.json"), "-o", "json"]
    assert run(command) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_new_ids_and_an_outage_lose_and_repeat_nothing(
    new_app: NewApp, new_registry: NewRegistry, capsys: pytest.CaptureFixture[str]
) -> None:
    registry = new_registry()
    registry.start()
    scene = scene_of(new_app, registry, "registered")
    expected = [rules.large_order(), rules.many_payments()]
    scene.publish(*expected)
    every = orders.orders(5 * COUNT, seed=5)
    scene.encode = registered_orders.register(registry, f"{scene.orders_topic}-value", 1)
    scene.send(every[:COUNT])
    with scene.app as app:
        app.start()
        scene.settle()
        # A new version of the topic's subject, and a subject that the planner does not know.
        scene.encode = registered_orders.register(registry, f"{scene.orders_topic}-value", 2)
        scene.send(every[COUNT : 2 * COUNT])
        scene.encode = registered_orders.register(registry, "shop.Order", 3)
        scene.send(every[2 * COUNT : 3 * COUNT])
        scene.settle()
        # The registry is away: an id that is known needs it not, a new one waits for it.
        scene_3 = scene.encode
        scene.encode = registered_orders.register(registry, "shop.Order", 4)
        scene_4 = scene.encode
        registry.kill()
        scene.encode = scene_3
        scene.send(every[3 * COUNT : 4 * COUNT])
        scene.settle()
        scene.encode = scene_4
        scene.send(every[4 * COUNT :])
        app.wait_for_log(AWAY)
        events = app.events
        time.sleep(AWAY_S)
        assert app.events == events, "no cut has ended without its schema"
        away = f"unavailable: Schema registry {registry.url}: GET /schemas/ids/"
        app.wait_for(lambda: status_of(app, capsys)["message"].startswith(away), "the reason in headgate status", 60)
        # The driver dies while the cut waits, and comes back before the registry.
        app.kill()
        app.start()
        app.wait_for_log(AWAY, 2, limit_s=240)
        registry.start()
        scene.settle()
        scene.tick(scene.sent[-1].order.ts + orders.HOUR_MS)
        scene.settle()
        app.wait_for(lambda: status_of(app, capsys)["message"] == "", "the end of the outage in headgate status")
        assert app.lane("deadletters") == 0
        assert app.drain() == 0
    scene.check_against(expected)
    scene.check_counts()
    check_transactions(scene.outputs)


def test_an_id_that_the_registry_does_not_have_stays_absent_in_a_replay(
    new_app: NewApp, registry: EmbeddedRegistry
) -> None:
    scene = scene_of(new_app, registry, "absent")
    scene.encode = registered_orders.register(registry, f"{scene.orders_topic}-value", 11)
    every = orders.orders(20, seed=6)
    good = scene.encode
    unknown = 4_000_000_000
    scene.encode = registered_orders.avro_encoder(unknown, registered_orders.avro_schema(11))
    scene.send(every[:10])
    scene.encode = good
    scene.send(every[10:])
    with scene.app:
        scene.start_faulty("--die", "committed", "--when", "deadletters")
        assert scene.app.wait_for_end() < 0, "it died by the signal, with the batch in Kafka and not committed in Spark"
        pinned = [*Path(scene.app.checkpoint, "schemas").glob("*/absent/*")]
        assert [json.loads(file.read_text())["ids"] for file in pinned] == [[unknown]]
        # A later cut finds the id: as if it had been registered meanwhile.
        schema = RegisteredSchema(unknown, "AVRO", registered_orders.avro_schema(11))
        SchemaStore(open_object_store(pinned[0].parents[1])).add(schema)
        scene.start_faulty()
        scene.settle()
        scene.tick(scene.sent[-1].order.ts + orders.HOUR_MS)
        scene.settle()
        assert scene.app.drain() == 0
    assert len(scene.outputs.read("deadletters")) == 10
    scene.check_counts()
    attempts = read_attempts(scene.capture)
    assert all(len({*texts}) == 1 for texts in attempts.values()), "a replay made other records"
    assert max(map(len, attempts.values())) == 2, "a batch ran twice"
