"""The rules app as users run it: a process with a settings file, which is observed through its output.

Keeps every cut that any start of the app reported, so that a test can count over crashes. Every wait has a limit, and
its error contains the last output of the app.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.harness.servers import processes

RULES_APP = ("-m", "headgate_rules")
_REPOSITORY = Path(__file__).parents[3]
_LIMIT_S = 240.0
#: A test mostly waits for something else than the next empty cut, and each takes a third of a second of processor time.
_EMPTY_CUT_INTERVAL_MS = 5_000


@dataclass(frozen=True, slots=True)
class Cut:
    """The report of a cut. ``start``: which start printed it, from 1. ``offsets``: by topic and partition."""

    start: int
    batch: int
    outcome: str
    events: int
    lanes: Mapping[str, int]
    offsets: Mapping[str, Mapping[str, int]]
    clock_ms: int
    watermark_ms: int
    epoch: int
    counters: Mapping[str, int]


@dataclass(slots=True)
class _Run:
    """A start of the app: its process and the thread that reads its output."""

    process: subprocess.Popen[bytes]
    reader: threading.Thread


@dataclass(slots=True)
class AppUnderTest:
    """``folder`` holds settings, checkpoint and standard error of the app. Use it as a context manager."""

    folder: Path
    settings: Mapping[str, object]
    reported_cuts: list[Cut] = field(default_factory=list)
    starts: int = 0
    _run: _Run | None = None
    _orphans: list[int] = field(default_factory=list)
    _news: threading.Condition = field(default_factory=threading.Condition)

    @property
    def name(self) -> str:
        """Return the name of the app, with which its topics begin."""
        return str(self.settings["app"])

    @property
    def checkpoint(self) -> Path:
        """Return the checkpoint root."""
        return Path(str(self.settings["checkpoint"]))

    @property
    def log(self) -> Path:
        """Return the file with standard error of all starts."""
        return self.folder / "stderr.log"

    @property
    def pid(self) -> int:
        """Return the process id of the driver, which is also the id of its session."""
        assert self._run is not None, "start it first"
        return self._run.process.pid

    @property
    def exit_code(self) -> int | None:
        """Return the exit code of the latest start, negative after a signal; None while it runs."""
        return None if self._run is None else self._run.process.poll()

    # --- lifecycle ---------------------------------------------------------------------------------------------------

    def start(self, entry: Sequence[str] = RULES_APP) -> None:
        """Start the app on its checkpoint. The previous driver must have ended."""
        assert self._run is None or self._run.process.poll() is not None, "it runs already"
        self.starts += 1
        process = self._popen(entry, stdout=subprocess.PIPE)
        reader = threading.Thread(target=self._read, args=(process, self.starts), daemon=True)
        reader.start()
        self._run = _Run(process, reader)

    def run_second_process(self) -> subprocess.CompletedProcess[bytes]:
        """Run another process with the same settings to its end."""
        with self._popen(RULES_APP, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            output, errors = process.communicate(timeout=_LIMIT_S)
        return subprocess.CompletedProcess(process.args, process.returncode, output, errors)

    def _popen(self, entry: Sequence[str], *, stdout: int, stderr: int | None = None) -> subprocess.Popen[bytes]:
        self.folder.mkdir(parents=True, exist_ok=True)
        file = self.folder / "settings.json"
        file.write_text(json.dumps({"empty_cut_interval_ms": _EMPTY_CUT_INTERVAL_MS, **self.settings}))
        command = [sys.executable, *entry, "--settings", str(file), "--reports"]
        with self.log.open("ab") as log:
            return subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr or log,
                start_new_session=True,
                cwd=_REPOSITORY,
                env={**os.environ, "PYTHONPATH": os.pathsep.join([str(_REPOSITORY), os.environ.get("PYTHONPATH", "")])},
            )

    def kill(self) -> None:
        """Kill all processes of the app (SIGKILL)."""
        processes.kill_session(self.pid)
        self._join()

    def kill_driver(self) -> None:
        """Kill the driver alone (SIGKILL); the JVM and its workers may still run beside the next start."""
        assert self._run is not None
        processes.kill(self.pid)
        self._run.process.wait(60)
        self._orphans.append(self.pid)

    def kill_a_worker(self) -> None:
        """Kill one of Spark's Python workers (SIGKILL)."""
        processes.wait_until(lambda: bool(processes.python_workers(self.pid)), "a Python worker", 60)
        processes.kill(processes.python_workers(self.pid)[0].pid)

    def kill_all_workers(self) -> None:
        """Kill all of Spark's Python processes with the daemon that forks them (SIGKILL)."""
        for process in processes.daemon_and_workers(self.pid):
            processes.kill(process.pid)

    def kill_jvm(self) -> int:
        """Kill Spark's JVM (SIGKILL); return its process id."""
        pid = processes.jvm(self.pid).pid
        processes.kill(pid)
        return pid

    def drain(self) -> int:
        """Send SIGTERM to the driver; return the exit code."""
        os.kill(self.pid, signal.SIGTERM)
        return self.wait_for_end()

    def drain_session(self) -> int:
        """Send SIGTERM to all processes of the app, as systemd does; return the exit code."""
        for process in processes.members(self.pid):
            os.kill(process.pid, signal.SIGTERM)
        return self.wait_for_end()

    def wait_for_end(self, limit_s: float = _LIMIT_S) -> int:
        """Wait for the end; return the exit code, negative after a signal."""
        assert self._run is not None
        try:
            code = self._run.process.wait(limit_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.name} did not end in {limit_s} s{self._last_output()}") from None
        self._join()
        return code

    def _join(self) -> None:
        """Join the reader for a short time only: descendants of the driver may hold the pipe."""
        if self._run is not None:
            self._run.process.wait(60)
            self._run.reader.join(5)

    def __enter__(self) -> AppUnderTest:
        return self

    def __exit__(self, *_: object) -> None:
        for session in self._orphans:
            processes.kill_session(session, "pyspark")
        if self._run is not None:
            processes.kill_session(self.pid)
            self._join()

    # --- output -------------------------------------------------------------------------------------------

    def _read(self, process: subprocess.Popen[bytes], start: int) -> None:
        assert process.stdout is not None
        with process.stdout as stream:
            for line in stream:
                document = _parse(line)
                with self._news:
                    if "cut" in document:
                        self.reported_cuts.append(_cut(document["cut"], start))
                    self._news.notify_all()

    @property
    def batches(self) -> dict[int, Cut]:
        """Return the last report of every batch of the latest epoch."""
        every = self._latest_reports
        latest = max((epoch for epoch, _ in every), default=0)
        return {batch: cut for (epoch, batch), cut in every.items() if epoch == latest}

    @property
    def _latest_reports(self) -> dict[tuple[int, int], Cut]:
        """Return the last report of every batch, by epoch and batch."""
        with self._news:
            return {(cut.epoch, cut.batch): cut for cut in self.reported_cuts}

    @property
    def this_start(self) -> list[Cut]:
        """Return the cuts of the latest start."""
        with self._news:
            return [cut for cut in self.reported_cuts if cut.start == self.starts]

    @property
    def events(self) -> int:
        """Return the number of decoded events; a batch that ran twice counts once."""
        return sum(cut.events for cut in self._latest_reports.values())

    def lane(self, name: str) -> int:
        """Return the number of records on a lane."""
        return sum(cut.lanes.get(name, 0) for cut in self._latest_reports.values())

    def counter(self, name: str) -> int:
        """Return the sum of a counter of the cuts; a batch that ran twice counts once."""
        return sum(cut.counters.get(name, 0) for cut in self._latest_reports.values())

    @property
    def input_records(self) -> int:
        """Return the number of processed input records: decoded events and dead letters."""
        return self.events + self.lane("deadletters")

    @property
    def retries(self) -> int:
        """Return the number of retries that the app has logged."""
        return self.log.read_text(errors="replace").count("trying again")

    @property
    def watermark_ms(self) -> int:
        """Return the watermark after the latest cut, in epoch milliseconds."""
        cuts = self._latest_reports
        return cuts[max(cuts)].watermark_ms

    def wait_for(self, condition: Callable[[], bool], what: str, limit_s: float = _LIMIT_S) -> None:
        """Wait until the condition holds. Fails if the app ends before that, or at the limit."""
        end = time.monotonic() + limit_s
        while not condition():
            assert self._run is not None
            ended = self._run.process.poll()
            assert ended is None, f"{self.name} ended with {ended} before {what}{self._last_output()}"
            assert time.monotonic() < end, f"{self.name}: waited {limit_s} s in vain for {what}{self._last_output()}"
            with self._news:
                self._news.wait(0.2)

    def wait_for_log(self, pattern: str, count: int = 1, limit_s: float = 60) -> None:
        """Wait until standard error has so many matches of the regular expression."""

        def logged() -> bool:
            return len(re.findall(pattern, self.log.read_text(errors="replace"))) >= count

        self.wait_for(logged, f"{pattern!r} on standard error, {count} times", limit_s)

    def wait_for_cuts(self, count: int) -> None:
        """Wait until the latest start has reported ``count`` cuts."""
        self.wait_for(lambda: len(self.this_start) >= count, f"{count} cuts of start {self.starts}")

    def wait_for_input(self, count: int, limit_s: float = _LIMIT_S) -> None:
        """Wait until ``count`` input records are processed."""
        self.wait_for(
            lambda: self.input_records >= count, f"{count} records taken (there are {self.input_records})", limit_s
        )

    def wait_for_lane(self, name: str, count: int) -> None:
        """Wait until a lane has ``count`` records."""
        self.wait_for(lambda: self.lane(name) >= count, f"{count} records on lane {name}")

    def offsets_after(self, batch: int) -> dict[str, int]:
        """Return the offset at which a batch ended, by ``topic-partition``."""
        self.wait_for(lambda: batch in self.batches, f"the report of batch {batch}")
        topics = self.batches[batch].offsets
        return {f"{topic}-{p}": offset for topic, places in topics.items() for p, offset in places.items()}

    def _last_output(self) -> str:
        with self._news:
            last = self.reported_cuts[-3:]
        text = self.log.read_text(errors="replace")[-3_000:]
        return f"\nlast cuts: {last}\nstandard error: {text}"


def _parse(line: bytes) -> dict[str, Any]:
    """Return the JSON object of a line; an empty one for a line that a kill cut short."""
    try:
        document = json.loads(line)
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}


def _cut(entries: Mapping[str, Any], start: int) -> Cut:
    names = ("batch", "outcome", "events", "lanes", "offsets", "clock_ms", "watermark_ms", "epoch", "counters")
    return Cut(start, *(entries[name] for name in names))
