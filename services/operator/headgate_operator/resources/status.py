"""What the operator says of a ``StreamApp``, and all that it remembers: an operator that is killed goes on from here.

Values. Whatever the operator is about to do is here before it does it: pods by name, epochs, requests by id, deadlines.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

from pydantic import ConfigDict

from headgate_operator.resources.base import STORED, FreeObject, InstantMs
from headgate_operator.resources.release import Release


class Phase(StrEnum):
    """Where the app is. The first is before anything was done."""

    PENDING = "Pending"
    PREFLIGHT = "Preflight"
    STOPPING = "Stopping"
    SEALED = "Sealed"
    VERIFIED = "Verified"
    FENCED = "Fenced"
    STARTING = "Starting"
    PROVING = "Proving"
    STABLE = "Stable"
    ROLLING_BACK = "RollingBack"
    ROLLED_BACK = "RolledBack"
    RESTARTING = "Restarting"
    SUSPENDING = "Suspending"
    SUSPENDED = "Suspended"
    NEEDS_HUMAN = "NeedsHuman"
    DELETING = "Deleting"


#: The app runs, and nothing is under way.
RUNNING = frozenset({Phase.STABLE, Phase.ROLLED_BACK})
#: Nothing is under way.
RESTING = RUNNING | {Phase.SUSPENDED, Phase.NEEDS_HUMAN}


class Outcome(StrEnum):
    """How an upgrade ended."""

    OPEN = ""
    SUCCEEDED = "Succeeded"
    REFUSED = "Refused"
    SUPERSEDED = "Superseded"
    INTERRUPTED = "Interrupted"
    ROLLED_BACK = "RolledBack"
    NEEDS_HUMAN = "NeedsHuman"


class UpgradeKind(StrEnum):
    """First start; another release; back to a savepoint that a person chose."""

    INSTALL = "install"
    UPGRADE = "upgrade"
    RESTORE = "restore"


@dataclass(frozen=True, slots=True)
class PodRef:
    """A driver pod. ``uid`` is empty until it was seen."""

    __pydantic_config__: ClassVar[ConfigDict] = STORED

    name: str
    revision: str
    uid: str = ""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The checkpoint ``<root>/<app>/e<epoch>``, and how it comes to be.

    ``restore``: the savepoint that it is made from, if it is not there yet. ``begin``: it may begin empty.
    ``accept_newer``: a person said that what is newer than the savepoint may be left behind. ``established``: a driver
    said that it committed a batch in it, so from then on it is only gone on with.
    """

    __pydantic_config__: ClassVar[ConfigDict] = STORED

    epoch: int
    restore: str = ""
    begin: bool = False
    accept_newer: bool = False
    established: bool = False
    batch: int = -1


@dataclass(frozen=True, slots=True)
class Asked:
    """The request that a pod has to answer. One at a time. ``batch``: what was known to be committed when it was
    asked.
    """

    __pydantic_config__: ClassVar[ConfigDict] = STORED

    id: str
    kind: str
    pod: str
    deadline: InstantMs
    savepoint: str = ""
    batch: int = -1


@dataclass(frozen=True, slots=True)
class Offered:
    """Settings that a pod was asked to take, by the request ``id``: those of the release ``revision``, which differs
    from the stable one in nothing else. It has not answered, so nobody knows which of the two it runs with.
    """

    __pydantic_config__: ClassVar[ConfigDict] = STORED

    id: str
    pod: str
    revision: str
    generation: int
    config: FreeObject


@dataclass(frozen=True, slots=True)
class PhaseTime:
    """When a phase was entered."""

    __pydantic_config__: ClassVar[ConfigDict] = STORED

    phase: Phase
    at: InstantMs


@dataclass(frozen=True, slots=True)
class Upgrade:
    """One change of what runs. ``base``: the checkpoint of the version before. ``handed``: the new version may own
    one. ``ended``: when its outcome was written.
    """

    __pydantic_config__: ClassVar[ConfigDict] = STORED

    number: int
    kind: UpgradeKind
    to: Release
    started: InstantMs
    from_version: str = ""
    base: Checkpoint | None = None
    handed: bool = False
    savepoint: str = ""
    undo_savepoint: str = ""
    undo_step: int = 0
    target: Checkpoint | None = None
    claim: Checkpoint | None = None
    lag_rows: int = 0
    phases: tuple[PhaseTime, ...] = ()
    outcome: Outcome = Outcome.OPEN
    reason: str = ""
    message: str = ""
    ended: InstantMs | None = None


@dataclass(frozen=True, slots=True)
class Condition:
    """As Kubernetes has them."""

    __pydantic_config__: ClassVar[ConfigDict] = STORED

    type: str
    status: str
    reason: str
    message: str
    last_transition_time: InstantMs
    observed_generation: int = 0


@dataclass(frozen=True, slots=True)
class Candidate:
    """A savepoint that a person may restore, what that means, and the command."""

    __pydantic_config__: ClassVar[ConfigDict] = STORED

    savepoint: str
    epoch: int
    batch: int
    command: str


@dataclass(frozen=True, slots=True)
class Progress:
    """What the owner last said. Written now and then, not with every report."""

    __pydantic_config__: ClassVar[ConfigDict] = STORED

    batch: int
    lag_rows: int
    lag_seconds: int
    at: InstantMs


@dataclass(frozen=True, slots=True)
class Collecting:
    """Savepoints whose data a pod removes."""

    __pydantic_config__: ClassVar[ConfigDict] = STORED

    names: tuple[str, ...]
    pod: str
    attempt: int
    deadline: InstantMs


@dataclass(frozen=True, slots=True)
class Status:
    """The whole of it. ``attempt`` counts driver pods ever made, so that no name is used twice."""

    __pydantic_config__: ClassVar[ConfigDict] = STORED

    observed_generation: int = 0
    phase: Phase = Phase.PENDING
    version: str = ""
    deadline: InstantMs | None = None
    attempt: int = 0
    requests: int = 0
    epochs: int = 0
    stable: Release | None = None
    owner: PodRef | None = None
    standby: PodRef | None = None
    checkpoint: Checkpoint | None = None
    asked: Asked | None = None
    upgrade: Upgrade | None = None
    resume: Phase | None = None
    restarts: int = 0
    not_before: InstantMs | None = None
    gone_by: InstantMs | None = None
    prepare_by: InstantMs | None = None
    running_since: InstantMs | None = None
    settled: str = ""
    not_live: str = ""
    offered: Offered | None = None
    last_scheduled: InstantMs | None = None
    newest_savepoint: str = ""
    nonce: str = ""
    progress: Progress | None = None
    collecting: Collecting | None = None
    candidates: tuple[Candidate, ...] = ()
    conditions: tuple[Condition, ...] = ()
