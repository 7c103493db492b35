"""Phases without a version to go back to: the first start, and a restore that a person requested.

A first start is retried for ever, each time with the current spec. A failed restore ends with a person: its checkpoint
is behind an epoch that was promoted since.
"""

from __future__ import annotations

from dataclasses import replace

from headgate_operator.reconcile.actions import AddFinalizer
from headgate_operator.reconcile.bring_up import BringUpResult, BringUpState, bring_up
from headgate_operator.reconcile.context import (
    Context,
    ReconcileResult,
    app_event,
    close_upgrade,
    enter_phase,
    open_upgrade,
    with_upgrade,
)
from headgate_operator.reconcile.driver_commands import CommandState, advance_command, clear_command, record_command
from headgate_operator.reconcile.proving import RESTORE_ATTEMPTS, on_failure
from headgate_operator.reconcile.restore_points import needs_human
from headgate_operator.reconcile.upgrade import prove
from headgate_operator.resources.reasons import EventReason
from headgate_operator.resources.savepoint import SavepointReason
from headgate_operator.resources.spec import RunState, UpgradeMode
from headgate_operator.resources.status import (
    Checkpoint,
    Phase,
    Status,
    Upgrade,
    UpgradeKind,
    UpgradeOutcome,
)

FIRST_EPOCH = 1


def pending(context: Context, status: Status) -> ReconcileResult:
    """Begin the first start of a new app."""
    if not context.desired.finalized:
        return ReconcileResult(status, (AddFinalizer(),))
    if context.desired.spec.state is RunState.SUSPENDED or context.desired.problem:
        return ReconcileResult(status)
    restore = context.desired.spec.restore
    claim = Checkpoint(_first_epoch(context, restore.from_), restore=restore.from_, allow_empty=not restore.from_)
    upgrade = Upgrade(1, UpgradeKind.INSTALL, context.desired.release, context.now_ms, claim=claim)
    return ReconcileResult(
        enter_phase(context, replace(status, upgrade=upgrade, restore_nonce=restore.nonce), Phase.STARTING)
    )


def _first_epoch(context: Context, savepoint: str) -> int:
    """Return an epoch above that of the savepoint, whose batches would otherwise count as written."""
    line = context.observed.savepoint(savepoint) if savepoint else None
    return FIRST_EPOCH if line is None else max(FIRST_EPOCH, line.status.epoch + 1)


def should_restore(context: Context, status: Status) -> bool:
    """Return true for a new nonce and a savepoint that can be restored: no other request may stop an app."""
    restore = context.desired.spec.restore
    if context.desired.problem or not restore.from_ or restore.nonce == status.restore_nonce:
        return False
    going = status.garbage_collection.names if status.garbage_collection else ()
    line = context.observed.savepoint(restore.from_)
    return line is not None and line.complete and restore.from_ not in going


def begin_restore(context: Context, status: Status) -> ReconcileResult:
    """Stop the owner, with a savepoint as a restore point, and restore the requested one."""
    restore = context.desired.spec.restore
    number = status.upgrade.number + 1 if status.upgrade else 1
    claim = Checkpoint(status.epochs + 1, restore=restore.from_, discard_newer=True)
    upgrade = Upgrade(
        number,
        UpgradeKind.RESTORE,
        context.desired.release,
        context.now_ms,
        from_version=status.version,
        base=status.checkpoint,
        claim=claim,
    )
    status = replace(
        status,
        upgrade=upgrade,
        restore_nonce=restore.nonce,
        standby=None,
        restarts=0,
        retry_after=None,
        restore_points=(),
    )
    event = app_event(EventReason.RESTORING, f"from savepoint {restore.from_}, under epoch {claim.epoch}")
    if not context.owner_alive(status):
        return ReconcileResult(enter_phase(context, replace(status, owner=None), Phase.STARTING), (event,))
    within = upgrade.to.spec.upgrade.stop_deadline
    stateless = upgrade.to.spec.upgrade.mode is UpgradeMode.STATELESS
    name = "" if stateless else f"{context.desired.stem}-u{number}"
    status = replace(enter_phase(context, status, Phase.STOPPING, within), pending_command=None)
    return ReconcileResult(record_command(context, status, "drain", name, within), (event,))


def stop_for_restore(context: Context, status: Status) -> ReconcileResult:
    """Stop the owner, however it ends: a person chose the point to continue from."""
    state, actions, _ = advance_command(context, status, SavepointReason.UPGRADE)
    if state is CommandState.WAITING:
        return ReconcileResult(status, actions)
    status = clear_command(status, saved=state is CommandState.DONE)
    return ReconcileResult(enter_phase(context, replace(status, owner=None), Phase.STARTING), actions)


def start_or_restore(context: Context, status: Status) -> ReconcileResult:
    """Wait until the app runs, then begin to prove it."""
    status = _with_current_release(context, status)
    upgrade = open_upgrade(status)
    assert upgrade.claim is not None
    checkpoint = status.checkpoint
    claim = checkpoint if checkpoint and checkpoint.epoch == upgrade.claim.epoch else upgrade.claim
    result = bring_up(context, status, upgrade.to, claim)
    if result.state is BringUpState.WAITING:
        return result.step
    if result.state is BringUpState.UP:
        return prove(context, result.step.status)
    return _start_failed(context, result)


def _start_failed(context: Context, result: BringUpResult) -> ReconcileResult:
    status = result.step.status
    restoring = open_upgrade(status).kind is UpgradeKind.RESTORE
    if result.newer is not None or (restoring and (result.refused or status.restarts >= RESTORE_ATTEMPTS)):
        return needs_human(context, status, result.reason, result.message)
    return on_failure(context, status, result.reason, result.message)


def _with_current_release(context: Context, status: Status) -> Status:
    """Give a first start the current spec, while no pod owns the checkpoint."""
    upgrade = open_upgrade(status)
    if upgrade.kind is not UpgradeKind.INSTALL or status.owner is not None:
        return status
    if context.desired.release.revision == upgrade.to.revision:
        return status
    upgrade = replace(upgrade, to=context.desired.release)
    return replace(with_upgrade(status, upgrade), standby=None, retry_after=None)


def cancel_install(context: Context, status: Status) -> Status:
    """Suspend an app that has never run."""
    status = close_upgrade(
        context, status, UpgradeOutcome.SUPERSEDED, "Suspended", "suspended before the first start was done"
    )
    return enter_phase(context, replace(status, standby=None), Phase.SUSPENDING)
