"""The rules app as its users run it: a separate process with a settings file, observed through its output.

Keeps every cut that any start of the app reported, so a test can count over crashes. Every wait has a limit and fails
with the last messages of the app.
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


@dataclass(frozen=True, slots=True)
class Cut:
    """One line of a cut. ``start``: which start of the app printed it, from 1. ``offsets``: by topic and partition."""

    start: int
    batch: int
    outcome: str
    events: int
    lanes: Mapping[str, int]
    offsets: Mapping[str, Mapping[str, int]]
    clock_ms: int
    watermark_ms: int
    epoch: int


@dataclass(slots=True)
class _Run:
    """One start: its process and the thread that reads it."""

    process: subprocess.Popen[bytes]
    reader: threading.Thread


@dataclass(slots=True)
class AppUnderTest:
    """``folder`` holds settings, checkpoint and what the app wrote to standard error. Use as a context manager."""

    folder: Path
    settings: Mapping[str, object]
    lines: list[Cut] = field(default_factory=list)
    starts: int = 0
    _run: _Run | None = None
    _orphans: list[int] = field(default_factory=list)
    _news: threading.Condition = field(default_factory=threading.Condition)

    @property
    def name(self) -> str:
        """The app's name, which its topics begin with."""
        return str(self.settings["app"])

    @property
    def checkpoint(self) -> Path:
        """The checkpoint root."""
        return Path(str(self.settings["checkpoint"]))

    @property
    def log(self) -> Path:
        """Standard error of all starts."""
        return self.folder / "stderr.log"

    @property
    def pid(self) -> int:
        """The driver's process, which is also the number of the session."""
        assert self._run is not None, "start it first"
        return self._run.process.pid

    @property
    def exit_code(self) -> int | None:
        """How the latest start ended, negative after a signal; None while it runs."""
        return None if self._run is None else self._run.process.poll()

    # --- life ---------------------------------------------------------------------------------------------------

    def start(self, entry: Sequence[str] = RULES_APP) -> None:
        """Start it, on the checkpoint that is there. The driver before must have ended."""
        assert self._run is None or self._run.process.poll() is not None, "it runs already"
        self.starts += 1
        process = self._popen(entry, stdout=subprocess.PIPE)
        reader = threading.Thread(target=self._read, args=(process, self.starts), daemon=True)
        reader.start()
        self._run = _Run(process, reader)

    def second_copy(self) -> subprocess.CompletedProcess[bytes]:
        """Another process with the same settings, run to its end."""
        with self._popen(RULES_APP, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            output, errors = process.communicate(timeout=_LIMIT_S)
        return subprocess.CompletedProcess(process.args, process.returncode, output, errors)

    def _popen(self, entry: Sequence[str], *, stdout: int, stderr: int | None = None) -> subprocess.Popen[bytes]:
        self.folder.mkdir(parents=True, exist_ok=True)
        file = self.folder / "settings.json"
        file.write_text(json.dumps(self.settings))
        command = [sys.executable, *entry, "--settings", str(file)]
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
        """kill -9 of everything that belongs to it."""
        processes.kill_session(self.pid)
        self._join()

    def kill_driver(self) -> None:
        """kill -9 of the driver alone; the JVM and its workers are left to find out, beside the next start."""
        assert self._run is not None
        processes.kill(self.pid)
        self._run.process.wait(60)
        self._orphans.append(self.pid)

    def kill_a_worker(self) -> None:
        """kill -9 of one of Spark's Python workers."""
        processes.wait_until(lambda: bool(processes.python_workers(self.pid)), "a Python worker", 60)
        processes.kill(processes.python_workers(self.pid)[0].pid)

    def kill_all_workers(self) -> None:
        """kill -9 of all of Spark's Python processes, the one that they are forked from among them."""
        for process in processes.daemon_and_workers(self.pid):
            processes.kill(process.pid)

    def kill_jvm(self) -> int:
        """kill -9 of Spark's JVM; its process number."""
        pid = processes.jvm(self.pid).pid
        processes.kill(pid)
        return pid

    def drain(self) -> int:
        """SIGTERM to the driver; the exit code."""
        os.kill(self.pid, signal.SIGTERM)
        return self.wait_for_end()

    def drain_session(self) -> int:
        """SIGTERM to the driver and every process that belongs to it, as systemd sends it; the exit code."""
        for process in processes.members(self.pid):
            os.kill(process.pid, signal.SIGTERM)
        return self.wait_for_end()

    def wait_for_end(self, limit_s: float = _LIMIT_S) -> int:
        """The exit code; negative after a signal."""
        assert self._run is not None
        try:
            code = self._run.process.wait(limit_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.name} did not end in {limit_s} s{self._last_output()}") from None
        self._join()
        return code

    def _join(self) -> None:
        """The driver has ended. Its descendants may hold the pipe for a while, so the reader is not waited for long."""
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

    # --- what it says -------------------------------------------------------------------------------------------

    def _read(self, process: subprocess.Popen[bytes], start: int) -> None:
        assert process.stdout is not None
        with process.stdout as stream:
            for line in stream:
                document = _parse(line)
                with self._news:
                    if "cut" in document:
                        self.lines.append(_cut(document["cut"], start))
                    self._news.notify_all()

    @property
    def batches(self) -> dict[int, Cut]:
        """The last report of every batch of the latest epoch."""
        every = self._latest_reports
        latest = max((epoch for epoch, _ in every), default=0)
        return {batch: cut for (epoch, batch), cut in every.items() if epoch == latest}

    @property
    def _latest_reports(self) -> dict[tuple[int, int], Cut]:
        """The last report of every batch, by epoch and batch."""
        with self._news:
            return {(cut.epoch, cut.batch): cut for cut in self.lines}

    @property
    def this_start(self) -> list[Cut]:
        """The cuts of the latest start."""
        with self._news:
            return [cut for cut in self.lines if cut.start == self.starts]

    @property
    def events(self) -> int:
        """Events decoded in all batches; a batch that ran twice counts once."""
        return sum(cut.events for cut in self._latest_reports.values())

    def lane(self, name: str) -> int:
        """Records on a lane in all batches."""
        return sum(cut.lanes.get(name, 0) for cut in self._latest_reports.values())

    @property
    def input_records(self) -> int:
        """Input records that were processed: decoded events and dead letters."""
        return self.events + self.lane("deadletters")

    @property
    def retries(self) -> int:
        """The number of retries that the app has logged."""
        return self.log.read_text(errors="replace").count("trying again")

    @property
    def watermark_ms(self) -> int:
        """The watermark after the latest cut, in epoch milliseconds."""
        cuts = self._latest_reports
        return cuts[max(cuts)].watermark_ms

    def wait_for(self, condition: Callable[[], bool], what: str, limit_s: float = _LIMIT_S) -> None:
        """Return when the condition holds after a cut. Fails when the app ends before, or does not get there."""
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
        """So many cuts of the latest start."""
        self.wait_for(lambda: len(self.this_start) >= count, f"{count} cuts of start {self.starts}")

    def wait_until_taken(self, count: int, limit_s: float = _LIMIT_S) -> None:
        """So many input records in all."""
        self.wait_for(
            lambda: self.input_records >= count, f"{count} records taken (there are {self.input_records})", limit_s
        )

    def wait_for_lane(self, name: str, count: int) -> None:
        """So many records on a lane in all."""
        self.wait_for(lambda: self.lane(name) >= count, f"{count} records on lane {name}")

    def offsets_after(self, batch: int) -> dict[str, int]:
        """``topic-partition`` -> where a batch ended."""
        self.wait_for(lambda: batch in self.batches, f"the report of batch {batch}")
        topics = self.batches[batch].offsets
        return {f"{topic}-{p}": offset for topic, places in topics.items() for p, offset in places.items()}

    def _last_output(self) -> str:
        with self._news:
            last = self.lines[-3:]
        text = self.log.read_text(errors="replace")[-3_000:]
        return f"\nlast cuts: {last}\nstandard error: {text}"


def _parse(line: bytes) -> dict[str, Any]:
    """A line's object; none for a line that a kill cut short."""
    try:
        document = json.loads(line)
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}


def _cut(entries: Mapping[str, Any], start: int) -> Cut:
    names = ("batch", "outcome", "events", "lanes", "offsets", "clock_ms", "watermark_ms", "epoch")
    return Cut(start, *(entries[name] for name in names))
