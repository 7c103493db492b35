"""Input of the reconciler: the desired and the observed state, as values from the process that watches the cluster.

An observation may be old. Nothing here proves the present, so every step that must not happen twice is written down
first, under the resource version that was read.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from headgate_operator.resources.release import Release, release_for
from headgate_operator.resources.savepoint import SavepointPhase, SavepointReason, SavepointStatus
from headgate_operator.resources.spec import StreamAppSpec
from streamcore.control.status import CommandResult, DriverStatus


@dataclass(frozen=True, slots=True)
class Desired:
    """A ``StreamApp`` as a person wrote it. ``problem``: why its newest edit is invalid; ``spec`` is the last valid
    one.
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
        """Return the value for a valid spec."""
        return cls(namespace, name, uid, generation, spec, release_for(spec, generation))

    @property
    def stem(self) -> str:
        """Return the prefix of its pods' and savepoints' names: not shared with an earlier app of the same name."""
        return f"{self.name}-{self.uid[:5]}"


@dataclass(frozen=True, slots=True)
class PodView:
    """A driver pod. ``finished``: the kubelet reported that its containers have ended, so nothing of it runs."""

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
        """Return true when the pod runs, or will, and has received no command to end."""
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
        """Return true when the savepoint can be restored."""
        return self.status.phase is SavepointPhase.COMPLETE and not self.deleting

    @property
    def open(self) -> bool:
        """Return true while its result is not known."""
        return self.status.phase in (SavepointPhase.PENDING, SavepointPhase.WRITING) and not self.deleting


@dataclass(frozen=True, slots=True)
class CollectorView:
    """A pod that removes data."""

    name: str
    uid: str
    finished: bool = False
    succeeded: bool = False


@dataclass(frozen=True, slots=True)
class Observed:
    """``pods``: every driver pod with the app's label, from any creator. ``references``: savepoints that other apps
    name.
    """

    pods: tuple[PodView, ...] = ()
    savepoints: tuple[SavepointView, ...] = ()
    collectors: tuple[CollectorView, ...] = ()
    references: frozenset[str] = frozenset()

    def pod(self, name: str) -> PodView | None:
        """Return the pod with this name."""
        return next((pod for pod in self.pods if pod.name == name), None)

    def savepoint(self, name: str) -> SavepointView | None:
        """Return the savepoint with this name."""
        return next((savepoint for savepoint in self.savepoints if savepoint.name == name), None)

    def unfinished_pods(self, *except_names: str) -> tuple[PodView, ...]:
        """Return the pods, except these, of which a container may run."""
        return tuple(pod for pod in self.pods if pod.name not in except_names and not pod.finished)
