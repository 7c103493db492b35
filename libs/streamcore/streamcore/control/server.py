"""Between a control channel and a service: executes each command once and publishes the status.

Two threads, so that the status stays fresh while a savepoint takes a minute. A command, step by step (each line names
the state that a crash just after it leaves):

1. Check whether its id has a result, of this process or an earlier one. If so, nothing happens.
2. Execute it. A crash leaves it without a result, and the next process executes it again: it finds a savepoint of that
   name, or drains at once.
3. Publish the result. From here on step 1 finds it.

An unreachable channel (an API server that restarts) stops neither the service nor this server: the status is published
when the channel is back. Does not know the meaning of a command: that is the handler's.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from types import TracebackType

from streamcore.control.channel import ControlChannel
from streamcore.control.commands import Command, parse_command
from streamcore.control.status import CommandResult, DriverStatus
from streamcore.errors import StreamError
from streamcore.outages import LastingWarning

_LOG = logging.getLogger(__name__)
_FINAL_PAUSE_S = 0.5

#: Executes a command; None when the result comes later, through ``ControlServer.respond``.
CommandHandler = Callable[[Command], CommandResult | None]


@dataclass(frozen=True, slots=True)
class PublishPolicy:
    """``min_interval_ms``: the least time between two publications; ``metrics_interval_ms``: the same when only
    metrics changed. ``retry_ms``: the pause after a failure, doubled up to ``retry_max_ms``. ``final_wait_ms``: how
    long the end of the process waits for the last publication."""

    min_interval_ms: int = 1_000
    metrics_interval_ms: int = 5_000
    retry_ms: int = 1_000
    retry_max_ms: int = 15_000
    final_wait_ms: int = 10_000


class ControlServer:
    """A context manager: serves while it is entered and publishes the last status on exit. ``update`` changes the
    status, from any thread. ``refresh`` updates metrics that change without an ``update``."""

    def __init__(
        self,
        channel: ControlChannel,
        status: DriverStatus,
        handler: CommandHandler,
        policy: PublishPolicy | None = None,
        refresh: Callable[[DriverStatus], DriverStatus] = lambda status: status,
    ) -> None:
        self._channel = channel
        self._refresh = refresh
        self._handler = handler
        self._policy = policy or PublishPolicy()
        self._changed = threading.Condition()
        self._status = replace(status, at_ms=_now_ms())
        self._published: DriverStatus | None = None
        self._closing = threading.Event()
        self._history_loaded = threading.Event()
        self._started: set[str] = set()
        self._threads: list[threading.Thread] = []

    @property
    def status(self) -> DriverStatus:
        """Return the present status, published or not."""
        return self._status

    def update(self, change: Callable[[DriverStatus], DriverStatus]) -> None:
        """Change the status."""
        with self._changed:
            self._status = replace(change(self._status), at_ms=_now_ms())
            self._changed.notify_all()

    def respond(self, identity: str, result: CommandResult) -> None:
        """Execute step 3 of a command whose result comes later."""
        self.update(lambda status: status.with_result(identity, result))

    def __enter__(self) -> ControlServer:
        for name, run in (("commands", self._serve), ("status", self._publish_until_closed)):
            thread = threading.Thread(target=run, name=name, daemon=True)
            thread.start()
            self._threads.append(thread)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._closing.set()
        with self._changed:
            self._changed.notify_all()
        self._threads[1].join(self._policy.final_wait_ms / 1000)
        self._channel.close()

    def _serve(self) -> None:
        """Execute steps 1 to 3, one command after the other."""
        while not self._closing.is_set():
            command = self._next_command()
            if command is None:
                self._channel.wait(1.0)
                continue
            self._started.add(command.id)
            # 2. A failure is a result too.
            result = self._execute(command)
            # 3. Or later, through ``respond``.
            if result is not None:
                self.respond(command.id, result)

    def _next_command(self) -> Command | None:
        # 1. Nothing starts before the results of an earlier process are known.
        if not self._history_loaded.is_set():
            return None
        try:
            text = self._channel.latest_command()
        except StreamError:
            return None
        command = None if text is None else parse_command(text)
        if command is None or command.id in self._started or command.id in self._status.results:
            return None
        return command

    def _execute(self, command: Command) -> CommandResult | None:
        try:
            return self._handler(command)
        except Exception as error:
            return CommandResult(False, f"{type(error).__name__}: {error}")

    def _publish_until_closed(self) -> None:
        pause_ms = self._policy.retry_ms
        warning = LastingWarning(_LOG)
        while True:
            closing = self._closing.is_set()
            try:
                self._load_history()
                self._publish()
            except StreamError as error:
                again = f"still cannot publish the status, for {warning.seconds:.0f} s now: {error}"
                warning.warn(f"cannot publish the status, trying again: {error}", again)
                self._pause(pause_ms)
                pause_ms = min(2 * pause_ms, self._policy.retry_max_ms)
                continue
            pause_ms = self._policy.retry_ms
            warning.end(f"the status is published again, after {warning.seconds:.0f} s")
            if closing and self._published is self._status:
                return
            self._wait_for_change()

    def _load_history(self) -> None:
        """Take over the results of an earlier process."""
        if self._history_loaded.is_set():
            return
        text = self._channel.last_status()
        before = DriverStatus.from_json(text)
        if before is not None:
            with self._changed:
                self._status = replace(self._status, results={**before.results, **self._status.results})
        self._history_loaded.set()

    def _publish(self) -> None:
        status = self._status
        if status is not self._published:
            self._channel.publish(status.to_json())
            self._published = status

    def _wait_for_change(self) -> None:
        """Wait until a publication is due: for an urgent change, or to refresh the metrics."""
        self._closing.wait(self._policy.min_interval_ms / 1000)
        with self._changed:
            urgent = self._changed.wait_for(self._is_due, self._policy.metrics_interval_ms / 1000)
        if not urgent:
            self.update(self._refresh)

    def _is_due(self) -> bool:
        return self._closing.is_set() or self._status.is_urgent(self._published)

    def _pause(self, pause_ms: int) -> None:
        """Wait after a failure; briefly while the process ends and waits for the last publication."""
        if self._closing.wait(pause_ms / 1000):
            time.sleep(_FINAL_PAUSE_S)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
