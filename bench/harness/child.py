"""A process under measurement, in its own session; its output, one JSON object per line, is read while it runs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

import orjson

from bench.harness.cpu import Cpu, SessionMeter, kill_session

_POLL_S = 0.05
_STOP_S = 90


@dataclass(frozen=True, slots=True)
class CutSample:
    """The report of one cut, the time at which it was read, and the CPU time used until then."""

    at_s: float  # time.monotonic()
    at_ms: float  # epoch milliseconds
    cpu: Cpu
    report: Mapping[str, object]

    @property
    def events(self) -> int:
        """The events decoded in the cut."""
        return number(self.report, "events")

    @property
    def batch(self) -> int:
        """The number of the cut."""
        return number(self.report, "batch")

    def lane(self, name: str) -> int:
        """Return the records that the cut wrote to a lane."""
        lanes = self.report["lanes"]
        return number(lanes, name) if isinstance(lanes, dict) and name in lanes else 0


def number(document: Mapping[str, object], name: str) -> int:
    """Return an entry that is a whole number."""
    value = document[name]
    assert isinstance(value, int | float), f"{name} is {value!r}, not a number"
    return int(value)


@dataclass(slots=True)
class _Reports:
    """The reports of cuts, and Spark's progress reports by batch."""

    cuts: list[CutSample] = field(default_factory=list)
    spark: dict[int, Mapping[str, object]] = field(default_factory=dict)


class Child:
    """Runs a Python module under measurement. The end of the context stops the process; an exception kills it."""

    def __init__(self, module: str, arguments: list[str], log: Path) -> None:
        self.started_s = time.monotonic()
        self.started_ms = time.time() * 1000
        self.log = log
        self._reports = _Reports()
        with log.open("ab") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-m", module, *arguments],
                stdout=subprocess.PIPE,
                stderr=errors,
                start_new_session=True,
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
            )
        self._meter = SessionMeter(self.process.pid)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def cuts(self) -> list[CutSample]:
        """The cuts so far."""
        return list(self._reports.cuts)

    @property
    def spark(self) -> dict[int, Mapping[str, object]]:
        """Spark's progress reports by batch; each arrives later than the report of its cut."""
        return dict(self._reports.spark)

    @property
    def cpu(self) -> Cpu:
        """The CPU time used until now."""
        return self._meter.read()

    def _read(self) -> None:
        assert self.process.stdout is not None, "stdout is a pipe"
        for line in self.process.stdout:
            try:
                document = orjson.loads(line)
            except orjson.JSONDecodeError:
                continue
            if "cut" in document:
                self._reports.cuts.append(CutSample(time.monotonic(), time.time() * 1000, self.cpu, document["cut"]))
            elif "spark" in document:
                self._reports.spark[document["spark"]["batchId"]] = document["spark"]

    def wait(self, done: Callable[[], bool], limit_s: float) -> None:
        """Wait until ``done`` returns True. Raises ``RuntimeError`` if the process ends first, or after ``limit_s``
        seconds."""
        end = time.monotonic() + limit_s
        while not done():
            if self.process.poll() is not None:
                raise RuntimeError(f"the app ended with {self.process.returncode}: {self._log_tail()}")
            if time.monotonic() > end:
                raise RuntimeError(f"the app did not reach the awaited state in {limit_s} s; see {self.log}")
            time.sleep(_POLL_S)

    def wait_for_events(self, events: int, limit_s: float) -> None:
        """Wait until the cuts have processed ``events`` input records, as events or as dead letters."""
        self.wait(lambda: sum(c.events + c.lane("deadletters") for c in self.cuts) >= events, limit_s)

    def _log_tail(self) -> str:
        return self.log.read_text(errors="replace")[-2000:]

    def stop(self) -> None:
        """Stop the process between two cuts; kill it after ``_STOP_S`` seconds."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                self.kill()
        self._reader.join(10)

    def kill(self) -> None:
        """Kill the process and its child processes."""
        kill_session(self.process.pid)
        self.process.wait()
        self._reader.join(10)

    def kill_leader(self) -> None:
        """Kill the process alone; its child processes end by themselves."""
        self.process.kill()
        self.process.wait()
        self._reader.join(10)

    def __enter__(self) -> Child:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop() if kind is None else self.kill()
