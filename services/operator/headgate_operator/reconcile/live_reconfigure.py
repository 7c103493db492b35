"""Applies a change of the service's settings without a restart of the driver.

1. The operator writes the command, its deadline and the settings into the status. 2. It sends the command to the pod.
After a crash it sends the command again: same id, same settings. 3. It waits for the result, even if the spec changes
meanwhile. After success the stable release has the new settings; after a rejection it keeps the old ones. Then the next
reconciliation compares it with the spec again. 4. Without a result by the deadline, the driver may still apply the
settings. So the driver gets no other settings, and it is unknown which it runs with, until its pod is replaced: by an
upgrade, or by a restart of the stable release with the same checkpoint and epoch. A result after the deadline is still
used.
"""

from __future__ import annotations

from dataclasses import replace

from headgate_operator.reconcile.actions import ReconfigureDriver
from headgate_operator.reconcile.context import Context, ReconcileResult
from headgate_operator.reconcile.driver_commands import clear_command
from headgate_operator.reconcile.observed import PodView
from headgate_operator.reconcile.restart import restart
from headgate_operator.resources.reasons import FailureReason
from headgate_operator.resources.release import Release
from headgate_operator.resources.status import PendingCommand, PendingConfig, Status

_WITHIN_MS = 30_000


def can_reconfigure_live(context: Context, status: Status) -> bool:
    """Return true if only the service's settings differ, the driver has not rejected these settings, and no earlier
    ``configure`` is without a result.
    """
    desired, stable = context.desired.release, status.stable
    if stable is None or status.pending_config is not None:
        return False
    return desired.shape == stable.shape and status.rejected_live_config != desired.revision


def begin_configure(context: Context, status: Status) -> ReconcileResult:
    """Execute step 1: return the status with the command and the settings of the desired release."""
    assert status.owner is not None
    release, number, pod = context.desired.release, status.requests + 1, status.owner.name
    pending = PendingCommand(f"configure-{number}", "configure", pod, context.now_ms + _WITHIN_MS)
    pending_config = PendingConfig(pending.id, pod, release.revision, release.generation, release.spec.config)
    return ReconcileResult(replace(status, requests=number, pending_command=pending, pending_config=pending_config))


def advance_configure(context: Context, status: Status, pod: PodView) -> ReconcileResult:
    """Execute the next of steps 2 to 4."""
    pending, updated = status.pending_command, absorb_config_result(status, pod)
    assert pending is not None
    if updated.pending_config is None or context.has_passed(pending.deadline):
        return ReconcileResult(clear_command(updated))
    if pod.command_id == pending.id:
        return ReconcileResult(status)
    return ReconcileResult(
        status, (ReconfigureDriver(pod.name, pod.uid, pending.id, _with_config(status, updated.pending_config)),)
    )


def absorb_config_result(status: Status, pod: PodView) -> Status:
    """Apply the result of ``configure`` to the status, if the owner's pod has reported one. Another pod than the one
    that got the settings was created with those of the stable release, so nothing is pending any more.
    """
    pending_config = status.pending_config
    if pending_config is None:
        return status
    result, resolved = pod.result(pending_config.id), replace(status, pending_config=None)
    if pending_config.pod != pod.name:
        return resolved
    if result is None:
        return status
    return (
        replace(resolved, stable=_with_config(status, pending_config))
        if result.ok
        else replace(resolved, rejected_live_config=pending_config.revision)
    )


def restart_if_config_unknown(context: Context, status: Status, pod: PodView) -> ReconcileResult | None:
    """Restart the stable release if it is unknown which settings the driver runs with; None otherwise."""
    if status.pending_config is None:
        return None
    return restart(
        context,
        status,
        FailureReason.SETTINGS_UNKNOWN,
        f"pod {pod.name} did not report whether it applied the settings",
    )


def _with_config(status: Status, pending_config: PendingConfig) -> Release:
    """Return the stable release with the settings that were sent to the driver."""
    stable = status.stable
    assert stable is not None
    spec = stable.spec.model_copy(update={"config": pending_config.config})
    return replace(stable, revision=pending_config.revision, generation=pending_config.generation, spec=spec)
