"""Savepoints of a running service: the seam of ``streamcore.service.savepoint_api``, filled for Spark.

A savepoint that is named ``n`` is at the settings' place, under the app and ``n``. The checkpoint of epoch ``e`` is
``e<e>`` in the one of the settings (``streamcore.checkpoint.epochs``).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from streamcore.app import App
from streamcore.checkpoint.checkpoint import AppIdentity
from streamcore.checkpoint.epochs import EpochClaim, EpochProgress, EpochStore
from streamcore.control.commands import Promote
from streamcore.control.status import CompatibilityInfo, SavepointInfo
from streamcore.errors import ConfigError
from streamcore.kafka.markers import read_marker
from streamcore.savepoint import CompatibilityReport, RestoreDecisions, Savepoint, SavepointRepository
from streamcore.savepoint.app_description import check_app_compatibility
from streamcore.savepoint.restore import check_restorable, restore_checkpoint
from streamcore.savepoint.verify import verify_readable
from streamcore.service.config.settings import ServiceSettings
from streamcore.spark.runner import Runner
from streamcore.spark.runtime import Runtime
from streamcore.spark.savepoint_writer import take_savepoint_of_stopped
from streamcore.storage import open_object_store
from streamcore.writer_id import WriterId

_MARKERS_MS = 30_000


@dataclass(frozen=True, slots=True)
class ServiceSavepoints:
    """Of one service. ``StreamError`` from every method when it cannot."""

    settings: ServiceSettings
    app: App
    start: Runtime
    #: By the savepoint's digest: on the way from ``plan`` to ``make`` one is asked for again and again.
    _plans: dict[str, CompatibilityReport] = field(default_factory=dict, init=False, repr=False, compare=False)

    def plan(self, name: str) -> CompatibilityInfo:
        """See ``service.savepoints``."""
        found = self._plan(self._savepoints.get(name))
        return CompatibilityInfo(str(found.compatibility), tuple(reason.text for reason in found.reasons))

    def verify(self, name: str) -> str:
        """See ``service.savepoints``."""
        saved = self._savepoints.get(name)
        found = self._plan(saved)
        if not found.possible:
            raise ConfigError(f"savepoint {name}: {found.compatibility}: {'; '.join(r.text for r in found.reasons)}")
        return verify_readable(saved)

    def admit(self, go: Promote) -> None:
        """See ``service.savepoints``."""
        saved = self._source(go)
        moment = None if saved is None else EpochProgress(saved.manifest.epoch, saved.manifest.batch)
        self._epochs.check_claim(EpochClaim(go.epoch, moment, go.allow_empty, go.discard_newer), self._last_written)
        if saved is not None:
            check_restorable(saved.manifest, self._plan(saved), self._epochs.checkpoint(go.epoch), go.epoch)

    def make(self, go: Promote) -> None:
        """See ``service.savepoints``."""
        root, saved = self._epochs.checkpoint(go.epoch), self._source(go)
        if not self._epochs.exists(go.epoch):
            self._epochs.clear_partial(go.epoch)
        if saved is not None:
            rewinds = go.discard_newer or self._decisions.rewinds
            restore_checkpoint(saved, self.app, self._plan(saved), root, go.epoch, rewinds=rewinds)
        # What is there is checked; what begins with nothing is made.
        root.initialise(AppIdentity(self.app.name, self.app.shards), epoch=go.epoch)

    def create(self, name: str, runner: Runner) -> SavepointInfo:
        """See ``service.savepoints``."""
        if runner.has_ended:
            session = self.start.session()
            saved = take_savepoint_of_stopped(
                session, self.app, runner.root, self._savepoints, name, accept_unsettled=False
            )
        else:
            saved = runner.savepoint(name).result()
        one = saved.manifest
        return SavepointInfo(one.name, one.batch, one.epoch, one.digest, one.total_bytes)

    def _source(self, go: Promote) -> Savepoint | None:
        """Return the savepoint that the checkpoint is made from; None when none is named or the checkpoint exists."""
        if go.restore is None or self._epochs.exists(go.epoch):
            return None
        return self._savepoints.get(go.restore)

    def _last_written(self, epoch: int, begun: int) -> int | None:
        """Return the last written batch by the markers, as far as they are known: the next process fences that epoch
        first and looks again. A sink gets its rows before Kafka has the marker, so with any sink a begun batch counts
        as written.
        """
        if self.app.tables:
            return begun
        writer = WriterId(self.app.name, epoch, "driver")
        marker = read_marker(self.settings.kafka.settings(), self.settings.markers_topic, writer, _MARKERS_MS)
        return None if marker is None else marker.batch

    @property
    def _epochs(self) -> EpochStore:
        return EpochStore(self.settings.checkpoint)

    @property
    def _savepoints(self) -> SavepointRepository:
        return SavepointRepository(open_object_store(self.settings.savepoints_root), self.app.name)

    @property
    def _decisions(self) -> RestoreDecisions:
        return RestoreDecisions(frozenset(self.settings.restore.drop), frozenset(self.settings.restore.accept))

    def _plan(self, saved: Savepoint) -> CompatibilityReport:
        digest = saved.manifest.digest
        if digest not in self._plans:
            self._plans[digest] = check_app_compatibility(saved.manifest, self.app, self._decisions)
        return self._plans[digest]
