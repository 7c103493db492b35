"""An app on Spark writes a savepoint to a real S3 server, and an app restored from it gives the same output.

Needs a server that the environment names (``tests/harness/servers/s3_server.py``); leaves its objects there.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from conftest import NewTopic
from streamcore.kafka.settings import KafkaSettings
from streamcore.spark.session import SparkSettings
from streamcore.topology.simulation import Simulation, SimulationResult
from tests.harness.apps.scripted_cuts import Script, run
from tests.harness.apps.shop_lanes import expected_rows, objects, send
from tests.harness.apps.versioned_shop import Version, rows
from tests.harness.servers.storage_locations import s3_place

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(400)]

SHARDS = 3
CUTS = 4


def uninterrupted() -> SimulationResult:
    simulation, result = Simulation(Version().topology("shop"), shards=SHARDS), SimulationResult()
    for cut in range(CUTS):
        result.add(simulation.cut(rows(cut), clock_ms=1_000_000 + cut))
    return result


def test_an_app_restored_from_a_bucket_gives_the_output_of_an_uninterrupted_one(
    tmp_path: Path, kafka: KafkaSettings, spark_jars: Path, new_topic: NewTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = s3_place(monkeypatch)
    topics = {"orders": new_topic("orders"), "views": new_topic("views")}
    steps = send(kafka, topics, CUTS)
    app = Version().topology("shop-s3").app(topics=topics, shards=SHARDS)
    spark = SparkSettings(spark_jars, parallelism=2)
    first = Script(app, kafka, tmp_path / "first", spark, steps[:2], saved="saved", place=place.url)
    then = replace(first, checkpoint=tmp_path / "then", steps=steps[2:], saved="last", restored="saved")
    run(tmp_path, [first, then], limit_s=300)

    whole = uninterrupted()
    for lane in Version().lanes:
        assert objects(kafka, f"shop-s3.{lane}") == expected_rows(whole[lane]), lane
    saved = [*first.savepoints]
    assert [(one.manifest.name, one.manifest.epoch, one.manifest.batch) for one in saved] == [
        ("saved", 1, 1),
        ("last", 2, 1),
    ]
    assert all(one.verify() == [] for one in saved)
    assert place.under("shop-s3/saved").files() == sorted(["manifest.json", *(f.path for f in saved[0].manifest.files)])
