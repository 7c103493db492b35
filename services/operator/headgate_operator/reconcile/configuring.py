"""Only the service's settings differ: the driver is asked to take them, and what the status says runs is what it says.

1. The request, its deadline, and the settings that are offered are written.
2. It goes to the pod. A crash before it is repaired by asking again: the same id, the same settings.
3. It is waited for, whatever is wanted by then: a driver may take settings that nobody wants any more. A yes makes
   them those of the stable release, a no leaves the ones that were; what is wanted follows from there.
4. No answer by the deadline: it may take them yet, so it is asked for no others, and nobody says what it runs with. The
   next pod ends that: of the upgrade that follows, or, when none does, of a restart from the stable release, with the
   same checkpoint and the same epoch. A late answer is as good as one in time.
"""

from __future__ import annotations

from dataclasses import replace

from headgate_operator.reconcile.actions import Configure
from headgate_operator.reconcile.asking import forget
from headgate_operator.reconcile.restarting import restart
from headgate_operator.reconcile.step import Context, Step
from headgate_operator.reconcile.world import PodView
from headgate_operator.resources.release import Release
from headgate_operator.resources.status import Asked, Offered, Status

_WITHIN_MS = 30_000


def takes_it_live(context: Context, status: Status) -> bool:
    """Only the service's settings differ, the driver has not said yet that these need a restart, and it has answered
    for all that it was offered.
    """
    wanted, stable = context.desired.release, status.stable
    if stable is None or status.offered is not None:
        return False
    return wanted.shape == stable.shape and status.not_live != wanted.revision


def configure(context: Context, status: Status) -> Step:
    """Step 1."""
    assert status.owner is not None
    wanted, number, pod = context.desired.release, status.requests + 1, status.owner.name
    asked = Asked(f"configure-{number}", "configure", pod, context.now_ms + _WITHIN_MS)
    offered = Offered(asked.id, pod, wanted.revision, wanted.generation, wanted.spec.config)
    return Step(replace(status, requests=number, asked=asked, offered=offered))


def configuring(context: Context, status: Status, pod: PodView) -> Step:
    """Steps 2 to 4."""
    asked, heard = status.asked, heard_of_offer(status, pod)
    assert asked is not None
    if heard.offered is None or context.past(asked.deadline):
        return Step(forget(heard))
    if pod.request_id == asked.id:
        return Step(status)
    return Step(status, (Configure(pod.name, pod.uid, asked.id, _with(status, heard.offered)),))


def heard_of_offer(status: Status, pod: PodView) -> Status:
    """Steps 3 and 4: what is known by now of the pod that owns the checkpoint."""
    offered = status.offered
    if offered is None:
        return status
    answer, settled = pod.answer(offered.id), replace(status, offered=None)
    if offered.pod != pod.name:
        return settled
    if answer is None:
        return status
    return replace(settled, stable=_with(status, offered)) if answer.ok else replace(settled, not_live=offered.revision)


def restart_in_doubt(context: Context, status: Status, pod: PodView) -> Step | None:
    """Step 4, where nothing else makes another pod."""
    if status.offered is None:
        return None
    return restart(context, status, "SettingsUnknown", f"pod {pod.name} did not say whether it took other settings")


def _with(status: Status, offered: Offered) -> Release:
    """The stable release, with the settings that were offered."""
    stable = status.stable
    assert stable is not None
    spec = stable.spec.model_copy(update={"config": offered.config})
    return replace(stable, revision=offered.revision, generation=offered.generation, spec=spec)
