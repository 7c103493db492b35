"""Requests that a running owner answers with a savepoint: ``savepoint`` and ``drain``.

1. The savepoint's name, the request's id and its deadline are written.
2. The line in the ledger is created, so that no data exists that nobody names.
3. The request goes to the pod. 4. Its answer goes into the ledger. 5. The request is forgotten.
A crash between any two is repaired by what can be seen: no line, no request at the pod, no outcome in the line.
"""

from __future__ import annotations

from dataclasses import replace
from enum import Enum

from headgate_operator.protocol import Answer, Request, Sealed
from headgate_operator.reconcile.actions import Action, Ask, CreateSavepoint, RecordSavepoint
from headgate_operator.reconcile.step import Context
from headgate_operator.reconcile.world import PodView, SavepointView
from headgate_operator.resources.savepoint import SavepointPhase, SavepointReason, SavepointStatus
from headgate_operator.resources.status import Asked, Status


class Reply(Enum):
    """What became of a request. ``LATE``: its deadline is over. ``LOST``: the pod ended without an answer."""

    WAITING = 1
    DONE = 2
    REFUSED = 3
    LATE = 4
    LOST = 5


def ask(context: Context, status: Status, do: str, savepoint: str, within_ms: int) -> Status:
    """Step 1, of the owner."""
    assert status.owner is not None
    assert status.asked is None, f"{status.asked} is not answered yet"
    number = status.requests + 1
    batch = status.checkpoint.batch if status.checkpoint else -1
    asked = Asked(f"{do}-{number}", do, status.owner.name, context.now_ms + within_ms, savepoint, batch)
    return replace(status, requests=number, asked=asked)


def pursue(context: Context, status: Status, reason: SavepointReason) -> tuple[Reply, tuple[Action, ...], str]:
    """Steps 2 to 4: what became of it, what is to be done, and the driver's words."""
    asked = status.asked
    assert asked is not None
    pod = context.observed.pod(asked.pod)
    line = context.observed.savepoint(asked.savepoint) if asked.savepoint else None
    answer = pod.answer(asked.id) if pod else None
    if answer is not None:
        return _answered(context, status, answer, line, reason)
    if pod is None or pod.finished:
        return _failed(Reply.LOST, line, "the driver ended before it answered")
    if context.past(asked.deadline):
        return _failed(Reply.LATE, line, "the driver did not answer in time")
    return Reply.WAITING, _request(context, status, pod, line, reason), ""


def _request(
    context: Context, status: Status, pod: PodView, line: SavepointView | None, reason: SavepointReason
) -> tuple[Action, ...]:
    asked = status.asked
    assert asked is not None
    create = (CreateSavepoint(asked.savepoint, reason),) if asked.savepoint and line is None else ()
    if pod.request_id == asked.id:
        return create
    traceparent = context.traceparent(status)
    request = Request(asked.id, asked.kind, savepoint=asked.savepoint, traceparent=traceparent)
    return (*create, Ask(pod.name, pod.uid, request))


def _answered(
    context: Context, status: Status, answer: Answer, line: SavepointView | None, reason: SavepointReason
) -> tuple[Reply, tuple[Action, ...], str]:
    asked, sealed = status.asked, answer.savepoint
    assert asked is not None
    if not answer.ok or (asked.savepoint and not _credible(status, asked, sealed)):
        return _failed(Reply.REFUSED, line, answer.message or "the driver named no savepoint that could be right")
    if not asked.savepoint:
        return Reply.DONE, (), answer.message
    if line is None:
        return Reply.WAITING, (CreateSavepoint(asked.savepoint, reason),), ""
    if line.status.phase is SavepointPhase.COMPLETE:
        return Reply.DONE, (), answer.message
    assert sealed is not None
    return Reply.WAITING, (RecordSavepoint(line.name, line.resource_version, _complete(context, status, sealed)),), ""


def _credible(status: Status, asked: Asked, sealed: Sealed | None) -> bool:
    """Of this name, of this epoch, and not behind what the driver had said that it committed."""
    checkpoint = status.checkpoint
    assert checkpoint is not None
    return (
        sealed is not None
        and sealed.name == asked.savepoint
        and sealed.epoch == checkpoint.epoch
        and sealed.batch >= asked.batch
        and bool(sealed.digest)
    )


def _complete(context: Context, status: Status, sealed: Sealed) -> SavepointStatus:
    return SavepointStatus(
        phase=SavepointPhase.COMPLETE,
        epoch=sealed.epoch,
        batch=sealed.batch,
        size_bytes=sealed.size_bytes,
        digest=sealed.digest,
        version=status.version,
        location=f"{context.desired.spec.savepoints_root}/{context.desired.name}/{sealed.name}",
        completed=context.now_ms,
    )


def _failed(reply: Reply, line: SavepointView | None, message: str) -> tuple[Reply, tuple[Action, ...], str]:
    if line is None or not line.open:
        return reply, (), message
    failed = SavepointStatus(phase=SavepointPhase.FAILED, message=message)
    return reply, (RecordSavepoint(line.name, line.resource_version, failed),), message


def forget(status: Status, *, sealed: bool = False) -> Status:
    """Step 5. A savepoint that is there becomes the newest."""
    newest = status.asked.savepoint if sealed and status.asked else ""
    return replace(status, asked=None, newest_savepoint=newest or status.newest_savepoint)
