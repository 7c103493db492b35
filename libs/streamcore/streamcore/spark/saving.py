"""What a running service does with savepoints: the seam of ``streamcore.service.savepoints``, filled for Spark.

A savepoint that is named ``n`` is at the settings' place, under the app and ``n``. The checkpoint of epoch ``e`` is
``e<e>`` in the one of the settings (``streamcore.checkpoint.epochs``).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from streamcore.app import App
from streamcore.checkpoint.epochs import Claim, Epochs, Reached
from streamcore.checkpoint.layout import AppIdentity
from streamcore.errors import ConfigError
from streamcore.kafka.markers import read_marker
from streamcore.savepoint import Decisions, RestorePlan, Savepoint, Savepoints
from streamcore.savepoint.describe import plan_for
from streamcore.savepoint.reading import read_back
from streamcore.savepoint.restoring import prepare, refuse
from streamcore.service.report import PlanSaid, SavepointSaid
from streamcore.service.requests import Go
from streamcore.service.settings import ServiceSettings
from streamcore.spark.runner import Runner
from streamcore.spark.savepoints import take_stopped
from streamcore.spark.start import Start
from streamcore.storage import open_folder
from streamcore.writer import WriterId

_MARKERS_MS = 30_000


@dataclass(frozen=True, slots=True)
class ServiceSavepoints:
    """Of one service. ``StreamError`` from every method when it cannot."""

    settings: ServiceSettings
    app: App
    start: Start
    #: By the savepoint's digest: on the way from ``plan`` to ``make`` one is asked for again and again.
    _plans: dict[str, RestorePlan] = field(default_factory=dict, init=False, repr=False, compare=False)

    def plan(self, name: str) -> PlanSaid:
        """See ``service.savepoints``."""
        found = self._plan(self._savepoints.get(name))
        return PlanSaid(str(found.verdict), tuple(reason.text for reason in found.reasons))

    def verify(self, name: str) -> str:
        """See ``service.savepoints``."""
        saved = self._savepoints.get(name)
        found = self._plan(saved)
        if not found.possible:
            raise ConfigError(f"savepoint {name}: {found.verdict}: {'; '.join(r.text for r in found.reasons)}")
        return read_back(saved)

    def admit(self, go: Go) -> None:
        """See ``service.savepoints``."""
        saved = self._source(go)
        moment = None if saved is None else Reached(saved.manifest.epoch, saved.manifest.batch)
        self._epochs.admit(Claim(go.epoch, moment, go.begin, go.accept_newer), self._written)
        if saved is not None:
            refuse(saved.manifest, self._plan(saved), self._epochs.checkpoint(go.epoch), go.epoch)

    def make(self, go: Go) -> None:
        """See ``service.savepoints``."""
        root, saved = self._epochs.checkpoint(go.epoch), self._source(go)
        if not self._epochs.is_made(go.epoch):
            self._epochs.clear(go.epoch)
        if saved is not None:
            rewinds = go.accept_newer or self._decisions.rewinds
            prepare(saved, self.app, self._plan(saved), root, go.epoch, rewinds=rewinds)
        # What is there is checked; what begins with nothing is made.
        root.prepare(AppIdentity(self.app.name, self.app.shards), epoch=go.epoch)

    def create(self, name: str, runner: Runner) -> SavepointSaid:
        """See ``service.savepoints``."""
        if runner.ended:
            session = self.start.session()
            saved = take_stopped(session, self.app, runner.root, self._savepoints, name, accept_unsettled=False)
        else:
            saved = runner.savepoint(name).result()
        one = saved.manifest
        return SavepointSaid(one.name, one.batch, one.epoch, one.digest, one.total_bytes)

    def _source(self, go: Go) -> Savepoint | None:
        """What the checkpoint is made from. Of one that is there nobody asks any more."""
        if go.restore is None or self._epochs.is_made(go.epoch):
            return None
        return self._savepoints.get(go.restore)

    def _written(self, epoch: int, begun: int) -> int | None:
        """By the markers, as far as they are known: whoever runs then fences that epoch first and looks again. A sink
        gets its rows before Kafka has the marker, so where there are any, what was begun counts as written."""
        if self.app.tables:
            return begun
        writer = WriterId(self.app.name, epoch, "driver")
        marker = read_marker(self.settings.kafka.settings(), self.settings.markers_topic, writer, _MARKERS_MS)
        return None if marker is None else marker.batch

    @property
    def _epochs(self) -> Epochs:
        return Epochs(self.settings.checkpoint)

    @property
    def _savepoints(self) -> Savepoints:
        return Savepoints(open_folder(self.settings.savepoint_place), self.app.name)

    @property
    def _decisions(self) -> Decisions:
        return Decisions(frozenset(self.settings.restore.drop), frozenset(self.settings.restore.accept))

    def _plan(self, saved: Savepoint) -> RestorePlan:
        digest = saved.manifest.digest
        if digest not in self._plans:
            self._plans[digest] = plan_for(saved.manifest, self.app, self._decisions)
        return self._plans[digest]
