"""Remove savepoints that are no longer needed, whether or not the app runs.

1. The names to remove are written into the status, under the version of the resource that was read; so the spec that
   was read is the newest, and names none of them.
2. Their resources are deleted; our finalizer holds them.
3. A pod removes the data.
4. The finalizers are removed.
5. The names are removed from the status.

After a crash between any two steps, the next reconciliation repairs the state that it sees. Data that a pod failed to
remove several times stays, and the status reports it: a deletion must end.
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

WITHIN_MS = 300_000
ATTEMPTS = 3


def in_use(context: Context, status: Status) -> frozenset[str]:
    """Return every savepoint that may still be restored."""
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
    """Return savepoints that a person deleted, and our own beyond the newest ``keep``; never one in use."""
    used = in_use(context, status)
    there = [savepoint for savepoint in context.observed.savepoints if savepoint.name not in used]
    deleted = [savepoint.name for savepoint in there if savepoint.deleting]
    return (*deleted, *(savepoint.name for savepoint in _surplus(context, there)))


def _surplus(context: Context, there: list[SavepointView]) -> list[SavepointView]:
    ours = [s for s in there if s.reason not in (SavepointReason.MANUAL, SavepointReason.DELETION) and not s.deleting]
    complete = sorted((s for s in ours if s.complete), key=lambda s: (s.status.epoch, s.status.batch, s.name))
    failed = [s for s in ours if s.status.phase is SavepointPhase.FAILED]
    kept = context.desired.spec.savepoints.keep
    return complete[: max(len(complete) - kept, 0)] + sorted(failed, key=lambda s: s.created_ms)[:-kept]


def collect(context: Context, step: ReconcileResult) -> ReconcileResult:
    """Execute steps 1 to 5, one per call, in any phase of the app."""
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
    return ReconcileResult(status, (*step.actions, *_work(context, status, garbage_collection)))


def _continue_collection(
    context: Context, step: ReconcileResult, garbage_collection: GarbageCollection
) -> ReconcileResult:
    left = [name for name in garbage_collection.names if context.observed.savepoint(name) is not None]
    if not left:
        return replace(step, status=replace(step.status, garbage_collection=None))
    pod = next((pod for pod in context.observed.collectors if pod.name == garbage_collection.pod), None)
    failed = context.past(garbage_collection.deadline) or (pod is not None and pod.finished and not pod.succeeded)
    if pod is not None and pod.succeeded:
        return step.doing(*(RemoveSavepointFinalizer(name) for name in left))
    if failed and garbage_collection.attempt >= ATTEMPTS:
        event = app_event(EventReason.DATA_LEFT, f"the data of {', '.join(left)} could not be removed", warning=True)
        return step.doing(event, *(RemoveSavepointFinalizer(name) for name in left))
    if failed:
        return _begin(context, step, tuple(left), garbage_collection.attempt + 1)
    return step.doing(*_work(context, step.status, garbage_collection))


def _work(context: Context, status: Status, garbage_collection: GarbageCollection) -> tuple[Action, ...]:
    lines = [line for line in map(context.observed.savepoint, garbage_collection.names) if line is not None]
    deletions = tuple(DeleteSavepoint(line.name) for line in lines if not line.deleting)
    there = any(pod.name == garbage_collection.pod for pod in context.observed.collectors)
    assert status.stable is not None
    made = () if there else (CreateCollector(garbage_collection.pod, status.stable, garbage_collection.names),)
    return (*deletions, *made)


def done_collectors(context: Context, status: Status) -> tuple[DeleteCollector, ...]:
    """Delete pods that have finished removing data."""
    needed = status.garbage_collection.pod if status.garbage_collection else ""
    return tuple(DeleteCollector(p.name, p.uid) for p in context.observed.collectors if p.name != needed and p.finished)
