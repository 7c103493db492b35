"""Commands that a running owner answers with a savepoint: ``savepoint`` and ``drain``.

1. The savepoint's name, the command's id and its deadline are written.
2. The ``Savepoint`` resource is created, so that no data exists without a record that names it.
3. The command goes to the pod.
4. Its result goes into the resource.
5. The command is removed from the status.

The next reconciliation repairs a crash between any two steps from the state: no resource, no command at the pod, no
result in the resource.
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
    """State of a command. ``LATE``: its deadline has passed. ``LOST``: the pod ended without a result."""

    WAITING = 1
    DONE = 2
    REFUSED = 3
    LATE = 4
    LOST = 5


def send(context: Context, status: Status, kind: str, savepoint: str, within_ms: int) -> Status:
    """Execute step 1, for the owner."""
    assert status.owner is not None
    assert status.pending_command is None, f"{status.pending_command} is not answered yet"
    number = status.requests + 1
    batch = status.checkpoint.batch if status.checkpoint else -1
    pending = PendingCommand(f"{kind}-{number}", kind, status.owner.name, context.now_ms + within_ms, savepoint, batch)
    return replace(status, requests=number, pending_command=pending)


def poll(context: Context, status: Status, reason: SavepointReason) -> tuple[CommandState, tuple[Action, ...], str]:
    """Execute steps 2 to 4: return the state of the command, the next actions, and the driver's message."""
    pending = status.pending_command
    assert pending is not None
    pod = context.observed.pod(pending.pod)
    line = context.observed.savepoint(pending.savepoint) if pending.savepoint else None
    result = pod.result(pending.id) if pod else None
    if result is not None:
        return _on_result(context, status, result, line, reason)
    if pod is None or pod.finished:
        return _fail_savepoint(CommandState.LOST, line, "the driver ended before it answered")
    if context.past(pending.deadline):
        return _fail_savepoint(CommandState.LATE, line, "the driver did not answer in time")
    return CommandState.WAITING, _request(context, status, pod, line, reason), ""


def _request(
    context: Context, status: Status, pod: PodView, line: SavepointView | None, reason: SavepointReason
) -> tuple[Action, ...]:
    pending = status.pending_command
    assert pending is not None
    create = (CreateSavepoint(pending.savepoint, reason),) if pending.savepoint and line is None else ()
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
    context: Context, status: Status, result: CommandResult, line: SavepointView | None, reason: SavepointReason
) -> tuple[CommandState, tuple[Action, ...], str]:
    pending, savepoint = status.pending_command, result.savepoint
    assert pending is not None
    if not result.ok or (pending.savepoint and not _is_credible(status, pending, savepoint)):
        return _fail_savepoint(
            CommandState.REFUSED,
            line,
            result.message or "the savepoint that the driver reported is implausible",
        )
    if not pending.savepoint:
        return CommandState.DONE, (), result.message
    if line is None:
        return CommandState.WAITING, (CreateSavepoint(pending.savepoint, reason),), ""
    if line.status.phase is SavepointPhase.COMPLETE:
        return CommandState.DONE, (), result.message
    assert savepoint is not None
    return (
        CommandState.WAITING,
        (UpdateSavepointStatus(line.name, line.resource_version, _complete(context, status, savepoint)),),
        "",
    )


def _is_credible(status: Status, pending: PendingCommand, savepoint: SavepointInfo | None) -> bool:
    """Return true when it has this name and this epoch, and is not behind the commit that the driver had reported."""
    checkpoint = status.checkpoint
    assert checkpoint is not None
    return (
        savepoint is not None
        and savepoint.name == pending.savepoint
        and savepoint.epoch == checkpoint.epoch
        and savepoint.batch >= pending.batch
        and bool(savepoint.digest)
    )


def _complete(context: Context, status: Status, savepoint: SavepointInfo) -> SavepointStatus:
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
    state: CommandState, line: SavepointView | None, message: str
) -> tuple[CommandState, tuple[Action, ...], str]:
    if line is None or not line.open:
        return state, (), message
    failed = SavepointStatus(phase=SavepointPhase.FAILED, message=message)
    return state, (UpdateSavepointStatus(line.name, line.resource_version, failed),), message


def clear(status: Status, *, saved: bool = False) -> Status:
    """Execute step 5. A savepoint that was written becomes the newest."""
    newest = status.pending_command.savepoint if saved and status.pending_command else ""
    return replace(status, pending_command=None, newest_savepoint=newest or status.newest_savepoint)
