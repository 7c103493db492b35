"""One reconciliation of one app. The cluster and the simulation of the tests run this code.

1. Observe: read the cache. If it lacks a pod that the status names, or if the phase ends when no pod exists, list the
   pods at the API server, because a missing entry in the cache does not prove that the pod is gone.
2. Decide: call ``reconcile``.
3. Write the status onto the version that was read. If another process has written meanwhile, stop and observe again. If
   the status has not changed and there are actions, check with the API server that the version is still the newest.
4. Perform the actions. Before ``PromoteStandby``, list the pods at the API server: no other driver pod may run.

A crash after step 1 or 2 leaves nothing behind. A crash after step 3 or within step 4 leaves a status with missing
actions; the next reconciliation performs them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

from headgate_operator.reconcile import ENDS_WITH_ABSENCE, reconcile
from headgate_operator.reconcile.actions import Action, PromoteStandby
from headgate_operator.reconcile.context import ReconcileResult
from headgate_operator.reconcile.observed import Desired, Observed, PodView
from headgate_operator.resources.status import Status


class StaleRead(Exception):
    """The version that was read is not the newest any more. The reconciliation is repeated."""


class NotExclusive(Exception):
    """Another driver pod of the app may still run. The reconciliation is repeated."""


@dataclass(frozen=True, slots=True)
class CachedApp:
    """An app and its observed state, from the cache. ``resource_version``: of the ``StreamApp``."""

    desired: Desired
    status: Status
    resource_version: str
    observed: Observed


class Api(Protocol):
    """The calls to the API server that a reconciliation makes. Each may raise ``ApiError``."""

    def write_status(self, seen: CachedApp, status: Status) -> None:
        """Write the status onto ``seen.resource_version``; ``StaleRead`` if the app has a newer version."""

    def is_newest(self, seen: CachedApp) -> bool:
        """Return true if ``seen.resource_version`` is the newest version at the API server."""

    def pods(self, seen: CachedApp) -> tuple[PodView, ...]:
        """Return the app's driver pods, from the API server and not from a cache."""

    def perform(self, seen: CachedApp, action: Action) -> None:
        """Perform the action; do nothing if it was performed already."""


def reconcile_once(api: Api, seen: CachedApp, clock_ms: Callable[[], int]) -> Status:
    """Reconcile an app once and return its new status. ``StaleRead``, ``NotExclusive`` and ``ApiError`` may be raised
    at any step; the next reconciliation continues from there.
    """
    observed = _confirm_absence(api, seen)
    step = reconcile(seen.desired, observed, seen.status, clock_ms())
    if step.status != seen.status:
        api.write_status(seen, step.status)
    elif step.actions and not api.is_newest(seen):
        raise StaleRead(seen.desired.name)
    act(api, seen, step)
    return step.status


def _confirm_absence(api: Api, seen: CachedApp) -> Observed:
    """Return the observed state, with the pods from the API server if a missing pod matters."""
    named = {ref.name for ref in (seen.status.owner, seen.status.standby) if ref is not None}
    if named <= {pod.name for pod in seen.observed.pods} and seen.status.phase not in ENDS_WITH_ABSENCE:
        return seen.observed
    return replace(seen.observed, pods=api.pods(seen))


def act(api: Api, seen: CachedApp, step: ReconcileResult) -> None:
    """Execute step 4: perform the actions of ``step``."""
    for action in step.actions:
        if isinstance(action, PromoteStandby):
            _check_exclusive(api, seen, action)
        api.perform(seen, action)


def _check_exclusive(api: Api, seen: CachedApp, action: PromoteStandby) -> None:
    others = [pod.name for pod in api.pods(seen) if pod.name != action.pod and not pod.finished]
    if others:
        raise NotExclusive(", ".join(others))
