"""Delete the app: drain it, with a last savepoint or without, wait until its pods are gone, then remove our finalizer.

The deletion ends at the deadline even if a step hangs, because a namespace must not hang on us. It may leave pods,
which the garbage collector ends with their owner, and data, because of which the operator refuses the next app of
this name until a person decides on the data.
"""

from __future__ import annotations

from dataclasses import replace

from headgate_operator.reconcile.actions import (
    Action,
    CreateCollector,
    DeletePod,
    DeleteSavepoint,
    RemoveFinalizer,
    RemoveSavepointFinalizer,
)
from headgate_operator.reconcile.context import Context, ReconcileResult, app_event, close_upgrade
from headgate_operator.reconcile.driver_commands import CommandState, clear, poll, send
from headgate_operator.resources.reasons import EventReason, FailureReason
from headgate_operator.resources.savepoint import SavepointReason
from headgate_operator.resources.spec import DeletionPolicy
from headgate_operator.resources.status import GarbageCollection, Phase, Status, UpgradeOutcome


def delete(context: Context, status: Status) -> ReconcileResult:
    """Begin the deletion, from any phase."""
    if status.upgrade is not None and status.upgrade.outcome is UpgradeOutcome.OPEN:
        status = close_upgrade(context, status, UpgradeOutcome.SUPERSEDED, FailureReason.DELETED, "the app was deleted")
    since = context.desired.deleting_since_ms
    assert since is not None
    status = replace(
        status,
        phase=Phase.DELETING,
        deadline=since + context.desired.spec.deletion_deadline,
        standby=None,
        pending_command=None,
        resume=None,
        terminate_by=None,
        garbage_collection=None,
    )
    if not context.owner_alive(status) or status.checkpoint is None:
        return ReconcileResult(replace(status, owner=None))
    last = context.desired.spec.deletion_policy is DeletionPolicy.SAVEPOINT and status.checkpoint.established
    name = f"{context.desired.stem}-d{status.requests + 1}" if last else ""
    return ReconcileResult(send(context, status, "drain", name, context.desired.spec.upgrade.stop_deadline))


def continue_delete(context: Context, status: Status) -> ReconcileResult:
    """Continue the deletion until nothing is left that must go."""
    if not context.desired.finalized:
        return ReconcileResult(status)
    if context.past(status.deadline):
        words = "the deadline has passed: pods end with the app, and its data stays"
        return ReconcileResult(
            status,
            (
                *_ledger(context, status, left=True),
                app_event(EventReason.DELETED, words, warning=True),
                RemoveFinalizer(),
            ),
        )
    if status.pending_command is not None:
        reply, actions, _ = poll(context, status, SavepointReason.DELETION)
        if reply is CommandState.WAITING:
            return ReconcileResult(status, actions)
        return ReconcileResult(replace(clear(status, saved=reply is CommandState.DONE), owner=None), actions)
    others = context.observed.unfinished_pods()
    if others:
        return ReconcileResult(status, tuple(DeletePod(pod.name, pod.uid) for pod in others if not pod.deleting))
    return _pods_are_gone(context, status)


def _pods_are_gone(context: Context, status: Status) -> ReconcileResult:
    stable = status.stable
    if context.desired.spec.deletion_policy is not DeletionPolicy.PURGE or stable is None:
        return ReconcileResult(status, (RemoveFinalizer(),))
    garbage_collection = status.garbage_collection
    if garbage_collection is None:
        pod = f"{context.desired.stem}-c{status.requests + 1}"
        garbage_collection = GarbageCollection((), pod, 1, status.deadline or context.now_ms)
        status = replace(status, requests=status.requests + 1, garbage_collection=garbage_collection)
    seen = next((pod for pod in context.observed.collectors if pod.name == garbage_collection.pod), None)
    if seen is None:
        return ReconcileResult(status, (CreateCollector(garbage_collection.pod, stable, (), everything=True),))
    if not seen.finished:
        return ReconcileResult(status)
    if not seen.succeeded:
        return ReconcileResult(replace(status, garbage_collection=None))
    return ReconcileResult(status, (*_ledger(context, status, left=False), RemoveFinalizer()))


def _ledger(context: Context, status: Status, *, left: bool) -> tuple[Action, ...]:
    """Remove the ledger entries of a purged app; of any other app, remove only those that a person deleted."""
    purged = context.desired.spec.deletion_policy is DeletionPolicy.PURGE and status.stable is not None and not left
    lines = context.observed.savepoints
    gone = [line for line in lines if purged or line.deleting]
    return (
        *(DeleteSavepoint(line.name) for line in gone if not line.deleting),
        *(RemoveSavepointFinalizer(line.name) for line in gone),
    )
