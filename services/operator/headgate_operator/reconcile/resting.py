"""The app runs, is suspended, or waits for a person: what begins from there, the most urgent first."""

from __future__ import annotations

from dataclasses import replace

from headgate_operator.reconcile.asking import Reply, forget, pursue
from headgate_operator.reconcile.bringing import alone
from headgate_operator.reconcile.configuring import (
    configure,
    configuring,
    heard_of_offer,
    restart_in_doubt,
    takes_it_live,
)
from headgate_operator.reconcile.installing import begin_restore, wants_restore
from headgate_operator.reconcile.restarting import restart
from headgate_operator.reconcile.savepoints import due
from headgate_operator.reconcile.step import Context, Step, enter
from headgate_operator.reconcile.suspending import resume, suspend
from headgate_operator.reconcile.upgrading import begin
from headgate_operator.reconcile.world import PodView
from headgate_operator.resources.savepoint import SavepointReason
from headgate_operator.resources.spec import RunState, UpgradeMode
from headgate_operator.resources.status import Outcome, Phase, Status

_TRIED = (Outcome.REFUSED, Outcome.ROLLED_BACK, Outcome.NEEDS_HUMAN)


def running(context: Context, status: Status) -> Step:
    """Stable or rolled back."""
    pod = context.owner(status)
    if pod is None or not pod.alive:
        return restart(context, status, "DriverEnded", pod.message if pod else "the pod is gone")
    if _hangs(context, pod):
        return restart(context, status, "DriverHangs", f"pod {pod.name} has said nothing for too long")
    if status.asked is not None:
        return _answering(context, status, pod)
    status = heard_of_offer(status, pod)
    if wants_restore(context, status):
        return begin_restore(context, status)
    if context.desired.spec.state is RunState.SUSPENDED:
        return suspend(context, status)
    if wants_upgrade(context, status):
        return configure(context, status) if takes_it_live(context, status) else begin(context, status)
    return restart_in_doubt(context, status, pod) or due(context, status)


def _hangs(context: Context, pod: PodView) -> bool:
    deadline = context.desired.spec.driver.hang_deadline
    return pod.report is not None and context.now_ms - pod.report.at_ms > deadline


def wants_upgrade(context: Context, status: Status) -> bool:
    """Another release than runs, and not one that was tried and failed."""
    wanted, upgrade = context.desired.release.revision, status.upgrade
    if context.desired.problem or status.stable is None or wanted == status.stable.revision:
        return False
    return not (upgrade is not None and upgrade.outcome in _TRIED and upgrade.to.revision == wanted)


def _answering(context: Context, status: Status, pod: PodView) -> Step:
    asked = status.asked
    assert asked is not None
    if asked.kind == "configure":
        return configuring(context, status, pod)
    line = context.observed.savepoint(asked.savepoint)
    reason = line.reason if line else SavepointReason.SCHEDULED
    reply, actions, _ = pursue(context, status, reason)
    if reply is Reply.WAITING:
        return Step(status, actions)
    return Step(forget(status, sealed=reply is Reply.DONE), actions)


def suspended(context: Context, status: Status) -> Step:
    """Nothing runs."""
    if context.desired.spec.state is RunState.SUSPENDED or context.desired.problem:
        return Step(status)
    return begin_restore(context, status) if wants_restore(context, status) else resume(context, status)


def restart_or_else(context: Context, status: Status) -> Step | None:
    """What takes the place of a restart: a restore, a suspension, or a version that a person put in place of this
    one.
    """
    if wants_restore(context, status):
        return begin_restore(context, status)
    if context.desired.spec.state is RunState.SUSPENDED:
        return suspend(context, status)
    in_place = context.desired.spec.upgrade.mode is not UpgradeMode.SAVEPOINT
    if in_place and status.restarts > 1 and wants_upgrade(context, status):
        return begin(context, replace(status, owner=None))
    return None


def needing(context: Context, status: Status) -> Step:
    """A person was asked. Goes on when what was waited for has come, or when a person says how."""
    if status.resume is not None:
        if alone(context, replace(status, gone_by=None)) is None:
            return Step(replace(enter(context, status, status.resume), resume=None))
        return Step(status)
    if wants_restore(context, status):
        return begin_restore(context, status)
    if context.desired.spec.state is RunState.SUSPENDED:
        return suspend(context, status)
    in_place = context.desired.spec.upgrade.mode is not UpgradeMode.SAVEPOINT
    if in_place and status.stable is not None and wants_upgrade(context, status) and status.checkpoint is not None:
        return begin(context, replace(status, owner=None))
    return Step(status)


__all__ = ["Phase", "needing", "restart_or_else", "running", "suspended", "wants_upgrade"]
