"""Failures of cold state: a process that ends at any write, a full disk, an attempt that another process repeats.

Each protection is also switched off, and then the same course gives another output or fails.
"""

from __future__ import annotations

import errno
import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import polars as pl
import pyarrow as pa
import pytest

import streamcore as sc
from streamcore.engine.shard import Shard
from streamcore.errors import CorruptState, Retryable
from streamcore.limits import StateSettings
from streamcore.state.blob_store import MemoryBlobs
from streamcore.state.cold import local_files
from streamcore.state.cold.block import Block
from streamcore.state.cold.blocks import ColdBlobs
from streamcore.state.cold.local_files import LocalFiles
from streamcore.topology.simulation import Simulation
from tests.harness.apps.stateful_programs import PROGRAMS
from tests.harness.apps.versioned_shop import rows

CUTS = 5
#: What holds about half of the keys of the function of these tests.
HALF = 4_500


class KilledError(Exception):
    """The process ends."""


def _simulation(folder: Path, memory_bytes: int | None) -> Simulation:
    topology = sc.Topology("shop", PROGRAMS["a keyed function"]().sink("out"))
    state = StateSettings(buckets=3, memory_bytes=memory_bytes, local_dir=str(folder))
    return Simulation(topology, app=topology.app(shards=1, state=state))


def _cut(simulation: Simulation, cut: int) -> list[object]:
    result = simulation.cut({"orders": rows(cut)["orders"]}, clock_ms=1_000 + 400 * cut)
    return [*(result["out"].rows() if "out" in result.lanes else []), *result.dead]


def _blobs(simulation: Simulation) -> dict[str, bytes]:
    return {**simulation.blobs[0, 0].blobs} if simulation.blobs else {}


def _continue(simulation: Simulation, blobs: dict[str, bytes], cuts: int) -> None:
    """Let the process go on with this state, after so many cuts."""
    simulation.blobs[0, 0] = MemoryBlobs({**blobs})
    simulation.offsets, simulation.seen = [30 * cuts], {0} if cuts else set()


@functools.cache
def _expected() -> list[list[object]]:
    simulation = _simulation(Path(), None)
    return [_cut(simulation, cut) for cut in range(CUTS)]


class _Writes:
    """Counts the writes of blobs and of local files. The one after ``left`` others ends the process; a local file has
    half of its content then."""

    def __init__(self, left: int) -> None:
        self.left = left

    def count(self) -> None:
        self.left -= 1
        if self.left == -1:
            raise KilledError

    @contextmanager
    def counted(self) -> Iterator[None]:
        put, remove, write_bytes = MemoryBlobs.put, MemoryBlobs.remove, Path.write_bytes

        def counted_put(blobs: MemoryBlobs, name: str, blob: bytes) -> None:
            self.count()
            put(blobs, name, blob)

        def counted_remove(blobs: MemoryBlobs, name: str) -> None:
            self.count()
            remove(blobs, name)

        def counted_write(path: Path, content: bytes) -> int:
            if self.left == 0:
                write_bytes(path, content[: len(content) // 2])
            self.count()
            return write_bytes(path, content)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(MemoryBlobs, "put", counted_put)
            patch.setattr(MemoryBlobs, "remove", counted_remove)
            patch.setattr(Path, "write_bytes", counted_write)
            yield


def _run_killed_at_each_write(folder: Path, memory_bytes: int) -> tuple[list[list[object]], int]:
    """Run each cut, killed at its first write, then at its second, and so on. Return the output and the kills."""
    simulation, outputs, kills = _simulation(folder, memory_bytes), list[list[object]](), 0
    for cut in range(CUTS):
        stored = _blobs(simulation)
        for writes in range(200):
            _continue(simulation, stored, cut)
            try:
                with _Writes(writes).counted():
                    outputs.append(_cut(simulation, cut))
                break
            except KilledError:
                kills += 1
    return outputs, kills


@pytest.mark.slow
@pytest.mark.parametrize("memory_bytes", [1, HALF])
def test_a_cut_that_ends_at_any_write_is_repeated(memory_bytes: int, tmp_path: Path) -> None:
    outputs, kills = _run_killed_at_each_write(tmp_path, memory_bytes)
    assert outputs == _expected()
    assert kills > 4 * CUTS


def test_without_a_new_kernel_a_repeated_cut_counts_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The protection off: a shard takes the tables of a cut that ended for those of the stored head."""
    monkeypatch.setattr(Shard, "clean", property(lambda _: True, lambda _, __: None), raising=False)
    simulation = _simulation(tmp_path, HALF)
    _cut(simulation, 0)
    stored = _blobs(simulation)
    with _Writes(0).counted(), pytest.raises(KilledError):
        _cut(simulation, 1)
    _continue(simulation, stored, 1)
    assert _cut(simulation, 1) != _expected()[1]


# --- two processes with one shard -----------------------------------------------------------------------------------


def _taken_over(folder: Path, attempt: Callable[[Simulation], None], memory_bytes: int = HALF) -> list[object]:
    """Run two cuts in one process, a third in it and, because this attempt is lost, in another, and then one in the
    first process again. Return the output of the last."""
    first, second = _simulation(folder, memory_bytes), _simulation(folder / "second", memory_bytes)
    for cut in range(2):
        _cut(first, cut)
    stored = _blobs(first)
    attempt(first)
    _continue(second, stored, 2)
    assert _cut(second, 2) == _expected()[2]
    _continue(first, _blobs(second), 3)
    return _cut(first, 3)


def _lost(simulation: Simulation) -> None:
    """Run a cut whose state and output are lost: another cut, as after a restart that planned it with other events."""
    simulation.cut({"orders": rows(4)["orders"].head(20)}, clock_ms=1_900)


@pytest.mark.slow
def test_a_process_does_not_read_what_a_lost_attempt_left(tmp_path: Path) -> None:
    assert _taken_over(tmp_path, _lost) == _expected()[3]


def test_files_that_are_named_by_their_place_are_those_of_the_lost_attempt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The protection off: a file has the number of its run and block, and not the digest of its content."""
    put, get, places = LocalFiles.put, LocalFiles.get, dict[str, str]()
    write, read = ColdBlobs.write, ColdBlobs.read

    def placed_write(blobs: ColdBlobs, operator: str, number: int, index: int, content: bytes) -> str:
        places[""] = f"{number}-{index}"
        return write(blobs, operator, number, index, content)

    def placed_read(blobs: ColdBlobs, operator: str, run: object, index: int) -> object:
        places[""] = f"{run.number}-{index}"  # type: ignore[attr-defined]  # a run
        return read(blobs, operator, run, index)  # type: ignore[arg-type]

    monkeypatch.setattr(ColdBlobs, "write", placed_write)
    monkeypatch.setattr(ColdBlobs, "read", placed_read)
    monkeypatch.setattr(LocalFiles, "put", lambda files, _, content: put(files, places[""], content))
    monkeypatch.setattr(LocalFiles, "get", lambda files, _: get(files, places[""]))
    monkeypatch.setattr(LocalFiles, "keep", lambda *_: None)
    assert _taken_over(tmp_path, _lost) != _expected()[3]


# --- a full disk ----------------------------------------------------------------------------------------------------


@contextmanager
def _full_disk() -> Iterator[None]:
    """Local files get half of their content, and then there is no space."""
    write_bytes = Path.write_bytes

    def write_half(path: Path, content: bytes) -> int:
        write_bytes(path, content[: len(content) // 2])
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Path, "write_bytes", write_half)
        yield


def _on_a_full_disk(simulation: Simulation) -> None:
    with _full_disk(), pytest.raises(Retryable, match=r"the disk of .* is full"):
        _cut(simulation, 2)


def test_a_process_does_not_read_what_a_full_disk_left(tmp_path: Path) -> None:
    assert _taken_over(tmp_path, _on_a_full_disk, memory_bytes=1) == _expected()[3]
    assert not [*tmp_path.rglob("*.part")]


@pytest.mark.slow
def test_a_disk_that_is_full_at_each_write_is_an_outage_that_ends(tmp_path: Path) -> None:
    simulation, outages = _simulation(tmp_path, HALF), 0
    for cut in range(CUTS):
        stored = _blobs(simulation)
        try:
            with _full_disk():
                output = _cut(simulation, cut)
        except Retryable:
            outages += 1
            _continue(simulation, stored, cut)
            output = _cut(simulation, cut)
        assert output == _expected()[cut]
    assert outages >= 2


def test_files_that_are_written_in_place_are_read_although_they_end_early(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The protection off: no partial file that gets its name when it is whole."""

    def put_in_place(files: LocalFiles, digest: str, content: bytes) -> None:
        folder = local_files.process_folder(files._parent) / files._name
        folder.mkdir(exist_ok=True)
        try:
            (folder / digest).write_bytes(content)
        except OSError as error:
            raise Retryable(f"the disk of {folder} is full") from error

    monkeypatch.setattr(LocalFiles, "put", put_in_place)
    with pytest.raises(pa.ArrowIndexError, match="exceed buffer length"):
        _taken_over(tmp_path, _on_a_full_disk, memory_bytes=1)


# --- damaged blobs --------------------------------------------------------------------------------------------------


def _damaged_total(folder: Path) -> list[object]:
    """Return the output of a cut over a cold block in which a stored total was changed."""
    simulation = _simulation(folder, 1)
    _cut(simulation, 0)
    blobs = _blobs(simulation)
    (name,) = [name for name in blobs if name.startswith("cold/") and name.endswith("/0")]
    at = _place_of_total(blobs[name])
    blobs[name] = blobs[name][:at] + bytes([blobs[name][at] ^ 1]) + blobs[name][at + 1 :]
    other = _simulation(folder / "other", 1)
    _continue(other, blobs, 1)
    return _cut(other, 1)


def _place_of_total(block: bytes) -> int:
    """Return where a block has the lowest byte of a total."""
    frame = Block(pa.py_buffer(block)).rows(0, 1 << 64)["values"]
    totals = frame["state.total"].cast(pl.Int8).to_numpy().tobytes()  # the smallest type that holds them
    assert block.count(totals) == 1
    return block.index(totals)


def test_a_changed_byte_is_corrupt_state(tmp_path: Path) -> None:
    with pytest.raises(CorruptState, match="is not what was written"):
        _damaged_total(tmp_path)


def test_without_digests_a_changed_byte_is_another_total(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The protection off: the content of a blob is not compared with its digest."""

    def unchecked(blobs: ColdBlobs, name: str, _: str) -> bytes:
        content = blobs._blobs.get(name)
        assert content is not None
        return content

    monkeypatch.setattr(ColdBlobs, "_get", unchecked)
    assert _damaged_total(tmp_path) != _expected()[1]
