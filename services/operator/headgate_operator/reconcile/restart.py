"""Restarts an app whose driver ended by itself or hangs: another pod of the same release continues the checkpoint.

The operator creates the new standby even while the old pod is ending or its node does not answer, and promotes it when
no container of the old pod runs. The delay before a restart grows with the number of restarts in a row.
"""

from __future__ import annotations

from dataclasses import replace

from headgate_operator.reconcile.bring_up import BringUpResult, BringUpState, bring_up
from headgate_operator.reconcile.context import Context, ReconcileResult, app_event, enter_phase, resting_phase
from headgate_operator.reconcile.restore_points import needs_human
from headgate_operator.resources.reasons import EventReason, FailureReason
from headgate_operator.resources.status import Phase, Status

#: Delay before the first, second, ... restart in a row, in milliseconds; the last one repeats.
_BACK_OFF_MS = (0, 5_000, 10_000, 20_000, 40_000, 80_000, 160_000, 300_000)
#: Milliseconds that an app must run for its next restart to count as the first one.
HEALTHY_AFTER_MS = 600_000


def restart(context: Context, status: Status, reason: str, message: str = "") -> ReconcileResult:
    """Begin a restart. The first one after a healthy time is immediate."""
    since_ms = status.running_since
    was_healthy = since_ms is not None and context.now_ms - since_ms >= HEALTHY_AFTER_MS
    restarts = 1 if was_healthy else status.restarts + 1
    status = replace(
        status,
        owner=None,
        standby=None,
        pending_command=None,
        restarts=restarts,
        running_since=None,
        retry_after=context.now_ms + _BACK_OFF_MS[min(restarts, len(_BACK_OFF_MS)) - 1],
    )
    event = app_event(EventReason.RESTARTING, f"{reason}: {message}" if message else reason, warning=True)
    return ReconcileResult(enter_phase(context, status, Phase.RESTARTING), (event,))


def continue_restart(context: Context, status: Status) -> ReconcileResult:
    """Continue the restart until the app runs."""
    assert status.stable is not None
    assert status.checkpoint is not None
    result = bring_up(context, status, status.stable, status.checkpoint)
    if result.state is BringUpState.FAILED:
        return _retry(context, result)
    if result.state is BringUpState.WAITING:
        return result.step
    status = replace(result.step.status, running_since=context.now_ms)
    return ReconcileResult(enter_phase(context, status, resting_phase(status)))


def _retry(context: Context, result: BringUpResult) -> ReconcileResult:
    """Restart once more, unless the storage has a newer epoch: that needs a person."""
    if result.newer is not None:
        return needs_human(context, result.step.status, FailureReason.NEWER_EPOCH_EXISTS, result.message)
    return restart(context, result.step.status, result.reason, result.message)
