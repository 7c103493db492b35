"""Getting a driver to run, the one way in which any of them gets to: standby, alone, go, running.

1. A standby pod is made. It owns nothing, so there may be one beside a running owner. A crash here leaves a stray
standby.
2. Every other driver pod of the app is gone: absent, or its containers have ended. Deleted is not gone.
3. The claim (epoch, and what its checkpoint is made from) and the owner's name are written.
4. The request ``go``. A crash before it is repaired by asking again: the same claim, the same id, the same pod.
5. The driver says that it runs under that epoch and has committed a batch.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

from headgate_operator.protocol import Answer, Request
from headgate_operator.reconcile.actions import CreatePod, DeletePod, Go
from headgate_operator.reconcile.step import Context, Step
from headgate_operator.reconcile.world import PodView
from headgate_operator.resources.release import Release
from headgate_operator.resources.status import Asked, Checkpoint, Phase, PodRef, Status

#: A pod that was told to end is given its own grace and this before a person is asked.
GONE_WITHIN_MS = 120_000


class State(Enum):
    """Of a driver that is being brought up."""

    WAITING = 1
    READY = 2
    UP = 3
    FAILED = 4


@dataclass(frozen=True, slots=True)
class Brought:
    """How far it is. ``refused``: a ``go`` was, for good; a no that is not is like a crash. ``newer``: why, if it was
    for something newer than its claim.
    """

    state: State
    step: Step
    reason: str = ""
    message: str = ""
    refused: bool = False
    newer: tuple[int, int] | None = None


def prepare(context: Context, status: Status, release: Release, against: str = "") -> Brought:
    """Step 1. Ready when the standby of ``release`` says so."""
    standby = status.standby
    if standby is None or standby.revision != release.revision:
        return _another(context, status, release, against)
    pod = context.observed.pod(standby.name)
    if pod is None:
        return _missing(context, status, standby, release, against)
    if not standby.uid:
        status = replace(status, standby=replace(standby, uid=pod.uid))
    if not pod.alive:
        return Brought(State.FAILED, Step(status), "StandbyFailed", _words(pod))
    if pod.report is not None and pod.report.phase == "standby":
        return Brought(State.READY, Step(status))
    if context.past(status.prepare_by):
        return Brought(State.FAILED, Step(status), "StandbyTimeout", f"pod {pod.name} did not become a standby in time")
    return Brought(State.WAITING, Step(status))


def _another(context: Context, status: Status, release: Release, against: str) -> Brought:
    if status.not_before is not None and not context.past(status.not_before):
        return Brought(State.WAITING, Step(status))
    attempt = status.attempt + 1
    name = f"{context.desired.stem}-{attempt}"
    by = context.now_ms + context.desired.spec.upgrade.prepare_deadline
    standby = PodRef(name, release.revision)
    status = replace(status, attempt=attempt, standby=standby, prepare_by=by, not_before=None)
    return Brought(State.WAITING, Step(status, (CreatePod(name, release, against),)))


def _missing(context: Context, status: Status, standby: PodRef, release: Release, against: str) -> Brought:
    if standby.uid or context.past(status.prepare_by):
        return Brought(State.FAILED, Step(status), "StandbyGone", f"pod {standby.name} is gone")
    return Brought(State.WAITING, Step(status, (CreatePod(standby.name, release, against),)))


def alone(context: Context, status: Status) -> Step | None:
    """Step 2. Nothing when all others are gone; else the wait for it, which ends with a person."""
    keep = (status.standby.name,) if status.standby else ()
    others = context.observed.unfinished(*keep)
    if not others:
        return None
    grace = context.desired.spec.driver.termination_grace
    by = status.gone_by or context.now_ms + grace + GONE_WITHIN_MS
    if context.past(by):
        return Step(replace(status, phase=Phase.NEEDS_HUMAN, resume=status.phase))
    return Step(replace(status, gone_by=by), tuple(DeletePod(p.name, p.uid) for p in others if not p.deleting))


def hand_over(context: Context, status: Status, claim: Checkpoint) -> Step:
    """Steps 3 and 4, for a standby that is ready and alone."""
    standby = status.standby
    assert standby is not None, "nothing to hand over to"
    assert standby.uid, f"pod {standby.name} was not seen"
    number = status.requests + 1
    by = context.now_ms + context.desired.spec.upgrade.start_deadline
    status = replace(
        status,
        owner=standby,
        standby=None,
        checkpoint=claim,
        epochs=max(status.epochs, claim.epoch),
        requests=number,
        asked=Asked(f"go-{number}", "go", standby.name, by),
        gone_by=None,
    )
    return Step(status, (_go(context, status, standby.uid),))


def watch(context: Context, status: Status) -> Brought:
    """Step 5, and step 4 again when it was lost."""
    pod, asked = context.owner(status), status.asked
    if pod is None or not pod.alive:
        return Brought(State.FAILED, Step(status), "DriverFailed", _words(pod))
    answer = pod.answer(asked.id) if asked else None
    if answer is not None and not answer.ok:
        # An epoch that the root has seen is not handed out again: its checkpoint would be gone on with.
        status = replace(status, epochs=max(status.epochs, answer.newer[0] if answer.newer else 0))
        return _refused(status, answer)
    if runs(pod, status):
        return Brought(State.UP, Step(replace(status, asked=None)))
    if asked is not None and context.past(asked.deadline):
        return Brought(State.FAILED, Step(status), "StartTimeout", f"pod {pod.name} did not run in time")
    if asked is not None and answer is None and pod.request_id != asked.id:
        return Brought(State.WAITING, Step(status, (_go(context, status, pod.uid),)))
    return Brought(State.WAITING, Step(status))


def _refused(status: Status, answer: Answer) -> Brought:
    """What was away or held for a moment says nothing of the claim: the same one is tried again."""
    reason, refused = ("GoFailed", False) if answer.retry else ("GoRefused", True)
    return Brought(State.FAILED, Step(status), reason, answer.message, refused=refused, newer=answer.newer)


def runs(pod: PodView, status: Status) -> bool:
    """True when the owner says that it has committed under the claim's epoch."""
    report, checkpoint = pod.report, status.checkpoint
    if report is None or checkpoint is None:
        return False
    return report.phase == "running" and report.epoch == checkpoint.epoch and report.committed >= 1


def bring_up(context: Context, status: Status, release: Release, claim: Checkpoint, against: str = "") -> Brought:
    """All steps, one at a time. ``claim`` counts until there is an owner."""
    if status.owner is not None:
        return watch(context, status)
    prepared = prepare(context, status, release, against)
    if prepared.state is not State.READY:
        return prepared
    status = prepared.step.status
    wait = alone(context, status)
    return Brought(State.WAITING, wait if wait is not None else hand_over(context, status, claim))


def _go(context: Context, status: Status, uid: str) -> Go:
    asked, claim = status.asked, status.checkpoint
    assert asked is not None
    assert claim is not None
    request = Request(
        asked.id,
        "go",
        epoch=claim.epoch,
        restore="" if claim.established else claim.restore,
        begin=claim.begin and not claim.established,
        accept_newer=claim.accept_newer,
        traceparent=context.traceparent(status),
    )
    return Go(asked.pod, uid, request)


def _words(pod: PodView | None) -> str:
    if pod is None:
        return "the pod is gone"
    said = pod.report.message if pod.report and pod.report.message else pod.message
    return said or f"pod {pod.name} ended" if pod.finished else f"pod {pod.name} was told to end"
