"""Runs the cases of a program in a sandbox: a process that may only compute. Reports what each case tried to do.

The program first warms up (imports, caches); then the process gets limits: no further file descriptor, no byte written
to a file, no new process, little more memory, some CPU-seconds a case. An audit hook records every later audit event of
Python, such as opening a file, importing, executing, starting a process and connecting. So interpreter and kernel
confirm that a case had no effect, without mocks.

A program is a module with ``warm_up()`` and ``cases(given)``, which yields names and functions. A function returns the
result of its case as a word; an exception is a failure.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel

ROOT = Path(__file__).parents[3]
#: Audit events of mere computing: frames for warnings and named tuples, the garbage collector, attributes.
_HARMLESS = frozenset(
    {"sys._getframe", "sys._getframemodulename", "gc.get_objects", "object.__getattr__", "builtins.id"}
)


@dataclass(frozen=True, slots=True)
class Limits:
    """``memory_bytes``: on top of what the process has after warming up; ``cpu_s``: of one case."""

    cpu_s: int = 5
    memory_bytes: int = 256 << 20


@dataclass(frozen=True, slots=True)
class Outcome:
    """``word``: the result of the case; ``raised`` and ``audit`` are empty if it passed."""

    case: str
    word: str
    raised: str = ""
    audit: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Report:
    """``ended``: empty if the process finished, else how it died and in which case."""

    outcomes: tuple[Outcome, ...]
    ended: str
    grown_bytes: int
    longest_cpu_s: float


def run_sandboxed(program: str, given: object, limits: Limits | None = None) -> Report:
    """Run ``program`` (a module's name) on ``given``, which JSON can hold."""
    limits = limits or Limits()
    paths = os.pathsep.join([str(ROOT), *(path for path in sys.path if path)])
    environment = {**os.environ, "PYTHONPATH": paths, "POLARS_MAX_THREADS": "1", "RAYON_NUM_THREADS": "1"}
    completed = subprocess.run(
        [sys.executable, "-m", __name__, program, str(limits.cpu_s), str(limits.memory_bytes)],
        input=json.dumps(given).encode(),
        capture_output=True,
        cwd=ROOT,
        env=environment,
        check=False,
    )
    lines = [json.loads(line) for line in completed.stdout.splitlines() if line.startswith(b"{")]
    outcomes = tuple(
        Outcome(line["case"], line["word"], line["raised"], tuple(line["audit"])) for line in lines if "word" in line
    )
    last = next((line["begun"] for line in reversed(lines) if "begun" in line), "the warming up")
    end = next((line for line in lines if "end" in line), None)
    errors = completed.stderr.decode(errors="replace")[-2_000:]
    ended = "" if end is not None and completed.returncode == 0 else f"exit {completed.returncode} in {last}: {errors}"
    return Report(
        outcomes, ended, end["grown_bytes"] if end else 0, float(end["longest_cpu_s"]) if end else float("inf")
    )


class _Audit:
    """The audit events of Python since the last ``clear``."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.recording = False
        sys.addaudithook(self._record)

    def _record(self, event: str, args: tuple[object, ...]) -> None:
        if self.recording and event not in _HARMLESS and len(self.events) < 20:
            self.recording = False  # what the next line raises is ours
            self.events.append(f"{event} {args!r}"[:200])
            self.recording = True


def _print(line: object) -> None:
    os.write(1, json.dumps(line).encode() + b"\n")


def _restrict(memory_bytes: int) -> None:
    """Forbid new descriptors, files and processes, and limit the memory."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + memory_bytes
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
    used = max(int(name) for name in os.listdir("/proc/self/fd"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (used, used))


def _peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def main(program: str, cpu_s: int, memory_bytes: int) -> None:
    """Run the cases of a program in this process."""
    module = importlib.import_module(program)
    given = json.loads(sys.stdin.buffer.read())
    module.warm_up()
    _build_models()
    gc.collect()
    audit, before, longest = _Audit(), _peak_bytes(), 0.0
    _restrict(memory_bytes)
    for name, case in module.cases(given):
        began = time.process_time()
        resource.setrlimit(resource.RLIMIT_CPU, (int(began) + 1 + cpu_s, resource.RLIM_INFINITY))
        _print({"begun": name})
        word = raised = ""
        audit.events.clear()
        audit.recording = True
        try:
            word = case()
        except BaseException as error:
            raised = f"{type(error).__name__}: {str(error)[:500]}"
        audit.recording = False
        longest = max(longest, time.process_time() - began)
        _print({"case": name, "word": word, "raised": raised, "audit": audit.events})
    _print({"end": True, "grown_bytes": _peak_bytes() - before, "longest_cpu_s": round(longest, 3)})


def _build_models() -> None:
    """Load documents once, because their classes are compiled at the first use, which the audit hook would report."""
    waiting: list[type[BaseModel]] = [BaseModel]
    for kind in waiting:
        waiting += kind.__subclasses__()
        if kind.__module__.startswith(("rulecore", "streamcore")):
            kind.model_rebuild()


def failures(outcomes: Sequence[Outcome]) -> list[str]:
    """Return a line for each failure."""
    return [f"{o.case}: {o.raised or ', '.join(o.audit)}" for o in outcomes if o.raised or o.audit]


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
