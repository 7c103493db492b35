"""Input of the reconciler: the desired state and the observed state, as values.

An observation may be out of date. So every step that must not happen twice is first written to the status, onto the
resource version that was read.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from headgate_operator.resources.release import Release, release_for
from headgate_operator.resources.savepoint import SavepointPhase, SavepointReason, SavepointStatus
from headgate_operator.resources.spec import StreamAppSpec
from streamcore.control.status import CommandResult, DriverStatus


@dataclass(frozen=True, slots=True)
class Desired:
    """A ``StreamApp`` as people wrote it.

    ``spec`` is the last valid one; ``problem``: why the newest edit is invalid, or empty. ``finalized``: the resource
    has the operator's finalizer. ``deleting_since_ms``: milliseconds since 1970; None if the app is not being deleted.
    """

    namespace: str
    name: str
    uid: str
    generation: int
    spec: StreamAppSpec
    release: Release
    finalized: bool = False
    deleting_since_ms: int | None = None
    problem: str = ""

    @classmethod
    def of(cls, namespace: str, name: str, uid: str, generation: int, spec: StreamAppSpec) -> Desired:
        """Return an app with a valid spec that is not being deleted."""
        return cls(namespace, name, uid, generation, spec, release_for(spec, generation))

    @property
    def stem(self) -> str:
        """Return the prefix of the names of pods and savepoints. An earlier app of the same name had another one."""
        return f"{self.name}-{self.uid[:5]}"


@dataclass(frozen=True, slots=True)
class PodView:
    """A driver pod. ``finished``: the kubelet reported that all its containers have ended. ``command_id``: of the
    command that the pod has. ``message``: why the pod ended or waits.
    """

    name: str
    uid: str
    created_ms: int = 0
    finished: bool = False
    deleting: bool = False
    command_id: str = ""
    driver_status: DriverStatus | None = None
    message: str = ""

    @property
    def alive(self) -> bool:
        """Return true if the pod has not ended and is not being deleted."""
        return not self.finished and not self.deleting

    def result(self, command_id: str) -> CommandResult | None:
        """Return the driver's result of a command; None if there is none yet."""
        return self.driver_status.results.get(command_id) if self.driver_status else None


@dataclass(frozen=True, slots=True)
class SavepointView:
    """A ``Savepoint`` resource of the app."""

    name: str
    reason: SavepointReason
    resource_version: str
    created_ms: int
    status: SavepointStatus = field(default_factory=SavepointStatus)
    deleting: bool = False

    @property
    def complete(self) -> bool:
        """Return true if the savepoint can be restored."""
        return self.status.phase is SavepointPhase.COMPLETE and not self.deleting

    @property
    def open(self) -> bool:
        """Return true while its result is not known."""
        return self.status.phase in (SavepointPhase.PENDING, SavepointPhase.WRITING) and not self.deleting


@dataclass(frozen=True, slots=True)
class CollectorView:
    """A collector: a pod that removes the data of savepoints."""

    name: str
    uid: str
    finished: bool = False
    succeeded: bool = False


@dataclass(frozen=True, slots=True)
class Observed:
    """The observed state of an app.

    ``pods``: every driver pod with the app's label, also one that another program created. ``references``: names of
    savepoints that other apps restore.
    """

    pods: tuple[PodView, ...] = ()
    savepoints: tuple[SavepointView, ...] = ()
    collectors: tuple[CollectorView, ...] = ()
    references: frozenset[str] = frozenset()

    def pod(self, name: str) -> PodView | None:
        """Return the driver pod with this name, or None."""
        return next((pod for pod in self.pods if pod.name == name), None)

    def savepoint(self, name: str) -> SavepointView | None:
        """Return the ``Savepoint`` resource with this name, or None."""
        return next((savepoint for savepoint in self.savepoints if savepoint.name == name), None)

    def unfinished_pods(self, *except_names: str) -> tuple[PodView, ...]:
        """Return the driver pods of which a container may still run, without ``except_names``."""
        return tuple(pod for pod in self.pods if pod.name not in except_names and not pod.finished)
