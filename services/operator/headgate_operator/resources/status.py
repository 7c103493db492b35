"""The status of a ``StreamApp``, which is the only memory of the operator: after a crash it continues from the status.

The operator stores every intention here before it acts: names of pods, epochs, ids of commands, deadlines. All classes
are immutable values.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, ClassVar

from pydantic import ConfigDict, Field

from headgate_operator.resources.base import STORED, FreeObject, InstantMs
from headgate_operator.resources.release import Release
from streamcore.codes import Code


class Phase(Code):
    """The phase of the app."""

    PENDING = ("Pending", "The operator has not started the app yet.", "Nothing.")
    PREFLIGHT = (
        "Preflight",
        "The new version starts as a standby beside the old one, and its plan is checked.",
        "Nothing; `StandbyTimeout` ends it.",
    )
    STOPPING = (
        "Stopping",
        "The old version stops between two batches, with a savepoint if the upgrade needs one.",
        "Nothing; `StopTimeout` ends it.",
    )
    VERIFYING = ("Verifying", "The new version reads the savepoint of the old one.", "Nothing; `VerifyFailed` ends it.")
    AWAITING_EXIT = (
        "AwaitingExit",
        "The operator waits until no pod of the old version runs.",
        "If it lasts, look at the node of the old pod.",
    )
    PROMOTING = ("Promoting", "The new version gets the command to own the checkpoint.", "Nothing.")
    STARTING = (
        "Starting",
        "The new version restores its state and commits its first batch.",
        "Nothing; `StartTimeout` ends it.",
    )
    PROVING = ("Proving", "The new version runs and must fulfil `upgrade.proof`.", "Nothing; `NoProof` ends it.")
    STABLE = ("Stable", "The app runs, and its version is proven.", "Nothing.")
    ROLLING_BACK = (
        "RollingBack",
        "The new version failed, and the operator brings the old one back.",
        "Nothing; the events have the reason.",
    )
    ROLLED_BACK = (
        "RolledBack",
        "The old version runs after a failed upgrade.",
        "Correct the cause in `.status.upgrade.reason` and change the spec.",
    )
    RESTARTING = (
        "Restarting",
        "The driver ended or hangs, and another pod continues from the checkpoint.",
        "Read the driver's log if it repeats.",
    )
    SUSPENDING = ("Suspending", "The driver stops because `state` is suspended.", "Nothing.")
    SUSPENDED = ("Suspended", "No pod runs, and the state is kept.", "Set `state` to running to start the app again.")
    NEEDS_HUMAN = (
        "NeedsHuman",
        "The operator cannot continue without a decision.",
        "Execute the command in the message of the condition Degraded.",
    )
    DELETING = ("Deleting", "The app is deleted: pods stop, and data goes according to `deletionPolicy`.", "Nothing.")


#: Phases in which the app runs and no change is in progress.
RUNNING = frozenset({Phase.STABLE, Phase.ROLLED_BACK})
#: Phases in which no change is in progress.
RESTING = RUNNING | {Phase.SUSPENDED, Phase.NEEDS_HUMAN}


class UpgradeOutcome(Code):
    """The outcome of an upgrade; empty while it is in progress."""

    OPEN = ("", "The upgrade is in progress.", "Nothing.")
    SUCCEEDED = ("Succeeded", "The new version is proven.", "Nothing.")
    REJECTED = (
        "Rejected",
        "The upgrade ended before the old version stopped, so the old version runs.",
        "Correct the cause in `reason` and change the spec.",
    )
    SUPERSEDED = (
        "Superseded",
        "The spec changed again, or the app was deleted, before the upgrade was finished.",
        "Nothing.",
    )
    INTERRUPTED = (
        "Interrupted",
        "The old version ended during the upgrade.",
        "Nothing: it is restarted, and the upgrade begins again.",
    )
    ROLLED_BACK = (
        "RolledBack",
        "The new version failed, and the old version runs again.",
        "Correct the cause in `reason` and change the spec.",
    )
    NEEDS_HUMAN = (
        "NeedsHuman",
        "The upgrade could be neither finished nor rolled back.",
        "Execute the command in the message of the condition Degraded.",
    )


class UpgradeKind(StrEnum):
    """The kind of an upgrade: a first start, a new release, or a restore that a person requested."""

    INSTALL = "install"
    UPGRADE = "upgrade"
    RESTORE = "restore"


@dataclass(frozen=True, slots=True)
class PodRef:
    """A driver pod."""

    __pydantic_config__: ClassVar[ConfigDict] = STORED

    name: Annotated[str, Field(description="Name of the pod.")]
    revision: Annotated[str, Field(description="Revision of the release that the pod runs.")]
    uid: Annotated[str, Field(description="Uid of the pod; empty until the pod was seen.")] = ""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint, in the folder ``<root>/<app>/e<epoch>``, and how the driver creates it.

    An established checkpoint is continued; ``restore``, ``allow_empty`` and ``discard_newer`` are about its creation.
    """

    __pydantic_config__: ClassVar[ConfigDict] = STORED

    epoch: Annotated[int, Field(description="Epoch of the checkpoint; its folder is e<epoch>.")]
    restore: Annotated[
        str,
        Field(description="Savepoint that the checkpoint is created from; empty for none."),
    ] = ""
    allow_empty: Annotated[bool, Field(description="Whether the checkpoint may start empty.")] = False
    discard_newer: Annotated[
        bool,
        Field(description="Whether a person accepted to leave behind what is newer than the savepoint."),
    ] = False
    established: Annotated[
        bool,
        Field(description="Whether a driver has committed a batch in it; from then on it is only continued."),
    ] = False
    batch: Annotated[
        int,
        Field(description="Last batch known to be committed; -1 before the first."),
    ] = -1


@dataclass(frozen=True, slots=True)
class PendingCommand:
    """The command whose result is awaited. There is at most one."""

    __pydantic_config__: ClassVar[ConfigDict] = STORED

    id: Annotated[str, Field(description="Id of the command.")]
    kind: Annotated[str, Field(description="Name of the command, such as drain.")]
    pod: Annotated[str, Field(description="Pod that must execute it.")]
    deadline: Annotated[InstantMs, Field(description="Time until which the result is awaited.")]
    savepoint: Annotated[
        str,
        Field(description="Savepoint that the command names; empty for none."),
    ] = ""
    batch: Annotated[
        int,
        Field(description="Last batch known to be committed when the command was sent."),
    ] = -1


@dataclass(frozen=True, slots=True)
class PendingConfig:
    """Settings that a driver is to apply without a restart, sent by the command ``configure`` with this ``id``.

    The release ``revision`` differs from the stable one only in these settings. Without a result of the command it is
    unknown with which of the two the driver runs.
    """

    __pydantic_config__: ClassVar[ConfigDict] = STORED

    id: Annotated[str, Field(description="Id of the configure command.")]
    pod: Annotated[str, Field(description="Pod that received the settings.")]
    revision: Annotated[str, Field(description="Revision of the release with these settings.")]
    generation: Annotated[
        int,
        Field(description="Generation of the StreamApp that has these settings."),
    ]
    config: Annotated[FreeObject, Field(description="Settings of the service.")]


@dataclass(frozen=True, slots=True)
class PhaseTime:
    """The time at which a phase was entered."""

    __pydantic_config__: ClassVar[ConfigDict] = STORED

    phase: Annotated[Phase, Field(description="Phase that was entered.")]
    at: Annotated[InstantMs, Field(description="Time at which it was entered.")]


@dataclass(frozen=True, slots=True)
class Upgrade:
    """One change of the running release: an upgrade, a first start or a restore."""

    __pydantic_config__: ClassVar[ConfigDict] = STORED

    number: Annotated[int, Field(description="Number of the upgrade, counted from 1.")]
    kind: Annotated[UpgradeKind, Field(description="First start, upgrade or restore.")]
    to: Annotated[Release, Field(description="Release that the upgrade leads to.")]
    started: Annotated[InstantMs, Field(description="Time at which the upgrade started.")]
    from_version: Annotated[str, Field(description="Version that ran before; empty for none.")] = ""
    base: Annotated[Checkpoint | None, Field(description="Checkpoint of the version before.")] = None
    promoted: Annotated[bool, Field(description="Whether the new version may own a checkpoint.")] = False
    savepoint: Annotated[
        str,
        Field(description="Savepoint that the old version writes; empty for none."),
    ] = ""
    undo_savepoint: Annotated[
        str,
        Field(description="Savepoint that the new version writes when it is rolled back; empty for none."),
    ] = ""
    undo_step: Annotated[
        int,
        Field(description="Step of the rollback; 0 before the new version is stopped."),
    ] = 0
    target: Annotated[Checkpoint | None, Field(description="Checkpoint of the new version.")] = None
    claim: Annotated[
        Checkpoint | None,
        Field(description="Checkpoint that the next driver gets."),
    ] = None
    lag_rows: Annotated[int, Field(description="Lag in rows when the proof started.")] = 0
    phases: Annotated[
        tuple[PhaseTime, ...],
        Field(description="Phases that the upgrade went through."),
    ] = ()
    outcome: Annotated[
        UpgradeOutcome,
        Field(description="How the upgrade ended; empty while it is in progress."),
    ] = UpgradeOutcome.OPEN
    reason: Annotated[str, Field(description="Reason of the outcome, one word for tools.")] = ""
    message: Annotated[str, Field(description="Reason of the outcome, for people.")] = ""
    ended: Annotated[InstantMs | None, Field(description="Time at which the upgrade ended.")] = None


@dataclass(frozen=True, slots=True)
class PastUpgrade:
    """The record that is kept of an earlier upgrade."""

    __pydantic_config__: ClassVar[ConfigDict] = STORED

    number: Annotated[int, Field(description="Number of the upgrade, counted from 1.")]
    kind: Annotated[UpgradeKind, Field(description="First start, upgrade or restore.")]
    to_version: Annotated[str, Field(description="Version that the upgrade led to.")]
    started: Annotated[InstantMs, Field(description="Time at which the upgrade started.")]
    outcome: Annotated[UpgradeOutcome, Field(description="How the upgrade ended.")]
    from_version: Annotated[str, Field(description="Version that ran before; empty for none.")] = ""
    savepoint: Annotated[str, Field(description="Savepoint that the old version wrote; empty for none.")] = ""
    phases: Annotated[tuple[PhaseTime, ...], Field(description="Phases that the upgrade went through.")] = ()
    reason: Annotated[str, Field(description="Reason of the outcome, one word for tools.")] = ""
    message: Annotated[str, Field(description="Reason of the outcome, for people, at most 500 characters.")] = ""
    ended: Annotated[InstantMs | None, Field(description="Time at which the upgrade ended.")] = None

    @classmethod
    def of(cls, upgrade: Upgrade) -> PastUpgrade:
        """Return the record that is kept of an upgrade."""
        return cls(
            number=upgrade.number,
            kind=upgrade.kind,
            to_version=upgrade.to.version,
            started=upgrade.started,
            outcome=upgrade.outcome,
            from_version=upgrade.from_version,
            savepoint=upgrade.savepoint,
            phases=upgrade.phases,
            reason=upgrade.reason,
            message=upgrade.message[:500],
            ended=upgrade.ended,
        )


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition, as Kubernetes defines it."""

    __pydantic_config__: ClassVar[ConfigDict] = STORED

    type: Annotated[str, Field(description="Ready, Progressing or Degraded.")]
    status: Annotated[str, Field(description="True or False.")]
    reason: Annotated[str, Field(description="Reason, one word for tools.")]
    message: Annotated[str, Field(description="Reason, for people.")]
    last_transition_time: Annotated[
        InstantMs,
        Field(description="Time of the last change of status."),
    ]
    observed_generation: Annotated[
        int,
        Field(description="Generation of the StreamApp that the condition is about."),
    ] = 0


@dataclass(frozen=True, slots=True)
class RestorePoint:
    """A savepoint that a person may restore, and the command for it."""

    __pydantic_config__: ClassVar[ConfigDict] = STORED

    savepoint: Annotated[str, Field(description="Name of the savepoint.")]
    epoch: Annotated[int, Field(description="Epoch of the savepoint.")]
    batch: Annotated[int, Field(description="Last batch that the savepoint contains.")]
    command: Annotated[str, Field(description="Command that restores it.")]


@dataclass(frozen=True, slots=True)
class AppProgress:
    """The progress of the driver. It is updated at intervals, not with every status."""

    __pydantic_config__: ClassVar[ConfigDict] = STORED

    batch: Annotated[int, Field(description="Last batch committed.")]
    lag_rows: Annotated[int, Field(description="Rows of the inputs that are not processed yet.")]
    lag_seconds: Annotated[
        int,
        Field(description="Age of the oldest unprocessed row in seconds."),
    ]
    at: Annotated[InstantMs, Field(description="Time of this progress.")]


@dataclass(frozen=True, slots=True)
class ScaleState:
    """The number of executors that autoscaling has decided, and the load since then."""

    __pydantic_config__: ClassVar[ConfigDict] = STORED

    executors: Annotated[int, Field(description="Number of executors that the app gets.")]
    reason: Annotated[str, Field(description="Reason of the last change, for people.")] = ""
    high_since: Annotated[
        InstantMs | None,
        Field(description="Time since which the load is high."),
    ] = None
    low_since: Annotated[
        InstantMs | None,
        Field(description="Time since which the load is low."),
    ] = None
    not_before: Annotated[
        InstantMs | None,
        Field(description="Time of the earliest next change, after one that failed."),
    ] = None
    failures: Annotated[int, Field(description="Number of changes that failed.")] = 0


@dataclass(frozen=True, slots=True)
class GarbageCollection:
    """The removal of the data of savepoints, by a collector pod."""

    __pydantic_config__: ClassVar[ConfigDict] = STORED

    names: Annotated[tuple[str, ...], Field(description="Savepoints that are being removed.")]
    pod: Annotated[str, Field(description="Pod that removes the data.")]
    attempt: Annotated[int, Field(description="Number of the attempt, counted from 1.")]
    deadline: Annotated[InstantMs, Field(description="Time after which the attempt has failed.")]


@dataclass(frozen=True, slots=True)
class Status:
    """The complete status of a ``StreamApp``."""

    __pydantic_config__: ClassVar[ConfigDict] = STORED

    observed_generation: Annotated[
        int,
        Field(description="Generation of the StreamApp that this status is about."),
    ] = 0
    phase: Annotated[Phase, Field(description="Phase of the app.")] = Phase.PENDING
    version: Annotated[str, Field(description="Version that runs, or ran last.")] = ""
    deadline: Annotated[
        InstantMs | None,
        Field(description="Time at which the phase ends without success."),
    ] = None
    attempt: Annotated[
        int,
        Field(description="Number of driver pods made so far, so that no name is used twice."),
    ] = 0
    requests: Annotated[int, Field(description="Number of commands sent so far.")] = 0
    epochs: Annotated[int, Field(description="Highest epoch that was assigned so far.")] = 0
    stable: Annotated[Release | None, Field(description="Release that was proven last.")] = None
    owner: Annotated[PodRef | None, Field(description="Driver pod that owns the checkpoint.")] = None
    standby: Annotated[
        PodRef | None,
        Field(description="Driver pod that is ready to take over."),
    ] = None
    checkpoint: Annotated[Checkpoint | None, Field(description="Checkpoint that the owner has.")] = None
    pending_command: Annotated[PendingCommand | None, Field(description="Command whose result is awaited.")] = None
    upgrade: Annotated[
        Upgrade | None,
        Field(description="Upgrade in progress, or the last one."),
    ] = None
    history: Annotated[
        tuple[PastUpgrade, ...],
        Field(description="The upgrades before `upgrade`, the oldest first; the newest 20 are kept."),
    ] = ()
    resume: Annotated[
        Phase | None,
        Field(description="Phase to continue with when the old pod has ended."),
    ] = None
    scale: Annotated[
        ScaleState | None,
        Field(description="Decision of autoscaling; none while it is off."),
    ] = None
    restarts: Annotated[int, Field(description="Restarts without a healthy time in between.")] = 0
    retry_after: Annotated[
        InstantMs | None,
        Field(description="Time before which no new driver pod is made."),
    ] = None
    terminate_by: Annotated[
        InstantMs | None,
        Field(description="Time from which the app needs a person if old pods still run."),
    ] = None
    prepare_by: Annotated[
        InstantMs | None,
        Field(description="Time by which the standby must be ready."),
    ] = None
    running_since: Annotated[
        InstantMs | None,
        Field(description="Time since which the app runs."),
    ] = None
    drain_retried_for: Annotated[
        str,
        Field(description="Revision for which the old version was restarted and drained once more."),
    ] = ""
    rejected_live_config: Annotated[
        str,
        Field(description="Revision whose settings the driver could not apply without a restart."),
    ] = ""
    pending_config: Annotated[
        PendingConfig | None,
        Field(description="Settings that a driver received and has not confirmed."),
    ] = None
    last_scheduled: Annotated[
        InstantMs | None,
        Field(description="Time of the last scheduled savepoint."),
    ] = None
    newest_savepoint: Annotated[str, Field(description="Newest complete savepoint.")] = ""
    restore_nonce: Annotated[str, Field(description="Nonce of the last restore.")] = ""
    progress: Annotated[AppProgress | None, Field(description="Progress of the driver.")] = None
    garbage_collection: Annotated[
        GarbageCollection | None,
        Field(description="Removal of savepoints in progress."),
    ] = None
    restore_points: Annotated[
        tuple[RestorePoint, ...],
        Field(description="Savepoints to choose from when a person must decide."),
    ] = ()
    conditions: Annotated[
        tuple[Condition, ...],
        Field(description="Conditions: Ready, Progressing and Degraded."),
    ] = ()
