"""Runs a program's cases in a process of its own that may do nothing but compute, and says what each one tried.

Before the first case the program warms up (imports, caches); then the process gives up what it does not need: no file
descriptor more than it has, no byte written to a file, no new process, little more memory, some CPU-seconds a case. An
audit hook notes every event that Python raises from there on; opening, importing, executing, starting a process and
connecting are such events. So "it touched nothing" is a claim of the interpreter and of the kernel, not of a mock.

A program is a module with ``warm_up()`` and ``cases(given)``, which yields names and functions that return a word of
what became of the case, or raise: nothing that is raised is expected.
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
#: What Python does while it computes: frames for warnings and named tuples, the collector, attributes.
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
    """``word`` is the program's own; ``raised`` and ``audit`` are empty when all is well."""

    case: str
    word: str
    raised: str = ""
    audit: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Report:
    """``ended`` is empty when the process came to its end, else how it died and in which case."""

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
    """What Python announced since it was last asked."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.listening = False
        sys.addaudithook(self._hear)

    def _hear(self, event: str, args: tuple[object, ...]) -> None:
        if self.listening and event not in _HARMLESS and len(self.events) < 20:
            self.listening = False  # what the next line raises is ours
            self.events.append(f"{event} {args!r}"[:200])
            self.listening = True


def _say(line: object) -> None:
    os.write(1, json.dumps(line).encode() + b"\n")


def _give_up(memory_bytes: int) -> None:
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
    """Return the process in the cage."""
    module = importlib.import_module(program)
    given = json.loads(sys.stdin.buffer.read())
    module.warm_up()
    _build_models()
    gc.collect()
    audit, before, longest = _Audit(), _peak_bytes(), 0.0
    _give_up(memory_bytes)
    for name, case in module.cases(given):
        began = time.process_time()
        resource.setrlimit(resource.RLIMIT_CPU, (int(began) + 1 + cpu_s, resource.RLIM_INFINITY))
        _say({"begun": name})
        word = raised = ""
        audit.events.clear()
        audit.listening = True
        try:
            word = case()
        except BaseException as error:
            raised = f"{type(error).__name__}: {str(error)[:500]}"
        audit.listening = False
        longest = max(longest, time.process_time() - began)
        _say({"case": name, "word": word, "raised": raised, "audit": audit.events})
    _say({"end": True, "grown_bytes": _peak_bytes() - before, "longest_cpu_s": round(longest, 3)})


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
