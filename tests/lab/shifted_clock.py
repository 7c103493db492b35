"""A service whose driver has a clock that the laboratory shifts while it runs.

``python -m tests.lab.shifted_clock FILE MODULE ...`` runs MODULE with ``time.time`` and ``time.time_ns`` shifted by the
milliseconds in FILE, which are read at each call. Workers, JVM and servers keep the machine's clock, as they would on
other machines.
"""

from __future__ import annotations

import mmap
import runpy
import struct
import sys
import time
from pathlib import Path

_OFFSET = struct.Struct("<q")
_real_ns = time.time_ns


def write_offset(file: Path, offset_ms: int) -> None:
    """Shift the clock of the process that runs with ``file``."""
    with file.open("r+b" if file.exists() else "w+b") as target:
        target.write(_OFFSET.pack(offset_ms))


def _shift(file: Path) -> None:
    with file.open("rb") as source:
        offset = mmap.mmap(source.fileno(), _OFFSET.size, prot=mmap.PROT_READ)

    def now_ns() -> int:
        offset_ms: int = _OFFSET.unpack(offset[: _OFFSET.size])[0]
        return _real_ns() + offset_ms * 1_000_000

    vars(time)["time_ns"] = now_ns
    vars(time)["time"] = lambda: now_ns() / 1e9


if __name__ == "__main__":
    _shift(Path(sys.argv[1]))
    module = sys.argv[2]
    sys.argv = [module, *sys.argv[3:]]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
