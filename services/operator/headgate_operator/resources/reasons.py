"""Machine-readable reasons in the status of a ``StreamApp`` and in its events."""

from __future__ import annotations

from headgate_operator.resources.status import UpgradeOutcome
from streamcore.codes import Code

_LOG = "Read the driver's log and the last message, correct the cause, and change the spec or restore a savepoint."


class FailureReason(Code):
    """Reasons in `.status.upgrade.reason`, and in the messages of events and of the condition Degraded."""

    NEEDS_SAVEPOINT = (
        "NeedsSavepoint",
        "An upgrade in place changes `shufflePartitions`.",
        "Set `upgrade.mode` to `savepoint`.",
    )
    INCOMPATIBLE = (
        "Incompatible",
        "The new version cannot continue from the state of the old one.",
        "Change the new version, or start it empty with `upgrade.mode: stateless`.",
    )
    NEEDS_DECISION = (
        "NeedsDecision",
        "The new version drops or reinterprets state, which a person must accept.",
        "Accept the differences in `config.restore.drop` or `config.restore.accept`, or change the new version.",
    )
    STANDBY_FAILED = ("StandbyFailed", "The pod of the new version ends before it is ready.", _LOG)
    STANDBY_GONE = ("StandbyGone", "The pod of the new version disappears before it is ready.", _LOG)
    STANDBY_TIMEOUT = (
        "StandbyTimeout",
        "The pod of the new version is not ready within `upgrade.prepareDeadline`.",
        "Look at the pod's events for missing resources or images, or raise the deadline.",
    )
    STOP_TIMEOUT = (
        "StopTimeout",
        "The old version does not stop within `upgrade.stopDeadline`.",
        "Raise the deadline, or reduce `events_per_cut`; the old version runs on.",
    )
    STOP_REJECTED = (
        "StopRejected",
        "The old version rejects the command to stop with a savepoint.",
        "Read the message; the old version runs on.",
    )
    OLD_VERSION_ENDED = (
        "OldVersionEnded",
        "The old version ends by itself during an upgrade.",
        "Nothing: it is restarted, and the upgrade begins again.",
    )
    VERIFY_FAILED = (
        "VerifyFailed",
        "The new version cannot read the savepoint, or not within `upgrade.startDeadline`.",
        _LOG,
    )
    GO_FAILED = (
        "GoFailed",
        "A standby cannot take over because a dependency is away or the lease is still held.",
        "Nothing: it is tried again. Look at Kafka and the storage if it stays.",
    )
    GO_REJECTED = ("GoRejected", "A standby rejects the command to take over the checkpoint.", _LOG)
    START_TIMEOUT = (
        "StartTimeout",
        "The version does not commit a batch within `upgrade.startDeadline`.",
        "Read the driver's log, or raise the deadline.",
    )
    DRIVER_FAILED = ("DriverFailed", "The driver ends while it starts or is proven.", _LOG)
    NO_PROOF = (
        "NoProof",
        "The new version does not commit the batches, or reduce the lag, that `upgrade.proof` demands.",
        "Give the new version more resources, or change `upgrade.proof`.",
    )
    NEWER_EPOCH_EXISTS = (
        "NewerEpochExists",
        "The storage has a newer checkpoint than the one that the operator knows.",
        "Choose a savepoint of `.status.restorePoints` and restore it.",
    )
    NO_WAY_BACK = (
        "NoWayBack",
        "The old version cannot continue from any savepoint or checkpoint.",
        "Choose a savepoint of `.status.restorePoints` and restore it.",
    )
    DRIVER_ENDED = (
        "DriverEnded",
        "The driver of a running app ends.",
        "Nothing: it is restarted from the checkpoint. Read its log if it repeats.",
    )
    DRIVER_HANGS = (
        "DriverHangs",
        "The driver of a running app reports nothing for too long.",
        "Nothing: it is restarted from the checkpoint. Look at its node and memory if it repeats.",
    )
    SETTINGS_UNKNOWN = (
        "SettingsUnknown",
        "The driver does not confirm whether it applied new settings.",
        "Nothing: it is restarted with the settings of the stable release.",
    )
    SUPERSEDED = ("Superseded", "The spec changes before the old version stops.", "Nothing.")
    DELETED = ("Deleted", "The app is deleted during an upgrade.", "Nothing.")


class ConditionReason(Code):
    """Reasons of the conditions Ready, Progressing and Degraded. Progressing also has the phase as its reason."""

    RUNNING = ("Running", "Ready: the driver runs and owns the checkpoint.", "Nothing.")
    NOT_RUNNING = ("NotRunning", "Ready: no driver runs.", "Look at the phase and the condition Degraded.")
    SUSPENDED = ("Suspended", "Ready: `state` is suspended.", "Set `state` to running to start the app again.")
    AS_EXPECTED = ("AsExpected", "Degraded: there is no problem.", "Nothing.")
    NEEDS_HUMAN = (
        "NeedsHuman",
        "Degraded: the operator cannot continue without a decision.",
        "Execute the command in the message.",
    )
    INVALID_SPEC = ("InvalidSpec", "Degraded: the spec cannot be used.", "Correct the field that the message names.")
    RESTORE_IMPOSSIBLE = (
        "RestoreImpossible",
        "Degraded: the savepoint in `restore.from` does not exist or is not complete.",
        "Name a complete savepoint: `kubectl get savepoints`.",
    )
    CRASH_LOOP = (
        "CrashLoop",
        "Degraded: the driver was restarted several times without a healthy time in between.",
        "Read the app's events and the driver's log; the message has the command for another version.",
    )
    UPGRADE_OPEN = ("Upgrade", "Progressing: an upgrade waits for a person.", "See the condition Degraded.")
    UPGRADE_SUCCEEDED = ("UpgradeSucceeded", "The last upgrade succeeded.", "Nothing.")
    UPGRADE_REJECTED = (
        "UpgradeRejected",
        "The last upgrade was rejected before the old version stopped, so the old version runs.",
        "Correct the cause in `.status.upgrade.reason` and change the spec.",
    )
    UPGRADE_SUPERSEDED = ("UpgradeSuperseded", "The spec changed before the last upgrade stopped anything.", "Nothing.")
    UPGRADE_INTERRUPTED = (
        "UpgradeInterrupted",
        "The old version ended during the last upgrade.",
        "Nothing: it is restarted, and the upgrade begins again.",
    )
    UPGRADE_ROLLED_BACK = (
        "UpgradeRolledBack",
        "The new version failed, and the old version runs again.",
        "Correct the cause in `.status.upgrade.reason` and change the spec.",
    )
    UPGRADE_NEEDS_HUMAN = (
        "UpgradeNeedsHuman",
        "The last upgrade could not be finished or rolled back.",
        "Execute the command in the message of the condition Degraded.",
    )

    @classmethod
    def of_upgrade(cls, outcome: UpgradeOutcome) -> ConditionReason:
        """Return the reason for the outcome of the last upgrade."""
        return cls(f"Upgrade{outcome.value}")


class EventReason(Code):
    """Reasons of the events of a `StreamApp`."""

    STABLE = ("Stable", "A version is proven.", "Nothing.")
    RESTARTING = ("Restarting", "The driver is restarted; the message has the reason.", "See the reason.")
    RESTORING = ("Restoring", "The app continues from the savepoint in `restore.from`.", "Nothing.")
    UPGRADE_REJECTED = (
        "UpgradeRejected",
        "An upgrade is rejected before the old version stops.",
        "Correct the reason in the message and change the spec.",
    )
    UPGRADE_FAILED = (
        "UpgradeFailed",
        "A new version fails after the old version stopped, and the operator rolls back.",
        "Correct the reason in the message and change the spec.",
    )
    ROLLED_BACK = ("RolledBack", "The old version runs again after a failed upgrade.", "See `UpgradeFailed`.")
    NEEDS_HUMAN = (
        "NeedsHuman",
        "The operator cannot continue without a decision.",
        "Execute the command in the message of the condition Degraded.",
    )
    SCALING = (
        "Scaling",
        "Autoscaling changes the number of executors; the message has the load.",
        "Nothing; the upgrade that follows shows the outcome.",
    )
    DATA_LEFT = (
        "DataLeft",
        "The data of savepoints cannot be removed from the storage.",
        "Remove the folders that the message names.",
    )
    DELETED = (
        "Deleted",
        "The app is deleted without its clean-up, because `deletionDeadline` is over.",
        "Remove savepoints and checkpoints that are not needed from the storage.",
    )
