"""Operator processes: caches that lag, each kind by itself; writes that conflict; crashes before or after any write."""

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
from tests.harness.operator import invariants
from tests.harness.operator.cluster import Cluster, Pod, Snapshot

ReconcileOnce = Callable[["Operator", CachedApp, Callable[[], int]], Status]


class OperatorCrashed(Exception):
    """The process ended in the middle of its work."""


@dataclass
class Operator:
    """One process. It reads from ``cache``; ``history`` has old states that a list may return after a restart.

    ``disabled`` names the protections that are switched off.
    """

    cluster: Cluster
    rng: random.Random
    history: deque[Snapshot]
    meanwhile: Callable[[], None]
    cache: Snapshot | None = None
    crash_probability: float = 0.0
    reconcile: ReconcileOnce = reconcile_once
    writes: int = 0
    disabled: set[str] = field(default_factory=set)

    def start(self) -> None:
        """Fill the cache, sometimes with an old state."""
        old = self.rng.random() < 0.3
        self.cache = self.rng.choice(self.history) if old and self.history else self.cluster.snapshot()

    def receive_watches(self) -> None:
        """Update the cache by kind, as far as the watches deliver."""
        assert self.cache is not None
        new = self.cluster.snapshot()
        kinds = ("app", "pods", "savepoints", "collectors")
        delivered = {kind: getattr(new, kind) for kind in kinds if self.rng.random() < 0.7}
        self.cache = replace(self.cache, **delivered)

    def resync(self) -> None:
        """Update the whole cache."""
        self.cache = self.cluster.snapshot()

    def run_once(self) -> None:
        """Reconcile once. An error is left to the next call."""
        seen = self._read_cache()
        if seen is None:
            return
        try:
            self.reconcile(self, seen, lambda: self.cluster.now_ms)
        except (StaleRead, NotExclusive):
            self.receive_watches()
        except OperatorCrashed:
            self.start()

    def _read_cache(self) -> CachedApp | None:
        cache = self.cache
        if cache is None or cache.app is None:
            return None
        desired, status, version = cache.app
        return CachedApp(desired, status, version, Observed(cache.pods, cache.savepoints, cache.collectors))

    # -- the API ----------------------------------------------------------------------------------------------------

    def _maybe_crash(self) -> None:
        if self.crash_probability and self.rng.random() < self.crash_probability:
            raise OperatorCrashed
        if self.rng.random() < 0.1:
            self.meanwhile()

    def write_status(self, seen: CachedApp, status: Status) -> None:
        """Write the status if the version is still the one that was read."""
        self._maybe_crash()
        app = self.cluster.app
        if app.gone or (str(app.version) != seen.resource_version and "versions" not in self.disabled):
            raise StaleRead
        invariants.check_status(self.cluster, app.status, status)
        app.status, app.version = status, app.version + 1
        self.writes += 1
        assert self.cache is not None
        self.cache = replace(self.cache, app=(app.desired, status, str(app.version)))
        self._maybe_crash()

    def is_newest(self, seen: CachedApp) -> bool:
        """Read the app past the cache."""
        self._maybe_crash()
        return not self.cluster.app.gone and str(self.cluster.app.version) == seen.resource_version

    def pods(self, seen: CachedApp) -> tuple[PodView, ...]:
        """List the pods past the cache."""
        self._maybe_crash()
        if "read_past_cache" in self.disabled:
            return seen.observed.pods
        return tuple(pod.view() for pod in self.cluster.pods.values())

    def perform(self, seen: CachedApp, action: act.Action) -> None:
        """Perform an action; each is idempotent."""
        self._maybe_crash()
        self.writes += 1
        _PERFORM[type(action)](self.cluster, action)
        self._maybe_crash()


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
        invariants.check_single_owner(cluster, pod)
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
    cluster.create_savepoint(action.name, action.reason)


def _update_savepoint_status(cluster: Cluster, action: act.UpdateSavepointStatus) -> None:
    savepoint = cluster.savepoints.get(action.name)
    if savepoint is None or savepoint.view.resource_version != action.resource_version:
        raise StaleRead
    invariants.check_savepoint_status(cluster, action)
    savepoint.view = replace(savepoint.view, status=action.status, resource_version=str(cluster.next()))


def _delete_savepoint(cluster: Cluster, action: act.DeleteSavepoint) -> None:
    cluster.delete_savepoint(action.name)


def _remove_savepoint_finalizer(cluster: Cluster, action: act.RemoveSavepointFinalizer) -> None:
    savepoint = cluster.savepoints.get(action.name)
    if savepoint is not None and savepoint.view.deleting:
        del cluster.savepoints[action.name]


def _create_collector(cluster: Cluster, action: act.CreateCollector) -> None:
    if action.name not in cluster.collectors:
        view = CollectorView(action.name, f"uid{cluster.next()}")
        cluster.collectors[action.name] = (view, action.savepoints, action.everything)


def _delete_collector(cluster: Cluster, action: act.DeleteCollector) -> None:
    cluster.collectors.pop(action.name, None)


def _add_finalizer(cluster: Cluster, action: act.AddFinalizer) -> None:
    app = cluster.app
    if app.desired.deleting_since_ms is None and not app.desired.finalized:
        app.desired, app.version = replace(app.desired, finalized=True), app.version + 1


def _remove_finalizer(cluster: Cluster, action: act.RemoveFinalizer) -> None:
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
    act.UpdateSavepointStatus: _update_savepoint_status,
    act.DeleteSavepoint: _delete_savepoint,
    act.RemoveSavepointFinalizer: _remove_savepoint_finalizer,
    act.CreateCollector: _create_collector,
    act.DeleteCollector: _delete_collector,
    act.AddFinalizer: _add_finalizer,
    act.RemoveFinalizer: _remove_finalizer,
    act.EmitEvent: lambda cluster, action: None,
}
