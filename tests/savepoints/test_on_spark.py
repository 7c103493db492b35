"""An app on Spark runs from savepoint to savepoint, changed each time; its output equals that of an uninterrupted run.

One app, one set of lanes, four runs in one session: unchanged; with more shards, other shuffle partitions and other
code; with one operator more and one less; with fewer shards and a state in another layout. Each begins with the last
savepoint of the one before. The second one dies in its first batch, after the commit of the sink and before that of
Spark. A fifth one, from a savepoint after which the first run continued, is rejected.

``HEADGATE_RESCALES=1``: 1, 3, 4, 16 and 128 shards instead, and each of these runs but the first dies so.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
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

LONG = bool(os.environ.get("HEADGATE_RESCALES"))
pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(3_000 if LONG else 1_000)]


_FIRST = Version()


@dataclass(frozen=True)
class Run:
    """A run: its cuts, shards, version, shuffle partitions, what its restore drops, and whether its first cut dies."""

    cuts: int
    shards: int
    version: Version = _FIRST
    partitions: int = 2
    drop: frozenset[str] = frozenset()
    dies: bool = False


_WITHOUT_JOIN = Version(joined=False, visits=True)
RUNS: Sequence[Run] = (
    Run(3, 3),
    Run(2, 5, Version(rewritten=True), 3, dies=True),
    Run(2, 5, _WITHOUT_JOIN, drop=frozenset({"join"})),
    Run(2, 2, replace(_WITHOUT_JOIN, function=Euros)),
)
if LONG:
    RUNS = [Run(2, shards, dies=shards > 1) for shards in (1, 3, 4, 16, 128)]


def in_process(folder: Path) -> SimulationResult:
    """Do the same runs without Spark; other tests compare these with one uninterrupted run."""
    result, cut, offsets = SimulationResult(), 0, [0, 0]
    saved: Savepoint | None = None
    for number, one in enumerate(RUNS):
        topology = one.version.topology("shop")
        app, begun = topology.app(shards=one.shards), folder / f"run-{number}"
        blobs = {} if saved is None else restore(saved, app, begun, RestoreDecisions(one.drop))
        simulation = Simulation(topology, app=app, blobs=blobs)
        simulation.offsets = offsets
        for _ in range(one.cuts):
            result.add(simulation.cut(rows(cut), clock_ms=1_000_000 + cut))
            cut += 1
        saved = save(simulation.local.app, simulation.blobs, folder / f"saved-{number}", moment(epoch=number + 1))
    return result


def uninterrupted(runs: Sequence[Run] = RUNS) -> SimulationResult:
    """Run the first version through the cuts of these runs."""
    simulation, result = Simulation(Version().topology("shop"), shards=1), SimulationResult()
    for cut in range(sum(one.cuts for one in runs)):
        result.add(simulation.cut(rows(cut), clock_ms=1_000_000 + cut))
    return result


def test_runs_of_an_app_from_savepoints_give_the_output_of_one_uninterrupted_run(
    tmp_path: Path, kafka: KafkaSettings, spark_jars: Path, new_topic: NewTopic
) -> None:
    topics = {"orders": new_topic("orders"), "views": new_topic("views")}
    steps, scripts, died = send(kafka, topics, sum(one.cuts for one in RUNS)), list[Script](), list[Script]()
    for number, one in enumerate(RUNS):
        app = one.version.topology("shop-runs").app(topics=topics, shards=one.shards)
        some, steps = steps[: one.cuts], steps[one.cuts :]
        place, spark = tmp_path / f"run-{number}", SparkSettings(spark_jars, parallelism=one.partitions)
        before = f"run-{number - 1}" if number else ""
        script = Script(app, kafka, place, spark, some, saved=f"run-{number}", restored=before)
        script = replace(script, decisions=RestoreDecisions(one.drop), midway="" if number else "midway")
        if one.dies:
            scripts.append(replace(script, steps=some[:1], saved=""))
            died.append(script := replace(script, restored="", forgets=True))
        scripts.append(script)
    again = replace(scripts[0], checkpoint=tmp_path / "again", midway="", saved="", restored="midway")
    again = replace(again, epoch=len(RUNS) + 1, rejected="of epoch 1 was written after it")
    run(tmp_path, [*scripts, again], limit_s=2_400 if LONG else 900)

    alone = uninterrupted()
    for lane in ("windows", "running", "digits"):
        assert objects(kafka, f"shop-runs.{lane}") == expected_rows(alone[lane]), lane
    assert objects(kafka, "shop-runs.pairs") == expected_rows(
        uninterrupted([one for one in RUNS if one.version.joined])["pairs"]
    )
    if any(one.version.visits for one in RUNS):
        visits = expected_rows(in_process(tmp_path / "in-process")["visits"])
        assert visits
        assert objects(kafka, "shop-runs.visits") == visits

    for script in died:
        outcomes = [orjson.loads(line)["outcome"] for line in script.reports.read_bytes().splitlines()]
        assert outcomes == ["committed", "skipped", "committed"], "what it had written was not written again"
    saved = [one.manifest for one in scripts[0].savepoints]
    assert [(one.name, one.epoch, one.batch) for one in saved] == [
        ("midway", 1, 0),
        *((f"run-{number}", number + 1, one.cuts - 1) for number, one in enumerate(RUNS)),
    ]
    assert all(saved.verify() == [] for saved in scripts[0].savepoints)
