"""Savepoints that nobody needs are removed, whether or not the app runs.

1. What goes is written into the status, under the version of the resource that was read: so no edit of the spec that
   names one of them can have come between.
2. Their resources are deleted; our finalizer holds them. 3. A pod removes the data. 4. The finalizers are taken off.
5. The status forgets them. A crash between any two is repaired by what can be seen.
Data that a pod failed to remove several times stays, and is said to: a deletion must end.
"""

from __future__ import annotations

from dataclasses import replace

from headgate_operator.reconcile.actions import (
    Action,
    CreateCollector,
    DeleteCollector,
    DeleteSavepoint,
    ReleaseSavepoint,
)
from headgate_operator.reconcile.step import Context, Step, told
from headgate_operator.reconcile.world import SavepointView
from headgate_operator.resources.savepoint import SavepointPhase, SavepointReason
from headgate_operator.resources.status import Collecting, Outcome, Status

WITHIN_MS = 300_000
ATTEMPTS = 3


def in_use(context: Context, status: Status) -> frozenset[str]:
    """Every savepoint that something may still be restored from."""
    upgrade, checkpoint = status.upgrade, status.checkpoint
    names = {context.desired.spec.restore.from_, status.newest_savepoint}
    names |= {candidate.savepoint for candidate in status.candidates}
    if status.asked is not None:
        names.add(status.asked.savepoint)
    if checkpoint is not None and not checkpoint.established:
        names.add(checkpoint.restore)
    if upgrade is not None and upgrade.outcome in (Outcome.OPEN, Outcome.NEEDS_HUMAN):
        claims = [claim.restore for claim in (upgrade.base, upgrade.target, upgrade.claim) if claim is not None]
        names |= {upgrade.savepoint, upgrade.undo_savepoint, *claims}
    return frozenset(names | context.observed.references) - {""}


def collectable(context: Context, status: Status) -> tuple[str, ...]:
    """Those that a person deleted, and of our own those beyond the newest ``keep``; never one in use."""
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


def collect(context: Context, step: Step) -> Step:
    """Whatever else goes on: steps 1 to 5."""
    status = step.status
    if status.collecting is None:
        names = collectable(context, status)
        if not names or status.stable is None:
            return step
        return _begin(context, step, names, 1)
    return _go_on(context, step, status.collecting)


def _begin(context: Context, step: Step, names: tuple[str, ...], attempt: int) -> Step:
    number = step.status.requests + 1
    pod = f"{context.desired.stem}-c{number}"
    collecting = Collecting(names, pod, attempt, context.now_ms + WITHIN_MS)
    status = replace(step.status, requests=number, collecting=collecting)
    return Step(status, (*step.actions, *_work(context, status, collecting)))


def _go_on(context: Context, step: Step, collecting: Collecting) -> Step:
    left = [name for name in collecting.names if context.observed.savepoint(name) is not None]
    if not left:
        return replace(step, status=replace(step.status, collecting=None))
    pod = next((pod for pod in context.observed.collectors if pod.name == collecting.pod), None)
    failed = context.past(collecting.deadline) or (pod is not None and pod.finished and not pod.succeeded)
    if pod is not None and pod.succeeded:
        return step.doing(*(ReleaseSavepoint(name) for name in left))
    if failed and collecting.attempt >= ATTEMPTS:
        event = told("DataLeft", f"the data of {', '.join(left)} could not be removed", warning=True)
        return step.doing(event, *(ReleaseSavepoint(name) for name in left))
    if failed:
        return _begin(context, step, tuple(left), collecting.attempt + 1)
    return step.doing(*_work(context, step.status, collecting))


def _work(context: Context, status: Status, collecting: Collecting) -> tuple[Action, ...]:
    lines = [line for line in map(context.observed.savepoint, collecting.names) if line is not None]
    deletions = tuple(DeleteSavepoint(line.name) for line in lines if not line.deleting)
    there = any(pod.name == collecting.pod for pod in context.observed.collectors)
    assert status.stable is not None
    made = () if there else (CreateCollector(collecting.pod, status.stable, collecting.names),)
    return (*deletions, *made)


def done_collectors(context: Context, status: Status) -> tuple[DeleteCollector, ...]:
    """Pods that have done their work."""
    needed = status.collecting.pod if status.collecting else ""
    return tuple(DeleteCollector(p.name, p.uid) for p in context.observed.collectors if p.name != needed and p.finished)
