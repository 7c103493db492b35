"""State on disk: the output never depends on which keys are cold, after restarts, in several shards, after failures."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pytest

import streamcore as sc
from streamcore.errors import CorruptState, Retryable
from streamcore.limits import StateSettings
from streamcore.savepoint.division import divide_state
from streamcore.savepoint.state_files import live_rows
from streamcore.state.blob_store import MemoryBlobs
from streamcore.state.cold import local_files
from streamcore.topology.simulation import Simulation, SimulationResult
from tests.harness.apps.stateful_programs import PROGRAMS
from tests.harness.apps.versioned_shop import rows

CUTS = 12
#: The programs whose keys can be cold.
PAGED = ("duplicates", "a keyed function")


def _app(program: str, folder: Path, memory_bytes: int | None, shards: int = 1) -> tuple[sc.Topology, sc.App]:
    topology = sc.Topology("shop", PROGRAMS[program]().sink("out"))
    state = StateSettings(buckets=3, memory_bytes=memory_bytes, local_dir=str(folder))
    return topology, topology.app(shards=shards, state=state)


def _run(topology: sc.Topology, app: sc.App, restarts: frozenset[int] = frozenset()) -> tuple[SimulationResult, Counter[str]]:
    """Run all cuts, with a restart before some of them, and end the streams. Return the output and the cold counters."""
    result, cold = SimulationResult(), Counter[str]()
    simulation, read = Simulation(topology, app=app), {node.name for node in topology.sources}
    for cut in range(CUTS):
        if cut in restarts:
            simulation = restarted(simulation, topology, app)
        inputs = {name: frame for name, frame in rows(cut).items() if name in read}
        one = simulation.cut(inputs, clock_ms=1_000 + 400 * cut, control={f"u{cut}": b"silent"} if cut < 4 else {})
        cold.update({name: count for name, count in one.counters.items() if name.startswith("cold.")})
        result.add(one)
    result.add(simulation.end(clock_ms=9_000))
    return result, cold


def restarted(simulation: Simulation, topology: sc.Topology, app: sc.App) -> Simulation:
    """Return a new process with the same stored state."""
    after = Simulation(topology, app=app, blobs={place: MemoryBlobs({**b.blobs}) for place, b in simulation.blobs.items()})
    after.offsets, after.seen = simulation.offsets, simulation.seen
    return after


def _lines(result: SimulationResult) -> list[str]:
    return sorted(result["out"].write_ndjson().splitlines()) + sorted(map(repr, result.dead))


@pytest.mark.parametrize("program", PAGED)
@pytest.mark.parametrize("memory_bytes", [1, 1_500, 12_000])
@pytest.mark.parametrize("shards", [1, 3])
def test_the_output_does_not_depend_on_what_is_cold(program: str, memory_bytes: int, shards: int, tmp_path: Path) -> None:
    whole, _ = _run(*_app(program, tmp_path, None, shards))
    draw = random.Random(f"{program} {memory_bytes} {shards}")
    for restarts in (frozenset[int](), frozenset(draw.sample(range(CUTS), 4)), frozenset(range(CUTS))):
        bounded, cold = _run(*_app(program, tmp_path, memory_bytes, shards), restarts)
        assert _lines(bounded) == _lines(whole)
        assert cold["cold.evicted"] > 0
    assert len(_lines(whole)) > 10
