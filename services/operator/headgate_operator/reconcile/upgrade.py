"""Upgrades an app to the release of its spec.

The phases are Preflight, Stopping, Verifying, AwaitingExit, Promoting, Starting, Proving and Stable. The old version
runs until *Stopping*. Until *Promoting* it can continue from its own checkpoint; after that ``rolling_back`` decides
which checkpoint it continues from. An upgrade that fails ends in one of four ways: rejected (the old version runs on),
interrupted (the old version ended by itself; it is restarted, and the upgrade begins again), rolled back, or left to a
person.
"""

from __future__ import annotations

from dataclasses import replace

from headgate_operator.reconcile.actions import DeletePod, SendCommand
from headgate_operator.reconcile.bring_up import (
    BringUpResult,
    BringUpState,
    await_running,
    ensure_standby,
    promote,
    wait_for_exclusive,
)
from headgate_operator.reconcile.context import (
    Context,
    ReconcileResult,
    app_event,
    close_upgrade,
    enter_phase,
    open_upgrade,
    resting_phase,
    with_new_upgrade,
    with_upgrade,
)
from headgate_operator.reconcile.driver_commands import CommandState, advance_command, clear_command, record_command
from headgate_operator.reconcile.restart import restart
from headgate_operator.resources.reasons import EventReason, FailureReason
from headgate_operator.resources.savepoint import SavepointReason
from headgate_operator.resources.spec import RollbackPolicy, RunState, StopTimeout, UpgradeMode
from headgate_operator.resources.status import (
    Checkpoint,
    PendingCommand,
    Phase,
    Status,
    Upgrade,
    UpgradeKind,
    UpgradeOutcome,
)
from streamcore.control.commands import UNKNOWN_COMMAND, Verify
from streamcore.control.status import CompatibilityInfo


def begin_upgrade(context: Context, status: Status) -> ReconcileResult:
    """Begin the upgrade to the release of the spec."""
    status = with_new_upgrade(context, status, UpgradeKind.UPGRADE)
    if _changes_fixed_settings(status, open_upgrade(status)):
        return reject(
            context,
            status,
            FailureReason.NEEDS_SAVEPOINT,
            "another value of shufflePartitions needs upgrade.mode: savepoint",
        )
    # Without a running old version there is nothing to stop.
    phase = Phase.PREFLIGHT if context.owner_alive(status) else Phase.VERIFYING
    return ReconcileResult(enter_phase(context, status, phase))


def _changes_fixed_settings(status: Status, upgrade: Upgrade) -> bool:
    old, new = status.stable, upgrade.to.spec
    in_place = new.upgrade.mode is not UpgradeMode.SAVEPOINT
    return in_place and old is not None and old.spec.shuffle_partitions != new.shuffle_partitions


def preflight(context: Context, status: Status) -> ReconcileResult:
    """Start a standby of the new version beside the old version; it checks its compatibility with the newest
    savepoint."""
    upgrade = open_upgrade(status)
    if not context.owner_alive(status):
        return interrupt(context, status)
    if not _is_still_wanted(context, upgrade):
        status = close_upgrade(
            context,
            status,
            UpgradeOutcome.SUPERSEDED,
            FailureReason.SUPERSEDED,
            "the spec was changed before the old version was stopped",
        )
        return ReconcileResult(enter_phase(context, replace(status, standby=None), Phase.STABLE))
    prepared = ensure_standby(context, status, upgrade.to, status.newest_savepoint)
    if prepared.state is BringUpState.FAILED:
        return reject(context, prepared.step.status, prepared.reason, prepared.message)
    if prepared.state is BringUpState.WAITING or status.pending_command is not None:
        return prepared.step
    return _stop_or_reject(context, prepared.step.status, upgrade)


def _is_still_wanted(context: Context, upgrade: Upgrade) -> bool:
    desired = context.desired
    return desired.release.revision == upgrade.to.revision and desired.spec.state is RunState.RUNNING


def _stop_or_reject(context: Context, status: Status, upgrade: Upgrade) -> ReconcileResult:
    """Drain the old version if the standby found the state compatible; reject the upgrade otherwise."""
    assert status.standby is not None
    pod = context.observed.pod(status.standby.name)
    compatibility = pod.driver_status.compatibility if pod and pod.driver_status else None
    if compatibility is not None and compatibility.verdict in ("incompatible", "decision"):
        reason = FailureReason.INCOMPATIBLE if compatibility.verdict == "incompatible" else FailureReason.NEEDS_DECISION
        return reject(context, status, reason, _reasons(compatibility))
    savepoint = f"{context.desired.stem}-u{upgrade.number}" if _mode(upgrade) is UpgradeMode.SAVEPOINT else ""
    within_ms = upgrade.to.spec.upgrade.stop_deadline
    status = with_upgrade(status, replace(upgrade, savepoint=savepoint, base=status.checkpoint))
    return ReconcileResult(
        record_command(context, enter_phase(context, status, Phase.STOPPING, within_ms), "drain", savepoint, within_ms)
    )


def _reasons(compatibility: CompatibilityInfo) -> str:
    return "; ".join(compatibility.reasons) or compatibility.verdict


def _mode(upgrade: Upgrade) -> UpgradeMode:
    return upgrade.to.spec.upgrade.mode


def stopping(context: Context, status: Status) -> ReconcileResult:
    """Wait until the old version has written its savepoint and ended."""
    if status.pending_command is None:  # the drain succeeded, and the driver ends by itself
        return _await_old_exit(context, status)
    state, actions, message = advance_command(context, status, SavepointReason.UPGRADE)
    if state is CommandState.WAITING:
        return ReconcileResult(status, actions)
    if state is CommandState.DONE:
        return ReconcileResult(clear_command(status, saved=True))
    if state is CommandState.LOST:
        return interrupt(context, clear_command(status)).with_actions(*actions)
    return _on_stop_timeout(context, status, state, message).with_actions(*actions)


def _await_old_exit(context: Context, status: Status) -> ReconcileResult:
    """Wait until the drained pod has ended; delete it after the deadline."""
    pod = context.owner(status)
    if pod is None or pod.finished:
        return ReconcileResult(
            enter_phase(
                context, replace(status, owner=None), Phase.VERIFYING, context.desired.spec.upgrade.start_deadline
            )
        )
    is_late = context.has_passed(status.deadline) and not pod.deleting
    return ReconcileResult(status, (DeletePod(pod.name, pod.uid),) if is_late else ())


def _on_stop_timeout(context: Context, status: Status, state: CommandState, message: str) -> ReconcileResult:
    """Reject the upgrade, because the old version did not drain; if the spec demands it, restart and drain it once
    more."""
    upgrade = open_upgrade(status)
    revision = upgrade.to.revision
    may_retry = (
        upgrade.to.spec.upgrade.on_stop_timeout is StopTimeout.FINISH_BATCH and status.drain_retried_for != revision
    )
    pod = context.owner(status)
    if state is CommandState.LATE and may_retry and pod is not None:
        step = interrupt(context, replace(clear_command(status), drain_retried_for=revision))
        return step.with_actions(DeletePod(pod.name, pod.uid))
    reason = FailureReason.STOP_TIMEOUT if state is CommandState.LATE else FailureReason.STOP_REJECTED
    return reject(context, clear_command(status), reason, message or "the old version did not stop")


def verifying(context: Context, status: Status) -> ReconcileResult:
    """Let the standby verify the savepoint of the old version, if there is one: its digests, compatibility and
    state."""
    upgrade = open_upgrade(status)
    prepared = ensure_standby(context, status, upgrade.to, upgrade.savepoint)
    status = prepared.step.status
    if prepared.state is BringUpState.FAILED:
        return begin_rollback(context, status, prepared)
    if prepared.state is BringUpState.WAITING:
        return prepared.step
    if not upgrade.savepoint:
        return ReconcileResult(enter_phase(context, status, Phase.AWAITING_EXIT))
    return _verify(context, status, upgrade)


def _verify(context: Context, status: Status, upgrade: Upgrade) -> ReconcileResult:
    """Send ``verify`` to the standby and wait for its result. An older image that does not know the command passes."""
    assert status.standby is not None
    pod = context.observed.pod(status.standby.name)
    assert pod is not None
    pending = status.pending_command
    if pending is None or pending.pod != pod.name:
        deadline_ms = context.now_ms + upgrade.to.spec.upgrade.start_deadline
        number = status.requests + 1
        pending = PendingCommand(f"verify-{number}", "verify", pod.name, deadline_ms, upgrade.savepoint)
        status = replace(status, requests=number, pending_command=pending)
    result = pod.result(pending.id)
    if result is not None and (result.ok or result.message.startswith(UNKNOWN_COMMAND)):
        return ReconcileResult(enter_phase(context, clear_command(status), Phase.AWAITING_EXIT))
    if result is not None or context.has_passed(pending.deadline):
        message = result.message if result else "the new version did not verify the savepoint in time"
        return begin_rollback(
            context,
            clear_command(status),
            BringUpResult(BringUpState.FAILED, ReconcileResult(status), FailureReason.VERIFY_FAILED, message),
        )
    command = Verify(pending.id, upgrade.savepoint)
    return ReconcileResult(status, () if pod.command_id == pending.id else (SendCommand(pod.name, pod.uid, command),))


def awaiting_exit(context: Context, status: Status) -> ReconcileResult:
    """Wait until the old pod is gone; then promote the standby."""
    upgrade = open_upgrade(status)
    prepared = ensure_standby(context, status, upgrade.to, upgrade.savepoint)
    status = prepared.step.status
    if prepared.state is BringUpState.FAILED:
        return begin_rollback(context, status, prepared)
    wait = wait_for_exclusive(context, status)
    if prepared.state is BringUpState.WAITING or wait is not None:
        return wait if wait is not None else prepared.step
    claim = _claim(status, upgrade)
    status = with_upgrade(status, replace(upgrade, promoted=True, target=claim))
    return promote(context, enter_phase(context, status, Phase.PROMOTING), claim)


def _claim(status: Status, upgrade: Upgrade) -> Checkpoint:
    """Return the checkpoint of the new version: a new one from the savepoint, or that of the old version in place."""
    if upgrade.savepoint:
        return Checkpoint(status.epochs + 1, restore=upgrade.savepoint)
    assert upgrade.base is not None
    may_start_empty = _mode(upgrade) is UpgradeMode.STATELESS
    return replace(upgrade.base, allow_empty=upgrade.base.allow_empty or may_start_empty)


def promoting(context: Context, status: Status) -> ReconcileResult:
    """Wait until the pod of the new version has the command ``promote``."""
    result = await_running(context, status)
    if result.state is BringUpState.FAILED:
        return begin_rollback(context, result.step.status, result)
    pod, pending = context.owner(status), status.pending_command
    has_command = pod is not None and (pending is None or pod.command_id == pending.id)
    return ReconcileResult(enter_phase(context, status, Phase.STARTING)) if has_command else result.step


def starting(context: Context, status: Status) -> ReconcileResult:
    """Wait until the new version has restored and committed its first batch."""
    result = await_running(context, status)
    if result.state is BringUpState.FAILED:
        return begin_rollback(context, result.step.status, result)
    return result.step if result.state is BringUpState.WAITING else prove(context, result.step.status)


def prove(context: Context, status: Status) -> ReconcileResult:
    """Begin the proof of the version that runs. Its current lag is acceptable at the end of the proof too."""
    upgrade = open_upgrade(status)
    pod = context.owner(status)
    lag_rows = pod.driver_status.lag_rows if pod and pod.driver_status else 0
    status = with_upgrade(status, replace(upgrade, lag_rows=lag_rows))
    return ReconcileResult(enter_phase(context, status, Phase.PROVING, upgrade.to.spec.upgrade.proof.within))


def begin_rollback(context: Context, status: Status, failed: BringUpResult) -> ReconcileResult:
    """Roll back after a failure that followed the stop of the old version; with ``rollback: manual`` leave it to a
    person."""
    upgrade = replace(open_upgrade(status), reason=failed.reason, message=failed.message)
    status = replace(with_upgrade(status, upgrade), pending_command=None)
    event = app_event(
        EventReason.UPGRADE_FAILED, f"{upgrade.to.version}: {failed.reason}: {failed.message}", warning=True
    )
    if upgrade.to.spec.upgrade.rollback is RollbackPolicy.MANUAL and upgrade.promoted:
        status = close_upgrade(context, enter_phase(context, status, Phase.NEEDS_HUMAN), UpgradeOutcome.NEEDS_HUMAN)
        return ReconcileResult(status, (event,))
    return ReconcileResult(enter_phase(context, status, Phase.ROLLING_BACK), (event,))


def reject(context: Context, status: Status, reason: str, message: str) -> ReconcileResult:
    """Close the upgrade before the old version stops; the old version runs on."""
    version = open_upgrade(status).to.version
    status = close_upgrade(context, status, UpgradeOutcome.REJECTED, reason, message)
    event = app_event(EventReason.UPGRADE_REJECTED, f"{version}: {reason}: {message}", warning=True)
    return ReconcileResult(enter_phase(context, replace(status, standby=None), resting_phase(status)), (event,))


def interrupt(context: Context, status: Status) -> ReconcileResult:
    """Close the upgrade because the old version ended by itself, and restart the old version; then the upgrade begins
    again."""
    status = close_upgrade(
        context,
        status,
        UpgradeOutcome.INTERRUPTED,
        FailureReason.OLD_VERSION_ENDED,
        "the old version ended; it is restarted first",
    )
    return restart(context, replace(status, pending_command=None), FailureReason.OLD_VERSION_ENDED)
