"""Upgrades without a version to roll back to: the first start, and a restore that a person requested.

A first start is retried for ever, each time with the current spec. A restore that keeps failing is left to a person,
because it has no checkpoint to return to: the one of before is behind the epoch of the restore.
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
    with_new_upgrade,
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
    """Begin the first start of a new app, unless it is suspended or its spec is invalid."""
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
    """Return an epoch above that of the savepoint: under the same epoch, the next batches would count as written."""
    resource = context.observed.savepoint(savepoint) if savepoint else None
    return FIRST_EPOCH if resource is None else max(FIRST_EPOCH, resource.status.epoch + 1)


def should_restore(context: Context, status: Status) -> bool:
    """Return true if the spec has a new ``restore.nonce`` and a savepoint that can be restored. A request that cannot
    be fulfilled must not stop the app.
    """
    restore = context.desired.spec.restore
    if context.desired.problem or not restore.from_ or restore.nonce == status.restore_nonce:
        return False
    being_removed = status.garbage_collection.names if status.garbage_collection else ()
    resource = context.observed.savepoint(restore.from_)
    return resource is not None and resource.complete and restore.from_ not in being_removed


def begin_restore(context: Context, status: Status) -> ReconcileResult:
    """Begin a restore: drain the owner, with a savepoint as a restore point, unless the app is stateless."""
    restore = context.desired.spec.restore
    claim = Checkpoint(status.epochs + 1, restore=restore.from_, discard_newer=True)
    status = with_new_upgrade(context, status, UpgradeKind.RESTORE, claim)
    status = replace(status, restore_nonce=restore.nonce, restarts=0, restore_points=())
    upgrade = open_upgrade(status)
    event = app_event(EventReason.RESTORING, f"from savepoint {restore.from_}, under epoch {claim.epoch}")
    if not context.owner_alive(status):
        return ReconcileResult(enter_phase(context, replace(status, owner=None), Phase.STARTING), (event,))
    within_ms = upgrade.to.spec.upgrade.stop_deadline
    stateless = upgrade.to.spec.upgrade.mode is UpgradeMode.STATELESS
    name = "" if stateless else f"{context.desired.stem}-u{upgrade.number}"
    status = replace(enter_phase(context, status, Phase.STOPPING, within_ms), pending_command=None)
    return ReconcileResult(record_command(context, status, "drain", name, within_ms), (event,))


def stop_for_restore(context: Context, status: Status) -> ReconcileResult:
    """Wait for the drain of the owner. Its result does not matter: the app continues from the savepoint of the
    restore."""
    state, actions, _ = advance_command(context, status, SavepointReason.UPGRADE)
    if state is CommandState.WAITING:
        return ReconcileResult(status, actions)
    status = clear_command(status, saved=state is CommandState.DONE)
    return ReconcileResult(enter_phase(context, replace(status, owner=None), Phase.STARTING), actions)


def start_or_restore(context: Context, status: Status) -> ReconcileResult:
    """Bring up the driver of a first start or a restore; when it runs, begin its proof."""
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
    is_restore = open_upgrade(status).kind is UpgradeKind.RESTORE
    if result.newer is not None or (is_restore and (result.rejected or status.restarts >= RESTORE_ATTEMPTS)):
        return needs_human(context, status, result.reason, result.message)
    return on_failure(context, status, result.reason, result.message)


def _with_current_release(context: Context, status: Status) -> Status:
    """Replace the release of a first start by that of the current spec, while no pod owns the checkpoint."""
    upgrade = open_upgrade(status)
    if upgrade.kind is not UpgradeKind.INSTALL or status.owner is not None:
        return status
    if context.desired.release.revision == upgrade.to.revision:
        return status
    upgrade = replace(upgrade, to=context.desired.release)
    return replace(with_upgrade(status, upgrade), standby=None, retry_after=None)


def cancel_install(context: Context, status: Status) -> Status:
    """Close the first start of an app that is to be suspended before it ever ran."""
    status = close_upgrade(
        context,
        status,
        UpgradeOutcome.SUPERSEDED,
        "Suspended",
        "the app was suspended before its first start was finished",
    )
    return enter_phase(context, replace(status, standby=None, owner=None, pending_command=None), Phase.SUSPENDING)
