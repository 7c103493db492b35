"""Deletes an app: drains it, with or without a last savepoint, waits for the end of its pods, removes the finalizer.

The deletion completes at its deadline even if a step hangs, so that the deletion of a namespace never waits for the
operator for ever. It may leave pods, which Kubernetes deletes with their owner, and data. The next app with this name
is rejected until a person decides about that data.
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
from headgate_operator.reconcile.driver_commands import CommandState, advance_command, clear_command, record_command
from headgate_operator.resources.reasons import EventReason, FailureReason
from headgate_operator.resources.savepoint import SavepointReason
from headgate_operator.resources.spec import DeletionPolicy
from headgate_operator.resources.status import GarbageCollection, Phase, Status, UpgradeOutcome


def begin_delete(context: Context, status: Status) -> ReconcileResult:
    """Begin the deletion, from any phase."""
    if status.upgrade is not None and status.upgrade.outcome is UpgradeOutcome.OPEN:
        status = close_upgrade(context, status, UpgradeOutcome.SUPERSEDED, FailureReason.DELETED, "the app was deleted")
    since_ms = context.desired.deleting_since_ms
    assert since_ms is not None
    status = replace(
        status,
        phase=Phase.DELETING,
        deadline=since_ms + context.desired.spec.deletion_deadline,
        standby=None,
        pending_command=None,
        resume=None,
        terminate_by=None,
        garbage_collection=None,
    )
    if not context.owner_alive(status) or status.checkpoint is None:
        return ReconcileResult(replace(status, owner=None))
    takes_savepoint = context.desired.spec.deletion_policy is DeletionPolicy.SAVEPOINT and status.checkpoint.established
    name = f"{context.desired.stem}-d{status.requests + 1}" if takes_savepoint else ""
    return ReconcileResult(record_command(context, status, "drain", name, context.desired.spec.upgrade.stop_deadline))


def continue_delete(context: Context, status: Status) -> ReconcileResult:
    """Continue the deletion: wait for the drain, then for the end of the pods, then purge the data if requested."""
    if not context.desired.finalized:
        return ReconcileResult(status)
    if context.has_passed(status.deadline):
        message = "the deadline has passed: pods end with the app, and its data stays"
        return ReconcileResult(
            status,
            (
                *_savepoint_removals(context, status, data_left=True),
                app_event(EventReason.DELETED, message, warning=True),
                RemoveFinalizer(),
            ),
        )
    if status.pending_command is not None:
        state, actions, _ = advance_command(context, status, SavepointReason.DELETION)
        if state is CommandState.WAITING:
            return ReconcileResult(status, actions)
        return ReconcileResult(replace(clear_command(status, saved=state is CommandState.DONE), owner=None), actions)
    others = context.observed.unfinished_pods()
    if others:
        return ReconcileResult(status, tuple(DeletePod(pod.name, pod.uid) for pod in others if not pod.deleting))
    return _purge_or_finish(context, status)


def _purge_or_finish(context: Context, status: Status) -> ReconcileResult:
    """Remove the app's data with a collector pod, if the policy is purge, and then the finalizer."""
    stable = status.stable
    if context.desired.spec.deletion_policy is not DeletionPolicy.PURGE or stable is None:
        return ReconcileResult(status, (RemoveFinalizer(),))
    garbage_collection = status.garbage_collection
    if garbage_collection is None:
        pod = f"{context.desired.stem}-c{status.requests + 1}"
        garbage_collection = GarbageCollection((), pod, 1, status.deadline or context.now_ms)
        status = replace(status, requests=status.requests + 1, garbage_collection=garbage_collection)
    collector = next((pod for pod in context.observed.collectors if pod.name == garbage_collection.pod), None)
    if collector is None:
        return ReconcileResult(status, (CreateCollector(garbage_collection.pod, stable, (), everything=True),))
    if not collector.finished:
        return ReconcileResult(status)
    if not collector.succeeded:
        return ReconcileResult(replace(status, garbage_collection=None))
    return ReconcileResult(status, (*_savepoint_removals(context, status, data_left=False), RemoveFinalizer()))


def _savepoint_removals(context: Context, status: Status, *, data_left: bool) -> tuple[Action, ...]:
    """Return the removal of the app's ``Savepoint`` resources: all if the app was purged, else those that a person
    deleted.
    """
    purged = (
        context.desired.spec.deletion_policy is DeletionPolicy.PURGE and status.stable is not None and not data_left
    )
    removed = [savepoint for savepoint in context.observed.savepoints if purged or savepoint.deleting]
    return (
        *(DeleteSavepoint(savepoint.name) for savepoint in removed if not savepoint.deleting),
        *(RemoveSavepointFinalizer(savepoint.name) for savepoint in removed),
    )
