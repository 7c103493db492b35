"""An app on Spark runs from savepoint to savepoint, changed each time; its output equals that of an uninterrupted run.

One app, one set of lanes, four runs in one session: unchanged; with more shards, other shuffle partitions and other
code; with one operator more and one less; with fewer shards and a state in another layout. Each begins with the last
savepoint of the one before. The second one dies in its first batch, after the commit of the sink and before that of
Spark. A fifth one, from a savepoint after which the first run continued, is rejected.
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

#: The shards of each run.
SHARDS = (3, 5, 5, 2)
#: The run that dies.
DIES = 1
#: Cuts of each run, its version, its shuffle partitions, and what its restore drops.
RUNS: Sequence[tuple[int, Version, int, frozenset[str]]] = (
    (3, Version(), 2, frozenset()),
    (2, Version(rewritten=True), 3, frozenset()),
    (2, Version(rewritten=True, joined=False, visits=True), 2, frozenset({"join"})),
    (2, Version(Euros, joined=False, visits=True), 2, frozenset()),
)


def in_process(folder: Path) -> SimulationResult:
    """Do the same runs without Spark; other tests compare these with one uninterrupted run."""
    result, cut, offsets = SimulationResult(), 0, [0, 0]
    saved: Savepoint | None = None
    for number, (cuts, version, _, drop) in enumerate(RUNS):
        topology = version.topology("shop")
        app, begun = topology.app(shards=SHARDS[number]), folder / f"run-{number}"
        blobs = {} if saved is None else restore(saved, app, begun, RestoreDecisions(drop))
        simulation = Simulation(topology, app=app, blobs=blobs)
        simulation.offsets = offsets
        for _ in range(cuts):
            result.add(simulation.cut(rows(cut), clock_ms=1_000_000 + cut))
            cut += 1
        saved = save(simulation.local.app, simulation.blobs, folder / f"saved-{number}", moment(epoch=number + 1))
    return result


def uninterrupted(count: int = len(RUNS)) -> SimulationResult:
    """Run the first version through the cuts of the first ``count`` runs."""
    simulation, result = Simulation(Version().topology("shop"), shards=1), SimulationResult()
    for cut in range(sum(cuts for cuts, *_ in RUNS[:count])):
        result.add(simulation.cut(rows(cut), clock_ms=1_000_000 + cut))
    return result


def test_four_runs_of_an_app_from_savepoints_give_the_output_of_one_uninterrupted_run(
    tmp_path: Path, kafka: KafkaSettings, spark_jars: Path, new_topic: NewTopic
) -> None:
    topics = {"orders": new_topic("orders"), "views": new_topic("views")}
    steps, scripts = send(kafka, topics, sum(cuts for cuts, *_ in RUNS)), list[Script]()
    for number, (cuts, version, partitions, drop) in enumerate(RUNS):
        app = version.topology("shop-runs").app(topics=topics, shards=SHARDS[number])
        some, steps = steps[:cuts], steps[cuts:]
        place, spark = tmp_path / f"run-{number}", SparkSettings(spark_jars, parallelism=partitions)
        before = f"run-{number - 1}" if number else ""
        script = Script(app, kafka, place, spark, some, saved=f"run-{number}", restored=before)
        script = replace(script, decisions=RestoreDecisions(drop), midway="" if number else "midway")
        if number == DIES:
            scripts.append(replace(script, steps=some[:1], saved=""))
            script = replace(script, restored="", forgets=True)
        scripts.append(script)
    again = replace(scripts[0], checkpoint=tmp_path / "again", midway="", saved="", restored="midway")
    again = replace(again, epoch=len(RUNS) + 1, rejected="of epoch 1 was written after it")
    run(tmp_path, [*scripts, again], limit_s=900)

    alone, together = uninterrupted(), in_process(tmp_path / "in-process")
    for lane in ("windows", "running", "digits"):
        assert objects(kafka, f"shop-runs.{lane}") == expected_rows(alone[lane]), lane
    assert objects(kafka, "shop-runs.pairs") == expected_rows(uninterrupted(count=2)["pairs"])
    assert expected_rows(together["visits"])
    assert objects(kafka, "shop-runs.visits") == expected_rows(together["visits"])

    outcomes = [orjson.loads(line)["outcome"] for line in scripts[DIES].reports.read_bytes().splitlines()]
    assert outcomes == ["committed", "skipped", "committed"], "what it had written was not written again"
    saved = [one.manifest for one in scripts[0].savepoints]
    assert [(one.name, one.epoch, one.batch) for one in saved] == [
        ("midway", 1, 0),
        ("run-0", 1, 2),
        ("run-1", 2, 1),
        ("run-2", 3, 1),
        ("run-3", 4, 1),
    ]
    assert all(one.verify() == [] for one in scripts[0].savepoints)
