"""Savepoints of a running app: those that people ask for, those that the clock asks for, and lines that nobody will
finish.
"""

from __future__ import annotations

from dataclasses import replace

from headgate_operator.reconcile.actions import CreateSavepoint, RecordSavepoint
from headgate_operator.reconcile.asking import ask
from headgate_operator.reconcile.step import Context, Step
from headgate_operator.resources.savepoint import SavepointPhase, SavepointReason, SavepointStatus
from headgate_operator.resources.status import Status

#: How long a running driver may take to write one.
WITHIN_MS = 600_000


def due(context: Context, status: Status) -> Step:
    """The oldest that a person asked for, else the clock's.

    None whose data is being removed: that a person deleted it may have been seen by another operator only.
    """
    going = () if status.collecting is None else status.collecting.names
    asked_for = [s for s in context.observed.savepoints if s.open and s.reason is SavepointReason.MANUAL]
    asked_for = [s for s in asked_for if s.name not in going]
    if asked_for:
        oldest = min(asked_for, key=lambda savepoint: (savepoint.created_ms, savepoint.name))
        return Step(ask(context, status, "savepoint", oldest.name, WITHIN_MS))
    return _by_the_clock(context, status)


def _by_the_clock(context: Context, status: Status) -> Step:
    every = context.desired.spec.savepoints.every
    since = status.last_scheduled or status.running_since or context.now_ms
    if status.last_scheduled is None and every:
        return Step(replace(status, last_scheduled=since)) if context.now_ms < since + every else _take(context, status)
    return _take(context, status) if every and context.now_ms >= since + every else Step(status)


def _take(context: Context, status: Status) -> Step:
    name = f"{context.desired.stem}-t{status.requests + 1}"
    status = replace(status, last_scheduled=context.now_ms)
    return Step(ask(context, status, "savepoint", name, WITHIN_MS), (CreateSavepoint(name, SavepointReason.SCHEDULED),))


def abandoned(context: Context, step: Step) -> tuple[RecordSavepoint, ...]:
    """Lines that we began and that no request stands for any more: said to have failed, if the step does not say so."""
    if step.status.asked is not None:
        return ()
    said = {action.name for action in step.actions if isinstance(action, RecordSavepoint)}
    failed = SavepointStatus(phase=SavepointPhase.FAILED, message="the driver ended, or was asked for something else")
    ours = [
        s
        for s in context.observed.savepoints
        if s.open and s.reason is not SavepointReason.MANUAL and s.name not in said
    ]
    return tuple(RecordSavepoint(s.name, s.resource_version, failed) for s in ours)
