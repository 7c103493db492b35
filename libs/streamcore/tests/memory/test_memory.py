"""Memory and its limit as the system shows them, and the warnings of a service before the limit is reached."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest

from streamcore.memory.memory_use import MemoryReader, MemoryUse, ProcessMemory
from streamcore.memory.memory_warning import MemoryWarning

MB = 1_000_000


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def reader(folder: Path, cgroup: str) -> MemoryReader:
    write(folder / "proc/self/cgroup", cgroup)
    return MemoryReader(pid=7, proc=folder / "proc", cgroups=folder / "cgroup")


def test_the_limit_of_a_container_is_read_and_reclaimable_cache_does_not_count_as_used(tmp_path: Path) -> None:
    memory = reader(tmp_path, "0::/\n")
    assert memory.read() is None
    write(tmp_path / "cgroup/memory.max", "max\n")
    assert memory.read() is None
    write(tmp_path / "cgroup/memory.max", f"{100 * MB}\n")
    write(tmp_path / "cgroup/memory.current", f"{90 * MB}\n")
    write(tmp_path / "cgroup/memory.stat", f"anon {60 * MB}\ninactive_file {25 * MB}\n")
    assert memory.read() == MemoryUse(65 * MB, 100 * MB, ())


def test_the_lowest_limit_of_the_parent_cgroups_counts(tmp_path: Path) -> None:
    memory = reader(tmp_path, "0::/user/app\n")
    for group, limit, used in (("user/app", "max", 10), ("user", 80 * MB, 20), ("", 90 * MB, 30)):
        write(tmp_path / "cgroup" / group / "memory.max", str(limit))
        write(tmp_path / "cgroup" / group / "memory.current", str(used * MB))
    assert memory.read() == MemoryUse(20 * MB, 80 * MB, ())


def test_the_limit_of_cgroups_version_1_is_read(tmp_path: Path) -> None:
    memory = reader(tmp_path, "9:cpu:/\n4:memory:/docker/a\n")
    group = tmp_path / "cgroup/memory"  # in a container the folder is the container's own
    write(group / "memory.limit_in_bytes", "9223372036854771712")
    assert memory.read() is None
    write(group / "memory.limit_in_bytes", str(50 * MB))
    write(group / "memory.usage_in_bytes", str(40 * MB))
    write(group / "memory.stat", f"inactive_file 5\ntotal_inactive_file {15 * MB}\n")
    assert memory.read() == MemoryUse(25 * MB, 50 * MB, ())


def test_a_limit_in_the_settings_applies_to_the_process_and_its_children() -> None:
    code = "import sys; held = b'x' * 50_000_000; print('ready', flush=True); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        use = MemoryReader(limit=1 << 40).read()
        assert use is not None
        by_pid = {process.pid: process for process in use.processes}
        assert by_pid[child.pid].name == "Python"
        assert by_pid[child.pid].bytes > 50 * MB
        assert os.getpid() in by_pid
        assert os.getppid() not in by_pid
        assert use.used == sum(process.bytes for process in use.processes)
        child.communicate()


def test_low_memory_is_logged_immediately_then_every_minute_then_when_it_is_over(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    now_s, used = 0.0, 0
    processes = tuple(ProcessMemory((30 - n) * MB, 100 + n, "Python") for n in range(9))
    warning = MemoryWarning(logging.getLogger("shop"), lambda: MemoryUse(used * MB, 100 * MB, processes), lambda: now_s)
    logged: dict[int, str] = {}
    for second, share in enumerate([79] + [80] * 100 + [76] * 50 + [74, 79, 81]):
        now_s, used = float(second), share
        caplog.clear()
        warning.check()
        logged |= dict.fromkeys([second] if caplog.messages else [], "; ".join(caplog.messages))
    assert [*logged] == [1, 61, 121, 151, 153]
    assert logged[1].startswith("memory: 80 of 100 MB are in use (80 %), Python 100 has 30 MB, Python 101 has 29 MB")
    assert logged[1].count("Python") == 4
    assert "Give the app more memory, or let it keep less state" in logged[1]
    assert logged[121].startswith("memory: still nearly used up, for 120 s now: 76 of 100 MB are in use")
    assert logged[151].startswith("memory: enough again after 150 s: 74 of 100 MB")


def test_a_process_that_the_system_ended_is_logged_with_the_limit(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    memory = reader(tmp_path, "0::/\n")
    write(tmp_path / "cgroup/memory.max", f"{100 * MB}\n")
    write(tmp_path / "cgroup/memory.current", f"{50 * MB}\n")
    for pid, pages in (("7", 3_000), ("8", 5_000), ("9", 4_000)):
        write(tmp_path / "proc" / pid / "stat", f"{pid} (python3.11) S {'7' if pid != '7' else '1'} 0")
        write(tmp_path / "proc" / pid / "statm", f"9999 {pages} 0")
    warning = MemoryWarning(logging.getLogger("shop"), memory.read)
    warning.check()
    write(tmp_path / "cgroup/memory.events", "oom 4\noom_kill 1\n")
    (tmp_path / "proc/9/stat").unlink()
    warning.check()
    warning.check()
    size = 4_000 * os.sysconf("SC_PAGE_SIZE") // MB
    assert caplog.messages == [
        f"memory: the system ended Python 9 with {size} MB, because 100 MB were used up; what it computed runs again. "
        "Give the app more memory, or let it keep less state"
    ]


def test_without_a_limit_memory_is_not_watched() -> None:
    with MemoryWarning(logging.getLogger("shop"), lambda: None) as warning:
        assert warning.latest is None
