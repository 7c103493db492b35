"""Proves a new version: it must commit enough batches in time, without a restart and without a growing lag."""

from __future__ import annotations

from dataclasses import replace

from headgate_operator.reconcile.bring_up import BringUpResult, BringUpState, is_running
from headgate_operator.reconcile.context import (
    Context,
    ReconcileResult,
    app_event,
    close_upgrade,
    enter_phase,
    open_upgrade,
)
from headgate_operator.reconcile.observed import PodView
from headgate_operator.reconcile.restart import restart
from headgate_operator.reconcile.restore_points import needs_human
from headgate_operator.reconcile.upgrade import begin_rollback
from headgate_operator.resources.reasons import EventReason, FailureReason
from headgate_operator.resources.status import Phase, Status, Upgrade, UpgradeKind, UpgradeOutcome

#: Attempts of a restore before the operator leaves the decision to a person.
RESTORE_ATTEMPTS = 3


def proving(context: Context, status: Status) -> ReconcileResult:
    """Wait until the version is proven or has failed."""
    upgrade, pod = open_upgrade(status), context.owner(status)
    if pod is None or not pod.alive:
        return on_failure(context, status, FailureReason.DRIVER_FAILED, pod.message if pod else "the pod is gone")
    if _is_proven(pod, status, upgrade):
        return _declare_stable(context, status, upgrade)
    if context.has_passed(status.deadline):
        return on_failure(context, status, FailureReason.NO_PROOF, _describe_proof(pod, upgrade))
    return ReconcileResult(status)


def _is_proven(pod: PodView, status: Status, upgrade: Upgrade) -> bool:
    proof, report = upgrade.to.spec.upgrade.proof, pod.driver_status
    if report is None or not is_running(pod, status):
        return False
    return report.committed >= proof.batches and report.lag_rows <= max(upgrade.lag_rows, proof.lag_rows)


def _describe_proof(pod: PodView, upgrade: Upgrade) -> str:
    report = pod.driver_status
    committed, lag_rows = (report.committed, report.lag_rows) if report else (0, 0)
    return (
        f"{committed} of {upgrade.to.spec.upgrade.proof.batches} batches committed, lag {lag_rows} rows "
        f"({upgrade.lag_rows} at the start of the proof)"
    )


def _declare_stable(context: Context, status: Status, upgrade: Upgrade) -> ReconcileResult:
    """Close the upgrade with success: its release is the stable one."""
    status = replace(
        close_upgrade(context, enter_phase(context, status, Phase.STABLE), UpgradeOutcome.SUCCEEDED),
        stable=upgrade.to,
        restarts=0,
        running_since=context.now_ms,
    )
    return ReconcileResult(status, (app_event(EventReason.STABLE, f"{upgrade.to.version} is stable"),))


def on_failure(context: Context, status: Status, reason: str, message: str) -> ReconcileResult:
    """Roll back an upgrade; retry a first start, and a restore up to ``RESTORE_ATTEMPTS`` times."""
    kind = open_upgrade(status).kind
    if kind is UpgradeKind.UPGRADE:
        return begin_rollback(
            context, status, BringUpResult(BringUpState.FAILED, ReconcileResult(status), reason, message)
        )
    if kind is UpgradeKind.RESTORE and status.restarts >= RESTORE_ATTEMPTS:
        return needs_human(context, status, reason, message)
    retry = restart(context, status, reason, message)
    return replace(retry, status=enter_phase(context, retry.status, Phase.STARTING))
