"""The lease of a checkpoint in a folder: guarantees that depend on a lock of the kernel and the time of a file."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest

from streamcore.errors import ConfigError, Fenced
from streamcore.leases.file import FileLease
from streamcore.storage.checked_json import encode
from tests.harness.servers.leases import record


def move_owner_to_another_machine(root: Path) -> None:
    """Make the record look as if its owner ran on another machine."""
    entries = record(root) | {"token": "theirs", "host": "far", "machine": "far/boot", "pid": 7}
    (root / "lease.json").write_bytes(encode(entries))


def test_a_released_lease_leaves_no_record(tmp_path: Path) -> None:
    lease = FileLease(tmp_path / "new" / "root")
    lease.acquire()
    lease.release()
    with pytest.raises(Fenced, match="its record is gone"):
        lease.check()
    assert not (tmp_path / "new" / "root" / "lease.json").exists()


@pytest.mark.parametrize("thief", [encode({"token": "theirs", "pid": 7, "host": "far"}), b"{", b"", None])
def test_a_stolen_damaged_or_deleted_record_fences_the_owner_before_the_next_batch(
    thief: bytes | None, tmp_path: Path
) -> None:
    lease = FileLease(tmp_path)
    lease.acquire()
    lease.check()
    if thief is None:
        (tmp_path / "lease.json").unlink()
    else:
        (tmp_path / "lease.json").write_bytes(thief)
    with pytest.raises(Fenced, match="the lease of this process was lost"):
        lease.check()
    lease.release()
    assert (tmp_path / "lease.json").exists() == (thief is not None), "the record of another owner is not changed"


def test_an_owner_on_another_machine_with_heartbeats_keeps_its_lease(tmp_path: Path) -> None:
    with FileLease(tmp_path):
        pass
    (tmp_path / "lease.json").write_bytes(encode({}))
    move_owner_to_another_machine(tmp_path)
    stop = threading.Event()

    def beat() -> None:
        while not stop.wait(0.05):
            os.utime(tmp_path / "lease.json")

    beating = threading.Thread(target=beat)
    beating.start()
    try:
        with pytest.raises(ConfigError, match="in use by process 7 on far"):
            FileLease(tmp_path, beat_ms=50, stale_ms=5_000).acquire()
    finally:
        stop.set()
        beating.join()
    assert record(tmp_path)["token"] == "theirs"


def test_an_owner_on_another_machine_without_heartbeats_is_replaced_and_fenced(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    theirs = FileLease(tmp_path, beat_ms=50, stale_ms=300)
    theirs.acquire()
    theirs_token = theirs.owner.token
    elsewhere_copy = record(tmp_path) | {"machine": "far/boot"}
    os.close(theirs._descriptor or -1)  # the kernel's lock of the other machine is not visible here
    theirs._stop.set()  # and its process is suspended
    (tmp_path / "lease.json").write_bytes(encode(elsewhere_copy))

    with FileLease(tmp_path, beat_ms=50, stale_ms=300) as ours:
        ours.check()
        assert record(tmp_path)["token"] != theirs_token
        waits, takes = caplog.messages
        assert f"{tmp_path}: process {os.getpid()} on" in waits
        assert "taken over from process" in takes
        with pytest.raises(
            Fenced, match=rf"process {os.getpid()} on .* took it over, because this one gave no sign for"
        ):
            theirs.check()


def test_a_lease_that_another_machine_releases_meanwhile_is_acquired(tmp_path: Path) -> None:
    (tmp_path / "lease.json").write_bytes(encode({}))
    move_owner_to_another_machine(tmp_path)
    timer = threading.Timer(0.3, (tmp_path / "lease.json").unlink)
    timer.start()
    with FileLease(tmp_path, beat_ms=50, stale_ms=20_000) as ours:
        ours.check()
    timer.join()


def test_the_wait_for_another_machine_runs_the_callback_and_there_is_no_wait_on_one_machine(tmp_path: Path) -> None:
    used: list[str] = []
    (tmp_path / "lease.json").write_bytes(encode({}))
    move_owner_to_another_machine(tmp_path)
    for where in ("far", "near"):
        lease = FileLease(tmp_path, beat_ms=50, stale_ms=300)
        lease.acquire(lambda where=where: used.append(where))  # type: ignore[misc]
        lease.release()
    assert used == ["far"]


def test_the_owner_renews_its_record_with_heartbeats(tmp_path: Path) -> None:
    with FileLease(tmp_path, beat_ms=20, stale_ms=1_000) as lease:
        first = (tmp_path / "lease.json").stat().st_mtime_ns
        deadline = time.monotonic() + 10
        while (tmp_path / "lease.json").stat().st_mtime_ns == first and time.monotonic() < deadline:
            time.sleep(0.02)
        assert (tmp_path / "lease.json").stat().st_mtime_ns > first
        lease.check()


def test_a_root_that_is_not_a_folder_is_an_error_with_its_path(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"file.*the checkpoint must be a folder"):
        FileLease(tmp_path / "file").acquire()
