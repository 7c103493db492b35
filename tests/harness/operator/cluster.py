"""A model of the API server with versions, conflicts and finalizers, of nodes that fail, and of their pods."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, field, replace

from headgate_operator.reconcile.observed import CollectorView, Desired, PodView, SavepointView
from headgate_operator.resources.savepoint import SavepointReason, SavepointStatus
from headgate_operator.resources.status import Status
from streamcore.control.commands import command_id
from streamcore.control.status import DriverStatus
from tests.harness.operator.driver import Driver, Image
from tests.harness.operator.store import Store

#: Probability that the store does not answer a ``promote``.
_OUTAGE = 0.1


@dataclass
class Node:
    """``reachable``: the API server gets its reports. ``dead``: no process runs on it."""

    reachable: bool = True
    dead: bool = False


@dataclass
class Pod:
    """The object and its process. ``requests``: all requests that it ever got."""

    name: str
    uid: str
    image: Image
    node: Node
    created_ms: int
    driver: Driver | None = None
    deleting_since: int | None = None
    finished: bool = False
    request: str = ""
    report: str = ""
    requests: str = ""
    level: object = None
    seen: tuple[object, PodView] | None = None

    def view(self) -> PodView:
        """Return what an operator sees of it."""
        now = (self.finished, self.deleting_since, self.request, self.report)
        if self.seen is None or self.seen[0] != now:
            self.seen = (now, self._view())
        return self.seen[1]

    def _view(self) -> PodView:
        deleting, request_id, status = (
            self.deleting_since is not None,
            command_id(self.request),
            DriverStatus.from_json(self.report),
        )
        return PodView(self.name, self.uid, self.created_ms, self.finished, deleting, request_id, status)


@dataclass
class SavepointObject:
    """A ``Savepoint`` and whether it has its finalizer."""

    view: SavepointView
    held: bool = True


@dataclass
class App:
    """The ``StreamApp``."""

    desired: Desired
    status: Status = field(default_factory=Status)
    version: int = 1
    gone: bool = False


@dataclass(frozen=True)
class Snapshot:
    """All objects at one moment."""

    app: tuple[Desired, Status, str] | None
    pods: tuple[PodView, ...]
    savepoints: tuple[SavepointView, ...]
    collectors: tuple[CollectorView, ...]


@dataclass
class Cluster:
    """The state of the cluster. ``violations``: a sentence for each violated invariant."""

    rng: random.Random
    app: App
    store: Store = field(default_factory=Store)
    nodes: list[Node] = field(default_factory=lambda: [Node(), Node()])
    pods: dict[str, Pod] = field(default_factory=dict)
    processes: list[Driver] = field(default_factory=list)
    savepoints: dict[str, SavepointObject] = field(default_factory=dict)
    collectors: dict[str, tuple[CollectorView, tuple[str, ...], bool]] = field(default_factory=dict)
    images: dict[str, Image] = field(default_factory=dict)
    now_ms: int = 1_000_000
    counter: int = 0
    violations: list[str] = field(default_factory=list)

    def next(self) -> int:
        """Return a new number."""
        self.counter += 1
        return self.counter

    def snapshot(self) -> Snapshot:
        """Return all objects, as lists of the API server do."""
        app = None if self.app.gone else (self.app.desired, self.app.status, str(self.app.version))
        return Snapshot(
            app,
            tuple(pod.view() for pod in self.pods.values()),
            tuple(savepoint.view for savepoint in self.savepoints.values()),
            tuple(entry[0] for entry in self.collectors.values()),
        )

    # -- what kubelets do -------------------------------------------------------------------------------------------

    def tick(self, pod: Pod) -> None:
        """Let the node of the pod do some work."""
        node = pod.node
        if not node.dead and pod.driver is not None:
            pod.driver.tick(self.now_ms)
        if node.dead or not node.reachable:
            return
        if pod.driver is None and not pod.finished and pod.deleting_since is None:
            pod.driver = Driver(pod.uid, pod.image, self.store, self.rng, level=pod.level, outage_probability=_OUTAGE)
            self.processes.append(pod.driver)
        self._publish(pod)
        self._end(pod)

    def _publish(self, pod: Pod) -> None:
        if pod.driver is None or pod.finished:
            return
        pod.driver.receive_request(pod.request)
        if pod.driver.code in (0, 1) and self.rng.random() < 0.6:
            pod.report = pod.driver.report(self.now_ms)

    def _end(self, pod: Pod) -> None:
        driver = pod.driver
        if driver is not None and driver.ended and not pod.finished and self.rng.random() < 0.6:
            pod.finished = True
            return
        if pod.deleting_since is None:
            return
        if driver is None or pod.finished:
            self.pods.pop(pod.name, None)
        elif self.rng.random() < 0.5:
            driver.term()
        elif self.now_ms - pod.deleting_since > 20_000:
            driver.kill()

    def run_collectors(self) -> None:
        """Run the pods that delete data; some fail."""
        for name, (view, targets, everything) in list(self.collectors.items()):
            if view.finished:
                continue
            if self.rng.random() < 0.2:
                self.collectors[name] = (replace(view, finished=True), targets, everything)
                continue
            for target in list(self.store.savepoints) if everything else targets:
                self.remove_data(target, everything)
            self.collectors[name] = (replace(view, finished=True, succeeded=True), targets, everything)

    def remove_data(self, name: str, everything: bool) -> None:
        """Delete the data of a savepoint, and check that the savepoint is not in use."""
        if not everything and name in needed_savepoints(self):
            self.violations.append(f"savepoint {name} was removed while in use")
        self.store.savepoints.pop(name, None)

    def force_delete(self, pod: Pod) -> None:
        """Delete the pod of a node that is gone. The process on an unreachable node may still run."""
        self.pods.pop(pod.name, None)
        pod.finished = True

    # -- the ledger -------------------------------------------------------------------------------------------------

    def create_savepoint(self, name: str, reason: SavepointReason) -> None:
        """Create a ``Savepoint`` unless one of this name exists."""
        if name not in self.savepoints:
            view = SavepointView(name, reason, str(self.next()), self.now_ms, SavepointStatus())
            self.savepoints[name] = SavepointObject(view)

    def delete_savepoint(self, name: str) -> None:
        """Mark a ``Savepoint`` as deleted; it stays until its finalizer is removed."""
        savepoint = self.savepoints.get(name)
        if savepoint is not None:
            savepoint.view = replace(savepoint.view, deleting=True, resource_version=str(self.next()))


def needed_savepoints(cluster: Cluster) -> set[str]:
    """Return the savepoints that a restore may still need, by the state of the cluster and not of a cache."""
    status = cluster.app.status
    names: set[str] = set()
    upgrade, checkpoint = status.upgrade, status.checkpoint
    if upgrade is not None and upgrade.outcome in ("", "NeedsHuman"):
        names |= {upgrade.savepoint, upgrade.undo_savepoint}
        claims = [claim for claim in (upgrade.base, upgrade.target, upgrade.claim) if claim]
        names |= {claim.restore for claim in claims if claim.epoch not in cluster.store.checkpoints}
    if checkpoint is not None and cluster.store.checkpoints.get(checkpoint.epoch) is None:
        names.add(checkpoint.restore)
    for pod in cluster.pods.values():
        request = _json(pod.request)
        waiting = pod.driver is not None and not pod.driver.ended and pod.driver.phase == "standby"
        if request.get("command") == "promote" and waiting:
            names.add(str(request.get("restore") or ""))
    return names - {""}


def _json(text: str) -> dict[str, object]:
    return dict(json.loads(text)) if text else {}
