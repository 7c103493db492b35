"""A short round: 2,000 events, two kills and a pause. ``make lab`` runs the long ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from headgate.local.servers.kafka import EmbeddedBroker
from tests.harness.run.shared_servers import unique_name
from tests.lab.result import RoundResult
from tests.lab.rules_round import RulesRound, Size
from tests.lab.schedule import Fault, Step, schedule

STEPS = [
    Step(Fault.KILL_WORKER, after_s=0.5, for_s=0, wait_for_cut=True, choice=0),
    Step(Fault.PAUSE_JVM, after_s=0.5, for_s=1, wait_for_cut=True, choice=0),
    Step(Fault.KILL_DRIVER, after_s=0.5, for_s=0, wait_for_cut=True, choice=0),
]


@pytest.mark.kafka
@pytest.mark.spark
@pytest.mark.slow
def test_a_short_round_neither_loses_nor_repeats_an_alert(
    tmp_path: Path, broker: EmbeddedBroker, spark_jars: Path
) -> None:
    folder = tmp_path / unique_name("lab", 1)
    folder.mkdir()
    result = RoundResult(1, 1, "rules")
    verdict = RulesRound(folder, broker, spark_jars, result, Size(2_000, 200), STEPS).run()
    assert verdict.differences == []
    assert verdict.expected == verdict.seen > 300
    assert [fault.fault for fault in result.faults] == [step.fault for step in STEPS]
    assert len(result.starts) == 2


def test_a_schedule_has_only_possible_faults_and_is_a_function_of_its_seed() -> None:
    possible = frozenset({Fault.KILL_WORKER, Fault.CLOCK_JUMP})
    steps = [step for step, _ in zip(schedule("17/1", possible), range(50), strict=False)]
    assert {step.fault for step in steps} == possible
    assert steps == [step for step, _ in zip(schedule("17/1", possible), range(50), strict=False)]
