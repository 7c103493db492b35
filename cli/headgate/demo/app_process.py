"""Runs a service's app as a child process: starts it, reads its reports, and stops it at a batch boundary.

The app has its own session, so the terminal's Ctrl-C does not reach it. A watch process stops it when the parent
process dies. Promises: ``metrics`` always holds the latest complete report; if the app ends by itself, ``check`` raises
``AppEndedError`` with the end of the app's log.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Final

import orjson

from headgate.console.messages import Print
from headgate.errors import HeadgateError
from headgate.local import processes

_TAIL_LINES: Final = 12
_RATE_WINDOW_S: Final = 5.0
_CUTS_KEPT: Final = 100
_WATCH: Final = 'cat >/dev/null; kill "$1"'
_KILL_WAIT_S: Final = 10.0


class AppEndedError(HeadgateError):
    """The app ended by itself; the message has the end of its log and the path of the log."""


@dataclass(frozen=True, slots=True)
class AppMetrics:
    """The figures of the app's reports since it was started. ``lanes``: the records and rows written to each lane.
    ``committed``: the offset after the last committed record, by topic and partition; None before the first cut.
    ``cut_ms``: the durations of the latest cuts in milliseconds, the latest one last. ``last_report_s``: when the
    latest report was read, by ``time.monotonic``. ``lag_s``: after the latest cut, the age of the
    oldest record that is not committed. ``newest_event_ms``: the time of the newest event. ``silent_partitions``:
    partitions of the inputs without an event so far, which hold the watermark back until they are idle. ``waits_for``:
    what the start waits for, since ``waits_since_s``; empty after the first cut."""

    epoch: int = 0
    cuts: int = 0
    events: int = 0
    lanes: Counter[str] = field(default_factory=Counter)
    sinks: Mapping[str, SinkMetrics] = field(default_factory=dict)
    events_per_second: float = 0.0
    watermark_ms: int | None = None
    newest_event_ms: int | None = None
    silent_partitions: int = 0
    cut_ms: tuple[int, ...] = ()
    committed: Mapping[tuple[str, int], int] | None = None
    last_report_s: float | None = None
    lag_s: float = 0.0
    waits_for: str = ""
    waits_since_s: float = 0.0

    @property
    def inputs(self) -> Mapping[str, int]:
        """The number of records of each topic that ``processed`` counts."""
        counts: Counter[str] = Counter()
        for (topic, _), offset in (self.committed or {}).items():
            counts[topic] += offset
        return counts

    @property
    def processed(self) -> int:
        """The number of records of the app's topics that its cuts have committed since the checkpoint was created."""
        return sum((self.committed or {}).values())


@dataclass(frozen=True, slots=True)
class SinkMetrics:
    """The figures of one sink since the app was started. ``rows``: rows written; ``rejected``: rows that the sink
    rejected; ``ms``: the duration of its latest cut with rows, in milliseconds."""

    guarantee: str = ""
    rows: int = 0
    rejected: int = 0
    ms: int = 0

    def after(self, report: Mapping[str, int]) -> SinkMetrics:
        """Return these figures with the report of one more cut added."""
        ms = report["ms"] if report["rows"] else self.ms
        return SinkMetrics(str(report["guarantee"]), self.rows + report["rows"], self.rejected + report["rejected"], ms)


class AppProcess:
    """One app. ``module``: the Python module to run, which may be followed by ``arguments``; ``topics``: the topics
    that the app reads.

    ``metrics`` may be read from any thread; the methods are for one thread.
    """

    def __init__(
        self, module: str, settings_file: Path, log: Path, topics: Sequence[str], arguments: Sequence[str] = ()
    ) -> None:
        settings = ("--settings", str(settings_file), "--reports")
        self.command: Sequence[str] = (sys.executable, "-m", module, *arguments, *settings)
        self._topics = frozenset(topics)
        self._message_prefix = f"headgate-{module.rpartition('.')[2].removeprefix('headgate_')}:"
        self._process: subprocess.Popen[bytes] | None = None
        self._watch: subprocess.Popen[bytes] | None = None
        self._reader: threading.Thread | None = None
        self._recent: deque[tuple[float, int]] = deque()
        self.log = log
        self.metrics = AppMetrics()

    @property
    def pid(self) -> int | None:
        """The id of the process; None before ``start``."""
        return None if self._process is None else self._process.pid

    def start(self) -> None:
        """Start the app. The log of the previous run is kept as ``*.log.1``."""
        if self.log.exists():
            self.log.replace(self.log.with_suffix(".log.1"))
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                self.command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, start_new_session=True
            )
        assert self._process.stdout is not None
        self._watch = subprocess.Popen(
            ["/bin/sh", "-c", _WATCH, "watch", str(self._process.pid)], stdin=subprocess.PIPE, start_new_session=True
        )
        self._reader = threading.Thread(
            target=self._read, args=(self._process.stdout,), name="app-reports", daemon=True
        )
        self._reader.start()

    @property
    def has_finished(self) -> bool:
        """Whether the app has ended with exit code 0: it was drained, or its input has an end."""
        return self._process is not None and self._process.poll() == 0

    def raise_if_ended(self) -> None:
        """Raise ``AppEndedError`` if the app has ended."""
        if self._process is not None and (code := self._process.poll()) is not None:
            raise AppEndedError(f"the app ended with exit code {code}\n{self.tail()}\nits log: {self.log}")

    def drain(self, limit_s: float, hurry: threading.Event) -> bool:
        """Ask the app to stop at a batch boundary. Return False if it has not stopped after ``limit_s`` seconds, or as
        soon as ``hurry`` is set."""
        if self._process is None or self._process.poll() is not None:
            return True
        self._process.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + limit_s
        while time.monotonic() < deadline and not hurry.is_set():
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(0.1)
                return True
        return False

    def kill(self) -> None:
        """Kill the app and its child processes; the next start continues from the app's last commit."""
        if self._process is not None and self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(_KILL_WAIT_S)

    def close(self) -> None:
        """Release the watch, the reader thread and the pipe, after the app has ended."""
        if self._watch is not None:
            self._watch.kill()
            self._watch.communicate()
            self._watch = None
        if self._reader is not None:
            self._reader.join(_KILL_WAIT_S)
            self._reader = None
        if self._process is not None and self._process.stdout is not None:
            self._process.stdout.close()

    def tail(self) -> str:
        """Return the app's last error message in its log, or else the last lines that are not empty."""
        try:
            lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            return "  (no log)"
        text_lines = [line for line in lines if line.strip()]
        error_lines = [number for number, line in enumerate(text_lines) if line.startswith(self._message_prefix)]
        return "\n".join(
            f"  {line[:300]}" for line in text_lines[error_lines[-1] if error_lines else -_TAIL_LINES :][:_TAIL_LINES]
        )

    def _read(self, reports: IO[bytes]) -> None:
        for line in reports:
            try:
                document = orjson.loads(line)
            except ValueError:
                continue
            if "cut" in document:
                cut = document["cut"]
                self._add_cut(cut, cut["lanes"], cut["offsets"], cut["watermarks"], cut["sinks"])
                self.metrics = replace(self.metrics, lag_s=document["lag"]["ms"] / 1000)
            elif "waiting" in document:
                self.metrics = replace(self.metrics, waits_for=document["waiting"], waits_since_s=time.monotonic())

    def _add_cut(
        self,
        cut: Mapping[str, int],
        lanes: Mapping[str, int],
        offsets: Mapping[str, Mapping[str, int]],
        watermarks: Mapping[str, Mapping[str, int]],
        sinks: Mapping[str, Mapping[str, int]],
    ) -> None:
        now, before = time.monotonic(), self.metrics
        self._recent.append((now, cut["events"]))
        while self._recent[0][0] < now - _RATE_WINDOW_S:
            self._recent.popleft()
        duration_ms = cut["run_ms"] + cut["commit_ms"]
        self.metrics = replace(
            before,
            epoch=cut["epoch"],
            cuts=before.cuts + 1,
            events=before.events + cut["events"],
            committed={
                (topic, int(p)): offset for topic in self._topics for p, offset in offsets.get(topic, {}).items()
            },
            lanes=before.lanes + Counter(lanes),
            sinks={name: before.sinks.get(name, SinkMetrics()).after(report) for name, report in sinks.items()},
            events_per_second=sum(n for _, n in self._recent) / _RATE_WINDOW_S,
            watermark_ms=cut["watermark_ms"] if cut["watermark_ms"] > 0 else before.watermark_ms,
            silent_partitions=sum(
                len(partitions.keys() - watermarks.get(topic, {}).keys())
                for topic, partitions in offsets.items()
                if topic in self._topics
            ),
            newest_event_ms=cut["newest_event_ms"] or before.newest_event_ms,
            cut_ms=(*before.cut_ms, duration_ms)[-_CUTS_KEPT:],
            last_report_s=now,
            waits_for="",
        )


def stop_leftover(module: str, settings_file: Path, limit_ms: int, print_message: Print) -> None:
    """Stop an app of this workspace that still runs because its ``headgate up`` was killed: by force after
    ``limit_ms``."""
    mark = f"-m {module} --settings {settings_file} "
    for pid in _processes_with(mark):
        print_message(f"an app of an earlier run is still running (process {pid}); stopping it")
        processes.send(pid, signal.SIGTERM)
        if not processes.wait_for_end(pid, mark, limit_ms):
            print_message("the app does not stop; killing it")
            processes.send(pid, signal.SIGKILL)
            processes.wait_for_end(pid, mark, limit_ms)


def _processes_with(mark: str) -> list[int]:
    """Return the ids of the processes with ``mark`` in their command line.

    Without /proc (macOS) none is found; the lease on the checkpoint then rejects a second app.
    """
    numbers = [int(entry.name) for entry in Path("/proc").glob("[0-9]*")] if Path("/proc/self").exists() else []
    return [number for number in numbers if mark in processes.command_line(number)]
