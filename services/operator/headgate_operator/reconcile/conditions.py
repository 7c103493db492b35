"""Sets the parts of the status that people and tools read: conditions, running version, progress, restore points."""

from __future__ import annotations

from dataclasses import replace

from headgate_operator.reconcile.context import Context
from headgate_operator.reconcile.observed import PodView
from headgate_operator.reconcile.restore_points import in_place_command, restore_points
from headgate_operator.resources.reasons import ConditionReason
from headgate_operator.resources.status import RESTING, AppProgress, Condition, Phase, Status, UpgradeOutcome
from streamcore.control.status import DriverPhase

#: Interval in milliseconds between two updates of the progress; each update is a request to the API server.
PROGRESS_EVERY_MS = 15_000
#: Restarts in a row from which the app counts as being in a crash loop.
_CRASH_LOOP = 3
#: Type, whether the condition is true, reason, message.
_ConditionText = tuple[str, bool, str, str]


def absorb_status(context: Context, status: Status) -> Status:
    """Copy progress and checkpoint from the owner's report into the status, at most every ``PROGRESS_EVERY_MS``."""
    pod, checkpoint = context.owner(status), status.checkpoint
    report = pod.driver_status if pod else None
    if report is None or checkpoint is None or report.epoch != checkpoint.epoch or report.committed < 1:
        return status
    if not checkpoint.established:
        checkpoint = replace(checkpoint, established=True, batch=report.batch)
        status = replace(status, checkpoint=checkpoint)
    last = status.progress
    if last is not None and last.batch <= report.batch and context.now_ms - last.at < PROGRESS_EVERY_MS:
        return status
    progress = AppProgress(report.batch, report.lag_rows, int(report.lag_s), context.now_ms)
    return replace(status, progress=progress, checkpoint=replace(checkpoint, batch=max(checkpoint.batch, report.batch)))


def describe(context: Context, status: Status) -> Status:
    """Set the conditions, the running version, the restore points and the observed generation of the status."""
    texts = (_ready(context, status), _progressing(status), _degraded(context, status))
    conditions = tuple(_condition(context, status, text) for text in texts)
    generation, version = context.desired.generation, _version(status)
    points = restore_points(context) if status.phase is Phase.NEEDS_HUMAN else ()
    described = (generation, version, points, conditions)
    if described == (status.observed_generation, status.version, status.restore_points, status.conditions):
        return status
    return replace(
        status, observed_generation=generation, version=version, restore_points=points, conditions=conditions
    )


def _condition(context: Context, status: Status, text: _ConditionText) -> Condition:
    """Return the condition. Its transition time stays if its status stays."""
    type_, is_true, reason, message = text
    before = next((condition for condition in status.conditions if condition.type == type_), None)
    value = "True" if is_true else "False"
    since_ms = before.last_transition_time if before is not None and before.status == value else context.now_ms
    return Condition(type_, value, reason, message[:1_000], since_ms, context.desired.generation)


def _version(status: Status) -> str:
    """Return the version of the owner, or of the release that ran last."""
    upgrade, stable = status.upgrade, status.stable
    if status.owner is not None and upgrade is not None and status.owner.revision == upgrade.to.revision:
        return upgrade.to.version
    return stable.version if stable is not None else ""


def _ready(context: Context, status: Status) -> _ConditionText:
    pod = context.owner(status)
    ready = _is_ready(pod, status)
    not_ready = ConditionReason.SUSPENDED if status.phase is Phase.SUSPENDED else ConditionReason.NOT_RUNNING
    reason = ConditionReason.RUNNING if ready else not_ready
    return ("Ready", ready, reason, "" if ready else f"phase {status.phase.value}")


def _is_ready(pod: PodView | None, status: Status) -> bool:
    report, checkpoint = (pod.driver_status if pod else None), status.checkpoint
    if pod is None or not pod.alive or report is None or checkpoint is None:
        return False
    return report.phase is DriverPhase.RUNNING and report.epoch == checkpoint.epoch


def _progressing(status: Status) -> _ConditionText:
    upgrade = status.upgrade
    if status.phase not in RESTING:
        to = f" to {upgrade.to.version}" if upgrade is not None and upgrade.outcome is UpgradeOutcome.OPEN else ""
        return ("Progressing", True, status.phase.value, f"{status.phase.value}{to}")
    if upgrade is not None and upgrade.outcome is not UpgradeOutcome.SUCCEEDED:
        message = f"{upgrade.to.version}: {upgrade.reason}: {upgrade.message}"
        return ("Progressing", False, ConditionReason.of_upgrade(upgrade.outcome), message)
    return ("Progressing", False, status.phase.value, "")


def _degraded(context: Context, status: Status) -> _ConditionText:
    if status.phase is Phase.NEEDS_HUMAN:
        return ("Degraded", True, ConditionReason.NEEDS_HUMAN, _next_step_for_human(context, status))
    if context.desired.problem:
        return ("Degraded", True, ConditionReason.INVALID_SPEC, context.desired.problem)
    restore = context.desired.spec.restore
    if restore.from_ and restore.nonce != status.restore_nonce and status.phase in RESTING:
        missing = f"savepoint {restore.from_} does not exist or is incomplete"
        return ("Degraded", True, ConditionReason.RESTORE_IMPOSSIBLE, missing)
    if status.restarts >= _CRASH_LOOP:
        restarts = f"{status.restarts} restarts; the reasons are in the app's events"
        message = f"{restarts}; to run another version instead: {in_place_command(context)}"
        return ("Degraded", True, ConditionReason.CRASH_LOOP, message)
    outcome = status.upgrade.outcome if status.upgrade is not None else UpgradeOutcome.OPEN
    failed = status.phase in RESTING and outcome in (UpgradeOutcome.REJECTED, UpgradeOutcome.ROLLED_BACK)
    reason = ConditionReason.of_upgrade(outcome) if failed else ConditionReason.AS_EXPECTED
    return ("Degraded", failed, reason, "")


def _next_step_for_human(context: Context, status: Status) -> str:
    """Return why the operator cannot continue, and the commands that a person can choose from."""
    if status.resume is not None:
        names = [
            pod.name for pod in context.observed.unfinished_pods(*([status.standby.name] if status.standby else []))
        ]
        return (
            f"{', '.join(names) or 'a pod'} did not end; if its node is certainly dead: kubectl delete pod -n "
            f"{context.desired.namespace} --force --grace-period=0 {' '.join(names)}"
        )
    points = restore_points(context)
    upgrade = status.upgrade
    cause = f"{upgrade.reason}: {upgrade.message}; " if upgrade is not None and upgrade.reason else ""
    if not points:
        return f"{cause}no savepoint to restore; to continue from the checkpoint: {in_place_command(context)}"
    return f"{cause}{len(points)} savepoints in status.restorePoints; the newest: {points[0].command}"
