"""An app on Spark goes from savepoint to savepoint, changed each time; its lanes say what an uninterrupted run says.

One app, one set of lanes, four lives in one session: as it is; with other shuffle partitions and other code; with one
operator more and one less; with a state in another layout. Each begins with the savepoint that the one before took.
The second one dies in its first batch, after the sink's commit and before Spark's. A fifth one, from a savepoint after
which the first went on, is rejected.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import orjson
import pytest

from conftest import NewTopic
from streamcore.kafka.settings import KafkaSettings
from streamcore.savepoint import RestoreDecisions, Savepoint
from streamcore.spark.session import SparkSettings
from streamcore.topology.simulation import Simulation, SimulationResult
from tests.harness.apps.scripted_cuts import Script, run
from tests.harness.apps.shop_lanes import expected_rows, objects, send
from tests.harness.apps.versioned_shop import Euros, Version, moment, restore, rows, save

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(1_000)]

SHARDS = 3
#: The life that dies.
DIES = 1
#: Cuts of each life, its version, its shuffle partitions, and what its restore drops.
LIVES: Sequence[tuple[int, Version, int, frozenset[str]]] = (
    (3, Version(), 2, frozenset()),
    (2, Version(rewritten=True), 3, frozenset()),
    (2, Version(rewritten=True, joined=False, visits=True), 2, frozenset({"join"})),
    (2, Version(Euros, joined=False, visits=True), 2, frozenset()),
)


def in_process(folder: Path) -> SimulationResult:
    """Run the same lives without Spark; tests of their own compare these with one uninterrupted run."""
    result, cut, offsets = SimulationResult(), 0, [0, 0]
    saved: Savepoint | None = None
    for life, (cuts, version, _, drop) in enumerate(LIVES):
        topology = version.topology("shop")
        app, begun = topology.app(shards=SHARDS), folder / f"life-{life}"
        blobs = {} if saved is None else restore(saved, app, begun, RestoreDecisions(drop))
        simulation = Simulation(topology, shards=SHARDS, blobs=blobs)
        simulation.offsets = offsets
        for _ in range(cuts):
            result.add(simulation.cut(rows(cut), clock_ms=1_000_000 + cut))
            cut += 1
        saved = save(simulation.local.app, simulation.blobs, folder / f"saved-{life}", moment(epoch=life + 1))
    return result


def uninterrupted(lives: int = len(LIVES)) -> SimulationResult:
    """Run the first version through the cuts of so many lives."""
    simulation, result = Simulation(Version().topology("shop"), shards=SHARDS), SimulationResult()
    for cut in range(sum(life[0] for life in LIVES[:lives])):
        result.add(simulation.cut(rows(cut), clock_ms=1_000_000 + cut))
    return result


def test_four_runs_of_an_app_from_savepoints_give_the_output_of_one_uninterrupted_run(
    tmp_path: Path, kafka: KafkaSettings, spark_jars: Path, new_topic: NewTopic
) -> None:
    topics = {"orders": new_topic("orders"), "views": new_topic("views")}
    steps, scripts = send(kafka, topics, sum(life[0] for life in LIVES)), list[Script]()
    for life, (cuts, version, partitions, drop) in enumerate(LIVES):
        app = version.topology("shop-lives").app(topics=topics, shards=SHARDS)
        some, steps = steps[:cuts], steps[cuts:]
        place, spark = tmp_path / f"life-{life}", SparkSettings(spark_jars, parallelism=partitions)
        before = f"life-{life - 1}" if life else ""
        script = Script(app, kafka, place, spark, some, saved=f"life-{life}", restored=before)
        script = replace(script, decisions=RestoreDecisions(drop), midway="" if life else "midway")
        if life == DIES:
            scripts.append(replace(script, steps=some[:1], saved=""))
            script = replace(script, restored="", forgets=True)
        scripts.append(script)
    again = replace(scripts[0], checkpoint=tmp_path / "again", midway="", saved="", restored="midway")
    again = replace(again, epoch=len(LIVES) + 1, rejected="of epoch 1 was written after it")
    run(tmp_path, [*scripts, again], limit_s=900)

    alone, together = uninterrupted(), in_process(tmp_path / "in-process")
    for lane in ("windows", "running", "digits"):
        assert objects(kafka, f"shop-lives.{lane}") == expected_rows(alone[lane]), lane
    assert objects(kafka, "shop-lives.pairs") == expected_rows(uninterrupted(lives=2)["pairs"])
    assert expected_rows(together["visits"])
    assert objects(kafka, "shop-lives.visits") == expected_rows(together["visits"])

    outcomes = [orjson.loads(line)["outcome"] for line in scripts[DIES].reports.read_bytes().splitlines()]
    assert outcomes == ["committed", "skipped", "committed"], "what it had written was not written again"
    saved = [one.manifest for one in scripts[0].savepoints]
    assert [(one.name, one.epoch, one.batch) for one in saved] == [
        ("midway", 1, 0),
        ("life-0", 1, 2),
        ("life-1", 2, 1),
        ("life-2", 3, 1),
        ("life-3", 4, 1),
    ]
    assert all(one.verify() == [] for one in scripts[0].savepoints)
