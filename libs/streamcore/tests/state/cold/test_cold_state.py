"""State on disk: the output never depends on which keys are cold, after restarts, in several shards, after failures."""

from __future__ import annotations

import errno
import os
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import streamcore as sc
from streamcore.errors import CorruptState, Retryable
from streamcore.limits import StateSettings
from streamcore.savepoint.division import divide_state
from streamcore.savepoint.state_files import live_rows
from streamcore.schema import EVENT_MS
from streamcore.state.blob_store import MemoryBlobs
from streamcore.state.cold import local_files
from streamcore.state.state_log import HEAD, LogHead
from streamcore.topology.simulation import Simulation, SimulationResult
from tests.harness.apps.stateful_programs import PROGRAMS, by_user
from tests.harness.apps.versioned_shop import rows

CUTS = 12
#: The cuts that are killed at each of their writes, and whether the same process repeats them.
KILLED = {4: False, 7: True}
#: The programs whose keys can be cold.
PAGED = (
    *("duplicates", "a keyed function", "sliced windows", "sessions"),
    *("an interval join", "a lookup join", "two changing tables"),
)


def _app(program: str, folder: Path, memory_bytes: int | None, shards: int = 1) -> tuple[sc.Topology, sc.App]:
    topology = sc.Topology("shop", PROGRAMS[program]().sink("out"))
    state = StateSettings(buckets=3, memory_bytes=memory_bytes, local_dir=str(folder))
    return topology, topology.app(shards=shards, state=state)


def _run(
    topology: sc.Topology, app: sc.App, restarts: frozenset[int] = frozenset()
) -> tuple[SimulationResult, Counter[str]]:
    """Run all cuts, with a restart before some of them, and end the streams. Return the output and the keys moved."""
    result, cold = SimulationResult(), Counter[str]()
    simulation, read = Simulation(topology, app=app), {node.name for node in topology.sources}
    for cut in range(CUTS):
        if cut in restarts:
            simulation = restarted(simulation, topology, app)
        inputs = {name: frame for name, frame in rows(cut).items() if name in read}
        one = simulation.cut(inputs, clock_ms=1_000 + 400 * cut, control={f"u{cut}": b"silent"} if cut < 4 else {})
        cold.update({name: count for name, count in one.counters.items() if name.startswith("cold_moves.")})
        result.add(one)
    result.add(simulation.end(clock_ms=9_000))
    return result, cold


def restarted(simulation: Simulation, topology: sc.Topology, app: sc.App) -> Simulation:
    """Return a new process with the same stored state."""
    after = Simulation(
        topology, app=app, blobs={place: MemoryBlobs({**b.blobs}) for place, b in simulation.blobs.items()}
    )
    after.offsets, after.seen = simulation.offsets, simulation.seen
    return after


def _lines(result: SimulationResult) -> list[str]:
    return sorted(result["out"].write_ndjson().splitlines()) + sorted(map(repr, result.dead))


@pytest.mark.parametrize("program", [PAGED[0], *(pytest.param(one, marks=pytest.mark.slow) for one in PAGED[1:])])
def test_the_output_does_not_depend_on_what_is_cold(program: str, tmp_path: Path) -> None:
    whole, _ = _run(*_app(program, tmp_path, None))
    restarts = frozenset(random.Random(program).sample(range(CUTS), 5))
    bounded, cold = _run(*_app(program, tmp_path, 1), restarts)
    assert _lines(bounded) == _lines(whole)
    assert cold["cold_moves.evicted"] > 0
    assert cold["cold_moves.recalled"] > 0
    assert len(_lines(whole)) > 10


# --- failures -------------------------------------------------------------------------------------------------------


class KilledError(Exception):
    """The process dies."""


class FailingBlobs(MemoryBlobs):
    """A blob store that fails with the n-th write of a cut; what the cut wrote is lost, as on Spark."""

    def __init__(self, blobs: dict[str, bytes], writes: int) -> None:
        super().__init__(blobs)
        self.left = writes

    def put(self, name: str, blob: bytes) -> None:
        self._count()
        super().put(name, blob)

    def remove(self, name: str) -> None:
        self._count()
        super().remove(name)

    def _count(self) -> None:
        if self.left == 0:
            raise KilledError
        self.left -= 1


@pytest.mark.slow
@pytest.mark.parametrize("program", PAGED)
def test_a_cut_that_was_killed_at_any_write_is_repeated(program: str, tmp_path: Path) -> None:
    topology, app = _app(program, tmp_path, 2_000)
    whole, _ = _run(*_app(program, tmp_path, None))
    simulation, read = Simulation(topology, app=app), {node.name for node in topology.sources}
    result, kills = SimulationResult(), 0
    for cut in range(CUTS):
        inputs = {name: frame for name, frame in rows(cut).items() if name in read}
        control = {f"u{cut}": b"silent"} if cut < 4 else {}
        stored = {**simulation.blobs[0, 0].blobs} if cut else {}
        for writes in range(0 if cut in KILLED else 100, 101):
            place = FailingBlobs({**stored}, writes)
            offsets, seen = [*simulation.offsets], {*simulation.seen}
            if not KILLED.get(cut, True):
                simulation = Simulation(topology, app=app)
            simulation.blobs[0, 0], simulation.offsets, simulation.seen = place, [*offsets], {*seen}
            try:
                one = simulation.cut(inputs, clock_ms=1_000 + 400 * cut, control=control)
            except KilledError:
                kills += 1
                simulation.offsets, simulation.seen = offsets, seen
            else:
                result.add(one)
                simulation.blobs[0, 0] = MemoryBlobs(place.blobs)
                break
    result.add(simulation.end(clock_ms=9_000))
    assert _lines(result) == _lines(whole)
    assert kills > 3 * len(KILLED)


def test_a_full_disk_is_an_outage_that_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    topology, app = _app("a keyed function", tmp_path, 1)
    simulation = Simulation(topology, app=app)
    simulation.cut({"orders": rows(0)["orders"]})
    before = {**simulation.blobs[0, 0].blobs}

    def full(path: Path, _: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", full)
        with pytest.raises(Retryable, match=r"the disk of .* is full, and the rows of cold keys need it; make room"):
            simulation.cut({"orders": rows(1)["orders"]})
    simulation.blobs[0, 0] = MemoryBlobs(before)
    simulation.offsets = [30]
    again = simulation.cut({"orders": rows(1)["orders"]})
    unbounded = Simulation(topology, shards=1)
    unbounded.cut({"orders": rows(0)["orders"]})
    assert again["out"].equals(unbounded.cut({"orders": rows(1)["orders"]})["out"])


@pytest.mark.parametrize("damage", ["missing", "changed"])
def test_a_damaged_block_is_corrupt_state(damage: str, tmp_path: Path) -> None:
    topology, app = _app("a keyed function", tmp_path, 1)
    simulation = Simulation(topology, app=app)
    simulation.cut({"orders": rows(0)["orders"]})
    blobs = {**simulation.blobs[0, 0].blobs}
    (name,) = [name for name in blobs if name.startswith("cold/") and name.endswith("/0")]
    if damage == "missing":
        del blobs[name]
    else:
        blobs[name] = blobs[name][:-1] + b"x"
    _, elsewhere = _app("a keyed function", tmp_path / "elsewhere", 1)  # else it has the block in a local file
    after = Simulation(topology, app=elsewhere, blobs={(0, 0): MemoryBlobs(blobs)})
    with pytest.raises(CorruptState, match=f"blob {name} is (missing|not what was written)"):
        after.cut({"orders": rows(1)["orders"]})


@pytest.mark.slow
def test_files_of_dead_processes_are_removed_and_those_of_living_ones_stay(tmp_path: Path) -> None:
    dead = tmp_path / "headgate-cold-dead"
    dead.mkdir()
    (dead / "lock").touch()
    living = subprocess.Popen(
        [sys.executable, "-c", _LIVING, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert living.stdout is not None
    folder = Path(living.stdout.readline().strip())
    assert not dead.exists(), "the process that started removed it"
    local_files.remove_dead_folders(tmp_path)
    assert folder.exists()
    living.communicate("")
    local_files.remove_dead_folders(tmp_path)
    assert not folder.exists()


@pytest.mark.slow
def test_without_locks_the_folder_of_a_living_process_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The protection off: every folder is taken for that of a dead process."""
    living = subprocess.Popen(
        [sys.executable, "-c", _LIVING, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert living.stdout is not None
    folder = Path(living.stdout.readline().strip())
    monkeypatch.setattr(local_files, "_lock", lambda folder: os.open(folder / "lock", os.O_WRONLY))
    local_files.remove_dead_folders(tmp_path)
    living.communicate("")
    assert not folder.exists()


_LIVING = """
import sys
from streamcore.state.cold.local_files import process_folder
print(process_folder(sys.argv[1]), flush=True)
sys.stdin.read()
"""


# --- rows of savepoints ---------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("program", PAGED)
def test_a_savepoint_has_the_rows_of_cold_keys(program: str, tmp_path: Path) -> None:
    found = []
    for memory_bytes in (None, 1, 12_000):
        topology, app = _app(program, tmp_path, memory_bytes)
        simulation, read = Simulation(topology, app=app), {node.name for node in topology.sources}
        for cut in range(5):
            simulation.cut({n: f for n, f in rows(cut).items() if n in read}, clock_ms=1_000 + 400 * cut)
        stored = live_rows(app, 0, simulation.blobs[0, 0])
        found.append({name: _effective(frame, stored) for name, frame in stored.items()})
    if program == "an interval join":  # in memory, expired rows are stored until their bucket is rewritten
        assert all(found[0][name] >= rows for bounded in found[1:] for name, rows in bounded.items())
    else:
        assert found[0] == found[1] == found[2]
    assert sum(rows.total() for rows in found[2].values()) > 5


def _effective(frame: pl.DataFrame, tables: Mapping[str, pl.DataFrame]) -> Counter[str]:
    """Return the rows of a table that have an effect: ids before the floor have none, in memory or not."""
    limits = tables.get("deduplicate-1/limits")
    if limits is not None and EVENT_MS in frame.columns:
        frame = frame.filter(pl.col(EVENT_MS) >= int(limits["value"][0]))
    return Counter(map(repr, frame.select(sorted(frame.columns)).rows()))


def test_rows_and_timers_after_a_restore_come_after_the_cold_ones(tmp_path: Path) -> None:
    """The numbers that order them go on where those of the stored ones end, before any key is recalled."""
    for program, name, number in (("an interval join", "join-1/left", "__number"), ("a keyed function", *_TIMERS)):
        topology, app = _app(program, tmp_path, 1)
        before = Simulation(topology, app=app)
        before.cut({node.name: rows(0)[node.name] for node in topology.sources})
        blobs = divide_state(before.blobs, app, app)[0, 0]
        latest = live_rows(app, 0, blobs)[name][number].max()
        operator, table = name.split("/")
        summary = LogHead.from_json(blobs.blobs[HEAD]).cold[operator]["summary"]  # type: ignore[index]  # JSON
        found = summary["next_timer"] if table == "timers" else summary[table][1]
        assert isinstance(latest, int)
        assert found == latest + 1 > 1


_TIMERS = ("visits/timers", "__order")


# --- a new version of a function ------------------------------------------------------------------------------------


class Cents(sc.ProcessFunction):
    """Adds up whole numbers."""

    outputs = {"main": {"text": pl.String}}  # noqa: RUF012
    cents = sc.ValueState(int, default=0)

    def process(self, event: Any, context: sc.ProcessContext) -> Iterable[object]:
        self.cents += event.n
        yield {"text": f"{context.key} {self.cents}"}


class Texts(sc.ProcessFunction):
    """The same totals as texts, in a state of the same name and one of another."""

    outputs = {"main": {"text": pl.String}}  # noqa: RUF012
    version = 2
    migrations = {1: lambda row: {"cents": str(row.get("cents", 0)), "old": True}}  # noqa: RUF012
    cents = sc.ValueState(str, default="0")
    old = sc.ValueState(bool, default=False)

    def process(self, event: Any, context: sc.ProcessContext) -> Iterable[object]:
        self.cents = str(int(self.cents) + event.n)
        yield {"text": f"{context.key} {self.cents} {self.old}"}


def _versions(folder: Path, memory_bytes: int | None) -> tuple[list[str], Counter[str]]:
    """Run a few cuts of each version; return the output, and the rows of a savepoint of the second."""
    lines, blobs, offsets, stored = [], dict[tuple[int, int], MemoryBlobs](), [0], pl.DataFrame()
    for turn, function in enumerate((Cents(), Texts())):
        topology = sc.Topology("shop", by_user().process(function, name="sums").sink("out"))
        state = StateSettings(buckets=3, memory_bytes=memory_bytes, local_dir=str(folder))
        simulation = Simulation(topology, app=topology.app(shards=1, state=state), blobs=blobs)
        simulation.offsets = offsets
        for cut in range(6 * turn, 6 * turn + 6):
            orders = rows(cut)["orders"]
            kept = orders if turn == 0 else orders.filter(pl.col("user") < f"u{cut % 5}")  # old keys stay cold
            lines += simulation.cut({"orders": kept})["out"]["text"].to_list()
        blobs, offsets = simulation.blobs, simulation.offsets
        stored = live_rows(simulation.local.app, 0, blobs[0, 0])["sums/values"]
    return sorted(lines), Counter(map(repr, stored.select(sorted(stored.columns)).rows()))


@pytest.mark.slow
def test_cold_keys_of_an_older_version_are_migrated(tmp_path: Path) -> None:
    whole = _versions(tmp_path, None)
    assert any(line.endswith("True") for line in whole[0])
    for memory_bytes in (1, 1_500):
        assert _versions(tmp_path, memory_bytes) == whole
