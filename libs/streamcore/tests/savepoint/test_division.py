"""State divided among another number of shards: each operator gives the output of an undivided run, and each row of
each keyed table is in exactly one shard."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

import streamcore as sc
from streamcore.errors import ConfigError, CorruptState
from streamcore.key_space import KeySpace
from streamcore.savepoint import Savepoint
from streamcore.savepoint.division import divide_state, overlapping_shards
from streamcore.savepoint.manifest import SavepointManifest
from streamcore.savepoint.state_files import live_rows, save_shard
from streamcore.state.key_value_table import KeyValueTable
from streamcore.state.scope import ScopeKind
from streamcore.storage import LocalObjectStore, checked_json
from streamcore.topology.simulation import Simulation, SimulationResult
from tests.harness.apps.running_sums import RunningSums
from tests.harness.apps.stateful_programs import PROGRAMS, by_user, orders
from tests.harness.apps.versioned_shop import Version, moment, restore, rows, save

CUTS = 6
#: Few, so that a shard for each costs little.
KEY_GROUPS = 20
#: Numbers of shards, one after the other, each for two cuts.
CHANGES = ((1, 3, 16), (4, KEY_GROUPS, 2))


def _run(topology: sc.Topology, shards: Iterable[int], key_groups: int = KEY_GROUPS) -> SimulationResult:
    """Run the cuts, each pair of cuts with the next number of shards, and end the streams."""
    result, read = SimulationResult(), {node.name for node in topology.sources}
    simulation = Simulation(topology, app=topology.app(key_groups=key_groups))
    for turn, count in enumerate(shards):
        app, before = topology.app(shards=count, key_groups=key_groups), simulation
        simulation = Simulation(topology, app=app, blobs=divide_state(before.blobs, before.local.app, app))
        simulation.offsets, simulation.seen = before.offsets, before.seen
        for cut in (2 * turn, 2 * turn + 1):
            inputs = {name: frame for name, frame in rows(cut).items() if name in read}
            control = {f"u{cut}": b"silent"}
            result.add(simulation.cut(inputs, clock_ms=1_000 + 400 * cut, control=control))
    result.add(simulation.end(clock_ms=9_000))
    return result


def _lines(result: SimulationResult) -> list[str]:
    return sorted(result["out"].write_ndjson().splitlines())


@pytest.mark.slow
@pytest.mark.parametrize("program", PROGRAMS)
def test_the_output_does_not_depend_on_changes_of_the_number_of_shards(program: str) -> None:
    topology = sc.Topology("shop", PROGRAMS[program]().sink("out"))
    whole = _run(topology, (1, 1, 1))
    assert len(_lines(whole)) > 10
    for shards in CHANGES:
        changed = _run(topology, shards)
        if program == "duplicates":  # the limit of ids is one of each shard
            assert set(_lines(changed)) <= set(_lines(whole)) | set(_lines(_run(topology, [KEY_GROUPS] * 3)))
        else:
            assert _lines(changed) == _lines(whole)


@pytest.mark.slow
def test_a_shard_for_each_key_group_of_an_app_that_sets_none_gives_the_same_output() -> None:
    topology = sc.Topology("shop", PROGRAMS["an interval join"]().sink("out"))
    assert _lines(_run(topology, (4, 128, 2), 128)) == _lines(_run(topology, (1, 1, 1), 128))


@pytest.mark.slow
@pytest.mark.parametrize("program", PROGRAMS)
def test_each_keyed_row_is_in_one_shard_and_each_replicated_row_in_all(program: str) -> None:
    topology = sc.Topology("shop", PROGRAMS[program]().sink("out"))
    simulation, read = Simulation(topology, shards=4), {node.name for node in topology.sources}
    for cut in range(3):
        simulation.cut({n: f for n, f in rows(cut).items() if n in read}, control={"u1": b"silent"}, clock_ms=cut)
    stored, app = simulation.local.app, topology.app(shards=7)
    divided, again = (divide_state(simulation.blobs, stored, app) for _ in range(2))
    assert {place: one.blobs for place, one in divided.items()} == {place: one.blobs for place, one in again.items()}
    kernel, before, after = app.stages[0](), _rows(stored, simulation.blobs), _rows(app, divided)
    kinds = Counter(kernel.scope(name).kind for name in before)
    assert kinds[ScopeKind.KEYED] > 0
    assert sum(found.total() for name, found in before.items() if kernel.scope(name).kind is ScopeKind.KEYED) > 5
    for name, found in before.items():
        if kernel.scope(name).kind is ScopeKind.KEYED:
            assert after.get(name, Counter()) == found, name
        elif kernel.scope(name).kind is ScopeKind.REPLICATED:
            assert {row: count / 7 for row, count in after[name].items()} == {r: c / 4 for r, c in found.items()}


def _keyed_rows(app: sc.App, blobs: Mapping[tuple[int, int], Any]) -> dict[str, Counter[str]]:
    """Return the rows of all tables but those of the operators' progress, which are merged."""
    return {name: found for name, found in _rows(app, blobs).items() if found and not name.endswith("/progress")}


def _rows(app: sc.App, blobs: Mapping[tuple[int, int], Any]) -> dict[str, Counter[str]]:
    found: dict[str, Counter[str]] = {}
    for (stage, _), one in blobs.items():
        for name, frame in live_rows(app, stage, one).items():
            found.setdefault(name, Counter()).update(map(repr, frame.select(sorted(frame.columns)).rows()))
    return found


def test_a_savepoint_finds_a_table_that_declares_a_wrong_scope(tmp_path: Path) -> None:
    """The table's hash is that of a text which is not the key of the rows."""

    class Upper(RunningSums):
        def tables(self) -> Mapping[str, KeyValueTable]:
            wrong = KeyValueTable()
            for key, value in self.sums:
                wrong.put(key.upper(), value)
            return {"sums": self.sums} if not self.rows and len([*self.sums]) < 2 else {"sums": wrong}

    from streamcore.topology.stream import operate

    summed = operate([by_user()], "sums", partial(Upper, "user", "n"), name="sums")
    simulation = Simulation(sc.Topology("t", summed.sink("out")), shards=3)
    simulation.cut({"orders": rows(0)["orders"]})
    app, folder = simulation.local.app, LocalObjectStore(tmp_path)
    with pytest.raises(CorruptState, match=r"rows of the state sums/sums in shard \d belong to other shards"):
        _ = [save_shard(folder, app, *place, blobs) for place, blobs in simulation.blobs.items()]


@given(st.integers(1, 64), st.integers(1, 64), st.integers(64, 300))
def test_the_overlapping_shards_are_those_that_share_key_groups(stored: int, wanted: int, key_groups: int) -> None:
    old, new = KeySpace(stored, key_groups), KeySpace(wanted, key_groups)
    every = [group for shard in range(stored) for group in old.get_groups(shard)]
    assert every == [*range(key_groups)], "ranges without gaps"
    for shard in range(wanted):
        sharing = [one for one in range(stored) if {*old.get_groups(one)} & {*new.get_groups(shard)}]
        assert overlapping_shards(old, range(stored), new, shard) == sharing
        assert overlapping_shards(None, range(stored), new, shard) == [*range(stored)]


def test_an_app_has_at_most_as_many_shards_as_key_groups() -> None:
    topology = sc.Topology("t", orders().sink("out"))
    assert topology.app(shards=128).shards == 128
    with pytest.raises(ConfigError, match="between 1 and 128 shards, not 129: a shard owns at least one key group"):
        topology.app(shards=129)
    assert topology.app(shards=129, key_groups=256).key_space == KeySpace(129, 256)
    with pytest.raises(ConfigError, match="between 1 and 32768 key groups"):
        topology.app(key_groups=40_000)


@pytest.mark.slow
def test_a_savepoint_without_key_groups_is_read_whatever_shard_had_its_rows(tmp_path: Path) -> None:
    """Format 3, whose shards owned no ranges: here each shard has the rows of another."""
    topology = Version().topology("shop")
    before = Simulation(topology, shards=3)
    for cut in range(3):
        before.cut(rows(cut), clock_ms=cut)
    swapped = {(stage, (shard + 1) % 3): blobs for (stage, shard), blobs in before.blobs.items()}
    with pytest.raises(CorruptState, match="belong to other shards"):
        save(before.local.app, swapped, tmp_path / "swapped", moment())
    savepoint = save(before.local.app, before.blobs, tmp_path / "saved", moment())
    old = _as_format_3(savepoint)
    for shards in (3, 5):
        app = topology.app(shards=shards)
        restored = restore(old, app, tmp_path / f"restored-{shards}")
        assert _keyed_rows(app, restored) == _keyed_rows(before.local.app, before.blobs)


def _as_format_3(savepoint: Savepoint) -> Savepoint:
    """Rewrite the manifest, and give each file to another shard."""
    document = orjson.loads(savepoint.manifest.to_json())
    document["format"] = 3
    del document["app"]["key_groups"], document["unequal_copies"], document["blake2b"]
    for file in document["files"]:
        file["shard"] = (file["shard"] + 1) % 3
    content = checked_json.encode(document)
    return Savepoint(savepoint.folder, SavepointManifest.from_json(content, "the old one"))
