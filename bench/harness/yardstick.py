"""Measures the current speed of the machine: the CPU time of a fixed piece of work, repeated during a run.

The speed of a shared machine changes by half from one minute to the next, in CPU-seconds too (other programs
use the core, its clock rate changes). To compare two runs, divide the figures of each by its own yardstick.
"""

from __future__ import annotations

import statistics
import threading
import time
from types import TracebackType

import numpy as np

from bench.harness.cpu import load_average
from bench.harness.result import Result

_EVERY_S = 2.0
_ROWS = 200_000


def fixed_work_ms() -> float:
    """Return the CPU milliseconds of sorting ``_ROWS`` numbers and of a Python loop with as many steps."""
    numbers = np.random.default_rng(1).integers(0, 1 << 60, _ROWS)
    begin = time.thread_time()
    np.sort(numbers)
    total = 0
    for number in range(_ROWS):
        total += number & 7
    return (time.thread_time() - begin) * 1000


class Yardstick:
    """Measures the machine while its context is open, with about one per cent of a core.

    ``figures`` are part of every result.
    """

    def __init__(self) -> None:
        self._samples: list[float] = []
        self._load_before = load_average()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="yardstick", daemon=True)

    def _run(self) -> None:
        while not self._stop.is_set():
            self._samples.append(fixed_work_ms())
            self._stop.wait(_EVERY_S)

    def figures(self) -> Result:
        """Return the median in CPU milliseconds, and the load average at the start and now."""
        median = round(statistics.median(self._samples), 1) if self._samples else 0.0
        return {"load_average": [self._load_before, load_average()], "yardstick_ms": median}

    def __enter__(self) -> Yardstick:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stop.set()
        self._thread.join()
