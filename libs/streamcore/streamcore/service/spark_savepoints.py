"""Implements ``streamcore.service.savepoint_api`` for apps on Spark.

Savepoints are in the folder ``<savepoints_root>/<app>/<name>``. The checkpoint of epoch ``e`` is the folder ``e<e>`` in
the settings' ``checkpoint`` (``streamcore.checkpoint.epochs``).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from streamcore.app import App
from streamcore.checkpoint.checkpoint import AppIdentity
from streamcore.checkpoint.epochs import EpochClaim, EpochProgress, EpochStore
from streamcore.control.commands import Promote
from streamcore.control.status import CompatibilityInfo, SavepointInfo
from streamcore.cuts.writer_id import WriterId
from streamcore.errors import ConfigError
from streamcore.kafka.delivery import DeliverySettings
from streamcore.kafka.hanging_transactions import end_hanging_transactions
from streamcore.kafka.markers import read_marker
from streamcore.savepoint import CompatibilityReport, RestoreDecisions, Savepoint, SavepointRepository
from streamcore.savepoint.app_description import check_app_compatibility
from streamcore.savepoint.fork import find_savepoint
from streamcore.savepoint.restore import check_restorable, restore_checkpoint
from streamcore.savepoint.verify import verify_readable
from streamcore.service.config.settings import ServiceSettings
from streamcore.spark.runner import Runner
from streamcore.spark.runtime import Runtime
from streamcore.spark.savepoint_writer import take_savepoint_of_stopped
from streamcore.storage import open_object_store

_MARKERS_TIMEOUT_MS = 30_000


@dataclass(frozen=True, slots=True)
class ServiceSavepoints:
    """The ``Savepoints`` of one service. ``start``: its Spark runtime."""

    settings: ServiceSettings
    app: App
    start: Runtime
    #: Reports by the savepoint's digest: ``plan``, ``admit`` and ``make`` all need one, and building kernels is slow.
    _plans: dict[str, CompatibilityReport] = field(default_factory=dict, init=False, repr=False, compare=False)

    def plan(self, name: str) -> CompatibilityInfo:
        """See ``Savepoints``."""
        report = self._plan(self._find(name))
        return CompatibilityInfo(str(report.compatibility), tuple(reason.text for reason in report.reasons))

    def verify(self, name: str) -> str:
        """See ``Savepoints``."""
        saved = self._find(name)
        report = self._plan(saved)
        if not report.possible:
            raise ConfigError(f"savepoint {name}: {report.compatibility}: {'; '.join(r.text for r in report.reasons)}")
        return verify_readable(saved)

    def admit(self, command: Promote) -> None:
        """See ``Savepoints``."""
        saved = self._source(command)
        progress = None if saved is None else EpochProgress(saved.manifest.epoch, saved.manifest.batch)
        self._epochs.check_claim(
            EpochClaim(command.epoch, progress, command.allow_empty, command.discard_newer), self._last_written
        )
        if saved is not None:
            check_restorable(saved.manifest, self._plan(saved), self._epochs.checkpoint(command.epoch), command.epoch)

    def make(self, command: Promote) -> None:
        """See ``Savepoints``."""
        root, saved = self._epochs.checkpoint(command.epoch), self._source(command)
        if not self._epochs.exists(command.epoch):
            self._epochs.clear_partial(command.epoch)
        if saved is not None:
            rewinds = command.discard_newer or self._decisions.rewinds
            restore_checkpoint(saved, self.app, self._plan(saved), root, command.epoch, rewinds=rewinds)
        # Checks an existing or restored checkpoint, or creates an empty one.
        root.initialise(AppIdentity.of(self.app.name, self.app.key_space), epoch=command.epoch)
        root.add_written_topics(self._epochs.written_topics())

    def create(self, name: str, runner: Runner) -> SavepointInfo:
        """See ``Savepoints``."""
        if runner.has_ended:
            session = self.start.session()
            saved = take_savepoint_of_stopped(
                session, self.app, runner.root, self._savepoints, name, accept_unsettled=False
            )
        else:
            saved = runner.savepoint(name).result()
        manifest = saved.manifest
        return SavepointInfo(manifest.name, manifest.batch, manifest.epoch, manifest.digest, manifest.total_bytes)

    def _source(self, command: Promote) -> Savepoint | None:
        """Return the savepoint to restore; None if the command names none or the checkpoint exists."""
        if command.restore is None or self._epochs.exists(command.epoch):
            return None
        return self._find(command.restore)

    def _last_written(self, epoch: int, begun: int) -> int | None:
        """Return the last batch of ``epoch`` whose output may be written, or None. ``begun``: its last planned batch.

        Without sinks this is the batch of the newest marker; a process of that epoch may still write later ones, so
        the next owner fences the epoch and reads again. Hanging transactions, which would hide the marker, are ended
        first. With a sink it is ``begun``, because a sink gets its rows before Kafka has the marker.
        """
        if self.app.tables:
            return begun
        kafka, markers = self.settings.kafka, self.settings.markers_topic
        writers = [WriterId(self.app.name, one) for one in self._epochs.existing()]
        topics = {markers, *self.app.lanes.values(), *self._epochs.written_topics()}
        end_hanging_transactions(kafka, writers, sorted(topics), DeliverySettings())
        marker = read_marker(kafka, markers, WriterId(self.app.name, epoch), _MARKERS_TIMEOUT_MS)
        return None if marker is None else marker.cut.batch

    @property
    def _epochs(self) -> EpochStore:
        return EpochStore(self.settings.checkpoint)

    def _find(self, name: str) -> Savepoint:
        """Return a savepoint of this app, or of the app that it is a fork of."""
        place = open_object_store(self.settings.savepoints_root)
        return find_savepoint(place, name, self.app.name, self.app.control_topic, self.settings.restore.app)

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
