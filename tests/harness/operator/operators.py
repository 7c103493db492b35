"""Operator processes: caches that lag, each kind by itself; writes that conflict; death before or after any of them."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from headgate_operator.pods.settings import settings
from headgate_operator.reconcile import actions as act
from headgate_operator.reconcile.observed import CollectorView, Observed, PodView
from headgate_operator.resources.status import Status
from headgate_operator.runtime.reconcile_once import CachedApp, NotExclusive, StaleRead, reconcile_once
from streamcore.control.commands import Configure, ValidCommand, format_command
from tests.harness.operator import laws
from tests.harness.operator.cluster import Cluster, Pod, Snapshot

ReconcileOnce = Callable[["Operator", CachedApp, Callable[[], int]], Status]


class Died(Exception):
    """The process is gone in the midst of what it did."""


@dataclass
class Operator:
    """One process. It reads from ``cache``; ``history`` has what a fresh list may give after a restart: not the
    newest.
    """

    cluster: Cluster
    rng: random.Random
    history: deque[Snapshot]
    meanwhile: Callable[[], None]
    cache: Snapshot | None = None
    deaths: float = 0.0
    reconcile: ReconcileOnce = reconcile_once
    writes: int = 0
    forgets: set[str] = field(default_factory=set)

    def start(self) -> None:
        """Lists are sometimes older than the newest."""
        old = self.rng.random() < 0.3
        self.cache = self.rng.choice(self.history) if old and self.history else self.cluster.snapshot()

    def hear(self) -> None:
        """Watches deliver, each kind by itself, or are lost for a while."""
        assert self.cache is not None
        new = self.cluster.snapshot()
        kinds = ("app", "pods", "savepoints", "collectors")
        heard = {kind: getattr(new, kind) for kind in kinds if self.rng.random() < 0.7}
        self.cache = replace(self.cache, **heard)

    def resync(self) -> None:
        """All of it."""
        self.cache = self.cluster.snapshot()

    def work(self) -> None:
        """One turn. Errors are for the next one."""
        seen = self._read_cache()
        if seen is None:
            return
        try:
            self.reconcile(self, seen, lambda: self.cluster.now_ms)
        except (StaleRead, NotExclusive):
            self.hear()
        except Died:
            self.start()

    def _read_cache(self) -> CachedApp | None:
        cache = self.cache
        if cache is None or cache.app is None:
            return None
        desired, status, version = cache.app
        return CachedApp(desired, status, version, Observed(cache.pods, cache.savepoints, cache.collectors))

    # -- the API ----------------------------------------------------------------------------------------------------

    def _maybe_die(self) -> None:
        if self.deaths and self.rng.random() < self.deaths:
            raise Died
        if self.rng.random() < 0.1:
            self.meanwhile()

    def write_status(self, seen: CachedApp, status: Status) -> None:
        """Conditional on the version."""
        self._maybe_die()
        app = self.cluster.app
        if app.gone or (str(app.version) != seen.resource_version and "versions" not in self.forgets):
            raise StaleRead
        laws.status_is_true(self.cluster, app.status, status)
        app.status, app.version = status, app.version + 1
        self.writes += 1
        assert self.cache is not None
        self.cache = replace(self.cache, app=(app.desired, status, str(app.version)))
        self._maybe_die()

    def is_newest(self, seen: CachedApp) -> bool:
        """A get."""
        self._maybe_die()
        return not self.cluster.app.gone and str(self.cluster.app.version) == seen.resource_version

    def pods(self, seen: CachedApp) -> tuple[PodView, ...]:
        """A list."""
        self._maybe_die()
        if "looking" in self.forgets:
            return seen.observed.pods
        return tuple(pod.view() for pod in self.cluster.pods.values())

    def perform(self, seen: CachedApp, action: act.Action) -> None:
        """Each is done, or found done."""
        self._maybe_die()
        self.writes += 1
        _PERFORM[type(action)](self.cluster, action)
        self._maybe_die()


def _create_pod(cluster: Cluster, action: act.CreatePod) -> None:
    if action.name in cluster.pods or cluster.app.gone:
        return
    node = cluster.rng.choice([node for node in cluster.nodes if node.reachable and not node.dead] or cluster.nodes)
    image = cluster.images[action.release.spec.image]
    pod = Pod(action.name, f"uid{cluster.next()}", image, node, cluster.now_ms)
    pod.level = settings("app", action.release.spec)["level"]
    cluster.pods[action.name] = pod


def _delete_pod(cluster: Cluster, action: act.DeletePod) -> None:
    pod = cluster.pods.get(action.name)
    if pod is not None and pod.uid == action.uid and pod.deleting_since is None:
        pod.deleting_since = cluster.now_ms


def _send(cluster: Cluster, action: act.SendCommand | act.PromoteStandby) -> None:
    if isinstance(action, act.PromoteStandby) and (pod := cluster.pods.get(action.pod)) and pod.uid == action.uid:
        laws.nobody_else_owns(cluster, pod)
    _annotate(cluster, action.pod, action.uid, action.command)


def _annotate(cluster: Cluster, name: str, uid: str, command: ValidCommand) -> None:
    pod = cluster.pods.get(name)
    if pod is None or pod.uid != uid:
        return
    pod.request = format_command(command)
    pod.requests += pod.request


def _configure(cluster: Cluster, action: act.ReconfigureDriver) -> None:
    document = settings("app", action.release.spec)
    _annotate(cluster, action.pod, action.uid, Configure(action.command_id, document))


def _create_savepoint(cluster: Cluster, action: act.CreateSavepoint) -> None:
    cluster.add_line(action.name, action.reason)


def _record(cluster: Cluster, action: act.UpdateSavepointStatus) -> None:
    line = cluster.lines.get(action.name)
    if line is None or line.view.resource_version != action.resource_version:
        raise StaleRead
    laws.line_is_true(cluster, action)
    line.view = replace(line.view, status=action.status, resource_version=str(cluster.next()))


def _delete_savepoint(cluster: Cluster, action: act.DeleteSavepoint) -> None:
    cluster.delete_line(action.name)


def _release(cluster: Cluster, action: act.RemoveSavepointFinalizer) -> None:
    line = cluster.lines.get(action.name)
    if line is not None and line.view.deleting:
        del cluster.lines[action.name]


def _collector(cluster: Cluster, action: act.CreateCollector) -> None:
    if action.name not in cluster.collectors:
        view = CollectorView(action.name, f"uid{cluster.next()}")
        cluster.collectors[action.name] = (view, action.savepoints, action.everything)


def _uncollector(cluster: Cluster, action: act.DeleteCollector) -> None:
    cluster.collectors.pop(action.name, None)


def _finalizer(cluster: Cluster, action: act.AddFinalizer) -> None:
    app = cluster.app
    if app.desired.deleting_since_ms is None and not app.desired.finalized:
        app.desired, app.version = replace(app.desired, finalized=True), app.version + 1


def _unfinalizer(cluster: Cluster, action: act.RemoveFinalizer) -> None:
    app = cluster.app
    if app.desired.deleting_since_ms is not None:
        app.gone = True
        for pod in list(cluster.pods.values()):  # the garbage collector
            pod.deleting_since = pod.deleting_since or cluster.now_ms


_PERFORM: dict[type, Callable[..., None]] = {
    act.CreatePod: _create_pod,
    act.DeletePod: _delete_pod,
    act.SendCommand: _send,
    act.ReconfigureDriver: _configure,
    act.PromoteStandby: _send,
    act.CreateSavepoint: _create_savepoint,
    act.UpdateSavepointStatus: _record,
    act.DeleteSavepoint: _delete_savepoint,
    act.RemoveSavepointFinalizer: _release,
    act.CreateCollector: _collector,
    act.DeleteCollector: _uncollector,
    act.AddFinalizer: _finalizer,
    act.RemoveFinalizer: _unfinalizer,
    act.EmitEvent: lambda cluster, action: None,
}
