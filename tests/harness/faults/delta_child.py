"""A process that writes cuts to a Delta table and dies at a given step.

``folder`` may be a URI; how to log in there is then in the environment, by the names that S3's clients know.

``death``: a step of the protocol or of the upkeep, the ``at``-th time; ``commit``: at the system call that would make
the commit of that cut visible, all its data files written; ``never``.
"""

from __future__ import annotations

import ctypes
import os
import platform
import signal
import struct
import threading
from pathlib import Path

import pyarrow as pa

from streamcore.cuts.writer_id import WriterId
from streamcore.sinks.delta.settings import DeltaSettings, DeltaTableSpec
from streamcore.sinks.delta.sink import DeltaSink
from streamcore.sinks.sink import RetryPolicy, SinkHooks
from tests.harness.cut_ids import cut_id

SCHEMA = pa.schema([("id", pa.int64()), ("day", pa.large_string())])
PER_CUT = 10
_STEPS_OF_MAINTENANCE = ("compacted", "vacuumed", "checkpointed")
_MAINTENANCE_S = 10.0

_PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _FILTER = 38, 22, 2
_TSYNC, _KILL_PROCESS, _ALLOW = 1, 0x8000_0000, 0x7FFF_0000
_CALLS = {"x86_64": (317, (86, 265)), "aarch64": (277, (37,))}  # seccomp; link and linkat


def cut(batch: int) -> pa.Table:
    """Return the rows of a cut: its numbers, over three days."""
    ids = range(batch * PER_CUT, (batch + 1) * PER_CUT)
    return pa.table({"id": list(ids), "day": [f"d{i % 3}" for i in ids]}, schema=SCHEMA)


def settings(folder: Path | str) -> DeltaSettings:
    """Return settings with the most frequent upkeep."""
    spec = DeltaTableSpec(str(folder), ("day",), compact_every=2, checkpoint_every=3)
    return DeltaSettings({"rows": spec}, patience=RetryPolicy(20_000, 10, 100))


def sink(folder: Path | str, hooks: SinkHooks | None = None) -> DeltaSink:
    """Return the sink of the table."""
    return DeltaSink(settings(folder), {"rows": SCHEMA}, hooks)


def deny_links() -> None:
    """Let the system call that gives a file its name kill the process, in every thread."""
    seccomp, links = _CALLS[platform.machine()]
    jumps = [(0x15, len(links) - place, 0, number) for place, number in enumerate(links)]
    program = [(0x20, 0, 0, 0), *jumps, (0x06, 0, 0, _ALLOW), (0x06, 0, 0, _KILL_PROCESS)]
    code = b"".join(struct.pack("HBBI", *line) for line in program)
    buffer = ctypes.create_string_buffer(code)
    header = struct.pack("HxxxxxxP", len(program), ctypes.addressof(buffer))
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
    assert libc.syscall(seccomp, 1, _TSYNC, ctypes.create_string_buffer(header)) == 0, os.strerror(ctypes.get_errno())


def main(folder: Path | str, cuts: int, death: str = "never", at: int = 1) -> None:
    """Write cuts 0 to ``cuts`` - 1, without those that an earlier process has written."""
    left = at

    def reached(step: str) -> None:
        nonlocal left
        left -= step == (death if death != "commit" else "before-commit")
        if left == 0 and death == "commit":
            deny_links()
        elif left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    writer = sink(folder, SinkHooks(on_step=reached))
    last = writer.open(WriterId("app", 1))
    for batch in range(0 if last is None else last.batch, cuts):  # Spark repeats the last cut
        writer.write(cut_id(batch), {"rows": cut(batch)})
        if batch >= cuts // 2 and death in _STEPS_OF_MAINTENANCE:
            # On a busy machine one turn may last for all cuts that are left, and the step would never be reached.
            for thread in set(threading.enumerate()) - {threading.main_thread()}:
                thread.join(_MAINTENANCE_S)
    writer.close()
