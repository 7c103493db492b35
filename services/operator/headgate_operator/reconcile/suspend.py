"""Suspends and resumes an app. A suspended app has no driver pods; its checkpoint and a last savepoint stay."""

from __future__ import annotations

from dataclasses import replace

from headgate_operator.reconcile.bring_up import wait_for_exclusive
from headgate_operator.reconcile.context import Context, ReconcileResult, enter_phase
from headgate_operator.reconcile.driver_commands import CommandState, advance_command, clear_command, record_command
from headgate_operator.resources.savepoint import SavepointReason
from headgate_operator.resources.spec import UpgradeMode
from headgate_operator.resources.status import Phase, Status


def suspend(context: Context, status: Status) -> ReconcileResult:
    """Begin the suspension: drain the owner, if one runs, with a savepoint unless the app is stateless."""
    spec = context.desired.spec
    within_ms = spec.upgrade.stop_deadline
    status = replace(enter_phase(context, status, Phase.SUSPENDING, within_ms), standby=None)
    if not context.owner_alive(status) or status.pending_command is not None:
        return ReconcileResult(replace(status, owner=None, pending_command=None))
    stateless = spec.upgrade.mode is UpgradeMode.STATELESS
    name = "" if stateless else f"{context.desired.stem}-s{status.requests + 1}"
    return ReconcileResult(record_command(context, status, "drain", name, within_ms))


def continue_suspend(context: Context, status: Status) -> ReconcileResult:
    """Continue the suspension. A failed drain does not stop it: the checkpoint holds everything that was committed."""
    if status.pending_command is not None:
        state, actions, _ = advance_command(context, status, SavepointReason.SUSPEND)
        if state is CommandState.WAITING:
            return ReconcileResult(status, actions)
        return ReconcileResult(replace(clear_command(status, saved=state is CommandState.DONE), owner=None), actions)
    wait = wait_for_exclusive(context, status)
    return wait if wait is not None else ReconcileResult(enter_phase(context, status, Phase.SUSPENDED))


def resume(context: Context, status: Status) -> ReconcileResult:
    """Resume the stable release from the checkpoint; if the spec has another release, an upgrade follows."""
    status = replace(status, restarts=0, retry_after=None, owner=None)
    if status.stable is None:
        return ReconcileResult(enter_phase(context, replace(status, upgrade=None), Phase.PENDING))
    return ReconcileResult(enter_phase(context, status, Phase.RESTARTING))
