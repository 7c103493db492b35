"""A process under measurement: started in a session of its own, its lines of JSON read as they come."""

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
    """One cut's report, when it came, and the CPU used until then."""

    at_s: float  # time.monotonic()
    at_ms: float  # epoch milliseconds
    cpu: Cpu
    report: Mapping[str, object]

    @property
    def events(self) -> int:
        """Events decoded in the cut."""
        return number(self.report, "events")

    @property
    def batch(self) -> int:
        """Its number."""
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
class _Heard:
    cuts: list[CutSample] = field(default_factory=list)
    spark: dict[int, Mapping[str, object]] = field(default_factory=dict)


class Child:
    """``python -m MODULE`` under measurement. Leaving the context stops it, by force if need be."""

    def __init__(self, module: str, arguments: list[str], log: Path) -> None:
        self.started_s = time.monotonic()
        self.started_ms = time.time() * 1000
        self.log = log
        self._heard = _Heard()
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
        """Cuts so far."""
        return list(self._heard.cuts)

    @property
    def spark(self) -> dict[int, Mapping[str, object]]:
        """Spark's progress by batch; comes later than the cut."""
        return dict(self._heard.spark)

    @property
    def cpu(self) -> Cpu:
        """Used until now."""
        return self._meter.read()

    def _read(self) -> None:
        assert self.process.stdout is not None, "it was opened as a pipe"
        for line in self.process.stdout:
            try:
                document = orjson.loads(line)
            except orjson.JSONDecodeError:
                continue
            if "cut" in document:
                self._heard.cuts.append(CutSample(time.monotonic(), time.time() * 1000, self.cpu, document["cut"]))
            elif "spark" in document:
                self._heard.spark[document["spark"]["batchId"]] = document["spark"]

    def wait(self, done: Callable[[], bool], limit_s: float) -> None:
        """Return when ``done``; ``RuntimeError`` when it ends first, or takes too long."""
        end = time.monotonic() + limit_s
        while not done():
            if self.process.poll() is not None:
                raise RuntimeError(f"the app ended with {self.process.returncode}: {self._complaint()}")
            if time.monotonic() > end:
                raise RuntimeError(f"the app did not get there in {limit_s} s; see {self.log}")
            time.sleep(_POLL_S)

    def wait_for_events(self, events: int, limit_s: float) -> None:
        """Until so many input records have come out of a cut, as events or as dead letters."""
        self.wait(lambda: sum(c.events + c.lane("deadletters") for c in self.cuts) >= events, limit_s)

    def _complaint(self) -> str:
        return self.log.read_text(errors="replace")[-2000:]

    def stop(self) -> None:
        """Ask it to stop between two cuts, and see to it that it does."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                self.kill()
        self._reader.join(10)

    def kill(self) -> None:
        """End all of its processes at once."""
        kill_session(self.process.pid)
        self.process.wait()
        self._reader.join(10)

    def __enter__(self) -> Child:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop() if kind is None else self.kill()
