"""The number of shards changes from 1 to 4 and 16, and the process dies during each change: at random writes of the
savepoint and of the restore, and in the first cut after it.

State and output are those of one shard that nothing disturbs. ``HEADGATE_RESCALE_KILLS``: kills in each change; with
more than one, the shards are also 3 and 128.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from streamcore.app import App
from streamcore.checkpoint.checkpoint import CheckpointRoot
from streamcore.savepoint import Savepoint, SavepointRepository
from streamcore.savepoint.state_files import live_rows
from streamcore.state.scope import ScopeKind
from streamcore.storage import LocalObjectStore, atomic_files, local
from streamcore.topology.simulation import Simulation, SimulationResult
from tests.harness.apps.versioned_shop import LANES, Version, initial_of, moment, restore, rows, save

KILLS = int(os.environ.get("HEADGATE_RESCALE_KILLS", "1"))
#: Shards, one after the other, each for two cuts.
SHARDS = (1, 3, 4, 16, 128) if KILLS > 1 else (1, 4, 16)


class KilledError(BaseException):
    """The process ends at this write."""


@contextmanager
def dying_at(monkeypatch: pytest.MonkeyPatch, number: int | None) -> Iterator[list[int]]:
    """End the process before a write of a file with this number; yield the count of writes."""
    count, write = [0], atomic_files.write_whole

    def counted(path: Any, content: bytes) -> None:
        if count[0] == number:
            raise KilledError
        count[0] += 1
        write(path, content)

    with monkeypatch.context() as patch:
        patch.setattr(atomic_files, "write_whole", counted)
        patch.setattr(local, "write_whole", counted)
        yield count


def change(simulation: Simulation, app: App, folder: Path, number: int) -> Savepoint:
    """Take a savepoint and restore it for the app, as far as an attempt before has not done so."""
    savepoints = SavepointRepository(LocalObjectStore(folder / "savepoints"), app.name)
    saved = savepoints.find("change")
    if saved is None:
        saved = save(simulation.local.app, simulation.blobs, folder / "savepoints", moment(epoch=number), "change")
    if CheckpointRoot(folder / "checkpoint").identity() is None:
        restore(saved, app, folder / "checkpoint")
    return saved


def keyed_rows(app: App, blobs: Mapping[tuple[int, int], Any]) -> dict[str, Counter[str]]:
    """Return the rows of the keyed tables of all shards."""
    found: dict[str, Counter[str]] = {}
    for (stage, _), one in blobs.items():
        scope = app.stages[stage]().scope
        for name, frame in live_rows(app, stage, one).items():
            if frame.height and scope(name).kind is ScopeKind.KEYED:
                found.setdefault(name, Counter()).update(map(repr, frame.select(sorted(frame.columns)).rows()))
    return found


def without_joins(tables: Mapping[str, Counter[str]]) -> dict[str, Counter[str]]:
    """Leave out the tables of joins, whose rows have the number of their arrival in the shard."""
    return {name: found for name, found in tables.items() if not name.startswith("join/")}


@pytest.mark.slow
@pytest.mark.timeout(1_000 * KILLS)
def test_changes_of_the_shards_that_are_killed_change_neither_state_nor_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topology, chance, killed = Version().topology("shop"), random.Random(19), 0
    whole, result = SimulationResult(), SimulationResult()
    undisturbed = Simulation(topology, shards=1)
    simulation = Simulation(topology, shards=SHARDS[0])
    for number, shards in enumerate(SHARDS):
        if number:
            app, before = topology.app(shards=shards), simulation
            with dying_at(monkeypatch, None) as count:  # how many writes there are
                change(before, app, tmp_path / f"counted-{number}", number)
            folder = tmp_path / f"run-{number}"
            for _ in range(KILLS):
                with dying_at(monkeypatch, chance.randrange(count[0])):
                    try:
                        change(before, app, folder, number)
                    except KilledError:
                        killed += 1
            saved = change(before, app, folder, number)
            assert saved.verify() == []
            blobs = initial_of(folder / "checkpoint", app)
            assert keyed_rows(app, blobs) == keyed_rows(before.local.app, before.blobs)
            cuts = []
            for _ in range(1 + KILLS):  # what the first cut wrote is lost, but the last time
                simulation = Simulation(topology, app=app, blobs=initial_of(folder / "checkpoint", app))
                simulation.offsets, simulation.seen = [*before.offsets], {*before.seen}
                cuts.append(simulation.cut(rows(2 * number), clock_ms=2 * number))
            assert all(cut[lane].equals(cuts[0][lane]) for cut in cuts for lane in LANES)
            result.add(cuts[-1])
        else:
            result.add(simulation.cut(rows(0), clock_ms=0))
        result.add(simulation.cut(rows(2 * number + 1), clock_ms=2 * number + 1))
        for cut in (2 * number, 2 * number + 1):
            whole.add(undisturbed.cut(rows(cut), clock_ms=cut))
        one, many = (without_joins(keyed_rows(each.local.app, each.blobs)) for each in (undisturbed, simulation))
        assert len(one) > 2
        assert many == one, f"the state of {shards} shards"
    result.add(simulation.end(clock_ms=1_000))
    whole.add(undisturbed.end(clock_ms=1_000))
    assert killed >= KILLS * (len(SHARDS) - 1) // 2
    for lane in (*LANES, "pairs"):
        assert sorted(result[lane].write_ndjson().splitlines()) == sorted(whole[lane].write_ndjson().splitlines())
        assert result[lane].height > 5
