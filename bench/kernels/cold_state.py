"""Measures cuts that touch cold keys: ``python -m bench.kernels.cold_state``.

One keyed function on one shard adds up a number for each key. Its keys are first written in cuts of 200,000 new keys.
Each measured cut then has events of one key in a hundred, drawn at random. It is measured with all keys in memory, and
with a bound of the memory, so that nearly all keys are cold; each in a process of its own. The time of a cut covers the
recall, the operator's step and the commit. After the cuts a new process starts from the stored blobs, which are files,
and runs one cut. The sums of a sample of keys at the end are compared with numpy's.
"""

from __future__ import annotations

import argparse
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson
import polars as pl

import streamcore as sc
from bench.harness.result import Result, show
from streamcore.hashing import hash_columns
from streamcore.operators.base import MAIN, CutTime
from streamcore.operators.process import ProcessOperator
from streamcore.schema import EVENT_MS
from streamcore.state import StateLog, StateSettings
from streamcore.state.cold.cold_state import ColdState
from streamcore.state.state_log import HEAD

CUTS = 16
SHARE = 100
LOAD = 200_000

Ints = npt.NDArray[np.int64]


class Total(sc.ProcessFunction):
    """Adds up the numbers of each key."""

    outputs = {MAIN: {"key": pl.Int64, "total": pl.Int64}}  # noqa: RUF012
    total = sc.ValueState(int, default=0)

    def process(self, event: Any, context: sc.ProcessContext) -> Iterable[object]:
        self.total += event.n
        if event.n > 900:
            yield {"key": context.key, "total": self.total}


class FileBlobs:
    """A blob store of files, so that stored bytes take no memory."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def _path(self, name: str) -> Path:
        return self.folder / name.replace("/", "+")

    def get(self, name: str) -> bytes | None:
        path = self._path(name)
        return path.read_bytes() if path.exists() else None

    def put(self, name: str, blob: bytes) -> None:
        self._path(name).write_bytes(blob)

    def remove(self, name: str) -> None:
        self._path(name).unlink(missing_ok=True)

    def bytes(self, prefix: str = "") -> int:
        """Return the bytes of the blobs whose name begins with the prefix."""
        return sum(p.stat().st_size for p in self.folder.glob(prefix.replace("/", "+") + "*"))


class _Shard:
    """The function on one shard, with its state in ``folder``."""

    def __init__(self, folder: Path, memory_bytes: int | None) -> None:
        limits = sc.KeyedLimits(keys=2**30)
        events = {"key": pl.Int64, "n": pl.Int64}
        self.operator = ProcessOperator(Total(), key=["key"], events=events, limits=limits)
        settings = StateSettings(memory_bytes=memory_bytes, local_dir=str(folder))
        self.blobs = FileBlobs(folder / "blobs")
        self.blobs.folder.mkdir(exist_ok=True)
        self.cold = ColdState(settings, {"total": self.operator.paged_state}, "shard")
        self.cold.begin(self.blobs)
        self.tables = {f"total/{name}": table for name, table in self.operator.tables().items()}
        self.log = StateLog(settings, self.cold)
        self.log.load(self.blobs.get(HEAD), self.blobs, lambda name: self.tables[name])
        self.operator.on_state_loaded()

    def cut(self, keys: Ints, numbers: Ints) -> int:
        """Run one cut; return the bytes written."""
        rows = pl.DataFrame({"key": keys, "n": numbers, EVENT_MS: np.full(len(keys), 1_000, np.int64)})
        if self.cold.pages("total"):
            self.cold.recall("total", hash_columns([rows["key"]], rows.height), 0, 0)
        self.operator.step([rows], CutTime(0, 0, 0))
        return self.log.commit(self.blobs, self.tables, {})

    def totals(self, keys: Ints) -> list[int]:
        """Return the totals of these keys."""
        self.cold.recall("total", hash_columns([pl.Series(keys)], len(keys)), 0, 0)
        store = self.operator.paged_state._store
        key_slots = store.admit(pl.DataFrame({"key": keys}))
        totals = [store.cells["total"].values[key_slot] for key_slot in key_slots]
        return [total for total in totals if isinstance(total, int)]


def _draw(keys: int, cut: int) -> tuple[Ints, Ints]:
    random = np.random.default_rng([5, cut])
    return random.integers(0, keys, keys // SHARE), random.integers(1, 1000, keys // SHARE)


def measure(keys: int, memory_bytes: int | None, folder: Path, cuts: int) -> Result:
    """Measure cuts in this process."""
    shard, spent, written = _Shard(folder, memory_bytes), [], []
    started = time.process_time()
    for start in range(0, keys, LOAD):
        new = np.arange(start, min(keys, start + LOAD))
        shard.cut(new, new % 7)
    load_seconds = time.process_time() - started
    expected = np.arange(keys) % 7
    for cut in range(cuts):
        touched, numbers = _draw(keys, cut)
        np.add.at(expected, touched, numbers)
        cpu = time.process_time()
        written.append(shard.cut(touched, numbers))
        spent.append(time.process_time() - cpu)
    sample = np.random.default_rng(1).integers(0, keys, 10_000)
    assert shard.totals(sample) == expected[sample].tolist(), "the totals differ from numpy's"
    sizes = {f"table_{name}": size for name, size in shard.cold.sizes().items()} | shard.cold.take_moves()
    stored = shard.blobs.bytes("cold/")
    return {
        "workload": "cold-state",
        "keys": keys,
        "touched_a_cut": keys // SHARE,
        "memory_bytes": memory_bytes,
        "cpu_s_load": round(load_seconds, 1),
        "cpu_ms_a_cut": round(1000 * float(np.mean(spent)), 1),
        "cpu_ms_median_cut": round(1000 * float(np.median(spent)), 1),
        "cpu_ms_worst_cut": round(1000 * max(spent), 1),
        "bytes_written_a_cut": round(float(np.median(written))),
        "peak_rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        "anonymous_mb": _anonymous_bytes() >> 20,
        "cold_bytes_a_key": round(stored / keys, 1),
        "cold_runs": len(shard.cold._rows["total"].runs),
        **sizes,
    }


def measure_start(keys: int, memory_bytes: int | None, folder: Path) -> Result:
    """Measure the first cut of a process that starts from the stored blobs."""
    wall, cpu = time.perf_counter(), time.process_time()
    shard = _Shard(folder, memory_bytes)
    loaded = time.perf_counter() - wall
    shard.cut(*_draw(keys, CUTS))
    return {
        "workload": "cold-state-start",
        "keys": keys,
        "memory_bytes": memory_bytes,
        "load_s": round(loaded, 2),
        "first_cut_s": round(time.perf_counter() - wall, 2),
        "first_cut_cpu_s": round(time.process_time() - cpu, 2),
        "anonymous_mb": _anonymous_bytes() >> 20,
    }


def _anonymous_bytes() -> int:
    """Return the memory of this process without the pages of mapped files, which the system can drop."""
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith("RssAnon"):
            return int(line.split()[1]) * 1024
    return 0


def main() -> None:
    """Measure both ways in child processes, and print the results and their ratio."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--keys", type=int, default=10_000_000)
    parser.add_argument("--memory-mb", type=int, default=200)
    parser.add_argument("--cuts", type=int, default=CUTS)
    parser.add_argument("--only", choices=("memory", "cold"))
    parser.add_argument("--child")
    parser.add_argument("--folder")
    arguments = parser.parse_args()
    if arguments.child:
        memory_bytes = None if arguments.only == "memory" else arguments.memory_mb << 20
        folder = Path(arguments.folder)
        if arguments.child == "cuts":
            show(measure(arguments.keys, memory_bytes, folder, arguments.cuts))
        else:
            show(measure_start(arguments.keys, memory_bytes, folder))
        return
    means: dict[str, float] = {}
    for kind in [arguments.only] if arguments.only else ["memory", "cold"]:
        parent = tempfile.mkdtemp(prefix="cold-state-")
        for step in ("cuts", "start"):
            command = [sys.executable, "-m", "bench.kernels.cold_state", "--child", step, "--folder", parent]
            command += ["--keys", str(arguments.keys), "--memory-mb", str(arguments.memory_mb), "--only", kind]
            command += ["--cuts", str(arguments.cuts)]
            result = orjson.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
            show(result)
            means.setdefault(kind, result.get("cpu_ms_a_cut"))
        shutil.rmtree(parent)
    if len(means) == 2:
        show({"workload": "cold-state", "cpu_ratio_cold_to_memory": round(means["cold"] / means["memory"], 2)})


if __name__ == "__main__":
    main()
