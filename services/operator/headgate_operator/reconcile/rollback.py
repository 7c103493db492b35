"""Rolls back to the previous version, from a checkpoint that neither loses records nor writes output twice.

The old version continues from the first of these checkpoints that it accepts:

- if the new version never owned a checkpoint: the old checkpoint, under the same epoch, where the old version stopped;
- if the new version could be drained: the savepoint of that drain, under a new epoch;
- if the new version has not reported a commit: the savepoint of the old version, under a new epoch. The driver rejects
  it if the storage holds anything newer, so output that the new version did commit is never written again;
- the checkpoint of the new version, in place. The driver rejects it if its code cannot read that state.

After a rejection the operator tries the next checkpoint, and after the last one it leaves the decision to a person.
After a crash, or a rejection with a temporary cause (a dependency is unreachable, a lease is held), it tries the same
checkpoint again, with growing delays; after ``_ATTEMPTS`` attempts it leaves the decision to a person.
"""

from __future__ import annotations

from dataclasses import replace

from headgate_operator.reconcile.actions import DeletePod
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
from headgate_operator.reconcile.restore_points import needs_human
from headgate_operator.resources.reasons import EventReason, FailureReason
from headgate_operator.resources.savepoint import SavepointReason
from headgate_operator.resources.spec import UpgradeMode
from headgate_operator.resources.status import Checkpoint, Phase, Status, Upgrade, UpgradeOutcome

_ATTEMPTS = 6
#: The delay before attempt n is n times this, in milliseconds.
_BACK_OFF_MS = 5_000


def rolling_back(context: Context, status: Status) -> ReconcileResult:
    """Stop the new version, then bring up the old one."""
    if open_upgrade(status).undo_step == 0:
        return _stop_new_version(context, status)
    return _bring_up_old_version(context, status)


def _stop_new_version(context: Context, status: Status) -> ReconcileResult:
    """Drain the new version if that is possible, and end its ownership of the checkpoint."""
    upgrade = open_upgrade(status)
    if not upgrade.promoted:
        return _after_stop(status)
    if status.pending_command is None:
        if not _can_drain(context, status, upgrade):
            return _after_stop(status)
        name = f"{context.desired.stem}-r{upgrade.number}"
        status = with_upgrade(status, replace(upgrade, undo_savepoint=name))
        status = record_command(context, status, "drain", name, upgrade.to.spec.upgrade.stop_deadline)
    state, actions, _ = advance_command(context, status, SavepointReason.ROLLBACK)
    if state is CommandState.WAITING:
        return ReconcileResult(status, actions)
    status = clear_command(status, saved=state is CommandState.DONE)
    if state is not CommandState.DONE:
        status = with_upgrade(status, replace(open_upgrade(status), undo_savepoint=""))
    return replace(_after_stop(status), actions=actions)


def _can_drain(context: Context, status: Status, upgrade: Upgrade) -> bool:
    """Return true if the new version is alive, has committed, and was not asked to drain before."""
    checkpoint = status.checkpoint
    committed = checkpoint is not None and checkpoint.established
    return bool(upgrade.savepoint) and committed and context.owner_alive(status) and not upgrade.undo_savepoint


def _after_stop(status: Status) -> ReconcileResult:
    upgrade = open_upgrade(status)
    target = status.checkpoint if upgrade.promoted else None
    status = with_upgrade(status, replace(upgrade, undo_step=1, target=target, claim=None))
    return ReconcileResult(
        replace(status, owner=None, standby=None, pending_command=None, restarts=0, retry_after=None)
    )


def rollback_checkpoints(status: Status, upgrade: Upgrade) -> tuple[Checkpoint, ...]:
    """Return the checkpoints that the old version may continue from, in the order in which they are tried."""
    assert upgrade.base is not None
    target = upgrade.target
    if not upgrade.promoted or target is None:
        return (upgrade.base,)
    if upgrade.to.spec.upgrade.mode is not UpgradeMode.SAVEPOINT:
        return (target,)
    epoch = status.epochs + 1
    drained = (Checkpoint(epoch, restore=upgrade.undo_savepoint),) if upgrade.undo_savepoint else ()
    before = () if target.established else (Checkpoint(epoch, restore=upgrade.savepoint),)
    return (*drained, *before, replace(target, restore="", allow_empty=False))


def _bring_up_old_version(context: Context, status: Status) -> ReconcileResult:
    """Bring up the old version from the checkpoint that ``undo_step`` selects, counted from 1."""
    stable, upgrade = status.stable, open_upgrade(status)
    assert stable is not None
    claim = upgrade.claim
    if claim is None:
        checkpoints = rollback_checkpoints(status, upgrade)
        if upgrade.undo_step > len(checkpoints):
            return needs_human(context, status, FailureReason.NO_WAY_BACK, upgrade.message)
        claim = checkpoints[upgrade.undo_step - 1]
        status = with_upgrade(status, replace(upgrade, claim=claim))
    if status.owner is not None and status.checkpoint is not None:
        claim = status.checkpoint
    result = bring_up(context, status, stable, claim)
    if result.state is BringUpState.FAILED:
        return _next_attempt(context, result)
    return result.step if result.state is BringUpState.WAITING else _close_rolled_back(context, result.step.status)


def _next_attempt(context: Context, result: BringUpResult) -> ReconcileResult:
    """Select the next checkpoint after a rejection, and the same one after any other failure, up to ``_ATTEMPTS``
    times."""
    status = result.step.status
    upgrade, attempts = open_upgrade(status), status.restarts + 1
    owner = context.owner(status)
    actions = (DeletePod(owner.name, owner.uid),) if owner is not None and owner.alive else ()
    status = replace(status, owner=None, standby=None, pending_command=None)
    if not result.rejected and attempts < _ATTEMPTS:
        return ReconcileResult(
            replace(status, restarts=attempts, retry_after=context.now_ms + _BACK_OFF_MS * attempts), actions
        )
    if not result.rejected:
        return needs_human(context, status, result.reason, result.message).with_actions(*actions)
    changed = replace(upgrade, undo_step=upgrade.undo_step + 1, claim=None, message=result.message)
    return ReconcileResult(replace(with_upgrade(status, changed), restarts=0, retry_after=context.now_ms), actions)


def _close_rolled_back(context: Context, status: Status) -> ReconcileResult:
    upgrade = open_upgrade(status)
    status = close_upgrade(context, enter_phase(context, status, Phase.ROLLED_BACK), UpgradeOutcome.ROLLED_BACK)
    status = replace(status, restarts=0, running_since=context.now_ms)
    message = f"{upgrade.to.version} was rolled back: {upgrade.reason}: {upgrade.message}"
    return ReconcileResult(status, (app_event(EventReason.ROLLED_BACK, message, warning=True),))
