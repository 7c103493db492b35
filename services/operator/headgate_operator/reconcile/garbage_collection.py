"""Removes savepoints that are no longer needed, whether or not the app runs.

1. The operator writes the names into the status, onto the version of the resource that it read. So the spec that it
read is the newest, and restores none of them. 2. It deletes their resources, which the operator's finalizer keeps. 3.
It creates a collector: a pod that removes the data. 4. It removes the finalizers. 5. It removes the names from the
status.

After a crash between two steps, the next reconciliation sees which step is missing. Data that collectors could not
remove in ``ATTEMPTS`` attempts stays, and an event reports it: the deletion of a resource must end.
"""

from __future__ import annotations

from dataclasses import replace

from headgate_operator.reconcile.actions import (
    Action,
    CreateCollector,
    DeleteCollector,
    DeleteSavepoint,
    RemoveSavepointFinalizer,
)
from headgate_operator.reconcile.context import Context, ReconcileResult, app_event
from headgate_operator.reconcile.observed import SavepointView
from headgate_operator.resources.reasons import EventReason
from headgate_operator.resources.savepoint import SavepointPhase, SavepointReason
from headgate_operator.resources.status import GarbageCollection, Status, UpgradeOutcome

#: Time of one attempt, in milliseconds, and most attempts.
WITHIN_MS = 300_000
ATTEMPTS = 3


def in_use(context: Context, status: Status) -> frozenset[str]:
    """Return the names of the savepoints that may still be restored. They must not be removed."""
    upgrade, checkpoint = status.upgrade, status.checkpoint
    names = {context.desired.spec.restore.from_, status.newest_savepoint}
    names |= {candidate.savepoint for candidate in status.restore_points}
    if status.pending_command is not None:
        names.add(status.pending_command.savepoint)
    if checkpoint is not None and not checkpoint.established:
        names.add(checkpoint.restore)
    if upgrade is not None and upgrade.outcome in (UpgradeOutcome.OPEN, UpgradeOutcome.NEEDS_HUMAN):
        claims = [claim.restore for claim in (upgrade.base, upgrade.target, upgrade.claim) if claim is not None]
        names |= {upgrade.savepoint, upgrade.undo_savepoint, *claims}
    return frozenset(names | context.observed.references) - {""}


def collectable(context: Context, status: Status) -> tuple[str, ...]:
    """Return the names of the savepoints to remove: those that a person deleted, and the operator's own beyond the
    newest ``keep``; never one in use.
    """
    used = in_use(context, status)
    unused = [savepoint for savepoint in context.observed.savepoints if savepoint.name not in used]
    deleted = [savepoint.name for savepoint in unused if savepoint.deleting]
    return (*deleted, *(savepoint.name for savepoint in _surplus(context, unused)))


def _surplus(context: Context, unused: list[SavepointView]) -> list[SavepointView]:
    """Return the operator's own savepoints beyond the newest ``keep`` complete ones and ``keep`` failed ones."""
    own = [s for s in unused if s.reason not in (SavepointReason.MANUAL, SavepointReason.DELETION) and not s.deleting]
    complete = sorted((s for s in own if s.complete), key=lambda s: (s.status.epoch, s.status.batch, s.name))
    failed = [s for s in own if s.status.phase is SavepointPhase.FAILED]
    keep = context.desired.spec.savepoints.keep
    return complete[: max(len(complete) - keep, 0)] + sorted(failed, key=lambda s: s.created_ms)[:-keep]


def collect_garbage(context: Context, step: ReconcileResult) -> ReconcileResult:
    """Execute the next of the five steps, in any phase of the app. ``step``: the result of the phase."""
    status = step.status
    if status.garbage_collection is None:
        names = collectable(context, status)
        if not names or status.stable is None:
            return step
        return _begin(context, step, names, 1)
    return _continue_collection(context, step, status.garbage_collection)


def _begin(context: Context, step: ReconcileResult, names: tuple[str, ...], attempt: int) -> ReconcileResult:
    number = step.status.requests + 1
    pod = f"{context.desired.stem}-c{number}"
    garbage_collection = GarbageCollection(names, pod, attempt, context.now_ms + WITHIN_MS)
    status = replace(step.status, requests=number, garbage_collection=garbage_collection)
    return ReconcileResult(status, (*step.actions, *_missing_steps(context, status, garbage_collection)))


def _continue_collection(
    context: Context, step: ReconcileResult, garbage_collection: GarbageCollection
) -> ReconcileResult:
    left = [name for name in garbage_collection.names if context.observed.savepoint(name) is not None]
    if not left:
        return replace(step, status=replace(step.status, garbage_collection=None))
    pod = next((pod for pod in context.observed.collectors if pod.name == garbage_collection.pod), None)
    failed = context.has_passed(garbage_collection.deadline) or (pod is not None and pod.finished and not pod.succeeded)
    if pod is not None and pod.succeeded:
        return step.with_actions(*(RemoveSavepointFinalizer(name) for name in left))
    if failed and garbage_collection.attempt >= ATTEMPTS:
        event = app_event(EventReason.DATA_LEFT, f"the data of {', '.join(left)} could not be removed", warning=True)
        return step.with_actions(event, *(RemoveSavepointFinalizer(name) for name in left))
    if failed:
        return _begin(context, step, tuple(left), garbage_collection.attempt + 1)
    return step.with_actions(*_missing_steps(context, step.status, garbage_collection))


def _missing_steps(context: Context, status: Status, garbage_collection: GarbageCollection) -> tuple[Action, ...]:
    """Return the actions of steps 2 and 3 that were not performed yet."""
    present = [s for s in map(context.observed.savepoint, garbage_collection.names) if s is not None]
    deletions = tuple(DeleteSavepoint(savepoint.name) for savepoint in present if not savepoint.deleting)
    has_collector = any(pod.name == garbage_collection.pod for pod in context.observed.collectors)
    assert status.stable is not None
    collector = CreateCollector(garbage_collection.pod, status.stable, garbage_collection.names)
    return deletions if has_collector else (*deletions, collector)


def delete_finished_collectors(context: Context, status: Status) -> tuple[DeleteCollector, ...]:
    """Return the deletions of finished collectors that no garbage collection needs."""
    needed = status.garbage_collection.pod if status.garbage_collection else ""
    return tuple(DeleteCollector(p.name, p.uid) for p in context.observed.collectors if p.name != needed and p.finished)
