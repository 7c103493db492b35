"""An app that continues from a savepoint gives the output of an uninterrupted run: properties, in this process."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamcore.errors import ConfigError
from streamcore.savepoint import RestoreDecisions
from streamcore.savepoint.compatibility import TOPIC_GONE
from streamcore.topology.simulation import Simulation, SimulationResult
from tests.harness.apps.versioned_shop import Euros, Forgetful, Version, moment, restore, rows, save

CUTS = 6


def run(simulation: Simulation, cuts: Sequence[int]) -> SimulationResult:
    read, result = {node.name for node in simulation.topology.sources}, SimulationResult()
    for cut in cuts:
        inputs = {name: frame for name, frame in rows(cut).items() if name in read}
        result.add(simulation.cut(inputs, clock_ms=1_000 + cut))
    return result


def lanes(result: SimulationResult, names: Sequence[str]) -> dict[str, list[str]]:
    return {name: sorted(result[name].write_ndjson().splitlines()) for name in names}


def run_with_restore(first: Version, second: Version, at: int, shards: int, drop: frozenset[str]) -> SimulationResult:
    """Run the first version up to a cut, and the second one from its savepoint."""
    with tempfile.TemporaryDirectory() as folder:
        before = Simulation(first.topology("shop"), shards=shards)
        result = run(before, range(at))
        savepoint = save(before.local.app, before.blobs, Path(folder) / "savepoints", moment(at))
        assert savepoint.verify() == []
        topology = second.topology("shop")
        decided = RestoreDecisions(drop, frozenset({TOPIC_GONE}))
        blobs = restore(savepoint, topology.app(shards=shards), Path(folder) / "new", decided)
    after = Simulation(topology, shards=shards, blobs=blobs)
    after.offsets = before.offsets[: len(after.offsets)]
    result.add(run(after, range(at, CUTS)))
    result.add(after.end(clock_ms=2_000))
    return result


@cache
def run_uninterrupted(shards: int) -> SimulationResult:
    simulation = Simulation(Version().topology("shop"), shards=shards)
    result = run(simulation, range(CUTS))
    result.add(simulation.end(clock_ms=2_000))
    return result


CHANGES = {
    "the same app": (Version(), frozenset()),
    "other code": (Version(rewritten=True), frozenset()),
    "an operator more": (Version(visits=True), frozenset()),
    "an operator less": (Version(joined=False), frozenset({"join"})),
    "a state migrated": (Version(Euros), frozenset()),
}


@pytest.mark.slow
@pytest.mark.parametrize("change", CHANGES)
@settings(max_examples=5)
@given(at=st.integers(1, CUTS - 1), shards=st.integers(1, 2))
def test_the_output_of_all_versions_equals_that_of_an_uninterrupted_run(change: str, at: int, shards: int) -> None:
    second, drop = CHANGES[change]
    names = sorted({*Version().lanes} & {*second.lanes})
    wanted = lanes(run_uninterrupted(shards), names)
    assert all(wanted.values())
    assert lanes(run_with_restore(Version(), second, at, shards, drop), names) == wanted


@pytest.mark.slow
def test_a_version_without_a_migration_is_rejected_before_anything_is_written(tmp_path: Path) -> None:
    before = Simulation(Version().topology("shop"))
    run(before, range(3))
    savepoint = save(before.local.app, before.blobs, tmp_path, moment())
    app = Version(Forgetful).topology("shop").app(shards=1)
    with pytest.raises(ConfigError, match="running/values: rows of version 1 cannot be brought to version 2"):
        restore(savepoint, app, tmp_path / "new")
    assert not (tmp_path / "new").exists()


@pytest.mark.slow
def test_state_that_no_operator_takes_stops_the_restore_until_it_is_dropped(tmp_path: Path) -> None:
    before = Simulation(Version().topology("shop"))
    run(before, range(3))
    savepoint = save(before.local.app, before.blobs, tmp_path, moment())
    app = Version(joined=False).topology("shop").app(shards=1)
    with pytest.raises(ConfigError, match="nothing in this app takes the state join/left"):
        restore(savepoint, app, tmp_path / "new")
    decided = RestoreDecisions(frozenset({"join"}), frozenset({TOPIC_GONE}))
    assert restore(savepoint, app, tmp_path / "new", decided)
