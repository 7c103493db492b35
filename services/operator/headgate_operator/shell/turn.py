"""One turn for one app: what every operator process does, on a cluster and in the simulation.

1. Look: what the cache holds. Where it lacks a pod that the status names, or the phase ends when nothing runs, the API
   server is asked: absence is not taken from a cache. 2. Decide. 3. Write the status, onto the version that was
   read. Somebody else wrote: stop, look again.
   Nothing to write but something to do: ask whether the version that was read is still the newest. 4. Act.
A crash after 1 or 2 leaves nothing; after 3 a status whose actions are missing, which the next turn does; in the midst
of 4 the same. Before ``Go`` the API server is asked for the app's pods: nothing of another one may run.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

from headgate_operator.reconcile import ENDS_WITH_ABSENCE, reconcile
from headgate_operator.reconcile.actions import Action, Go
from headgate_operator.reconcile.step import Step
from headgate_operator.reconcile.world import Desired, Observed, PodView
from headgate_operator.resources.status import Status


class Stale(Exception):
    """What was read is not the newest any more. Look again."""


class NotAlone(Exception):
    """Another driver pod of the app may still run. Look again."""


@dataclass(frozen=True, slots=True)
class Seen:
    """An app as the cache holds it."""

    desired: Desired
    status: Status
    resource_version: str
    observed: Observed


class Api(Protocol):
    """What a turn needs of the API server. Each call may fail; writes are conditional where the docstring says so."""

    def write_status(self, seen: Seen, status: Status) -> None:
        """Onto ``seen.resource_version``; ``Stale`` when there is a newer one."""

    def is_newest(self, seen: Seen) -> bool:
        """Whether ``seen.resource_version`` is what the API server has."""

    def pods(self, seen: Seen) -> tuple[PodView, ...]:
        """The app's driver pods, from the API server and not from a cache."""

    def perform(self, seen: Seen, action: Action) -> None:
        """Do it, or find it done."""


def turn(api: Api, seen: Seen, clock_ms: Callable[[], int]) -> Status:
    """The status as it is after it. Raises what the API raises; nothing needs undoing."""
    observed = _without_doubt(api, seen)
    step = reconcile(seen.desired, observed, seen.status, clock_ms())
    if step.status != seen.status:
        api.write_status(seen, step.status)
    elif step.actions and not api.is_newest(seen):
        raise Stale(seen.desired.name)
    act(api, seen, step)
    return step.status


def _without_doubt(api: Api, seen: Seen) -> Observed:
    named = {ref.name for ref in (seen.status.owner, seen.status.standby) if ref is not None}
    if named <= {pod.name for pod in seen.observed.pods} and seen.status.phase not in ENDS_WITH_ABSENCE:
        return seen.observed
    return replace(seen.observed, pods=api.pods(seen))


def act(api: Api, seen: Seen, step: Step) -> None:
    """Step 4."""
    for action in step.actions:
        if isinstance(action, Go):
            _must_be_alone(api, seen, action)
        api.perform(seen, action)


def _must_be_alone(api: Api, seen: Seen, action: Go) -> None:
    others = [pod.name for pod in api.pods(seen) if pod.name != action.pod and not pod.finished]
    if others:
        raise NotAlone(", ".join(others))
