"""Each stateful operator with a bound of memory against its twin without one, cut by cut, under generated events.

The twins see the same cuts. Their output is equal in each cut, in its order too, and at the end a savepoint of either
has the same rows, whatever restarts and changes of the number of shards the bounded one went through.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import streamcore as sc
from streamcore.limits import StateSettings
from streamcore.savepoint.state_files import live_rows
from streamcore.schema import EVENT_MS
from streamcore.state.blob_store import MemoryBlobs
from streamcore.state.cold import cold_rows
from streamcore.state.state_log import HEAD, LogHead
from streamcore.topology.simulation import Simulation, SimulationResult
from tests.harness.apps.stateful_programs import FUNCTIONS, PROGRAMS
from tests.harness.apps.versioned_shop import moment, restore, rows, save

ALL: Mapping[str, Callable[[], sc.Stream]] = {**PROGRAMS, **FUNCTIONS}
#: The programs whose keys stay in memory.
IN_MEMORY = (
    *("early windows", "windows with their elements", "count windows", "revised windows", "rolling totals"),
    *("a window join", "a temporal join", "a pattern", "windows with a function"),
)
PAGED = [program for program in ALL if program not in IN_MEMORY]
USERS = 12


@dataclass(frozen=True)
class Step:
    """A cut. ``orders``, ``views``: user, number and delay in milliseconds of each. ``restart``: before the cut."""

    orders: Sequence[tuple[int, int, int]]
    views: Sequence[tuple[int, int, int]]
    passes_ms: int
    control: bool
    restart: bool

    def inputs(self, now_ms: int) -> dict[str, pl.DataFrame]:
        """Return the rows by source; events of a cut are up to ``now_ms``."""
        as_time = pl.col("ts").cast(pl.Datetime("ms", "UTC"))
        ts, user, n = ({"ts": pl.Int64}, {"user": pl.String}, {"n": pl.Int64})
        orders = [(now_ms - delay, f"u{user}", n) for user, n, delay in self.orders]
        views = [(now_ms - delay, f"u{user}", f"p{n}") for user, n, delay in self.views]
        return {
            "orders": pl.DataFrame(orders, {**ts, **user, **n}, orient="row").with_columns(as_time),
            "views": pl.DataFrame(views, {**ts, **user, "page": pl.String}, orient="row").with_columns(as_time),
        }


_EVENTS = st.lists(st.tuples(st.integers(0, USERS - 1), st.integers(0, 12), st.integers(0, 3_500)), max_size=12)
_STEPS = st.lists(
    st.builds(Step, _EVENTS, _EVENTS, st.sampled_from([0, 500, 2_500, 9_000]), st.booleans(), st.booleans()),
    min_size=4,
    max_size=8,
)


def _simulation(program: str, folder: Path, memory_bytes: int | None, shards: int) -> Simulation:
    topology = sc.Topology("shop", ALL[program]().sink("out"))
    state = StateSettings(buckets=3, memory_bytes=memory_bytes, local_dir=str(folder))
    return Simulation(topology, app=topology.app(shards=shards, state=state))


def _restarted(simulation: Simulation) -> Simulation:
    blobs = {place: MemoryBlobs({**one.blobs}) for place, one in simulation.blobs.items()}
    return _continued(simulation, Simulation(simulation.topology, app=simulation.local.app, blobs=blobs))


def _continued(before: Simulation, after: Simulation) -> Simulation:
    after.offsets, after.seen = [*before.offsets], {*before.seen}
    return after


def _cut(simulation: Simulation, step: Step, now_ms: int, number: int) -> SimulationResult:
    read = {node.name for node in simulation.topology.sources}
    inputs = {name: frame for name, frame in step.inputs(now_ms).items() if name in read}
    control = {f"u{number % USERS}": b"silent"} if step.control else {}
    return simulation.cut(inputs, clock_ms=now_ms, control=control)


def _output(result: SimulationResult) -> tuple[list[str], list[str]]:
    return [repr(row) for lane in sorted(result.lanes) for row in result[lane].rows()], [*map(repr, result.dead)]


def _stored(simulation: Simulation, clock_ms: int) -> dict[tuple[int, str], Counter[str]]:
    """Return the rows of a savepoint that have an effect, by shard and table, with ranks for their numbers in order of
    arrival: a restart gives the number of a row that was deleted to another one."""
    found: dict[tuple[int, str], Counter[str]] = {}
    for (stage, shard), blobs in simulation.blobs.items():
        tables = live_rows(simulation.local.app, stage, blobs)
        cells: Any = LogHead.from_json(blobs.blobs[HEAD]).cells
        (group,) = cells["watermark_groups"]
        for name, frame in tables.items():
            numbers = {"__number", "__order"} & {*frame.columns}
            effective = _effective(name, frame, tables, group["watermark_ms"], clock_ms)
            ranked = effective.with_columns(pl.col(number).rank("dense") for number in numbers)
            found[shard, name] = Counter(map(repr, ranked.select(sorted(ranked.columns)).rows()))
    return {place: counted for place, counted in found.items() if counted}


def _effective(
    name: str, frame: pl.DataFrame, tables: Mapping[str, pl.DataFrame], watermark_ms: int, clock_ms: int
) -> pl.DataFrame:
    """Return the rows without what is stored only until its bucket is rewritten: expired ids, values and join rows."""
    match name:
        case "deduplicate-1/seen" if tables["deduplicate-1/limits"].height:
            return frame.filter(pl.col(EVENT_MS) >= int(tables["deduplicate-1/limits"]["value"][0]))
        case "fading/values" if frame.height:
            return frame.filter(pl.col("at.total") + 4_000 > watermark_ms)
        case "fading/entries" if frame.height:
            by_clock = (pl.col("__state") == "seen") & (pl.col("__at") + 900 > clock_ms)
            return frame.filter(by_clock | ((pl.col("__state") == "recent") & (pl.col("__at") + 6_000 > watermark_ms)))
        case "join-1/left" if len(tables) == 2:  # an interval join, of -2,000 to 1,000 ms
            return frame.filter(pl.col(EVENT_MS) + 1_000 >= watermark_ms)
        case "join-1/right" if len(tables) == 2:
            return frame.filter(pl.col(EVENT_MS) + 2_000 >= watermark_ms)
    return frame


@pytest.mark.slow
@pytest.mark.parametrize("program", PAGED)
@given(steps=_STEPS, memory_bytes=st.sampled_from([1, 900, 3_000]), shards=st.sampled_from([1, 3]))
@settings(max_examples=min(12, settings().max_examples), suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_bounded_operator_equals_its_twin_in_memory(
    program: str, steps: list[Step], memory_bytes: int, shards: int, tmp_path: Path
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cold_rows, "BLOCK_BYTES", 400)
        patch.setattr(cold_rows, "_MIN_MERGED", 10)
        patch.setattr(cold_rows, "_MIN_RECALLED", 2)
        twin, bounded = (_simulation(program, tmp_path, one, shards) for one in (None, memory_bytes))
        now_ms = 10_000
        for number, step in enumerate(steps):
            now_ms += step.passes_ms
            if step.restart:
                bounded = _restarted(bounded)
            assert _output(_cut(bounded, step, now_ms, number)) == _output(_cut(twin, step, now_ms, number))
        assert _stored(bounded, now_ms) == _stored(twin, now_ms)
        assert _output(bounded.end(clock_ms=now_ms + 5_000)) == _output(twin.end(clock_ms=now_ms + 5_000))


@pytest.mark.slow
@pytest.mark.parametrize("program", IN_MEMORY)
def test_an_operator_that_stays_in_memory_ignores_the_bound(program: str, tmp_path: Path) -> None:
    twin, bounded = (_simulation(program, tmp_path, one, shards=1) for one in (None, 1))
    moved, found = Counter[str](), 0
    for number in range(4):
        now_ms = 1_000 + 400 * number
        outputs = []
        for simulation in (twin, bounded):
            read = {node.name for node in simulation.topology.sources}
            result = simulation.cut({n: f for n, f in rows(number).items() if n in read}, clock_ms=now_ms)
            moved.update({name: n for name, n in result.counters.items() if name.startswith("cold_moves.")})
            outputs.append(_output(result))
        assert outputs[0] == outputs[1]
        found += len(outputs[0][0])
    assert _output(bounded.end(clock_ms=9_000)) == _output(twin.end(clock_ms=9_000))
    assert found > 0
    assert not moved


@pytest.mark.slow
@pytest.mark.parametrize("program", PAGED)
def test_savepoints_of_2_3_and_1_shards_have_the_rows_of_the_twin(program: str, tmp_path: Path) -> None:
    """Each new number of shards starts from a savepoint, the bounded app with all its keys cold."""
    twin, bounded = (_simulation(program, tmp_path, one, shards=2) for one in (None, 1_200))
    cut = 0
    for turn, shards in enumerate((2, 3, 1)):
        if turn:
            twin, bounded = (
                _divided(one, shards, tmp_path / f"{name}-{shards}")
                for name, one in (("twin", twin), ("bounded", bounded))
            )
            heads = [LogHead.from_json(blobs.blobs[HEAD]) for blobs in bounded.blobs.values()]
            assert any(head.cold for head in heads)
        for cut in range(2 * turn, 2 * turn + 2):
            read = {node.name for node in twin.topology.sources}
            inputs = {name: frame for name, frame in rows(cut).items() if name in read}
            control = {f"u{cut}": b"silent"} if cut % 2 else {}
            one, other = (s.cut(inputs, clock_ms=1_000 + 400 * cut, control=control) for s in (twin, bounded))
            assert sorted(_output(one)[0]) == sorted(_output(other)[0])
            assert not one.dead
            assert not other.dead
        assert _stored(twin, 1_000 + 400 * cut) == _stored(bounded, 1_000 + 400 * cut)
    one, other = (simulation.end(clock_ms=9_000) for simulation in (twin, bounded))
    assert sorted(_output(one)[0]) == sorted(_output(other)[0])


def _divided(before: Simulation, shards: int, folder: Path) -> Simulation:
    app = before.topology.app(shards=shards, state=before.local.app.state)
    saved = save(before.local.app, before.blobs, folder / "saved", moment())
    return _continued(before, Simulation(before.topology, app=app, blobs=restore(saved, app, folder / "restored")))
