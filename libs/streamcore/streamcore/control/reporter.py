"""Keeps the status of a running service up to date with its phase, its cuts and its failures."""

from __future__ import annotations

import logging
import os
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from importlib import metadata
from typing import TYPE_CHECKING

from streamcore.checkpoint.epochs import NewerEpochExists
from streamcore.control.channel import ControlChannel
from streamcore.control.server import CommandHandler, ControlServer
from streamcore.control.status import CommandResult, CompatibilityInfo, DriverPhase, DriverStatus, NewerEpochInfo
from streamcore.engine.lag import Lag
from streamcore.environment import EnvironmentVariable, Reader
from streamcore.errors import Retryable
from streamcore.leases.acquire import LeaseHeld
from streamcore.outages import OUTAGES

if TYPE_CHECKING:
    from streamcore.engine.report import CutReport

VERSION = EnvironmentVariable(
    "HEADGATE_VERSION",
    "Version of the program in the status of the app.",
    Reader.SERVICE,
    default="the version of the installed package",
)
_LOG = logging.getLogger(__name__)


#: Begins the message of a status while a system that the app needs is away.
_AWAY = "unavailable: "


def _describe_outage() -> str:
    """Return the message for what is away (``streamcore.outages``), empty without an outage. It names no duration: a
    status with another message is published at once."""
    away = OUTAGES.unavailable()
    return f"{_AWAY}{'; '.join(f'{one.dependency.name}: {one.reason}' for one in away)}" if away else ""


#: The share of the time in batches is that of so many cuts.
_BUSY_CUTS = 20


def _busy_percent(cuts: Sequence[tuple[int, int]]) -> int:
    """Return the share of the time that cuts took, from the first to the last. ``cuts``: start and duration of each."""
    elapsed_ms = cuts[-1][0] + cuts[-1][1] - cuts[0][0]
    return 0 if elapsed_ms <= 0 else min(100, round(100 * sum(duration for _, duration in cuts) / elapsed_ms))


class StatusReporter:
    """Reports one process; a ``CutListener`` of its app. While ``server`` is entered, commands are served too."""

    def __init__(self, channel: ControlChannel, handler: CommandHandler) -> None:
        version = os.environ.get(VERSION) or metadata.version("headgate")
        self.server = ControlServer(channel, DriverStatus(DriverPhase.STARTING, version), handler, refresh=self._as_now)
        self.respond = self.server.respond
        self._lag: Callable[[], Lag] = Lag
        self._cuts: deque[tuple[int, int]] = deque(maxlen=_BUSY_CUTS)

    def set_phase(self, phase: DriverPhase) -> None:
        """Report a new phase."""
        self.server.update(lambda status: replace(status, phase=phase))

    def set_compatibility(self, compatibility: CompatibilityInfo) -> None:
        """Report whether this version can continue from the savepoint that it was given."""
        self.server.update(lambda status: replace(status, compatibility=compatibility))

    def set_epoch(self, epoch: int) -> None:
        """Report the epoch whose checkpoint this process owns."""
        self.server.update(lambda status: replace(status, epoch=epoch))

    def set_checkpointing_mode(self, mode: str) -> None:
        """Report the checkpointing mode in which the app runs."""
        self.server.update(lambda status: replace(status, checkpointing_mode=mode))

    def track_lag(self, lag: Callable[[], Lag]) -> None:
        """Read the lag from ``lag``, also between cuts: it grows while a cut takes long."""
        self._lag = lag

    def fail(self, reason: str) -> None:
        """Report that the process cannot continue."""
        self.server.update(lambda status: replace(status, phase=DriverPhase.FAILED, message=reason))

    def reject(self, identity: str, reason: Exception | str) -> None:
        """Publish that a command was rejected; retryable when something was unreachable or a lease is held."""
        text = reason if isinstance(reason, str) else f"{type(reason).__name__}: {reason}"
        newer = NewerEpochInfo(reason.newer.epoch, reason.newer.batch) if isinstance(reason, NewerEpochExists) else None
        retryable = isinstance(reason, Retryable | LeaseHeld)
        self.respond(identity, CommandResult(False, text, newer_epoch=newer, retryable=retryable))

    def run_async(self, identity: str, work: Callable[[], CommandResult | None]) -> None:
        """Execute a slow command in a thread, so that a drain is served meanwhile. ``work``: a ``CommandHandler``."""

        def run() -> None:
            try:
                result = work()
            except Exception as error:
                _LOG.exception("command %s failed", identity)
                self.reject(identity, error)
            else:
                if result is not None:
                    self.respond(identity, result)

        threading.Thread(target=run, name=f"command-{identity}", daemon=True).start()

    def cut(self, report: CutReport) -> None:
        """Report a committed cut (``CutListener``)."""
        self._cuts.append((report.wall_ms, report.run_ms + report.commit_ms))
        self.server.update(
            lambda status: replace(
                self._as_now(status),
                epoch=report.epoch,
                batch=report.batch,
                busy_percent=_busy_percent(self._cuts),
                committed=status.committed + 1,
                watermark_ms=report.watermark_ms if report.watermark_ms > 0 else None,
                message=_describe_outage(),
            )
        )

    def progress(self, progress: Mapping[str, object]) -> None:
        """Ignore Spark's metrics (``CutListener``)."""

    def failure(self, error: Retryable) -> None:
        """Report a failure that is retried, until a cut succeeds (``CutListener``)."""
        self.server.update(lambda status: replace(status, message=f"trying again: {error}"))

    def _as_now(self, status: DriverStatus) -> DriverStatus:
        """Return the status with the lag and the outages of this moment. Another message is kept until a cut ends."""
        lag, message = self._lag(), status.message
        if not message or message.startswith(_AWAY):
            message = _describe_outage()
        return replace(status, lag_rows=lag.rows, lag_s=lag.ms / 1000, message=message)
