"""Apply a change of the service's settings without a restart of the driver.

1. The command, its deadline and the settings are written.
2. The command goes to the pod. A crash before that is repaired by sending again: same id, same settings.
3. The operator waits for the result, whatever the spec is by then: a driver may apply settings that are no longer
   wanted. Success makes them those of the stable release, a rejection keeps the old ones; the spec decides the rest.
4. Without a result by the deadline, the driver may still apply them. So it gets no other settings, and its settings are
   unknown until the next pod: that of the next upgrade, or of a restart of the stable release with the same checkpoint
   and epoch. A late result counts as one in time.
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
    """Return true when only the service's settings differ, the driver has not reported that these need a restart, and
    it has answered every earlier request to reconfigure.
    """
    wanted, stable = context.desired.release, status.stable
    if stable is None or status.pending_config is not None:
        return False
    return wanted.shape == stable.shape and status.rejected_live_config != wanted.revision


def begin_configure(context: Context, status: Status) -> ReconcileResult:
    """Execute step 1."""
    assert status.owner is not None
    wanted, number, pod = context.desired.release, status.requests + 1, status.owner.name
    pending = PendingCommand(f"configure-{number}", "configure", pod, context.now_ms + _WITHIN_MS)
    pending_config = PendingConfig(pending.id, pod, wanted.revision, wanted.generation, wanted.spec.config)
    return ReconcileResult(replace(status, requests=number, pending_command=pending, pending_config=pending_config))


def advance_configure(context: Context, status: Status, pod: PodView) -> ReconcileResult:
    """Execute steps 2 to 4."""
    pending, heard = status.pending_command, absorb_config_result(status, pod)
    assert pending is not None
    if heard.pending_config is None or context.has_passed(pending.deadline):
        return ReconcileResult(clear_command(heard))
    if pod.command_id == pending.id:
        return ReconcileResult(status)
    return ReconcileResult(
        status, (ReconfigureDriver(pod.name, pod.uid, pending.id, _with(status, heard.pending_config)),)
    )


def absorb_config_result(status: Status, pod: PodView) -> Status:
    """Execute steps 3 and 4: absorb the result that the pod that owns the checkpoint has reported by now."""
    pending_config = status.pending_config
    if pending_config is None:
        return status
    result, resolved = pod.result(pending_config.id), replace(status, pending_config=None)
    if pending_config.pod != pod.name:
        return resolved
    if result is None:
        return status
    return (
        replace(resolved, stable=_with(status, pending_config))
        if result.ok
        else replace(resolved, rejected_live_config=pending_config.revision)
    )


def restart_if_config_unknown(context: Context, status: Status, pod: PodView) -> ReconcileResult | None:
    """Execute step 4, where nothing else makes another pod."""
    if status.pending_config is None:
        return None
    return restart(
        context,
        status,
        FailureReason.SETTINGS_UNKNOWN,
        f"pod {pod.name} did not report whether it took the settings",
    )


def _with(status: Status, pending_config: PendingConfig) -> Release:
    """Return the stable release with the settings that were sent to the driver."""
    stable = status.stable
    assert stable is not None
    spec = stable.spec.model_copy(update={"config": pending_config.config})
    return replace(stable, revision=pending_config.revision, generation=pending_config.generation, spec=spec)
