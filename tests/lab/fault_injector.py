"""Injects the faults of a schedule into an app and its servers, and restarts what ended, as a supervisor would."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from tests.harness.apps.rules_app import AppUnderTest
from tests.harness.faults.services.disk import Disk
from tests.harness.servers import processes
from tests.harness.servers.processes import Process
from tests.lab.schedule import CLOCKS_MS, Fault, Step
from tests.lab.shifted_clock import write_offset
from tests.lab.start_times import StartTimes

_POLL_S = 0.02
#: Longer than any recovery, also on a busy machine: an app without a cut for so long is silent.
SILENT_S = 300.0
_ORPHAN_S = 30.0
#: The exit code with which another start would end as well.
_SETTINGS = 2


class RestartableServer(Protocol):
    """A server that keeps its data when it is killed and started again, and can be suspended."""

    def kill(self) -> object: ...

    def start(self) -> object: ...

    def pause(self) -> None: ...

    def resume(self) -> None: ...


@dataclass(frozen=True, slots=True)
class InjectedFault:
    """A fault that was injected. ``recovery_s``: from its end to the next cut; None if the next fault came first."""

    fault: str
    at_s: float
    for_s: float
    recovery_s: float | None


@dataclass(slots=True)
class FaultInjector:
    """Injects faults into ``app``. ``start`` starts its process, ``servers`` are ``broker`` and perhaps ``store``.

    ``ends``: a line for each time that the process ended by itself: the last fault, the exit code and the last message.
    """

    app: AppUnderTest
    start: Callable[[], None]
    servers: Mapping[str, RestartableServer]
    disk: Disk | None = None
    clock: Path | None = None
    faults: list[InjectedFault] = field(default_factory=list)
    ends: list[str] = field(default_factory=list)
    starts: list[StartTimes] = field(default_factory=list)
    _began: float = field(default_factory=time.monotonic)
    _killed: list[int] = field(default_factory=list)

    def possible(self) -> frozenset[Fault]:
        """Return the faults that this app and machine allow."""
        missing: set[Fault] = set()
        if self.disk is None:
            missing.add(Fault.FULL_DISK)
        if self.clock is None:
            missing.add(Fault.CLOCK_JUMP)
        if "store" not in self.servers:
            missing |= {Fault.KILL_STORE, Fault.PAUSE_STORE}
        return frozenset(Fault) - missing

    def run(self, steps: Iterable[Step], until: Callable[[], bool]) -> None:
        """Inject faults until ``until`` holds; then wait for the recovery of the last one."""
        for step in steps:
            self._wait(step.after_s)
            if until():
                break
            at_s = time.monotonic() - self._began
            self._log(f"{step.fault} for {step.for_s:.1f} s")
            start = self._inject(step)
            self._log(f"{step.fault} is over")
            ended, cuts = time.monotonic(), len(self.app.reported_cuts)
            recovery = None
            if step.wait_for_cut:
                self.await_cut(step.fault, cuts, start)
                recovery = time.monotonic() - ended
                self._log(f"a cut after {recovery:.1f} s")
            self.faults.append(InjectedFault(step.fault, round(at_s, 1), step.for_s, recovery))
        self.await_cut("the last fault", len(self.app.reported_cuts))

    def begin(self) -> None:
        """Start the process, and record how long each part of its start takes."""
        self.start()
        self.starts.append(StartTimes(self.app))

    def keep_running(self, after: str) -> None:
        """Start the process again if it has ended."""
        code = self.app.exit_code
        if code is not None:
            message = self.app.log.read_text(errors="replace").strip().rsplit("\n", 1)[-1]
            assert code != _SETTINGS, f"the settings are rejected: {message}"
            self.ends.append(f"after {after}: {code}: {message[:300]}")
            self._killed.append(self.app.pid)
            self.begin()

    def await_cut(self, after: str, cuts: int, start: int = 0) -> None:
        """Wait for a cut beyond these, of this start or a later one; start the process again whenever it ends."""
        limit = time.monotonic() + SILENT_S
        while not any(cut.start >= start for cut in self.app.reported_cuts[cuts:]):
            self.keep_running(after)
            assert time.monotonic() < limit, f"silent for {SILENT_S:.0f} s after {after}"
            time.sleep(_POLL_S)

    def check_orphans(self) -> None:
        """Check that no process of a killed driver is still alive."""
        left = [p for pid in self._killed if pid != self.app.pid for p in processes.members(pid)]
        with contextlib.suppress(AssertionError):
            processes.wait_until(lambda: not any(map(self._lives, left)), "orphans", _ORPHAN_S)
        left = [p for p in left if self._lives(p)]
        assert not left, f"{len(left)} processes of killed drivers live on: {left[0].command[:200]}"

    @staticmethod
    def _lives(process: Process) -> bool:
        return Path(f"/proc/{process.pid}").exists()

    def _log(self, text: str) -> None:
        """Write a line between the messages of the app."""
        with self.app.log.open("a") as log:
            log.write(f"lab: {time.monotonic() - self._began:.1f} s: {text}\n")

    def _wait(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.keep_running("a fault")
            time.sleep(_POLL_S)

    def _inject(self, step: Step) -> int:
        """Return the number of the start whose cut shows that the app has recovered."""
        start = self.app.starts
        match step.fault:
            case Fault.KILL_DRIVER | Fault.KILL_SESSION:
                self._kill_app(step.fault)
                return start + 1
            case Fault.KILL_JVM | Fault.KILL_WORKER | Fault.KILL_WORKERS:
                targets = self._targets(step)
                for process in targets:
                    processes.kill(process.pid)
                return start + (step.fault is Fault.KILL_JVM and bool(targets))
            case Fault.KILL_BROKER | Fault.KILL_STORE:
                server = self.servers[step.fault.value.rpartition(" ")[2]]
                server.kill()
                self._wait(step.for_s)
                server.start()
            case Fault.PAUSE_BROKER | Fault.PAUSE_STORE:
                server = self.servers[step.fault.value.rpartition(" ")[2]]
                server.pause()
                try:
                    self._wait(step.for_s)
                finally:
                    server.resume()
            case Fault.FULL_DISK:
                assert self.disk is not None
                filler = self.disk.fill()
                self._wait(2 * step.for_s)
                if step.choice % 2:  # its next start finds the disk full
                    self._kill_app(Fault.KILL_SESSION)
                    self._wait(2 * step.for_s)
                filler.unlink(missing_ok=True)
            case Fault.CLOCK_JUMP:
                assert self.clock is not None
                write_offset(self.clock, CLOCKS_MS[step.choice % len(CLOCKS_MS)])
            case _:
                with processes.suspended(self._targets(step)):
                    time.sleep(step.for_s)
        return start

    def _kill_app(self, fault: Fault) -> None:
        """Kill it whole, or its driver alone, and start it again at once."""
        self._killed.append(self.app.pid)
        (self.app.kill if fault is Fault.KILL_SESSION else self.app.kill_driver)()
        self.begin()

    def _targets(self, step: Step) -> Sequence[Process]:
        """Return the processes that the fault is for; none while the app starts and has none."""
        found = processes.members(self.app.pid)
        workers = processes.python_workers(self.app.pid)
        match step.fault:
            case Fault.KILL_JVM | Fault.PAUSE_JVM:
                return processes.jvms(self.app.pid)
            case Fault.KILL_WORKER | Fault.PAUSE_WORKER:
                return [workers[step.choice % len(workers)]] if workers else []
            case Fault.KILL_WORKERS | Fault.PAUSE_WORKERS:
                return processes.daemon_and_workers(self.app.pid)
            case Fault.PAUSE_DRIVER:
                return [p for p in found if p.pid == self.app.pid]
            case _:
                return found
