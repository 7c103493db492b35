"""A changed bit, a truncation or a lost file of a checkpoint or a savepoint is reported, or changes nothing.

Every byte of every file that decides what an app reads, writes or is, is damaged in turn. Spark's own files are in
``tests/savepoints``.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

import pytest

from streamcore.app import App, Source
from streamcore.checkpoint.checkpoint import AppIdentity, CheckpointRoot
from streamcore.checkpoint.offset_log import CutBounds
from streamcore.checkpoint.origin import RestoreOrigin
from streamcore.cuts.cut_clock import CutClock, CutTimer
from streamcore.cuts.cut_id import CutId
from streamcore.engine.planner import Planner
from streamcore.errors import StreamError
from streamcore.offsets import StreamOffsets
from streamcore.savepoint.initial_state import InitialStateIndex, TableAssignment
from streamcore.savepoint.manifest import AppDescription, SavepointManifest, StateFile
from streamcore.schema import StreamSchema
from streamcore.storage import open_object_store
from streamcore.storage.atomic_files import make_folder, write_text

SHOP = AppIdentity("shop", 16)
LAST = 5
_PARTITIONS = [("orders", 0), ("orders", 1)]
_ORDERS = StreamSchema.parse({"name": "x", "event_time": "ts", "keys": [[]], "fields": {"ts": "timestamp not null"}})
_APP = App("shop", (Source(_ORDERS, "orders"),), "control", {}, (lambda _: None,))  # type: ignore[arg-type]


class _Ends:
    """Topics that have 9,000 records in each partition."""

    def earliest(self) -> Mapping[tuple[str, int], int]:
        return dict.fromkeys(_PARTITIONS, 0)

    def latest(self) -> Mapping[tuple[str, int], int]:
        return dict.fromkeys(_PARTITIONS, 9_000)

    def for_timestamp(self, time_ms: int) -> Mapping[tuple[str, int], int]:
        raise NotImplementedError


def start(root: CheckpointRoot, written: CutId | None) -> object:
    """Read what a start of the app depends on: return its epoch, its next cut, its origin and its initial state."""
    epoch = root.initialise(SHOP)
    if written is not None:
        root.check_history(written, epoch)
    last = root.last_committed()
    planner = Planner(_APP, root.offsets, _Ends(), timer=CutTimer(lambda: 99_000))
    batch = 0 if last is None else last + 1
    index = InitialStateIndex.read(open_object_store(root.initial)) if last is None else None
    begin = root.offsets.read(batch) or planner._start(batch)
    return epoch, begin, RestoreOrigin.read(root.restored_from_path), index


def result_or_error(action: Callable[[], object]) -> object:
    """Return the result of the action, or the error that it raises."""
    try:
        return action()
    except StreamError as error:
        return error


def write_spark_logs(root: CheckpointRoot, planned: int, committed: int) -> None:
    """Write the logs that Spark leaves after planning and committing batches."""
    for log, last in (("offsets", planned), ("commits", committed)):
        make_folder(root.spark / log)
        for batch in range(last + 1):
            write_text(root.spark / log / str(batch), "v1\n{}\n{}\n")
    write_text(root.spark / "metadata", "{}")


def make_running(folder: Path) -> tuple[CheckpointRoot, CutId | None]:
    """Make a checkpoint with six committed batches and one that is planned, and the cut of its marker."""
    root = CheckpointRoot(folder)
    root.initialise(SHOP, epoch=3)
    previous, begin = "", StreamOffsets(CutClock(), dict.fromkeys(_PARTITIONS, 0))
    written = None
    for batch in range(LAST + 2):
        end = StreamOffsets(CutClock.at(1_000 * batch), dict.fromkeys(_PARTITIONS, 100 * batch + 17))
        bounds = CutBounds(begin, end, previous)
        root.offsets.write(batch, bounds)
        previous, begin, written = bounds.id(batch).digest, end, bounds.id(batch)
    write_spark_logs(root, LAST + 1, LAST)
    return root, written


def make_restored(folder: Path) -> tuple[CheckpointRoot, CutId | None]:
    """Make a checkpoint that was restored from a savepoint and has no batch yet."""
    root = CheckpointRoot(folder)
    make_folder(root.path)
    files = (StateFile("0/0.parquet", 0, 0, 120, "ab" * 32),)
    index = InitialStateIndex(files, (TableAssignment(0, "totals", 0),), {"watermark_ms": 81_700}, 8)
    index.write(open_object_store(root.initial))
    root.offsets.write_start(StreamOffsets(CutClock.at(81_700), dict.fromkeys(_PARTITIONS, 8_910)))
    RestoreOrigin("friday", "cd" * 32, 2, 41).write(root.restored_from_path)
    root.create(SHOP, 3)
    return root, None


def damaged_contents(content: bytes, draw: random.Random) -> Iterator[bytes | None]:
    """Yield the content with one bit of each byte changed, cut after each byte, and None for a lost file."""
    for place in range(len(content)):
        yield content[:place] + bytes([content[place] ^ 1 << draw.randrange(8)]) + content[place + 1 :]
        yield content[:place]
    yield None


#: Files whose loss or damage cannot change a decision: batches that are neither open nor the last, and the lease.
def decides(name: str) -> bool:
    return not name.startswith("spark/") and name not in {f"offsets/{batch}" for batch in range(LAST)}


@pytest.mark.slow
@pytest.mark.parametrize("make", [make_running, make_restored])
def test_a_damaged_checkpoint_file_is_named_or_changes_no_decision(
    make: Callable[[Path], tuple[CheckpointRoot, CutId | None]], tmp_path: Path
) -> None:
    root, written = make(tmp_path / "checkpoint")
    sound = start(root, written)
    draw, named = random.Random(18), 0
    files = [path for path in sorted(tmp_path.rglob("*")) if path.is_file()]
    for file in files:
        name = str(file.relative_to(tmp_path / "checkpoint"))
        if not decides(name):
            continue
        content = file.read_bytes()
        for damaged in damaged_contents(content, draw):
            if damaged is None:
                file.unlink()
            else:
                file.write_bytes(damaged)
            found = result_or_error(lambda: start(root, written))
            if isinstance(found, StreamError):
                named += 1
                assert file.name in str(found), f"{name}: {damaged!r}: {found}"
                assert any(word in str(found) for word in ("restore", "use the program")), f"{name}: {found}"
            else:
                assert found == sound, f"{name}: {damaged!r}"
        file.write_bytes(content)
    assert start(root, written) == sound
    assert named > 1_000


def test_without_the_digest_a_changed_bit_is_not_detected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root, _ = make_running(tmp_path / "checkpoint")
    file = tmp_path / "checkpoint" / "offsets" / str(LAST + 1)
    monkeypatch.setattr("streamcore.storage.checked_json.compute_digest", lambda _: "")
    file.write_bytes(file.read_bytes().replace(b'"blake2b": "', b'"blake2b": "", "x": "').replace(b"617", b"417"))
    bounds = root.offsets.read(LAST + 1)
    assert bounds is not None
    assert bounds.end.offsets[_PARTITIONS[0]] == 417


def test_a_file_of_another_checkpoint_is_detected_between_two_of_this_one(tmp_path: Path) -> None:
    root, _ = make_running(tmp_path / "checkpoint")
    other = CutBounds(StreamOffsets(CutClock(), {}), StreamOffsets(CutClock.at(9), dict.fromkeys(_PARTITIONS, 1)))
    (tmp_path / "checkpoint" / "offsets" / str(LAST + 1)).unlink()
    root.offsets.write(LAST + 1, other)
    with pytest.raises(StreamError, match=f"batch {LAST + 1} does not continue batch {LAST}: one of the two files is"):
        start(root, None)


def manifest() -> SavepointManifest:
    """Return the manifest of a small savepoint."""
    app = AppDescription("shop", 16, 1, ("orders",), "control", (("orders",),), ())
    position = StreamOffsets(CutClock.at(5), dict.fromkeys(_PARTITIONS, 8_810)).to_json()
    files = (StateFile("0/0.parquet", 0, 0, 120, "ab" * 32),)
    return SavepointManifest("friday", 1, 5, 7, "1.0", True, app, position, (), (), files)


def test_a_changed_savepoint_manifest_is_always_rejected() -> None:
    sound = manifest()
    content, draw = sound.to_json(), random.Random(18)
    for damaged in damaged_contents(content, draw):
        if damaged is None:
            continue
        found = result_or_error(partial(SavepointManifest.from_json, damaged, "s3://backup/shop/friday"))
        if isinstance(found, StreamError):
            assert "s3://backup/shop/friday" in str(found)
            assert "take the savepoint from a copy" in str(found) or "use the program that wrote it" in str(found)
        else:
            assert found == sound, damaged
