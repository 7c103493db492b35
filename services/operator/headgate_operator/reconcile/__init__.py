"""What is to be done, decided by one pure function: no network, no clock, no memory but the status.

The shell writes the status that comes out of it *first*, onto the version of the resource that it read, and does the
actions after; so whatever is done was written down before, by somebody who knew the newest. A status that was
written and
actions that were not done are repaired by calling it again: it looks at what there is, not at what happened.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from headgate_operator.reconcile.actions import Action, DeletePod
from headgate_operator.reconcile.collecting import collect, done_collectors
from headgate_operator.reconcile.conditions import absorb, describe
from headgate_operator.reconcile.deleting import delete, deleting
from headgate_operator.reconcile.installing import (
    give_up_install,
    pending,
    starting_anew,
    stop_for_restore,
)
from headgate_operator.reconcile.proving import proving
from headgate_operator.reconcile.restarting import restarting
from headgate_operator.reconcile.resting import needing, restart_or_else, running, suspended
from headgate_operator.reconcile.rolling_back import rolling_back
from headgate_operator.reconcile.savepoints import abandoned
from headgate_operator.reconcile.step import Context, Step, open_upgrade
from headgate_operator.reconcile.suspending import suspending
from headgate_operator.reconcile.upgrading import fenced, preflight, sealed, starting, stopping, verified
from headgate_operator.reconcile.world import Desired, Observed
from headgate_operator.resources.spec import RunState
from headgate_operator.resources.status import Phase, Status, UpgradeKind
from headgate_operator.traces import ended

__all__ = ["ENDS_WITH_ABSENCE", "Action", "Desired", "Observed", "Step", "reconcile", "wake_ms"]

_MOST_PHASES = 6
#: Phases that are over when no pod is there any more. Absence is proof only if the API server was asked, so they are
#: never passed in the turn in which they were entered.
ENDS_WITH_ABSENCE = frozenset({Phase.SUSPENDING, Phase.DELETING})


def reconcile(desired: Desired, observed: Observed, status: Status, now_ms: int) -> Step:
    """The status to write, and what to do after. Does nothing when everything is as it should be."""
    context = Context(desired, observed, now_ms)
    step = _decide(context, absorb(context, status))
    if step.status.phase is not Phase.DELETING:
        step = collect(context, step)
    tidy: tuple[Action, ...] = (
        *abandoned(context, step),
        *done_collectors(context, step.status),
        *_strays(context, step),
    )
    return replace(step, status=describe(context, step.status), actions=(*step.actions, *tidy))


def _decide(context: Context, status: Status) -> Step:
    """Phases that need no action follow each other at once. The end of an upgrade is written before another begins."""
    step = _phase(context, status)
    for _ in range(_MOST_PHASES):
        if step.actions or step.status.phase is status.phase or step.status.phase in ENDS_WITH_ABSENCE:
            break
        if ended(status, step.status) is not None:
            break
        status = step.status
        step = _phase(context, status)
    return step


def _phase(context: Context, status: Status) -> Step:
    if context.desired.deleting_since_ms is not None and status.phase is not Phase.DELETING:
        return delete(context, status)
    return _PHASES[status.phase](context, status)


def _starting(context: Context, status: Status) -> Step:
    if open_upgrade(status).kind is UpgradeKind.UPGRADE:
        return starting(context, status)
    install = open_upgrade(status).kind is UpgradeKind.INSTALL
    if install and context.desired.spec.state is RunState.SUSPENDED:
        return Step(give_up_install(context, status))
    return starting_anew(context, status)


def _stopping(context: Context, status: Status) -> Step:
    restoring = open_upgrade(status).kind is UpgradeKind.RESTORE
    return stop_for_restore(context, status) if restoring else stopping(context, status)


def _restarting(context: Context, status: Status) -> Step:
    return restart_or_else(context, status) or restarting(context, status)


_PHASES: dict[Phase, Callable[[Context, Status], Step]] = {
    Phase.PENDING: pending,
    Phase.PREFLIGHT: preflight,
    Phase.STOPPING: _stopping,
    Phase.SEALED: sealed,
    Phase.VERIFIED: verified,
    Phase.FENCED: fenced,
    Phase.STARTING: _starting,
    Phase.PROVING: proving,
    Phase.STABLE: running,
    Phase.ROLLING_BACK: rolling_back,
    Phase.ROLLED_BACK: running,
    Phase.RESTARTING: _restarting,
    Phase.SUSPENDING: suspending,
    Phase.SUSPENDED: suspended,
    Phase.NEEDS_HUMAN: needing,
    Phase.DELETING: deleting,
}


def _strays(context: Context, step: Step) -> tuple[DeletePod, ...]:
    """Pods that the status does not name. While the app is deleted or waits for a dead node, others see to that."""
    status = step.status
    named = {ref.name for ref in (status.owner, status.standby) if ref is not None}
    told = {action.name for action in step.actions if isinstance(action, DeletePod)}
    pods = [pod for pod in context.observed.pods if pod.name not in named | told and not pod.deleting]
    return tuple(DeletePod(pod.name, pod.uid) for pod in pods)


def wake_ms(status: Status, desired: Desired, now_ms: int, at_most_ms: int) -> int:
    """In how many milliseconds something may be due although nothing was seen to change."""
    asked = status.asked.deadline if status.asked else None
    every = desired.spec.savepoints.every
    scheduled = status.last_scheduled + every if status.last_scheduled is not None and every else None
    collecting = status.collecting.deadline if status.collecting else None
    times = (status.deadline, status.not_before, status.gone_by, status.prepare_by, asked, scheduled, collecting)
    due = [at_ms - now_ms for at_ms in times if at_ms is not None and at_ms > now_ms]
    return min([at_most_ms, *due])
