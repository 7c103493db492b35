"""One step of the reconciler: what it decides from, and what it decides."""

from __future__ import annotations

from dataclasses import dataclass, replace

from headgate_operator.reconcile.actions import Action, Tell
from headgate_operator.reconcile.world import Desired, Observed, PodView
from headgate_operator.resources.status import Outcome, Phase, PhaseTime, Status, Upgrade
from headgate_operator.traces import traceparent


@dataclass(frozen=True, slots=True)
class Context:
    """Everything but the status."""

    desired: Desired
    observed: Observed
    now_ms: int

    def past(self, deadline_ms: int | None) -> bool:
        """True when there is a deadline and it is over."""
        return deadline_ms is not None and self.now_ms >= deadline_ms

    def traceparent(self, status: Status) -> str:
        """The span that what a driver is asked now belongs to; empty outside of an upgrade."""
        return traceparent(self.desired.uid, status.upgrade)

    def owner(self, status: Status) -> PodView | None:
        """The pod that has, or may have, the checkpoint: as far as was seen."""
        return self.observed.pod(status.owner.name) if status.owner else None

    def owner_alive(self, status: Status) -> bool:
        """True when the owner is there and has not been told to end."""
        pod = self.owner(status)
        return pod is not None and pod.alive


@dataclass(frozen=True, slots=True)
class Step:
    """The status to write, and then what to do."""

    status: Status
    actions: tuple[Action, ...] = ()

    def doing(self, *actions: Action) -> Step:
        """With further actions."""
        return replace(self, actions=(*self.actions, *actions))


def enter(context: Context, status: Status, phase: Phase, within_ms: int | None = None) -> Status:
    """In another phase, with its deadline; an open upgrade remembers when."""
    upgrade = status.upgrade
    if upgrade is not None and upgrade.outcome is Outcome.OPEN:
        upgrade = replace(upgrade, phases=(*upgrade.phases[-30:], PhaseTime(phase, context.now_ms)))
    deadline = None if within_ms is None else context.now_ms + within_ms
    return replace(status, phase=phase, deadline=deadline, upgrade=upgrade, gone_by=None)


def open_upgrade(status: Status) -> Upgrade:
    """The upgrade under way. Asserts that there is one: phases of an upgrade have it."""
    upgrade = status.upgrade
    assert upgrade is not None, f"no upgrade in phase {status.phase}"
    assert upgrade.outcome is Outcome.OPEN, f"upgrade {upgrade.number} is over in phase {status.phase}"
    return upgrade


def with_upgrade(status: Status, upgrade: Upgrade) -> Status:
    """With the upgrade as it is now."""
    return replace(status, upgrade=upgrade)


def close(context: Context, status: Status, outcome: Outcome, reason: str = "", message: str = "") -> Status:
    """The upgrade is over."""
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
    """Where a running app rests: rolled back as long as the last upgrade was the one that failed."""
    failed = status.upgrade is not None and status.upgrade.outcome is Outcome.ROLLED_BACK
    return Phase.ROLLED_BACK if failed else Phase.STABLE


def told(reason: str, message: str, *, warning: bool = False) -> Tell:
    """An event, no longer than the API server takes."""
    return Tell(reason, message[:1_000], warning)
