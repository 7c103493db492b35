"""What begins without a version to go back to: the first start, and the restore that a person asked for.

A first start is tried for ever, with the spec as it is by then. A restore that fails ends with a person: the
checkpoint that it left is behind an epoch that was handed out since.
"""

from __future__ import annotations

from dataclasses import replace

from headgate_operator.reconcile.actions import AddFinalizer
from headgate_operator.reconcile.asking import Reply, ask, forget, pursue
from headgate_operator.reconcile.bringing import Brought, State, bring_up
from headgate_operator.reconcile.human import needs_human
from headgate_operator.reconcile.proving import RESTORE_ATTEMPTS, failed
from headgate_operator.reconcile.step import Context, Step, close, enter, open_upgrade, told, with_upgrade
from headgate_operator.reconcile.upgrading import prove
from headgate_operator.resources.savepoint import SavepointReason
from headgate_operator.resources.spec import RunState, UpgradeMode
from headgate_operator.resources.status import (
    Checkpoint,
    Outcome,
    Phase,
    Status,
    Upgrade,
    UpgradeKind,
)

FIRST_EPOCH = 1


def pending(context: Context, status: Status) -> Step:
    """Nothing was done yet."""
    if not context.desired.finalized:
        return Step(status, (AddFinalizer(),))
    if context.desired.spec.state is RunState.SUSPENDED or context.desired.problem:
        return Step(status)
    restore = context.desired.spec.restore
    claim = Checkpoint(_first_epoch(context, restore.from_), restore=restore.from_, begin=not restore.from_)
    upgrade = Upgrade(1, UpgradeKind.INSTALL, context.desired.release, context.now_ms, claim=claim)
    return Step(enter(context, replace(status, upgrade=upgrade, nonce=restore.nonce), Phase.STARTING))


def _first_epoch(context: Context, savepoint: str) -> int:
    """Above that of the savepoint, whose batches would be taken for written otherwise."""
    line = context.observed.savepoint(savepoint) if savepoint else None
    return FIRST_EPOCH if line is None else max(FIRST_EPOCH, line.status.epoch + 1)


def wants_restore(context: Context, status: Status) -> bool:
    """A nonce that was not seen, and a savepoint that can be restored: what cannot be must not stop an app."""
    restore = context.desired.spec.restore
    if context.desired.problem or not restore.from_ or restore.nonce == status.nonce:
        return False
    going = status.collecting.names if status.collecting else ()
    line = context.observed.savepoint(restore.from_)
    return line is not None and line.complete and restore.from_ not in going


def begin_restore(context: Context, status: Status) -> Step:
    """Stop the owner, with a savepoint to come back to, and go to the one that was asked for."""
    restore = context.desired.spec.restore
    number = status.upgrade.number + 1 if status.upgrade else 1
    claim = Checkpoint(status.epochs + 1, restore=restore.from_, accept_newer=True)
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
        status, upgrade=upgrade, nonce=restore.nonce, standby=None, restarts=0, not_before=None, candidates=()
    )
    event = told("Restoring", f"from savepoint {restore.from_}, under epoch {claim.epoch}")
    if not context.owner_alive(status):
        return Step(enter(context, replace(status, owner=None), Phase.STARTING), (event,))
    within = upgrade.to.spec.upgrade.stop_deadline
    stateless = upgrade.to.spec.upgrade.mode is UpgradeMode.STATELESS
    name = "" if stateless else f"{context.desired.stem}-u{number}"
    status = replace(enter(context, status, Phase.STOPPING, within), asked=None)
    return Step(ask(context, status, "drain", name, within), (event,))


def stop_for_restore(context: Context, status: Status) -> Step:
    """However the owner ends: a person said where to go on from."""
    reply, actions, _ = pursue(context, status, SavepointReason.UPGRADE)
    if reply is Reply.WAITING:
        return Step(status, actions)
    status = forget(status, sealed=reply is Reply.DONE)
    return Step(enter(context, replace(status, owner=None), Phase.STARTING), actions)


def starting_anew(context: Context, status: Status) -> Step:
    """Until it runs, then the proof."""
    status = _as_wanted_now(context, status)
    upgrade = open_upgrade(status)
    assert upgrade.claim is not None
    checkpoint = status.checkpoint
    claim = checkpoint if checkpoint and checkpoint.epoch == upgrade.claim.epoch else upgrade.claim
    brought = bring_up(context, status, upgrade.to, claim)
    if brought.state is State.WAITING:
        return brought.step
    if brought.state is State.UP:
        return prove(context, brought.step.status)
    return _start_failed(context, brought)


def _start_failed(context: Context, brought: Brought) -> Step:
    status = brought.step.status
    restoring = open_upgrade(status).kind is UpgradeKind.RESTORE
    if brought.newer is not None or (restoring and (brought.refused or status.restarts >= RESTORE_ATTEMPTS)):
        return needs_human(context, status, brought.reason, brought.message)
    return failed(context, status, brought.reason, brought.message)


def _as_wanted_now(context: Context, status: Status) -> Status:
    """While nothing owns the checkpoint, a first start takes what is wanted by now."""
    upgrade = open_upgrade(status)
    if upgrade.kind is not UpgradeKind.INSTALL or status.owner is not None:
        return status
    if context.desired.release.revision == upgrade.to.revision:
        return status
    upgrade = replace(upgrade, to=context.desired.release)
    return replace(with_upgrade(status, upgrade), standby=None, not_before=None)


def give_up_install(context: Context, status: Status) -> Status:
    """Suspended before it ever ran."""
    status = close(context, status, Outcome.SUPERSEDED, "Suspended", "suspended before the first start was done")
    return enter(context, replace(status, standby=None), Phase.SUSPENDING)
