"""The app is deleted: drained, with a last savepoint or without, its pods gone, then our finalizer taken off.

It ends at the deadline whatever hangs, for a namespace must not hang on us. What is left then: pods, which the garbage
collector ends with their owner, and data, which the next app of this name is refused for until a person says what of
it.
"""

from __future__ import annotations

from dataclasses import replace

from headgate_operator.reconcile.actions import (
    Action,
    CreateCollector,
    DeletePod,
    DeleteSavepoint,
    ReleaseSavepoint,
    RemoveFinalizer,
)
from headgate_operator.reconcile.asking import Reply, ask, forget, pursue
from headgate_operator.reconcile.step import Context, Step, close, told
from headgate_operator.resources.savepoint import SavepointReason
from headgate_operator.resources.spec import DeletionPolicy
from headgate_operator.resources.status import Collecting, Outcome, Phase, Status


def delete(context: Context, status: Status) -> Step:
    """Begin it, from wherever the app is."""
    if status.upgrade is not None and status.upgrade.outcome is Outcome.OPEN:
        status = close(context, status, Outcome.SUPERSEDED, "Deleted", "the app was deleted")
    since = context.desired.deleting_since_ms
    assert since is not None
    status = replace(
        status,
        phase=Phase.DELETING,
        deadline=since + context.desired.spec.deletion_deadline,
        standby=None,
        asked=None,
        resume=None,
        gone_by=None,
        collecting=None,
    )
    if not context.owner_alive(status) or status.checkpoint is None:
        return Step(replace(status, owner=None))
    last = context.desired.spec.deletion_policy is DeletionPolicy.SAVEPOINT and status.checkpoint.established
    name = f"{context.desired.stem}-d{status.requests + 1}" if last else ""
    return Step(ask(context, status, "drain", name, context.desired.spec.upgrade.stop_deadline))


def deleting(context: Context, status: Status) -> Step:
    """Until nothing is left that must go."""
    if not context.desired.finalized:
        return Step(status)
    if context.past(status.deadline):
        words = "the deadline is over: pods end with the app, and its data stays"
        return Step(
            status, (*_ledger(context, status, left=True), told("Deleted", words, warning=True), RemoveFinalizer())
        )
    if status.asked is not None:
        reply, actions, _ = pursue(context, status, SavepointReason.DELETION)
        if reply is Reply.WAITING:
            return Step(status, actions)
        return Step(replace(forget(status, sealed=reply is Reply.DONE), owner=None), actions)
    others = context.observed.unfinished()
    if others:
        return Step(status, tuple(DeletePod(pod.name, pod.uid) for pod in others if not pod.deleting))
    return _pods_are_gone(context, status)


def _pods_are_gone(context: Context, status: Status) -> Step:
    stable = status.stable
    if context.desired.spec.deletion_policy is not DeletionPolicy.PURGE or stable is None:
        return Step(status, (RemoveFinalizer(),))
    collecting = status.collecting
    if collecting is None:
        pod = f"{context.desired.stem}-c{status.requests + 1}"
        collecting = Collecting((), pod, 1, status.deadline or context.now_ms)
        status = replace(status, requests=status.requests + 1, collecting=collecting)
    seen = next((pod for pod in context.observed.collectors if pod.name == collecting.pod), None)
    if seen is None:
        return Step(status, (CreateCollector(collecting.pod, stable, (), everything=True),))
    if not seen.finished:
        return Step(status)
    if not seen.succeeded:
        return Step(replace(status, collecting=None))
    return Step(status, (*_ledger(context, status, left=False), RemoveFinalizer()))


def _ledger(context: Context, status: Status, *, left: bool) -> tuple[Action, ...]:
    """The lines in the ledger of a purged app go; of any other app they stay, except those that a person deleted."""
    purged = context.desired.spec.deletion_policy is DeletionPolicy.PURGE and status.stable is not None and not left
    lines = context.observed.savepoints
    gone = [line for line in lines if purged or line.deleting]
    return (
        *(DeleteSavepoint(line.name) for line in gone if not line.deleting),
        *(ReleaseSavepoint(line.name) for line in gone),
    )
