"""What the reconciler is told: what is wanted, and what was seen. Values, made by whoever watches the cluster.

What was seen may be old. Nothing here is proof of the present, so every step that must not be done twice is written
down first, under the resource version that was read.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from headgate_operator.protocol import Answer, Report
from headgate_operator.resources.release import Release, release_of
from headgate_operator.resources.savepoint import SavepointPhase, SavepointReason, SavepointStatus
from headgate_operator.resources.spec import StreamAppSpec


@dataclass(frozen=True, slots=True)
class Desired:
    """A ``StreamApp`` as people wrote it. ``problem``: its newest edit cannot be used; ``spec`` is the last that
    could.
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
        """Of a valid spec."""
        return cls(namespace, name, uid, generation, spec, release_of(spec, generation))

    @property
    def stem(self) -> str:
        """What the names of its pods and savepoints begin with: not shared with an app of the same name that was."""
        return f"{self.name}-{self.uid[:5]}"


@dataclass(frozen=True, slots=True)
class PodView:
    """A driver pod. ``finished``: the kubelet said that its containers have ended, so nothing of it runs."""

    name: str
    uid: str
    created_ms: int = 0
    finished: bool = False
    deleting: bool = False
    request_id: str = ""
    report: Report | None = None
    message: str = ""

    @property
    def alive(self) -> bool:
        """It runs, or will, and nobody has told it to end."""
        return not self.finished and not self.deleting

    def answer(self, request_id: str) -> Answer | None:
        """To a request, if it was given."""
        return self.report.answers.get(request_id) if self.report else None


@dataclass(frozen=True, slots=True)
class SavepointView:
    """A ``Savepoint`` of the app."""

    name: str
    reason: SavepointReason
    resource_version: str
    created_ms: int
    status: SavepointStatus = field(default_factory=SavepointStatus)
    deleting: bool = False

    @property
    def complete(self) -> bool:
        """It can be restored."""
        return self.status.phase is SavepointPhase.COMPLETE and not self.deleting

    @property
    def open(self) -> bool:
        """Its outcome is not known."""
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
    """``pods``: every driver pod with the app's label, whoever made it. ``references``: savepoints that other apps
    name.
    """

    pods: tuple[PodView, ...] = ()
    savepoints: tuple[SavepointView, ...] = ()
    collectors: tuple[CollectorView, ...] = ()
    references: frozenset[str] = frozenset()

    def pod(self, name: str) -> PodView | None:
        """By name."""
        return next((pod for pod in self.pods if pod.name == name), None)

    def savepoint(self, name: str) -> SavepointView | None:
        """By name."""
        return next((savepoint for savepoint in self.savepoints if savepoint.name == name), None)

    def unfinished(self, *except_names: str) -> tuple[PodView, ...]:
        """Pods other than these of which something may run."""
        return tuple(pod for pod in self.pods if pod.name not in except_names and not pod.finished)
