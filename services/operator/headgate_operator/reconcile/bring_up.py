"""Bring up a driver, in the one sequence that every driver follows: standby, exclusive, promoted, running.

1. The operator creates a standby pod. It owns nothing, so it may run beside a running owner. A crash here leaves a
   stray standby.
2. Every other driver pod of the app is gone: absent, or its containers have ended. A deleted pod may still run.
3. The claim (epoch, and the source of its checkpoint) and the owner's name are written.
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

#: A deleted pod gets its own grace period and this time before the operator asks a person.
GONE_WITHIN_MS = 120_000


class BringUpState(Enum):
    """Progress of a driver that is being brought up."""

    WAITING = 1
    READY = 2
    UP = 3
    FAILED = 4


@dataclass(frozen=True, slots=True)
class BringUpResult:
    """Result of one step. ``refused``: the driver rejected ``promote`` for good; a rejection that may pass counts as a
    crash.

    ``newer``: the reason, if the driver found data newer than its claim.
    """

    state: BringUpState
    step: ReconcileResult
    reason: str = ""
    message: str = ""
    refused: bool = False
    newer: NewerEpochInfo | None = None


def ensure_standby(context: Context, status: Status, release: Release, against: str = "") -> BringUpResult:
    """Execute step 1. The result is ready when the standby of ``release`` reports so."""
    standby = status.standby
    if standby is None or standby.revision != release.revision:
        return _create_standby(context, status, release, against)
    pod = context.observed.pod(standby.name)
    if pod is None:
        return _recreate_missing(context, status, standby, release, against)
    if not standby.uid:
        status = replace(status, standby=replace(standby, uid=pod.uid))
    if not pod.alive:
        return BringUpResult(
            BringUpState.FAILED, ReconcileResult(status), FailureReason.STANDBY_FAILED, _driver_message(pod)
        )
    if pod.driver_status is not None and pod.driver_status.phase is DriverPhase.STANDBY:
        return BringUpResult(BringUpState.READY, ReconcileResult(status))
    if context.past(status.prepare_by):
        return BringUpResult(
            BringUpState.FAILED,
            ReconcileResult(status),
            FailureReason.STANDBY_TIMEOUT,
            f"pod {pod.name} did not become a standby in time",
        )
    return BringUpResult(BringUpState.WAITING, ReconcileResult(status))


def _create_standby(context: Context, status: Status, release: Release, against: str) -> BringUpResult:
    if status.retry_after is not None and not context.past(status.retry_after):
        return BringUpResult(BringUpState.WAITING, ReconcileResult(status))
    attempt = status.attempt + 1
    name = f"{context.desired.stem}-{attempt}"
    by = context.now_ms + context.desired.spec.upgrade.prepare_deadline
    standby = PodRef(name, release.revision)
    status = replace(status, attempt=attempt, standby=standby, prepare_by=by, retry_after=None)
    return BringUpResult(BringUpState.WAITING, ReconcileResult(status, (CreatePod(name, release, against),)))


def _recreate_missing(
    context: Context, status: Status, standby: PodRef, release: Release, against: str
) -> BringUpResult:
    if standby.uid or context.past(status.prepare_by):
        return BringUpResult(
            BringUpState.FAILED, ReconcileResult(status), FailureReason.STANDBY_GONE, f"pod {standby.name} is gone"
        )
    return BringUpResult(BringUpState.WAITING, ReconcileResult(status, (CreatePod(standby.name, release, against),)))


def wait_for_exclusive(context: Context, status: Status) -> ReconcileResult | None:
    """Execute step 2. Return None when all other pods are gone, else the wait for them, which ends with a person."""
    keep = (status.standby.name,) if status.standby else ()
    others = context.observed.unfinished_pods(*keep)
    if not others:
        return None
    grace = context.desired.spec.driver.termination_grace
    by = status.terminate_by or context.now_ms + grace + GONE_WITHIN_MS
    if context.past(by):
        return ReconcileResult(replace(status, phase=Phase.NEEDS_HUMAN, resume=status.phase))
    return ReconcileResult(
        replace(status, terminate_by=by), tuple(DeletePod(p.name, p.uid) for p in others if not p.deleting)
    )


def promote(context: Context, status: Status, claim: Checkpoint) -> ReconcileResult:
    """Execute steps 3 and 4, for a standby that is ready and the only driver pod."""
    standby = status.standby
    assert standby is not None, "nothing to hand over to"
    assert standby.uid, f"pod {standby.name} was not seen"
    number = status.requests + 1
    by = context.now_ms + context.desired.spec.upgrade.start_deadline
    status = replace(
        status,
        owner=standby,
        standby=None,
        checkpoint=claim,
        epochs=max(status.epochs, claim.epoch),
        requests=number,
        pending_command=PendingCommand(f"promote-{number}", "promote", standby.name, by),
        terminate_by=None,
    )
    return ReconcileResult(status, (_promote_action(context, status, standby.uid),))


def await_running(context: Context, status: Status) -> BringUpResult:
    """Execute step 5, and step 4 again if the command was lost."""
    pod, pending = context.owner(status), status.pending_command
    if pod is None or not pod.alive:
        return BringUpResult(
            BringUpState.FAILED, ReconcileResult(status), FailureReason.DRIVER_FAILED, _driver_message(pod)
        )
    result = pod.result(pending.id) if pending else None
    if result is not None and not result.ok:
        # An epoch that the root has seen is not promoted out again: its checkpoint would be gone on with.
        status = replace(status, epochs=max(status.epochs, result.newer_epoch.epoch if result.newer_epoch else 0))
        return _on_rejection(status, result)
    if is_running(pod, status):
        return BringUpResult(BringUpState.UP, ReconcileResult(replace(status, pending_command=None)))
    if pending is not None and context.past(pending.deadline):
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
    """Fail, and set ``refused`` unless the cause may pass (a dependency away, or a lease held): then try the claim
    again.
    """
    reason, refused = (FailureReason.GO_FAILED, False) if result.retryable else (FailureReason.GO_REFUSED, True)
    return BringUpResult(
        BringUpState.FAILED, ReconcileResult(status), reason, result.message, refused=refused, newer=result.newer_epoch
    )


def is_running(pod: PodView, status: Status) -> bool:
    """Return true when the owner reports a commit under the claim's epoch."""
    report, checkpoint = pod.driver_status, status.checkpoint
    if report is None or checkpoint is None:
        return False
    return report.phase is DriverPhase.RUNNING and report.epoch == checkpoint.epoch and report.committed >= 1


def bring_up(context: Context, status: Status, release: Release, claim: Checkpoint, against: str = "") -> BringUpResult:
    """Execute all steps, one per call. ``claim`` is used until there is an owner."""
    if status.owner is not None:
        return await_running(context, status)
    prepared = ensure_standby(context, status, release, against)
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
    if pod is None:
        return "the pod is gone"
    message = pod.driver_status.message if pod.driver_status and pod.driver_status.message else pod.message
    return (message or f"pod {pod.name} ended") if pod.finished else f"pod {pod.name} was deleted"
