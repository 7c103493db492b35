"""Decides the next actions for an app, in one pure function: no network, no clock, no memory besides the status.

The runtime writes the resulting status *first*, onto the version of the resource that it read, and then performs the
actions. So every action is recorded before it is performed, by a process that knew the newest version. If the runtime
wrote a status and did not perform its actions, the next call returns them again, because it decides by the observed
state and not by events.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from headgate_operator.reconcile.actions import Action, DeletePod
from headgate_operator.reconcile.autoscaling import next_change_ms, scaled
from headgate_operator.reconcile.conditions import absorb_status, describe
from headgate_operator.reconcile.context import Context, ReconcileResult, open_upgrade
from headgate_operator.reconcile.deletion import begin_delete, continue_delete
from headgate_operator.reconcile.garbage_collection import collect_garbage, delete_finished_collectors
from headgate_operator.reconcile.install import (
    cancel_install,
    pending,
    start_or_restore,
    stop_for_restore,
)
from headgate_operator.reconcile.observed import Desired, Observed
from headgate_operator.reconcile.proving import proving
from headgate_operator.reconcile.restart import continue_restart
from headgate_operator.reconcile.rollback import rolling_back
from headgate_operator.reconcile.savepoints import fail_abandoned_savepoints
from headgate_operator.reconcile.steady_state import (
    await_human,
    begin_instead_of_restart,
    reconcile_running,
    reconcile_suspended,
)
from headgate_operator.reconcile.suspend import continue_suspend
from headgate_operator.reconcile.upgrade import awaiting_exit, preflight, promoting, starting, stopping, verifying
from headgate_operator.resources.spec import RunState
from headgate_operator.resources.status import Phase, Status, UpgradeKind
from headgate_operator.traces import ended_upgrade

__all__ = ["ENDS_WITH_ABSENCE", "Action", "Desired", "Observed", "ReconcileResult", "reconcile", "wake_ms"]

#: Most phases that one reconciliation runs.
_MAX_PHASES = 6
#: Phases that end when no pod exists any more. Only the API server, not the cache, can prove that, and the runtime
#: lists the pods there at the start of a reconciliation in such a phase. So such a phase never ends in the
#: reconciliation that entered it.
ENDS_WITH_ABSENCE = frozenset({Phase.SUSPENDING, Phase.DELETING})


def reconcile(desired: Desired, observed: Observed, status: Status, now_ms: int) -> ReconcileResult:
    """Return the status to write and the actions that follow it. ``now_ms``: milliseconds since 1970."""
    context = Context(desired, scaled(desired, status), observed, now_ms)
    step = _decide(context, absorb_status(context, status))
    if step.status.phase is not Phase.DELETING:
        step = collect_garbage(context, step)
    cleanup: tuple[Action, ...] = (
        *fail_abandoned_savepoints(context, step),
        *delete_finished_collectors(context, step.status),
        *_delete_strays(context, step),
    )
    return replace(step, status=describe(context, step.status), actions=(*step.actions, *cleanup))


def _decide(context: Context, status: Status) -> ReconcileResult:
    """Run phases until one has actions or stays. Stop when an upgrade ends, so that its end is written to the
    status."""
    step = _run_phase(context, status)
    for _ in range(_MAX_PHASES):
        if step.actions or step.status.phase is status.phase or step.status.phase in ENDS_WITH_ABSENCE:
            break
        if ended_upgrade(status, step.status) is not None:
            break
        status = step.status
        step = _run_phase(context, status)
    return step


def _run_phase(context: Context, status: Status) -> ReconcileResult:
    """Run the phase of the status; begin the deletion if the app is being deleted."""
    if context.desired.deleting_since_ms is not None and status.phase is not Phase.DELETING:
        return begin_delete(context, status)
    return _PHASES[status.phase](context, status)


def _starting(context: Context, status: Status) -> ReconcileResult:
    if open_upgrade(status).kind is UpgradeKind.UPGRADE:
        return starting(context, status)
    is_install = open_upgrade(status).kind is UpgradeKind.INSTALL
    if is_install and context.desired.spec.state is RunState.SUSPENDED:
        return ReconcileResult(cancel_install(context, status))
    return start_or_restore(context, status)


def _stopping(context: Context, status: Status) -> ReconcileResult:
    is_restore = open_upgrade(status).kind is UpgradeKind.RESTORE
    return stop_for_restore(context, status) if is_restore else stopping(context, status)


def _restarting(context: Context, status: Status) -> ReconcileResult:
    return begin_instead_of_restart(context, status) or continue_restart(context, status)


_PHASES: dict[Phase, Callable[[Context, Status], ReconcileResult]] = {
    Phase.PENDING: pending,
    Phase.PREFLIGHT: preflight,
    Phase.STOPPING: _stopping,
    Phase.VERIFYING: verifying,
    Phase.AWAITING_EXIT: awaiting_exit,
    Phase.PROMOTING: promoting,
    Phase.STARTING: _starting,
    Phase.PROVING: proving,
    Phase.STABLE: reconcile_running,
    Phase.ROLLING_BACK: rolling_back,
    Phase.ROLLED_BACK: reconcile_running,
    Phase.RESTARTING: _restarting,
    Phase.SUSPENDING: continue_suspend,
    Phase.SUSPENDED: reconcile_suspended,
    Phase.NEEDS_HUMAN: await_human,
    Phase.DELETING: continue_delete,
}


def _delete_strays(context: Context, step: ReconcileResult) -> tuple[DeletePod, ...]:
    """Return the deletions of the driver pods that the status does not name."""
    status = step.status
    named = {ref.name for ref in (status.owner, status.standby) if ref is not None}
    deleted = {action.name for action in step.actions if isinstance(action, DeletePod)}
    pods = [pod for pod in context.observed.pods if pod.name not in named | deleted and not pod.deleting]
    return tuple(DeletePod(pod.name, pod.uid) for pod in pods)


def wake_ms(status: Status, desired: Desired, now_ms: int, at_most_ms: int) -> int:
    """Return the milliseconds until the next deadline, at most ``at_most_ms``: the time of the next reconciliation if
    nothing changes before.
    """
    command_ms = status.pending_command.deadline if status.pending_command else None
    every_ms = desired.spec.savepoints.every
    scheduled_ms = status.last_scheduled + every_ms if status.last_scheduled is not None and every_ms else None
    collection_ms = status.garbage_collection.deadline if status.garbage_collection else None
    deadlines_ms = (
        status.deadline,
        status.retry_after,
        status.terminate_by,
        status.prepare_by,
        command_ms,
        scheduled_ms,
        collection_ms,
        *next_change_ms(status, desired.spec.autoscaling),
    )
    waits_ms = [at_ms - now_ms for at_ms in deadlines_ms if at_ms is not None and at_ms > now_ms]
    return min([at_most_ms, *waits_ms])
