"""Input and result of a reconciliation, and the changes of the status that all phases share."""

from __future__ import annotations

from dataclasses import dataclass, replace

from headgate_operator.reconcile.actions import Action, EmitEvent
from headgate_operator.reconcile.observed import Desired, Observed, PodView
from headgate_operator.resources.status import (
    Checkpoint,
    PastUpgrade,
    Phase,
    PhaseTime,
    Status,
    Upgrade,
    UpgradeKind,
    UpgradeOutcome,
)
from headgate_operator.traces import traceparent

#: Upgrades that the status keeps besides the last one: a few KB each at most, of the 1.5 MB that etcd takes.
KEPT_UPGRADES = 20


@dataclass(frozen=True, slots=True)
class Context:
    """Input of a reconciliation besides the status.

    ``written``: the app as people wrote it; ``desired`` has the number of executors that autoscaling decided.
    ``now_ms``: milliseconds since 1970.
    """

    written: Desired
    desired: Desired
    observed: Observed
    now_ms: int

    def has_passed(self, deadline_ms: int | None) -> bool:
        """Return true if there is a deadline and it has passed."""
        return deadline_ms is not None and self.now_ms >= deadline_ms

    def traceparent(self, status: Status) -> str:
        """Return the W3C ``traceparent`` for a command to a driver; empty outside of an upgrade."""
        return traceparent(self.desired.uid, status.upgrade)

    def owner(self, status: Status) -> PodView | None:
        """Return the observed pod of the owner, which owns the checkpoint or was sent ``promote``; None if it is not
        there."""
        return self.observed.pod(status.owner.name) if status.owner else None

    def owner_alive(self, status: Status) -> bool:
        """Return true if the owner's pod exists, has not ended and is not being deleted."""
        pod = self.owner(status)
        return pod is not None and pod.alive


@dataclass(frozen=True, slots=True)
class ReconcileResult:
    """Result of a reconciliation: the status to write, and the actions to perform after that."""

    status: Status
    actions: tuple[Action, ...] = ()

    def with_actions(self, *actions: Action) -> ReconcileResult:
        """Return the result with these actions after its own."""
        return replace(self, actions=(*self.actions, *actions))


def enter_phase(context: Context, status: Status, phase: Phase, within_ms: int | None = None) -> Status:
    """Return the status in ``phase``, with a deadline after ``within_ms``, if given. An open upgrade records the
    time."""
    upgrade = status.upgrade
    if upgrade is not None and upgrade.outcome is UpgradeOutcome.OPEN:
        upgrade = replace(upgrade, phases=(*upgrade.phases[-30:], PhaseTime(phase, context.now_ms)))
    deadline = None if within_ms is None else context.now_ms + within_ms
    return replace(status, phase=phase, deadline=deadline, upgrade=upgrade, terminate_by=None)


def with_new_upgrade(context: Context, status: Status, kind: UpgradeKind, claim: Checkpoint | None = None) -> Status:
    """Return the status with a new open upgrade, from its version and checkpoint to the release of the spec. The one
    before becomes history."""
    past = () if status.upgrade is None else (PastUpgrade.of(status.upgrade),)
    upgrade = Upgrade(
        status.upgrade.number + 1 if status.upgrade else 1,
        kind,
        context.desired.release,
        context.now_ms,
        from_version=status.version,
        base=status.checkpoint,
        claim=claim,
    )
    history = (*status.history, *past)[-KEPT_UPGRADES:]
    return replace(status, upgrade=upgrade, history=history, standby=None, retry_after=None)


def open_upgrade(status: Status) -> Upgrade:
    """Return the open upgrade. ``AssertionError`` if there is none: every phase of an upgrade has one."""
    upgrade = status.upgrade
    assert upgrade is not None, f"no upgrade in phase {status.phase}"
    assert upgrade.outcome is UpgradeOutcome.OPEN, f"upgrade {upgrade.number} is over in phase {status.phase}"
    return upgrade


def with_upgrade(status: Status, upgrade: Upgrade) -> Status:
    """Return the status with ``upgrade`` in place of its upgrade."""
    return replace(status, upgrade=upgrade)


def close_upgrade(
    context: Context, status: Status, outcome: UpgradeOutcome, reason: str = "", message: str = ""
) -> Status:
    """Return the status with the open upgrade closed. Without ``reason`` or ``message`` the upgrade keeps its own."""
    upgrade = open_upgrade(status)
    closed = replace(
        upgrade,
        outcome=outcome,
        reason=reason or upgrade.reason,
        message=message or upgrade.message,
        ended=context.now_ms,
    )
    return replace(status, upgrade=closed)


def resting_phase(status: Status) -> Phase:
    """Return the phase of a running app without an upgrade: rolled back if the last upgrade failed, else stable."""
    failed = status.upgrade is not None and status.upgrade.outcome is UpgradeOutcome.ROLLED_BACK
    return Phase.ROLLED_BACK if failed else Phase.STABLE


def app_event(reason: str, message: str, *, warning: bool = False) -> EmitEvent:
    """Return an event, cut to the length that the API server accepts (1,000 characters)."""
    return EmitEvent(reason, message[:1_000], warning)
