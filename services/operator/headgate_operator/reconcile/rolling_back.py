"""The way back: the version before, from where it is certain that nothing is lost and nothing written twice.

What there is to go back to, in this order:

- the new version never got a checkpoint: the old one goes on where it stopped, same checkpoint, same epoch;
- the new version could still be drained: its own savepoint, under a new epoch;
- it is not known to have committed anything: the savepoint of before the upgrade, under a new epoch. The driver
refuses it when the root holds anything newer, so what the new version did commit is never written again;
- its checkpoint, in place. The driver refuses it when its code cannot read that state.

What is refused leads to the next one, and the last one to a person. A crash, or a no because something was away or
held, says nothing of the way: it is tried again, later each time, and in the end is a person's.
"""

from __future__ import annotations

from dataclasses import replace

from headgate_operator.reconcile.actions import DeletePod
from headgate_operator.reconcile.asking import Reply, ask, forget, pursue
from headgate_operator.reconcile.bringing import Brought, State, bring_up
from headgate_operator.reconcile.human import needs_human
from headgate_operator.reconcile.step import Context, Step, close, enter, open_upgrade, told, with_upgrade
from headgate_operator.resources.savepoint import SavepointReason
from headgate_operator.resources.spec import UpgradeMode
from headgate_operator.resources.status import Checkpoint, Outcome, Phase, Status, Upgrade

_ATTEMPTS = 6
_BACK_OFF_MS = 5_000


def rolling_back(context: Context, status: Status) -> Step:
    """Stop the new version, then bring the old one back."""
    if open_upgrade(status).undo_step == 0:
        return _stop(context, status)
    return _bring_back(context, status)


def _stop(context: Context, status: Status) -> Step:
    upgrade = open_upgrade(status)
    if not upgrade.handed:
        return _stopped(status)
    if status.asked is None:
        if not _may_drain(context, status, upgrade):
            return _stopped(status)
        name = f"{context.desired.stem}-r{upgrade.number}"
        status = with_upgrade(status, replace(upgrade, undo_savepoint=name))
        status = ask(context, status, "drain", name, upgrade.to.spec.upgrade.stop_deadline)
    reply, actions, _ = pursue(context, status, SavepointReason.ROLLBACK)
    if reply is Reply.WAITING:
        return Step(status, actions)
    status = forget(status, sealed=reply is Reply.DONE)
    if reply is not Reply.DONE:
        status = with_upgrade(status, replace(open_upgrade(status), undo_savepoint=""))
    return replace(_stopped(status), actions=actions)


def _may_drain(context: Context, status: Status, upgrade: Upgrade) -> bool:
    """A driver that never committed has nothing of its own to save; one that is gone cannot."""
    checkpoint = status.checkpoint
    committed = checkpoint is not None and checkpoint.established
    return bool(upgrade.savepoint) and committed and context.owner_alive(status) and not upgrade.undo_savepoint


def _stopped(status: Status) -> Step:
    upgrade = open_upgrade(status)
    target = status.checkpoint if upgrade.handed else None
    status = with_upgrade(status, replace(upgrade, undo_step=1, target=target, claim=None))
    return Step(replace(status, owner=None, standby=None, asked=None, restarts=0, not_before=None))


def ways_back(status: Status, upgrade: Upgrade) -> tuple[Checkpoint, ...]:
    """What there is to go back to, best first."""
    assert upgrade.base is not None
    target = upgrade.target
    if not upgrade.handed or target is None:
        return (upgrade.base,)
    if upgrade.to.spec.upgrade.mode is not UpgradeMode.SAVEPOINT:
        return (target,)
    epoch = status.epochs + 1
    drained = (Checkpoint(epoch, restore=upgrade.undo_savepoint),) if upgrade.undo_savepoint else ()
    before = () if target.established else (Checkpoint(epoch, restore=upgrade.savepoint),)
    return (*drained, *before, replace(target, restore="", begin=False))


def _bring_back(context: Context, status: Status) -> Step:
    stable, upgrade = status.stable, open_upgrade(status)
    assert stable is not None
    claim = upgrade.claim
    if claim is None:
        ways = ways_back(status, upgrade)
        if upgrade.undo_step > len(ways):
            return needs_human(context, status, "NoWayBack", upgrade.message)
        claim = ways[upgrade.undo_step - 1]
        status = with_upgrade(status, replace(upgrade, claim=claim))
    if status.owner is not None and status.checkpoint is not None:
        claim = status.checkpoint
    brought = bring_up(context, status, stable, claim)
    if brought.state is State.FAILED:
        return _next_way(context, brought)
    return brought.step if brought.state is State.WAITING else _back(context, brought.step.status)


def _next_way(context: Context, brought: Brought) -> Step:
    """A refusal leads to the next way; a crash is tried again, with the same claim, and in the end is a person's."""
    status = brought.step.status
    upgrade, attempts = open_upgrade(status), status.restarts + 1
    owner = context.owner(status)
    actions = (DeletePod(owner.name, owner.uid),) if owner is not None and owner.alive else ()
    status = replace(status, owner=None, standby=None, asked=None)
    if not brought.refused and attempts < _ATTEMPTS:
        return Step(replace(status, restarts=attempts, not_before=context.now_ms + _BACK_OFF_MS * attempts), actions)
    if not brought.refused:
        return needs_human(context, status, brought.reason, brought.message).doing(*actions)
    said = replace(upgrade, undo_step=upgrade.undo_step + 1, claim=None, message=brought.message)
    return Step(replace(with_upgrade(status, said), restarts=0, not_before=context.now_ms), actions)


def _back(context: Context, status: Status) -> Step:
    upgrade = open_upgrade(status)
    status = close(context, enter(context, status, Phase.ROLLED_BACK), Outcome.ROLLED_BACK)
    status = replace(status, restarts=0, running_since=context.now_ms)
    words = f"{upgrade.to.version} was rolled back: {upgrade.reason}: {upgrade.message}"
    return Step(status, (told("RolledBack", words, warning=True),))
