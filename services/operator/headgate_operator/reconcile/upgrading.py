"""A changed spec gets to run: Preflight, Stopping, Sealed, Verified, Fenced, Starting, Proving, Stable.

Until *Stopping* the old version is not touched; until *Fenced* it can go on as if nothing had been; from then on the
way
back is ``rolling_back``. What goes wrong has one of four ends: refused (the old version runs on), interrupted (the old
version ended by itself: it is restarted, and the upgrade begins anew), rolled back, or a person.
"""

from __future__ import annotations

from dataclasses import replace

from headgate_operator.protocol import Plan, Request
from headgate_operator.reconcile.actions import Ask, DeletePod
from headgate_operator.reconcile.asking import Reply, ask, forget, pursue
from headgate_operator.reconcile.bringing import Brought, State, alone, hand_over, prepare, watch
from headgate_operator.reconcile.restarting import restart
from headgate_operator.reconcile.step import (
    Context,
    Step,
    close,
    enter,
    open_upgrade,
    resting_phase,
    told,
    with_upgrade,
)
from headgate_operator.resources.savepoint import SavepointReason
from headgate_operator.resources.spec import RollbackPolicy, RunState, StopTimeout, UpgradeMode
from headgate_operator.resources.status import Asked, Checkpoint, Outcome, Phase, Status, Upgrade, UpgradeKind

#: What a driver says to a request that its version does not know. Such a one checks a savepoint as part of ``go``.
UNKNOWN_REQUEST = "nobody here can do"


def begin(context: Context, status: Status) -> Step:
    """Preflight of the release that is wanted."""
    number = status.upgrade.number + 1 if status.upgrade else 1
    upgrade = Upgrade(
        number,
        UpgradeKind.UPGRADE,
        context.desired.release,
        context.now_ms,
        from_version=status.version,
        base=status.checkpoint,
    )
    status = replace(status, upgrade=upgrade, standby=None, not_before=None)
    if _changes_what_it_may_not(status, upgrade):
        return refuse(context, status, "NeedsSavepoint", "another number of partitions needs upgrade.mode: savepoint")
    alive = context.owner_alive(status)
    return Step(enter(context, status, Phase.PREFLIGHT if alive else Phase.SEALED))


def _changes_what_it_may_not(status: Status, upgrade: Upgrade) -> bool:
    old, new = status.stable, upgrade.to.spec
    in_place = new.upgrade.mode is not UpgradeMode.SAVEPOINT
    return in_place and old is not None and old.spec.shuffle_partitions != new.shuffle_partitions


def preflight(context: Context, status: Status) -> Step:
    """The new version plans against the newest savepoint, beside the old one."""
    upgrade = open_upgrade(status)
    if not context.owner_alive(status):
        return interrupt(context, status)
    if not _still_wanted(context, upgrade):
        status = close(
            context, status, Outcome.SUPERSEDED, "Superseded", "the spec was changed before the old version was stopped"
        )
        return Step(enter(context, replace(status, standby=None), Phase.STABLE))
    prepared = prepare(context, status, upgrade.to, status.newest_savepoint)
    if prepared.state is State.FAILED:
        return refuse(context, prepared.step.status, prepared.reason, prepared.message)
    if prepared.state is State.WAITING or status.asked is not None:
        return prepared.step
    return _stop_or_refuse(context, prepared.step.status, upgrade)


def _still_wanted(context: Context, upgrade: Upgrade) -> bool:
    wanted = context.desired
    return wanted.release.revision == upgrade.to.revision and wanted.spec.state is RunState.RUNNING


def _stop_or_refuse(context: Context, status: Status, upgrade: Upgrade) -> Step:
    assert status.standby is not None
    pod = context.observed.pod(status.standby.name)
    plan = pod.report.plan if pod and pod.report else None
    if plan is not None and plan.verdict in ("incompatible", "decision"):
        reason = "Incompatible" if plan.verdict == "incompatible" else "NeedsDecision"
        return refuse(context, status, reason, _reasons(plan))
    named = f"{context.desired.stem}-u{upgrade.number}" if _mode(upgrade) is UpgradeMode.SAVEPOINT else ""
    within = upgrade.to.spec.upgrade.stop_deadline
    status = with_upgrade(status, replace(upgrade, savepoint=named, base=status.checkpoint))
    return Step(ask(context, enter(context, status, Phase.STOPPING, within), "drain", named, within))


def _reasons(plan: Plan) -> str:
    return "; ".join(plan.reasons) or plan.verdict


def _mode(upgrade: Upgrade) -> UpgradeMode:
    return upgrade.to.spec.upgrade.mode


def stopping(context: Context, status: Status) -> Step:
    """The old version writes its savepoint and ends."""
    if status.asked is None:  # answered, recorded, and ending by itself
        return _sealed(context, status)
    reply, actions, words = pursue(context, status, SavepointReason.UPGRADE)
    if reply is Reply.WAITING:
        return Step(status, actions)
    if reply is Reply.DONE:
        return Step(forget(status, sealed=True))
    if reply is Reply.LOST:
        return interrupt(context, forget(status)).doing(*actions)
    return _did_not_stop(context, status, reply, words).doing(*actions)


def _sealed(context: Context, status: Status) -> Step:
    pod = context.owner(status)
    if pod is None or pod.finished:
        return Step(
            enter(context, replace(status, owner=None), Phase.SEALED, context.desired.spec.upgrade.start_deadline)
        )
    over = context.past(status.deadline) and not pod.deleting
    return Step(status, (DeletePod(pod.name, pod.uid),) if over else ())


def _did_not_stop(context: Context, status: Status, reply: Reply, words: str) -> Step:
    upgrade = open_upgrade(status)
    revision = upgrade.to.revision
    settle = upgrade.to.spec.upgrade.on_stop_timeout is StopTimeout.SETTLE and status.settled != revision
    pod = context.owner(status)
    if reply is Reply.LATE and settle and pod is not None:
        step = interrupt(context, replace(forget(status), settled=revision))
        return step.doing(DeletePod(pod.name, pod.uid))
    reason = "StopTimeout" if reply is Reply.LATE else "StopRefused"
    return refuse(context, forget(status), reason, words or "the old version did not stop")


def sealed(context: Context, status: Status) -> Step:
    """The new version reads the savepoint back: digests, plan, state. In place there is nothing to read."""
    upgrade = open_upgrade(status)
    prepared = prepare(context, status, upgrade.to, upgrade.savepoint)
    status = prepared.step.status
    if prepared.state is State.FAILED:
        return undo(context, status, prepared)
    if prepared.state is State.WAITING:
        return prepared.step
    if not upgrade.savepoint:
        return Step(enter(context, status, Phase.VERIFIED))
    return _verify(context, status, upgrade)


def _verify(context: Context, status: Status, upgrade: Upgrade) -> Step:
    assert status.standby is not None
    pod = context.observed.pod(status.standby.name)
    assert pod is not None
    asked = status.asked
    if asked is None or asked.pod != pod.name:
        by = context.now_ms + upgrade.to.spec.upgrade.start_deadline
        number = status.requests + 1
        asked = Asked(f"verify-{number}", "verify", pod.name, by, upgrade.savepoint)
        status = replace(status, requests=number, asked=asked)
    answer = pod.answer(asked.id)
    if answer is not None and (answer.ok or answer.message.startswith(UNKNOWN_REQUEST)):
        return Step(enter(context, forget(status), Phase.VERIFIED))
    if answer is not None or context.past(asked.deadline):
        words = answer.message if answer else "the new version did not verify the savepoint in time"
        return undo(context, forget(status), Brought(State.FAILED, Step(status), "VerifyFailed", words))
    request = Request(asked.id, "verify", savepoint=upgrade.savepoint)
    return Step(status, () if pod.request_id == asked.id else (Ask(pod.name, pod.uid, request),))


def verified(context: Context, status: Status) -> Step:
    """The old pod is gone; then the new one gets the checkpoint."""
    upgrade = open_upgrade(status)
    prepared = prepare(context, status, upgrade.to, upgrade.savepoint)
    status = prepared.step.status
    if prepared.state is State.FAILED:
        return undo(context, status, prepared)
    wait = alone(context, status)
    if prepared.state is State.WAITING or wait is not None:
        return wait if wait is not None else prepared.step
    claim = _claim(status, upgrade)
    status = with_upgrade(status, replace(upgrade, handed=True, target=claim))
    return hand_over(context, enter(context, status, Phase.FENCED), claim)


def _claim(status: Status, upgrade: Upgrade) -> Checkpoint:
    if upgrade.savepoint:
        return Checkpoint(status.epochs + 1, restore=upgrade.savepoint)
    assert upgrade.base is not None
    begin_anew = _mode(upgrade) is UpgradeMode.STATELESS
    return replace(upgrade.base, begin=upgrade.base.begin or begin_anew)


def fenced(context: Context, status: Status) -> Step:
    """The new version has been told to go."""
    watched = watch(context, status)
    if watched.state is State.FAILED:
        return undo(context, watched.step.status, watched)
    pod, asked = context.owner(status), status.asked
    told_to = pod is not None and (asked is None or pod.request_id == asked.id)
    return Step(enter(context, status, Phase.STARTING)) if told_to else watched.step


def starting(context: Context, status: Status) -> Step:
    """The new version restores, and commits its first batch."""
    watched = watch(context, status)
    if watched.state is State.FAILED:
        return undo(context, watched.step.status, watched)
    return watched.step if watched.state is State.WAITING else prove(context, watched.step.status)


def prove(context: Context, status: Status) -> Step:
    """Proving begins: the lag of now is what it may not exceed at the end."""
    upgrade = open_upgrade(status)
    pod = context.owner(status)
    lag_rows = pod.report.lag_rows if pod and pod.report else 0
    status = with_upgrade(status, replace(upgrade, lag_rows=lag_rows))
    return Step(enter(context, status, Phase.PROVING, upgrade.to.spec.upgrade.proof.within))


def undo(context: Context, status: Status, failed: Brought) -> Step:
    """The new version failed after the old one was stopped: back to that, if a person has not reserved it to
    himself.
    """
    upgrade = replace(open_upgrade(status), reason=failed.reason, message=failed.message)
    status = replace(with_upgrade(status, upgrade), asked=None)
    event = told("UpgradeFailed", f"{upgrade.to.version}: {failed.reason}: {failed.message}", warning=True)
    if upgrade.to.spec.upgrade.rollback is RollbackPolicy.MANUAL and upgrade.handed:
        status = close(context, enter(context, status, Phase.NEEDS_HUMAN), Outcome.NEEDS_HUMAN)
        return Step(status, (event,))
    return Step(enter(context, status, Phase.ROLLING_BACK), (event,))


def refuse(context: Context, status: Status, reason: str, message: str) -> Step:
    """The upgrade is over before it began: the old version runs on."""
    version = open_upgrade(status).to.version
    status = close(context, status, Outcome.REFUSED, reason, message)
    event = told("UpgradeRefused", f"{version}: {reason}: {message}", warning=True)
    return Step(enter(context, replace(status, standby=None), resting_phase(status)), (event,))


def interrupt(context: Context, status: Status) -> Step:
    """The old version ended by itself: bring it back first. From there the upgrade begins anew."""
    status = close(
        context, status, Outcome.INTERRUPTED, "OldVersionEnded", "the old version ended; it is restarted first"
    )
    return restart(context, replace(status, asked=None), "OldVersionEnded")
