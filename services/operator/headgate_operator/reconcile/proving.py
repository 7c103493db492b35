"""Running proves nothing: a new version is stable after so many committed batches, in time, without a restart or
growing lag.
"""

from __future__ import annotations

from dataclasses import replace

from headgate_operator.reconcile.bringing import Brought, State, runs
from headgate_operator.reconcile.human import needs_human
from headgate_operator.reconcile.restarting import restart
from headgate_operator.reconcile.step import Context, Step, close, enter, open_upgrade, told
from headgate_operator.reconcile.upgrading import undo
from headgate_operator.reconcile.world import PodView
from headgate_operator.resources.status import Outcome, Phase, Status, Upgrade, UpgradeKind

#: Of a restore that a person asked for, before a person is asked again.
RESTORE_ATTEMPTS = 3


def proving(context: Context, status: Status) -> Step:
    """Wait for the proof."""
    upgrade, pod = open_upgrade(status), context.owner(status)
    if pod is None or not pod.alive:
        return failed(context, status, "DriverFailed", pod.message if pod else "the pod is gone")
    if _proven(pod, status, upgrade):
        return _stable(context, status, upgrade)
    if context.past(status.deadline):
        return failed(context, status, "NoProof", _shown(pod, upgrade))
    return Step(status)


def _proven(pod: PodView, status: Status, upgrade: Upgrade) -> bool:
    proof, report = upgrade.to.spec.upgrade.proof, pod.report
    if report is None or not runs(pod, status):
        return False
    return report.committed >= proof.batches and report.lag_rows <= max(upgrade.lag_rows, proof.lag_rows)


def _shown(pod: PodView, upgrade: Upgrade) -> str:
    report = pod.report
    committed, lag_rows = (report.committed, report.lag_rows) if report else (0, 0)
    return (
        f"{committed} of {upgrade.to.spec.upgrade.proof.batches} batches committed, lag {lag_rows} rows "
        f"(at first {upgrade.lag_rows})"
    )


def _stable(context: Context, status: Status, upgrade: Upgrade) -> Step:
    status = replace(
        close(context, enter(context, status, Phase.STABLE), Outcome.SUCCEEDED),
        stable=upgrade.to,
        restarts=0,
        running_since=context.now_ms,
    )
    return Step(status, (told("Stable", f"{upgrade.to.version} is stable"),))


def failed(context: Context, status: Status, reason: str, message: str) -> Step:
    """A first start is tried again; anything else is undone."""
    kind = open_upgrade(status).kind
    if kind is UpgradeKind.UPGRADE:
        return undo(context, status, Brought(State.FAILED, Step(status), reason, message))
    if kind is UpgradeKind.RESTORE and status.restarts >= RESTORE_ATTEMPTS:
        return needs_human(context, status, reason, message)
    again = restart(context, status, reason, message)
    return replace(again, status=enter(context, again.status, Phase.STARTING))
