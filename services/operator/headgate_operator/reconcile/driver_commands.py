"""Executes the commands ``savepoint`` and ``drain``, with which the owner writes a savepoint.

1. The operator writes the savepoint's name, the command's id and its deadline into the status.
2. It creates the ``Savepoint`` resource, so that no data exists without a resource that names it.
3. It sends the command to the pod.
4. It writes the result of the driver into the resource.
5. It removes the command from the status.

After a crash between two steps, the next reconciliation sees which step is missing: no resource, no command at the pod,
or no result in the resource. ``drain`` without a savepoint name skips steps 2 and 4.
"""

from __future__ import annotations

from dataclasses import replace
from enum import Enum

from headgate_operator.reconcile.actions import Action, CreateSavepoint, SendCommand, UpdateSavepointStatus
from headgate_operator.reconcile.context import Context
from headgate_operator.reconcile.observed import PodView, SavepointView
from headgate_operator.resources.savepoint import SavepointPhase, SavepointReason, SavepointStatus
from headgate_operator.resources.status import PendingCommand, Status
from streamcore.control.commands import Drain, TakeSavepoint
from streamcore.control.status import CommandResult, SavepointInfo


class CommandState(Enum):
    """State of a command. ``LATE``: no result by the deadline. ``LOST``: the pod ended without a result."""

    WAITING = 1
    DONE = 2
    REJECTED = 3
    LATE = 4
    LOST = 5


def record_command(context: Context, status: Status, kind: str, savepoint: str, within_ms: int) -> Status:
    """Execute step 1: return the status with a new command to the owner.

    ``kind``: ``savepoint`` or ``drain``; ``savepoint``: the name of the savepoint, empty for none.
    """
    assert status.owner is not None
    assert status.pending_command is None, f"the result of {status.pending_command} is still awaited"
    number = status.requests + 1
    batch = status.checkpoint.batch if status.checkpoint else -1
    pending = PendingCommand(f"{kind}-{number}", kind, status.owner.name, context.now_ms + within_ms, savepoint, batch)
    return replace(status, requests=number, pending_command=pending)


def advance_command(
    context: Context, status: Status, reason: SavepointReason
) -> tuple[CommandState, tuple[Action, ...], str]:
    """Execute the next of steps 2 to 4: return the state of the command, the actions, and the driver's message.

    ``reason``: of the ``Savepoint`` resource, if it must be created.
    """
    pending = status.pending_command
    assert pending is not None
    pod = context.observed.pod(pending.pod)
    resource = context.observed.savepoint(pending.savepoint) if pending.savepoint else None
    result = pod.result(pending.id) if pod else None
    if result is not None:
        return _on_result(context, status, result, resource, reason)
    if pod is None or pod.finished:
        return _fail_savepoint(CommandState.LOST, resource, "the driver ended before it answered")
    if context.has_passed(pending.deadline):
        return _fail_savepoint(CommandState.LATE, resource, "the driver did not answer in time")
    return CommandState.WAITING, _missing_steps(context, status, pod, resource, reason), ""


def _missing_steps(
    context: Context, status: Status, pod: PodView, resource: SavepointView | None, reason: SavepointReason
) -> tuple[Action, ...]:
    """Return the actions of steps 2 and 3 that were not performed yet."""
    pending = status.pending_command
    assert pending is not None
    create = (CreateSavepoint(pending.savepoint, reason),) if pending.savepoint and resource is None else ()
    if pod.command_id == pending.id:
        return create
    command = _command(pending, context.traceparent(status) or None)
    return (*create, SendCommand(pod.name, pod.uid, command))


def _command(pending: PendingCommand, traceparent: str | None) -> TakeSavepoint | Drain:
    if pending.kind == "drain":
        return Drain(pending.id, pending.savepoint or None, traceparent)
    assert pending.kind == "savepoint", pending.kind
    return TakeSavepoint(pending.id, pending.savepoint, traceparent)


def _on_result(
    context: Context, status: Status, result: CommandResult, resource: SavepointView | None, reason: SavepointReason
) -> tuple[CommandState, tuple[Action, ...], str]:
    pending, savepoint = status.pending_command, result.savepoint
    assert pending is not None
    if not result.ok or (pending.savepoint and not _is_credible(status, pending, savepoint)):
        return _fail_savepoint(
            CommandState.REJECTED,
            resource,
            result.message or "the savepoint that the driver reported is not the requested one",
        )
    if not pending.savepoint:
        return CommandState.DONE, (), result.message
    if resource is None:
        return CommandState.WAITING, (CreateSavepoint(pending.savepoint, reason),), ""
    if resource.status.phase is SavepointPhase.COMPLETE:
        return CommandState.DONE, (), result.message
    assert savepoint is not None
    return (
        CommandState.WAITING,
        (
            UpdateSavepointStatus(
                resource.name, resource.resource_version, _complete_status(context, status, savepoint)
            ),
        ),
        "",
    )


def _is_credible(status: Status, pending: PendingCommand, savepoint: SavepointInfo | None) -> bool:
    """Return true if the savepoint has the requested name and the current epoch, and no fewer batches than were
    committed when the command was sent.
    """
    checkpoint = status.checkpoint
    assert checkpoint is not None
    return (
        savepoint is not None
        and savepoint.name == pending.savepoint
        and savepoint.epoch == checkpoint.epoch
        and savepoint.batch >= pending.batch
        and bool(savepoint.digest)
    )


def _complete_status(context: Context, status: Status, savepoint: SavepointInfo) -> SavepointStatus:
    return SavepointStatus(
        phase=SavepointPhase.COMPLETE,
        epoch=savepoint.epoch,
        batch=savepoint.batch,
        size_bytes=savepoint.size_bytes,
        digest=savepoint.digest,
        version=status.version,
        location=f"{context.desired.spec.savepoints_root}/{context.desired.name}/{savepoint.name}",
        completed=context.now_ms,
    )


def _fail_savepoint(
    state: CommandState, resource: SavepointView | None, message: str
) -> tuple[CommandState, tuple[Action, ...], str]:
    """Return the state and the message, and mark the resource as failed if it has no result yet."""
    if resource is None or not resource.open:
        return state, (), message
    failed = SavepointStatus(phase=SavepointPhase.FAILED, message=message)
    return state, (UpdateSavepointStatus(resource.name, resource.resource_version, failed),), message


def clear_command(status: Status, *, saved: bool = False) -> Status:
    """Execute step 5: remove the command from the status. ``saved``: its savepoint is complete, and becomes the
    newest."""
    newest = status.pending_command.savepoint if saved and status.pending_command else ""
    return replace(status, pending_command=None, newest_savepoint=newest or status.newest_savepoint)
