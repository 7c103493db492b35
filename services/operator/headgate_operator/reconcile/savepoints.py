"""Savepoints of a running app: those that people request, those of the schedule, and abandoned ones."""

from __future__ import annotations

from dataclasses import replace

from headgate_operator.reconcile.actions import CreateSavepoint, UpdateSavepointStatus
from headgate_operator.reconcile.context import Context, ReconcileResult
from headgate_operator.reconcile.driver_commands import record_command
from headgate_operator.resources.savepoint import SavepointPhase, SavepointReason, SavepointStatus
from headgate_operator.resources.status import Status

#: Milliseconds that a running driver may take to write a savepoint.
WITHIN_MS = 600_000


def request_due_savepoint(context: Context, status: Status) -> ReconcileResult:
    """Command the driver to write the oldest savepoint that a person requested, else the one that the schedule
    requires.

    A savepoint that is being removed is skipped: a person may have deleted it, and this observation be older.
    """
    being_removed = () if status.garbage_collection is None else status.garbage_collection.names
    requested = [s for s in context.observed.savepoints if s.open and s.reason is SavepointReason.MANUAL]
    requested = [s for s in requested if s.name not in being_removed]
    if requested:
        oldest = min(requested, key=lambda savepoint: (savepoint.created_ms, savepoint.name))
        return ReconcileResult(record_command(context, status, "savepoint", oldest.name, WITHIN_MS))
    return _request_scheduled(context, status)


def _request_scheduled(context: Context, status: Status) -> ReconcileResult:
    """Request a savepoint if the interval has passed since the last scheduled one, or since the app runs."""
    every_ms = context.desired.spec.savepoints.every
    since_ms = status.last_scheduled or status.running_since or context.now_ms
    if status.last_scheduled is None and every_ms:
        return (
            ReconcileResult(replace(status, last_scheduled=since_ms))
            if context.now_ms < since_ms + every_ms
            else _request_now(context, status)
        )
    return (
        _request_now(context, status) if every_ms and context.now_ms >= since_ms + every_ms else ReconcileResult(status)
    )


def _request_now(context: Context, status: Status) -> ReconcileResult:
    name = f"{context.desired.stem}-t{status.requests + 1}"
    status = replace(status, last_scheduled=context.now_ms)
    return ReconcileResult(
        record_command(context, status, "savepoint", name, WITHIN_MS),
        (CreateSavepoint(name, SavepointReason.SCHEDULED),),
    )


def fail_abandoned_savepoints(context: Context, step: ReconcileResult) -> tuple[UpdateSavepointStatus, ...]:
    """Return the updates that mark as failed the savepoints of the operator that no command writes any more.

    Savepoints that ``step`` updates itself are left out.
    """
    if step.status.pending_command is not None:
        return ()
    updated = {action.name for action in step.actions if isinstance(action, UpdateSavepointStatus)}
    failed = SavepointStatus(phase=SavepointPhase.FAILED, message="the driver ended, or received another command")
    abandoned = [
        s
        for s in context.observed.savepoints
        if s.open and s.reason is not SavepointReason.MANUAL and s.name not in updated
    ]
    return tuple(UpdateSavepointStatus(s.name, s.resource_version, failed) for s in abandoned)
