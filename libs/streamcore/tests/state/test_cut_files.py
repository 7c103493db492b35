"""A shard's blobs in files: a batch that is repeated after a crash at any write begins with the same state."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamcore.errors import CorruptState
from streamcore.state.cut_files import CutFiles, sweep_stages
from streamcore.state.state_log import HEAD
from streamcore.storage import LocalObjectStore

RETAINED = 3
NAMES = ("log/1", "log/2", "run/1", "bucket/0", "bucket/1")


@dataclass
class Files:
    """A folder in memory that ends the process, as it were, before one of its changes."""

    contents: dict[str, bytes] = field(default_factory=dict)
    changes_left: int = 1_000_000
    url: str = "stages/0/1"
    bytes_read: int = 0

    def under(self, name: str) -> Files:
        assert name == "0/1"
        return self

    def write(self, name: str, content: bytes) -> None:
        self._change()
        self.contents[name] = content

    def write_parts(self, name: str, parts: Sequence[bytes]) -> None:
        self.write(name, b"".join(parts))

    def read(self, name: str) -> bytes | None:
        return self.contents.get(name)

    def read_range(self, name: str, start: int, size: int) -> bytes | None:
        self.bytes_read += size
        content = self.contents.get(name)
        return None if content is None else content[start : start + size]

    def discard(self, name: str) -> None:
        self._change()
        self.contents.pop(name, None)

    def _change(self) -> None:
        self.changes_left -= 1
        if self.changes_left < 0:
            raise KeyboardInterrupt

    def folders(self) -> list[str]:
        raise NotImplementedError

    def files(self) -> list[str]:
        return sorted(f"0/1/{name}" for name in self.contents)

    def remove_unfinished(self) -> None:
        pass

    def remove(self) -> None:
        raise NotImplementedError


#: What a batch does: the blobs that it writes, or removes (None).
Changes = dict[str, bytes | None]
changes = st.dictionaries(st.sampled_from(NAMES), st.none() | st.binary(max_size=6), max_size=4)


def apply(files: CutFiles, batch: int, change: Changes) -> None:
    files.put(HEAD, str(batch).encode())
    for name, blob in change.items():
        if blob is None:
            files.remove(name)
        else:
            files.put(name, blob)


def contents(files: CutFiles) -> dict[str, bytes]:
    return {name: blob for name in (*NAMES, HEAD) if (blob := files.get(name)) is not None}


@given(st.lists(st.tuples(changes, st.none() | st.integers(0, 5)), min_size=1, max_size=12))
def test_after_crashes_the_blobs_are_those_of_a_dictionary_and_old_files_go(
    batches: list[tuple[Changes, int | None]],
) -> None:
    folder, wanted, history = Files(), dict[str, bytes](), list[dict[str, bytes]]()
    for batch, (change, crash_before) in enumerate(batches):
        if crash_before is not None:
            folder.changes_left = crash_before
            files = CutFiles(folder, batch - 1)
            apply(files, batch, change)
            with contextlib.suppress(KeyboardInterrupt):
                files.commit(RETAINED)
            folder.changes_left = 1_000_000
        files = CutFiles(folder, batch - 1)
        assert contents(files) == wanted
        apply(files, batch, change)
        wanted |= {name: blob for name, blob in change.items() if blob is not None} | {HEAD: str(batch).encode()}
        for name in [name for name, blob in change.items() if blob is None]:
            wanted.pop(name, None)
        assert contents(files) == wanted
        files.commit(RETAINED)
        history.append(dict(wanted))
    last = len(batches) - 1
    for batch in range(max(0, last - RETAINED + 1), last + 1):
        assert contents(CutFiles(folder, batch)) == history[batch]
    sweep_stages(folder, last, RETAINED)
    for batch in range(max(0, last - RETAINED + 1), last + 1):
        assert contents(CutFiles(folder, batch)) == history[batch]
    indexes = {name for name in folder.contents if name.endswith(".index")}
    assert indexes == {f"{batch}.index" for batch in range(max(0, last - RETAINED + 1), last + 1)}
    # Each blob is in one file, so no more files stay than the retained batches have blobs and have written.
    assert len(folder.contents) - len(indexes) <= len(NAMES) + RETAINED


def new_files(folder: Path) -> LocalObjectStore:
    store = LocalObjectStore(folder)
    for batch, change in enumerate([{"log/1": b"first"}, {"log/2": b"second"}]):
        files = CutFiles(store, batch - 1)
        apply(files, batch, dict(change))
        files.commit(RETAINED)
    return store


def test_a_lost_index_is_no_empty_state(tmp_path: Path) -> None:
    store = new_files(tmp_path)
    (tmp_path / "1.index").unlink()
    with pytest.raises(CorruptState, match=r"1\.index: is missing; restore the app from a savepoint"):
        CutFiles(store, 1)


def test_lost_and_changed_blobs_are_named_with_their_file(tmp_path: Path) -> None:
    store = new_files(tmp_path)
    (file,) = tmp_path.glob("0-*")
    file.write_bytes(b"firsT")
    with pytest.raises(CorruptState, match=f"{file}: damaged: log/1 has other bytes"):
        CutFiles(store, 1).get("log/1")
    file.write_bytes(b"firs")
    with pytest.raises(CorruptState, match=f"{file}: damaged: log/1 has other bytes"):
        CutFiles(store, 1).get("log/1")
    file.unlink()
    with pytest.raises(CorruptState, match=f"{file}: is missing; restore the app from a savepoint"):
        CutFiles(store, 1).get("log/1")


def test_a_changed_index_is_rejected(tmp_path: Path) -> None:
    store = new_files(tmp_path)
    index = tmp_path / "1.index"
    index.write_bytes(index.read_bytes().replace(b",0,5,", b",1,4,"))
    with pytest.raises(CorruptState, match="does not have the digest"):
        CutFiles(store, 1)


def test_an_index_of_another_batch_or_shard_is_rejected(tmp_path: Path) -> None:
    store = new_files(tmp_path / "0" / "1")
    content = store.read("0.index")
    assert content is not None
    store.write("1.index", content)
    with pytest.raises(CorruptState, match=r"1\.index: is of batch 0 of shard 0/1"):
        CutFiles(store, 1)
    other = LocalObjectStore(tmp_path / "0" / "2")
    other.write("0.index", content)
    with pytest.raises(CorruptState, match=r"0\.index: is of batch 0 of shard 0/1"):
        CutFiles(other, 0)


@pytest.mark.parametrize("changes_of_late", range(4))
@pytest.mark.parametrize("batches_later", range(RETAINED))
def test_an_attempt_with_other_bytes_may_write_when_its_batch_is_committed(
    changes_of_late: int, batches_later: int
) -> None:
    folder = Files()
    first = CutFiles(folder, -1)
    apply(first, 0, {"log/1": b"first", "run/1": b"run"})
    first.commit(RETAINED)
    late, winner = CutFiles(folder, 0), CutFiles(folder, 0)
    apply(winner, 1, {"log/1": None, "log/2": b"bytes"})
    apply(late, 1, {"log/1": None, "log/2": b"of a process with less memory"})
    winner.commit(RETAINED)
    for batch in range(2, 2 + batches_later):
        files = CutFiles(folder, batch - 1)
        apply(files, batch, {"bucket/0": b"%d" % batch})
        files.commit(RETAINED)
    folder.changes_left = changes_of_late
    with contextlib.suppress(KeyboardInterrupt):
        late.commit(RETAINED)
    folder.changes_left = 1_000_000
    last = 1 + batches_later
    sweep_stages(folder, last, RETAINED)
    for batch in range(1, last + 1):
        found = contents(CutFiles(folder, batch))
        assert found.keys() == {"log/2", "run/1", HEAD} | ({"bucket/0"} if batch > 1 else set())
        assert found["log/2"] in (b"bytes", b"of a process with less memory")
    again = CutFiles(folder, last)
    apply(again, last + 1, {})
    again.commit(RETAINED)
    assert contents(CutFiles(folder, last + 1)).keys() == contents(CutFiles(folder, last)).keys()


@pytest.mark.parametrize("crash_before", range(5))
def test_with_a_single_retained_batch_the_one_before_stays_until_the_next_is_written(crash_before: int) -> None:
    folder = Files()
    for batch in range(4):
        files = CutFiles(folder, batch - 1)
        apply(files, batch, {"log/1": b"%d" % batch})
        if batch == 3:
            folder.changes_left = crash_before
            with contextlib.suppress(KeyboardInterrupt):
                files.commit(1)
            folder.changes_left = 1_000_000
            assert contents(CutFiles(folder, 2)) == {"log/1": b"2", HEAD: b"2"}
        else:
            files.commit(1)
    assert "-1.index" not in folder.contents


def test_a_blob_is_read_alone_and_none_is_held_after_the_commit() -> None:
    folder = Files()
    files = CutFiles(folder, -1)
    apply(files, 0, {f"bucket/{n}": bytes(1_000) for n in range(10)})
    files.commit(RETAINED)
    assert folder.bytes_read == 0
    assert files.get("bucket/3") == bytes(1_000)
    assert folder.bytes_read == 1_000


def test_the_sweep_removes_what_no_index_lists_and_what_a_write_left(tmp_path: Path) -> None:
    store = LocalObjectStore(tmp_path / "0" / "1")
    for batch in range(6):
        files = CutFiles(store, batch - 1)
        apply(files, batch, {"log/1": b"%d" % batch, **({} if batch else {"run/1": b"run"})})
        files.commit(RETAINED)
    whole = store.files()
    left = ("1.index", "2-of-dead", "4-of-dead")
    late = ("5-of-late", "6-of-late")
    for name in (*left, *late):
        store.write(name, b"content")
    partial = store.path / ".6.index.7c9e6679.tmp"
    partial.write_bytes(b"part")
    sweep_stages(LocalObjectStore(tmp_path), 5, RETAINED)
    assert store.files() == sorted([*whole, *late])
    assert not partial.exists()
    assert contents(CutFiles(store, 5)) == {"log/1": b"5", "run/1": b"run", HEAD: b"5"}


def test_the_sweep_names_a_lost_index_and_spares_what_a_damaged_old_one_may_list(tmp_path: Path) -> None:
    store = new_files(tmp_path / "0" / "1")
    store.write("0-of-dead", b"content")
    store.write("0.index", b"damaged")
    sweep_stages(LocalObjectStore(tmp_path), 1, RETAINED)
    assert store.read("0-of-dead") == b"content"
    store.discard("1.index")
    with pytest.raises(CorruptState, match=r"0/1/1\.index: is missing; restore the app from a savepoint"):
        sweep_stages(LocalObjectStore(tmp_path), 1, RETAINED)
