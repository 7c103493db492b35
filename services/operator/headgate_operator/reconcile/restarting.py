"""The owner ended without being asked, or hangs: another pod of the same release goes on from the checkpoint.

The standby is made at once, beside a pod that is still ending or whose node does not answer; it gets the checkpoint
when nothing of the old pod runs. After each failure it waits longer.
"""

from __future__ import annotations

from dataclasses import replace

from headgate_operator.reconcile.bringing import Brought, State, bring_up
from headgate_operator.reconcile.human import needs_human
from headgate_operator.reconcile.step import Context, Step, enter, resting_phase, told
from headgate_operator.resources.status import Phase, Status

_BACK_OFF_MS = (0, 5_000, 10_000, 20_000, 40_000, 80_000, 160_000, 300_000)
#: An app that ran for so long is not in a crash loop.
HEALTHY_AFTER_MS = 600_000


def restart(context: Context, status: Status, reason: str, message: str = "") -> Step:
    """Begin it. The first restart after a healthy time is immediate."""
    since = status.running_since
    healthy = since is not None and context.now_ms - since >= HEALTHY_AFTER_MS
    restarts = 1 if healthy else status.restarts + 1
    status = replace(
        status,
        owner=None,
        standby=None,
        asked=None,
        restarts=restarts,
        running_since=None,
        not_before=context.now_ms + _BACK_OFF_MS[min(restarts, len(_BACK_OFF_MS)) - 1],
    )
    event = told("Restarting", f"{reason}: {message}" if message else reason, warning=True)
    return Step(enter(context, status, Phase.RESTARTING), (event,))


def restarting(context: Context, status: Status) -> Step:
    """Until it runs."""
    assert status.stable is not None
    assert status.checkpoint is not None
    brought = bring_up(context, status, status.stable, status.checkpoint)
    if brought.state is State.FAILED:
        return _again(context, brought)
    if brought.state is State.WAITING:
        return brought.step
    status = replace(brought.step.status, running_since=context.now_ms)
    return Step(enter(context, status, resting_phase(status)))


def _again(context: Context, brought: Brought) -> Step:
    if brought.newer is not None:
        return needs_human(context, brought.step.status, "NewerExists", brought.message)
    return restart(context, brought.step.status, brought.reason, brought.message)
