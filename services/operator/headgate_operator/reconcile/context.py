"""One step of the reconciler: the input of its decision, and the decision."""

from __future__ import annotations

from dataclasses import dataclass, replace

from headgate_operator.reconcile.actions import Action, EmitEvent
from headgate_operator.reconcile.observed import Desired, Observed, PodView
from headgate_operator.resources.status import Phase, PhaseTime, Status, Upgrade, UpgradeOutcome
from headgate_operator.traces import traceparent


@dataclass(frozen=True, slots=True)
class Context:
    """Input of a decision, without the status."""

    desired: Desired
    observed: Observed
    now_ms: int

    def past(self, deadline_ms: int | None) -> bool:
        """Return true when there is a deadline and it has passed."""
        return deadline_ms is not None and self.now_ms >= deadline_ms

    def traceparent(self, status: Status) -> str:
        """Return the span that a request to a driver now belongs to; empty outside of an upgrade."""
        return traceparent(self.desired.uid, status.upgrade)

    def owner(self, status: Status) -> PodView | None:
        """Return the pod that has, or may have, the checkpoint, as far as the operator has observed."""
        return self.observed.pod(status.owner.name) if status.owner else None

    def owner_alive(self, status: Status) -> bool:
        """Return true when the owner is present and has received no command to end."""
        pod = self.owner(status)
        return pod is not None and pod.alive


@dataclass(frozen=True, slots=True)
class ReconcileResult:
    """The status to write, and the actions that follow it."""

    status: Status
    actions: tuple[Action, ...] = ()

    def doing(self, *actions: Action) -> ReconcileResult:
        """Return the result with further actions."""
        return replace(self, actions=(*self.actions, *actions))


def enter_phase(context: Context, status: Status, phase: Phase, within_ms: int | None = None) -> Status:
    """Return the status in another phase, with its deadline; an open upgrade records the time."""
    upgrade = status.upgrade
    if upgrade is not None and upgrade.outcome is UpgradeOutcome.OPEN:
        upgrade = replace(upgrade, phases=(*upgrade.phases[-30:], PhaseTime(phase, context.now_ms)))
    deadline = None if within_ms is None else context.now_ms + within_ms
    return replace(status, phase=phase, deadline=deadline, upgrade=upgrade, terminate_by=None)


def open_upgrade(status: Status) -> Upgrade:
    """Return the upgrade under way. Asserts that there is one, as in every phase of an upgrade."""
    upgrade = status.upgrade
    assert upgrade is not None, f"no upgrade in phase {status.phase}"
    assert upgrade.outcome is UpgradeOutcome.OPEN, f"upgrade {upgrade.number} is over in phase {status.phase}"
    return upgrade


def with_upgrade(status: Status, upgrade: Upgrade) -> Status:
    """Return the status with this state of the upgrade."""
    return replace(status, upgrade=upgrade)


def close_upgrade(
    context: Context, status: Status, outcome: UpgradeOutcome, reason: str = "", message: str = ""
) -> Status:
    """Close the upgrade with its outcome."""
    upgrade = open_upgrade(status)
    over = replace(
        upgrade,
        outcome=outcome,
        reason=reason or upgrade.reason,
        message=message or upgrade.message,
        ended=context.now_ms,
    )
    return replace(status, upgrade=over)


def resting_phase(status: Status) -> Phase:
    """Return the phase of a running app without an upgrade: rolled back if the last upgrade failed, else stable."""
    failed = status.upgrade is not None and status.upgrade.outcome is UpgradeOutcome.ROLLED_BACK
    return Phase.ROLLED_BACK if failed else Phase.STABLE


def app_event(reason: str, message: str, *, warning: bool = False) -> EmitEvent:
    """Return an event, cut to the length that the API server accepts (1,000 characters)."""
    return EmitEvent(reason, message[:1_000], warning)
