"""What a service says of itself while it lives: its report, kept up to date by what happens to it."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib import metadata
from typing import TYPE_CHECKING

from streamcore.checkpoint.epochs import NewerExists
from streamcore.checkpoint.lease import LeaseHeld
from streamcore.errors import Retryable
from streamcore.lag import Lag
from streamcore.service.clerk import CarryOut, Clerk
from streamcore.service.mailbox import Mailbox
from streamcore.service.report import Answer, NewerSaid, Phase, PlanSaid, Report

if TYPE_CHECKING:
    from streamcore.spark.runner import CutReport

VERSION = "HEADGATE_VERSION"
_LOG = logging.getLogger(__name__)


class Voice:
    """Of one process; an ``Observer`` of its app. ``attending``: while it is entered, requests are heard too."""

    def __init__(self, mailbox: Mailbox, carry_out: CarryOut) -> None:
        version = os.environ.get(VERSION) or metadata.version("headgate")
        self.attending = Clerk(mailbox, Report(Phase.STARTING, version), carry_out, refresh=self._with_lag)
        self.answer = self.attending.answer
        self._lag: Callable[[], Lag] = Lag

    def phase(self, phase: Phase) -> None:
        """A new one."""
        self.attending.say(lambda report: replace(report, phase=phase))

    def plan(self, plan: PlanSaid) -> None:
        """Whether it could go on from the savepoint that it was shown."""
        self.attending.say(lambda report: replace(report, plan=plan))

    def owns(self, epoch: int) -> None:
        """The checkpoint is its own."""
        self.attending.say(lambda report: replace(report, epoch=epoch))

    def watch(self, lag: Callable[[], Lag]) -> None:
        """Where to ask for the lag. It grows while a cut takes long, so it is asked for now and then."""
        self._lag = lag

    def fail(self, why: str) -> None:
        """It cannot go on."""
        self.attending.say(lambda report: replace(report, phase=Phase.FAILED, message=why))

    def refuse(self, identity: str, why: Exception | str) -> None:
        """A request was not carried out: not now when something was away or is held, else for good."""
        text = why if isinstance(why, str) else f"{type(why).__name__}: {why}"
        newer = NewerSaid(why.newer.epoch, why.newer.batch) if isinstance(why, NewerExists) else None
        self.answer(identity, Answer(False, text, newer=newer, retry=isinstance(why, Retryable | LeaseHeld)))

    def later(self, identity: str, work: Callable[[], Answer | None]) -> None:
        """Answer a request in a thread: it takes its time, and a drain must be heard meanwhile. ``work``: as of a
        ``CarryOut``."""

        def run() -> None:
            try:
                answer = work()
            except Exception as error:
                _LOG.exception("request %s", identity)
                self.refuse(identity, error)
            else:
                if answer is not None:
                    self.answer(identity, answer)

        threading.Thread(target=run, name=f"request-{identity}", daemon=True).start()

    def cut(self, report: CutReport) -> None:
        """See ``Observer``."""
        self.attending.say(
            lambda said: replace(
                self._with_lag(said),
                epoch=report.epoch,
                batch=report.batch,
                committed=said.committed + 1,
                watermark_ms=report.watermark_ms if report.watermark_ms > 0 else None,
                message="",
            )
        )

    def progress(self, progress: Mapping[str, object]) -> None:
        """See ``Observer``."""

    def failure(self, error: Retryable) -> None:
        """See ``Observer``: it is tried again, and whoever looks should know until it went well."""
        self.attending.say(lambda said: replace(said, message=f"trying again: {error}"))

    def _with_lag(self, report: Report) -> Report:
        lag = self._lag()
        return replace(report, lag_rows=lag.rows, lag_s=lag.ms / 1000)
