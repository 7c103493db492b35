"""Conditions of the status, for people and tools: Ready, Progressing, Degraded, each with a machine-readable reason."""

from __future__ import annotations

from dataclasses import replace

from headgate_operator.reconcile.context import Context
from headgate_operator.reconcile.observed import PodView
from headgate_operator.reconcile.restore_points import in_place_command, restore_points
from headgate_operator.resources.reasons import ConditionReason
from headgate_operator.resources.status import RESTING, AppProgress, Condition, Phase, Status, UpgradeOutcome
from streamcore.control.status import DriverPhase

#: Progress is written this often: it is for eyes. Phases are written at once.
PROGRESS_EVERY_MS = 15_000
_CRASH_LOOP = 3
_ConditionText = tuple[str, bool, str, str]


def absorb_status(context: Context, status: Status) -> Status:
    """Copy the state of the checkpoint that the owner reports into the status."""
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
    named = restore_points(context) if status.phase is Phase.NEEDS_HUMAN else ()
    now = (generation, version, named, conditions)
    if now == (status.observed_generation, status.version, status.restore_points, status.conditions):
        return status
    return replace(status, observed_generation=generation, version=version, restore_points=named, conditions=conditions)


def _condition(context: Context, status: Status, text: _ConditionText) -> Condition:
    kind, truth, reason, message = text
    before = next((condition for condition in status.conditions if condition.type == kind), None)
    value = "True" if truth else "False"
    since = before.last_transition_time if before is not None and before.status == value else context.now_ms
    made = Condition(kind, value, reason, message[:1_000], since, context.desired.generation)
    return before if made == before and before is not None else made


def _version(status: Status) -> str:
    """Return the version of the owner, or of the release that ran last."""
    upgrade, stable = status.upgrade, status.stable
    if status.owner is not None and upgrade is not None and status.owner.revision == upgrade.to.revision:
        return upgrade.to.version
    return stable.version if stable is not None else ""


def _ready(context: Context, status: Status) -> _ConditionText:
    pod = context.owner(status)
    ready = _running(pod, status)
    rests = ConditionReason.SUSPENDED if status.phase is Phase.SUSPENDED else ConditionReason.NOT_RUNNING
    reason = ConditionReason.RUNNING if ready else rests
    return ("Ready", ready, reason, "" if ready else f"phase {status.phase.value}")


def _running(pod: PodView | None, status: Status) -> bool:
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
        why = f"{status.restarts} restarts; the reasons are in the app's events"
        words = f"{why}; to run another version instead: {in_place_command(context)}"
        return ("Degraded", True, ConditionReason.CRASH_LOOP, words)
    outcome = status.upgrade.outcome if status.upgrade is not None else UpgradeOutcome.OPEN
    failed = status.phase in RESTING and outcome in (UpgradeOutcome.REFUSED, UpgradeOutcome.ROLLED_BACK)
    reason = ConditionReason.of_upgrade(outcome) if failed else ConditionReason.AS_EXPECTED
    return ("Degraded", failed, reason, "")


def _next_step_for_human(context: Context, status: Status) -> str:
    if status.resume is not None:
        names = [
            pod.name for pod in context.observed.unfinished_pods(*([status.standby.name] if status.standby else []))
        ]
        return (
            f"{', '.join(names) or 'a pod'} did not end; if its node is certainly dead: kubectl delete pod -n "
            f"{context.desired.namespace} --force --grace-period=0 {' '.join(names)}"
        )
    there = restore_points(context)
    upgrade = status.upgrade
    why = f"{upgrade.reason}: {upgrade.message}; " if upgrade is not None and upgrade.reason else ""
    if not there:
        return f"{why}no savepoint to restore; to go on from the checkpoint: {in_place_command(context)}"
    return f"{why}{len(there)} savepoints in status.restorePoints; the newest: {there[0].command}"
