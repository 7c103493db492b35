"""A shard's blobs in files: a batch that is repeated after a crash at any write begins with the same state."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamcore.errors import CorruptState
from streamcore.state.cut_files import CutFiles
from streamcore.state.state_log import HEAD
from streamcore.storage import LocalObjectStore

RETAINED = 3
NAMES = ("log/1", "log/2", "run/1", "bucket/0", "bucket/1")


@dataclass
class Files:
    """A folder in memory that ends the process, as it were, before one of its changes."""

    contents: dict[str, bytes] = field(default_factory=dict)
    changes_left: int = 1_000_000
    url: str = "files"

    def under(self, name: str) -> Files:
        raise NotImplementedError

    def write(self, name: str, content: bytes) -> None:
        self._change()
        self.contents[name] = content

    def read(self, name: str) -> bytes | None:
        return self.contents.get(name)

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
        return sorted(self.contents)

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
    indexes = {name for name in folder.files() if name.endswith(".index")}
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
    (tmp_path / "0").write_bytes(b"firsT")
    with pytest.raises(CorruptState, match=f"{tmp_path}/0: damaged: log/1 has other bytes"):
        CutFiles(store, 1).get("log/1")
    (tmp_path / "0").unlink()
    with pytest.raises(CorruptState, match=f"{tmp_path}/0: is missing"):
        CutFiles(store, 1).get("log/1")


def test_a_changed_index_is_rejected(tmp_path: Path) -> None:
    store = new_files(tmp_path)
    index = tmp_path / "1.index"
    index.write_bytes(index.read_bytes().replace(b'"log/1": "0 0 5', b'"log/1": "0 1 4'))
    with pytest.raises(CorruptState, match="does not have the digest"):
        CutFiles(store, 1)
