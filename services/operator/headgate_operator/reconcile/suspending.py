"""Suspended: no pods, the checkpoint as it is, and a savepoint of it. Resuming goes on from the checkpoint."""

from __future__ import annotations

from dataclasses import replace

from headgate_operator.reconcile.asking import Reply, ask, forget, pursue
from headgate_operator.reconcile.bringing import alone
from headgate_operator.reconcile.step import Context, Step, enter
from headgate_operator.resources.savepoint import SavepointReason
from headgate_operator.resources.spec import UpgradeMode
from headgate_operator.resources.status import Phase, Status


def suspend(context: Context, status: Status) -> Step:
    """Begin it: a drain if anything runs."""
    spec = context.desired.spec
    within = spec.upgrade.stop_deadline
    status = replace(enter(context, status, Phase.SUSPENDING, within), standby=None)
    if not context.owner_alive(status) or status.asked is not None:
        return Step(replace(status, owner=None, asked=None))
    stateless = spec.upgrade.mode is UpgradeMode.STATELESS
    name = "" if stateless else f"{context.desired.stem}-s{status.requests + 1}"
    return Step(ask(context, status, "drain", name, within))


def suspending(context: Context, status: Status) -> Step:
    """However the owner ended: what it committed is in the checkpoint."""
    if status.asked is not None:
        reply, actions, _ = pursue(context, status, SavepointReason.SUSPEND)
        if reply is Reply.WAITING:
            return Step(status, actions)
        return Step(replace(forget(status, sealed=reply is Reply.DONE), owner=None), actions)
    wait = alone(context, status)
    return wait if wait is not None else Step(enter(context, status, Phase.SUSPENDED))


def resume(context: Context, status: Status) -> Step:
    """The version that ran goes on first; if another one is wanted, that is an upgrade of it."""
    status = replace(status, restarts=0, not_before=None, owner=None)
    if status.stable is None:
        return Step(enter(context, replace(status, upgrade=None), Phase.PENDING))
    return Step(enter(context, status, Phase.RESTARTING))
