"""Bring up a driver, in the one sequence that every driver follows: standby, exclusive, promoted, running.

1. The operator creates a standby pod. It owns nothing, so it may run beside a running owner. A crash here leaves a
   stray standby.
2. The operator waits until every other driver pod of the app is gone: absent, or its containers have ended. A deleted
   pod may still run.
3. The claim (a ``Checkpoint``: the epoch, and the savepoint to restore) and the owner's name are written to the status.
4. The command ``promote`` is sent. A crash before it is repaired by sending it again: same claim, same id, same pod.
5. The driver reports that it runs under that epoch and has committed a batch.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

from headgate_operator.reconcile.actions import CreatePod, DeletePod, PromoteStandby
from headgate_operator.reconcile.context import Context, ReconcileResult
from headgate_operator.reconcile.observed import PodView
from headgate_operator.resources.reasons import FailureReason
from headgate_operator.resources.release import Release
from headgate_operator.resources.status import Checkpoint, PendingCommand, Phase, PodRef, Status
from streamcore.control.commands import Promote
from streamcore.control.status import CommandResult, DriverPhase, NewerEpochInfo

#: Milliseconds after the grace period of a deleted pod until the operator leaves the decision to a person.
GONE_WITHIN_MS = 120_000


class BringUpState(Enum):
    """Progress of a driver. ``READY``: it is a standby. ``UP``: it has committed a batch."""

    WAITING = 1
    READY = 2
    UP = 3
    FAILED = 4


@dataclass(frozen=True, slots=True)
class BringUpResult:
    """Result of one step.

    ``step``: the status and actions. ``reason`` and ``message``: of a failure. ``rejected``: the driver rejected
    ``promote`` and would reject it again; after any other failure the same claim can be tried again. ``newer``: the
    newer epoch that the driver found in the storage, if it rejected the claim because of that.
    """

    state: BringUpState
    step: ReconcileResult
    reason: str = ""
    message: str = ""
    rejected: bool = False
    newer: NewerEpochInfo | None = None


def ensure_standby(context: Context, status: Status, release: Release, savepoint: str = "") -> BringUpResult:
    """Execute step 1: create the standby of ``release``. The result is ``READY`` when the pod reports that it is a
    standby.

    ``savepoint``: the savepoint that the standby checks its compatibility with; empty for none.
    """
    standby = status.standby
    if standby is None or standby.revision != release.revision:
        return _create_standby(context, status, release, savepoint)
    pod = context.observed.pod(standby.name)
    if pod is None:
        return _recreate_missing(context, status, standby, release, savepoint)
    if not standby.uid:
        status = replace(status, standby=replace(standby, uid=pod.uid))
    if not pod.alive:
        return BringUpResult(
            BringUpState.FAILED, ReconcileResult(status), FailureReason.STANDBY_FAILED, _driver_message(pod)
        )
    if pod.driver_status is not None and pod.driver_status.phase is DriverPhase.STANDBY:
        return BringUpResult(BringUpState.READY, ReconcileResult(status))
    if context.has_passed(status.prepare_by):
        return BringUpResult(
            BringUpState.FAILED,
            ReconcileResult(status),
            FailureReason.STANDBY_TIMEOUT,
            f"pod {pod.name} did not become a standby in time",
        )
    return BringUpResult(BringUpState.WAITING, ReconcileResult(status))


def _create_standby(context: Context, status: Status, release: Release, savepoint: str) -> BringUpResult:
    if status.retry_after is not None and not context.has_passed(status.retry_after):
        return BringUpResult(BringUpState.WAITING, ReconcileResult(status))
    attempt = status.attempt + 1
    name = f"{context.desired.stem}-{attempt}"
    prepare_by_ms = context.now_ms + context.desired.spec.upgrade.prepare_deadline
    standby = PodRef(name, release.revision)
    status = replace(status, attempt=attempt, standby=standby, prepare_by=prepare_by_ms, retry_after=None)
    return BringUpResult(BringUpState.WAITING, ReconcileResult(status, (CreatePod(name, release, savepoint),)))


def _recreate_missing(
    context: Context, status: Status, standby: PodRef, release: Release, savepoint: str
) -> BringUpResult:
    """Create the standby's pod again if it was never seen; a pod that was seen and is missing now has failed."""
    if standby.uid or context.has_passed(status.prepare_by):
        return BringUpResult(
            BringUpState.FAILED, ReconcileResult(status), FailureReason.STANDBY_GONE, f"pod {standby.name} is gone"
        )
    return BringUpResult(BringUpState.WAITING, ReconcileResult(status, (CreatePod(standby.name, release, savepoint),)))


def wait_for_exclusive(context: Context, status: Status) -> ReconcileResult | None:
    """Execute step 2: delete the other driver pods and wait for their end. Return None when all are gone.

    After the deadline the operator leaves the decision to a person.
    """
    keep = (status.standby.name,) if status.standby else ()
    others = context.observed.unfinished_pods(*keep)
    if not others:
        return None
    grace_ms = context.desired.spec.driver.termination_grace
    terminate_by_ms = status.terminate_by or context.now_ms + grace_ms + GONE_WITHIN_MS
    if context.has_passed(terminate_by_ms):
        return ReconcileResult(replace(status, phase=Phase.NEEDS_HUMAN, resume=status.phase))
    return ReconcileResult(
        replace(status, terminate_by=terminate_by_ms), tuple(DeletePod(p.name, p.uid) for p in others if not p.deleting)
    )


def promote(context: Context, status: Status, claim: Checkpoint) -> ReconcileResult:
    """Execute steps 3 and 4, for a standby that is ready and the only driver pod."""
    standby = status.standby
    assert standby is not None, "there is no standby to promote"
    assert standby.uid, f"pod {standby.name} was not seen"
    number = status.requests + 1
    deadline_ms = context.now_ms + context.desired.spec.upgrade.start_deadline
    status = replace(
        status,
        owner=standby,
        standby=None,
        checkpoint=claim,
        epochs=max(status.epochs, claim.epoch),
        requests=number,
        pending_command=PendingCommand(f"promote-{number}", "promote", standby.name, deadline_ms),
        terminate_by=None,
    )
    return ReconcileResult(status, (_promote_action(context, status, standby.uid),))


def await_running(context: Context, status: Status) -> BringUpResult:
    """Execute step 5: wait until the owner runs. Execute step 4 again if its pod does not have the command."""
    pod, pending = context.owner(status), status.pending_command
    if pod is None or not pod.alive:
        return BringUpResult(
            BringUpState.FAILED, ReconcileResult(status), FailureReason.DRIVER_FAILED, _driver_message(pod)
        )
    result = pod.result(pending.id) if pending else None
    if result is not None and not result.ok:
        # The driver found a higher epoch in the storage. Later epochs must be above that one: promoted under the same
        # epoch, a driver would continue the checkpoint that is there.
        status = replace(status, epochs=max(status.epochs, result.newer_epoch.epoch if result.newer_epoch else 0))
        return _on_rejection(status, result)
    if is_running(pod, status):
        return BringUpResult(BringUpState.UP, ReconcileResult(replace(status, pending_command=None)))
    if pending is not None and context.has_passed(pending.deadline):
        return BringUpResult(
            BringUpState.FAILED,
            ReconcileResult(status),
            FailureReason.START_TIMEOUT,
            f"pod {pod.name} did not run in time",
        )
    if pending is not None and result is None and pod.command_id != pending.id:
        return BringUpResult(
            BringUpState.WAITING, ReconcileResult(status, (_promote_action(context, status, pod.uid),))
        )
    return BringUpResult(BringUpState.WAITING, ReconcileResult(status))


def _on_rejection(status: Status, result: CommandResult) -> BringUpResult:
    """Return the failure for a rejected ``promote``, ``rejected`` unless the driver calls its cause temporary."""
    reason, rejected = (FailureReason.GO_FAILED, False) if result.retryable else (FailureReason.GO_REJECTED, True)
    return BringUpResult(
        BringUpState.FAILED,
        ReconcileResult(status),
        reason,
        result.message,
        rejected=rejected,
        newer=result.newer_epoch,
    )


def is_running(pod: PodView, status: Status) -> bool:
    """Return true if the owner's driver runs and has committed a batch under the epoch of the status."""
    report, checkpoint = pod.driver_status, status.checkpoint
    if report is None or checkpoint is None:
        return False
    return report.phase is DriverPhase.RUNNING and report.epoch == checkpoint.epoch and report.committed >= 1


def bring_up(
    context: Context, status: Status, release: Release, claim: Checkpoint, savepoint: str = ""
) -> BringUpResult:
    """Execute the next of the five steps. ``claim``: the checkpoint that the standby gets; unused once there is an
    owner."""
    if status.owner is not None:
        return await_running(context, status)
    prepared = ensure_standby(context, status, release, savepoint)
    if prepared.state is not BringUpState.READY:
        return prepared
    status = prepared.step.status
    wait = wait_for_exclusive(context, status)
    return BringUpResult(BringUpState.WAITING, wait if wait is not None else promote(context, status, claim))


def _promote_action(context: Context, status: Status, uid: str) -> PromoteStandby:
    pending, claim = status.pending_command, status.checkpoint
    assert pending is not None
    assert claim is not None
    command = Promote(
        pending.id,
        epoch=claim.epoch,
        restore=(claim.restore or None) if not claim.established else None,
        allow_empty=claim.allow_empty and not claim.established,
        discard_newer=claim.discard_newer,
        traceparent=context.traceparent(status) or None,
    )
    return PromoteStandby(pending.pod, uid, command)


def _driver_message(pod: PodView | None) -> str:
    """Return why the pod does not run, as a message for people."""
    if pod is None:
        return "the pod is gone"
    message = pod.driver_status.message if pod.driver_status and pod.driver_status.message else pod.message
    return (message or f"pod {pod.name} ended") if pod.finished else f"pod {pod.name} was deleted"
