"""Decides the next step of an app that runs, is suspended, or waits for a person; the most urgent step first."""

from __future__ import annotations

from dataclasses import replace

from headgate_operator.reconcile.autoscaling import autoscale
from headgate_operator.reconcile.bring_up import wait_for_exclusive
from headgate_operator.reconcile.context import Context, ReconcileResult, enter_phase
from headgate_operator.reconcile.driver_commands import CommandState, advance_command, clear_command
from headgate_operator.reconcile.install import begin_restore, should_restore
from headgate_operator.reconcile.live_reconfigure import (
    absorb_config_result,
    advance_configure,
    begin_configure,
    can_reconfigure_live,
    restart_if_config_unknown,
)
from headgate_operator.reconcile.observed import PodView
from headgate_operator.reconcile.restart import restart
from headgate_operator.reconcile.savepoints import request_due_savepoint
from headgate_operator.reconcile.suspend import resume, suspend
from headgate_operator.reconcile.upgrade import begin_upgrade
from headgate_operator.resources.reasons import FailureReason
from headgate_operator.resources.savepoint import SavepointReason
from headgate_operator.resources.spec import RunState, UpgradeMode
from headgate_operator.resources.status import Status, UpgradeOutcome

#: Outcomes after which the same release is not tried again.
_FAILED = (UpgradeOutcome.REJECTED, UpgradeOutcome.ROLLED_BACK, UpgradeOutcome.NEEDS_HUMAN)


def reconcile_running(context: Context, status: Status) -> ReconcileResult:
    """Decide the next step of a stable or rolled-back app."""
    pod = context.owner(status)
    if pod is None or not pod.alive:
        return restart(context, status, FailureReason.DRIVER_ENDED, pod.message if pod else "the pod is gone")
    if _hangs(context, pod):
        return restart(context, status, FailureReason.DRIVER_HANGS, f"pod {pod.name} has not reported for too long")
    if status.pending_command is not None:
        return _advance_pending_command(context, status, pod)
    status = absorb_config_result(status, pod)
    if should_restore(context, status):
        return begin_restore(context, status)
    if context.desired.spec.state is RunState.SUSPENDED:
        return suspend(context, status)
    if should_upgrade(context, status):
        return (
            begin_configure(context, status)
            if can_reconfigure_live(context, status)
            else begin_upgrade(context, status)
        )
    if (restarted := restart_if_config_unknown(context, status, pod)) is not None:
        return restarted
    scaling = autoscale(context, status, pod)
    return scaling if scaling.actions else request_due_savepoint(context, scaling.status)


def _hangs(context: Context, pod: PodView) -> bool:
    deadline = context.desired.spec.driver.hang_deadline
    return pod.driver_status is not None and context.now_ms - pod.driver_status.at_ms > deadline


def should_upgrade(context: Context, status: Status) -> bool:
    """Return true if the spec has another release than the running one, and its upgrade has not failed already."""
    revision, upgrade = context.desired.release.revision, status.upgrade
    if context.desired.problem or status.stable is None or revision == status.stable.revision:
        return False
    return not (upgrade is not None and upgrade.outcome in _FAILED and upgrade.to.revision == revision)


def _advance_pending_command(context: Context, status: Status, pod: PodView) -> ReconcileResult:
    """Execute the next step of the pending command: a configure, or a savepoint."""
    pending = status.pending_command
    assert pending is not None
    if pending.kind == "configure":
        return advance_configure(context, status, pod)
    resource = context.observed.savepoint(pending.savepoint)
    reason = resource.reason if resource else SavepointReason.SCHEDULED
    state, actions, _ = advance_command(context, status, reason)
    if state is CommandState.WAITING:
        return ReconcileResult(status, actions)
    return ReconcileResult(clear_command(status, saved=state is CommandState.DONE), actions)


def reconcile_suspended(context: Context, status: Status) -> ReconcileResult:
    """Decide the next step of a suspended app."""
    if context.desired.spec.state is RunState.SUSPENDED or context.desired.problem:
        return ReconcileResult(status)
    return begin_restore(context, status) if should_restore(context, status) else resume(context, status)


def begin_instead_of_restart(context: Context, status: Status) -> ReconcileResult | None:
    """Begin what the spec requests instead of the restart: a restore, a suspension, or an upgrade without a savepoint
    if restarts fail. None if the restart goes on.
    """
    if should_restore(context, status):
        return begin_restore(context, status)
    if context.desired.spec.state is RunState.SUSPENDED:
        return suspend(context, status)
    needs_no_savepoint = context.desired.spec.upgrade.mode is not UpgradeMode.SAVEPOINT
    if needs_no_savepoint and status.restarts > 1 and should_upgrade(context, status):
        return begin_upgrade(context, replace(status, owner=None))
    return None


def await_human(context: Context, status: Status) -> ReconcileResult:
    """Wait for a person. Continue when the old pods are gone, if that was the problem, or when the spec has a
    decision."""
    if status.resume is not None:
        if wait_for_exclusive(context, replace(status, terminate_by=None)) is None:
            return ReconcileResult(replace(enter_phase(context, status, status.resume), resume=None))
        return ReconcileResult(status)
    if should_restore(context, status):
        return begin_restore(context, status)
    if context.desired.spec.state is RunState.SUSPENDED:
        return suspend(context, status)
    needs_no_savepoint = context.desired.spec.upgrade.mode is not UpgradeMode.SAVEPOINT
    if (
        needs_no_savepoint
        and status.stable is not None
        and should_upgrade(context, status)
        and status.checkpoint is not None
    ):
        return begin_upgrade(context, replace(status, owner=None))
    return ReconcileResult(status)
