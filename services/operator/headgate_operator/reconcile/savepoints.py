"""Savepoints of a running app: requests by a person, requests by the schedule, and abandoned ledger entries."""

from __future__ import annotations

from dataclasses import replace

from headgate_operator.reconcile.actions import CreateSavepoint, UpdateSavepointStatus
from headgate_operator.reconcile.context import Context, ReconcileResult
from headgate_operator.reconcile.driver_commands import record_command
from headgate_operator.resources.savepoint import SavepointPhase, SavepointReason, SavepointStatus
from headgate_operator.resources.status import Status

#: How long a running driver may take to write one.
WITHIN_MS = 600_000


def request_due_savepoint(context: Context, status: Status) -> ReconcileResult:
    """Request the oldest savepoint that a person wants, else the one that the schedule wants.

    Skip a savepoint whose data is being removed: perhaps only another operator has seen that a person deleted it.
    """
    going = () if status.garbage_collection is None else status.garbage_collection.names
    asked_for = [s for s in context.observed.savepoints if s.open and s.reason is SavepointReason.MANUAL]
    asked_for = [s for s in asked_for if s.name not in going]
    if asked_for:
        oldest = min(asked_for, key=lambda savepoint: (savepoint.created_ms, savepoint.name))
        return ReconcileResult(record_command(context, status, "savepoint", oldest.name, WITHIN_MS))
    return _by_the_clock(context, status)


def _by_the_clock(context: Context, status: Status) -> ReconcileResult:
    every = context.desired.spec.savepoints.every
    since = status.last_scheduled or status.running_since or context.now_ms
    if status.last_scheduled is None and every:
        return (
            ReconcileResult(replace(status, last_scheduled=since))
            if context.now_ms < since + every
            else _take(context, status)
        )
    return _take(context, status) if every and context.now_ms >= since + every else ReconcileResult(status)


def _take(context: Context, status: Status) -> ReconcileResult:
    name = f"{context.desired.stem}-t{status.requests + 1}"
    status = replace(status, last_scheduled=context.now_ms)
    return ReconcileResult(
        record_command(context, status, "savepoint", name, WITHIN_MS),
        (CreateSavepoint(name, SavepointReason.SCHEDULED),),
    )


def fail_abandoned_savepoints(context: Context, step: ReconcileResult) -> tuple[UpdateSavepointStatus, ...]:
    """Mark savepoints that this operator began and that no command belongs to any more as failed, unless the step does
    so.
    """
    if step.status.pending_command is not None:
        return ()
    updated = {action.name for action in step.actions if isinstance(action, UpdateSavepointStatus)}
    failed = SavepointStatus(phase=SavepointPhase.FAILED, message="the driver ended, or received another command")
    ours = [
        s
        for s in context.observed.savepoints
        if s.open and s.reason is not SavepointReason.MANUAL and s.name not in updated
    ]
    return tuple(UpdateSavepointStatus(s.name, s.resource_version, failed) for s in ours)
