"""What a running service does with savepoints: the seam of ``streamcore.service.savepoints``, filled for Spark.

A savepoint that is named ``n`` is at the settings' place, under the app and ``n``. A restore into epoch ``e`` makes the
checkpoint ``e<e>`` beside the one in the settings; asked again, it finds the one that it made.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from streamcore.app import App
from streamcore.checkpoint.epoch import read_epoch
from streamcore.checkpoint.layout import CheckpointRoot
from streamcore.checkpoint.lease import Lease
from streamcore.checkpoint.origin import Origin
from streamcore.errors import ConfigError
from streamcore.savepoint import REWIND, Decisions, RestorePlan, Savepoint, Savepoints, plan
from streamcore.savepoint.describe import describe
from streamcore.savepoint.restoring import prepare
from streamcore.service.report import PlanSaid, SavepointSaid
from streamcore.service.settings import ServiceSettings
from streamcore.spark.runner import Runner
from streamcore.spark.savepoints import take_stopped
from streamcore.spark.start import Start
from streamcore.storage import open_folder


@dataclass(frozen=True, slots=True)
class ServiceSavepoints:
    """Of one service. ``StreamError`` from every method when it cannot."""

    settings: ServiceSettings
    app: App
    start: Start

    def plan(self, name: str) -> PlanSaid:
        """See ``service.savepoints``."""
        found = self._plan(self._savepoints.get(name))
        return PlanSaid(str(found.verdict), tuple(reason.text for reason in found.reasons))

    def restore(self, name: str, epoch: int) -> Path:
        """See ``service.savepoints``."""
        saved = self._savepoints.get(name)
        root = CheckpointRoot(self.settings.checkpoint.with_name(f"e{epoch}"))
        self._refuse_past(epoch)
        with Lease(root.path):
            if not _is_made(root, saved, epoch):
                rewinds = REWIND in self._decisions.accept
                prepare(saved, self.app, self._plan(saved), root, epoch, rewinds=rewinds)
        return root.path

    def _refuse_past(self, epoch: int) -> None:
        """An epoch that is over is not begun again: its checkpoint may be gone, and what it wrote is not."""
        found = self.settings.checkpoint.parent.glob("e[0-9]*")
        later = [int(n) for n in (path.name.removeprefix("e") for path in found) if n.isdigit() and int(n) > epoch]
        if later:
            raise ConfigError(f"epoch {epoch} is over: there is a checkpoint of epoch {max(later)} already")

    def create(self, name: str, runner: Runner) -> SavepointSaid:
        """See ``service.savepoints``."""
        if runner.ended:
            session = self.start.session()
            saved = take_stopped(session, self.app, runner.root, self._savepoints, name, accept_unsettled=False)
        else:
            saved = runner.savepoint(name).result()
        one = saved.manifest
        return SavepointSaid(one.name, one.batch, one.epoch, one.digest, one.total_bytes)

    @property
    def _savepoints(self) -> Savepoints:
        return Savepoints(open_folder(self.settings.savepoint_place), self.app.name)

    @property
    def _decisions(self) -> Decisions:
        return Decisions(frozenset(self.settings.restore.drop), frozenset(self.settings.restore.accept))

    def _plan(self, saved: Savepoint) -> RestorePlan:
        return plan(saved.manifest, describe(self.app, saved.manifest.tables), self._decisions)


def _is_made(root: CheckpointRoot, saved: Savepoint, epoch: int) -> bool:
    """Whether this very restore has been done: a checkpoint with another past is refused by ``prepare``."""
    origin = Origin.read(root.origin_path)
    if root.identity() is None or origin is None:
        return False
    return origin.digest == saved.manifest.digest and read_epoch(root.epoch_path) == epoch
