"""What must hold, checked at each act and at the end of a schedule. Each law is a sentence in ``cluster.spoilt``
when broken.
"""

from __future__ import annotations

from collections.abc import Iterator

from headgate_operator.reconcile import actions as act
from headgate_operator.resources.savepoint import SavepointPhase
from headgate_operator.resources.spec import RunState
from headgate_operator.resources.status import RESTING, RUNNING, Phase, Status, UpgradeOutcome
from tests.harness.operator.cluster import Cluster, Pod


def nobody_else_owns(cluster: Cluster, pod: Pod) -> None:
    """At the moment of ``promote``: no other pod of which something may run was ever promoted. A mere standby owns
    nothing.
    """
    others = [p.name for p in cluster.pods.values() if p is not pod and not p.finished and '"promote"' in p.requests]
    if others:
        cluster.spoilt.append(f"{pod.name} was promoted beside {others}")


def line_is_true(cluster: Cluster, action: act.UpdateSavepointStatus) -> None:
    """No savepoint has the status complete before it is."""
    if action.status.phase is SavepointPhase.COMPLETE and action.name not in cluster.store.savepoints:
        cluster.spoilt.append(f"savepoint {action.name} has the status complete and is not there")


def status_is_true(cluster: Cluster, old: Status, new: Status) -> None:
    """The status is never ahead of the truth."""
    cluster.spoilt.extend(_lies(cluster, old, new))


def _lies(cluster: Cluster, old: Status, new: Status) -> Iterator[str]:
    checkpoint, upgrade, store = new.checkpoint, new.upgrade, cluster.store
    if checkpoint is not None and checkpoint.established:
        made = store.checkpoints.get(checkpoint.epoch)
        if made is None or not made.commits:
            yield f"epoch {checkpoint.epoch} has the status established and no commit"
        elif new.progress is not None and new.owner is not None and checkpoint.batch > made.batch:
            yield f"the status has batch {checkpoint.batch}, the checkpoint {made.batch}"
    sealed = (Phase.VERIFYING, Phase.AWAITING_EXIT, Phase.PROMOTING)
    if upgrade is not None and new.phase in sealed and upgrade.savepoint and upgrade.savepoint not in store.savepoints:
        yield f"{new.phase} without savepoint {upgrade.savepoint}"
    if _is_successful(new) and not (_is_successful(old) and new.upgrade == old.upgrade) and not _proof(cluster, new):
        yield "stable without its proof"
    if _number(new) != _number(old) and old.upgrade is not None and old.upgrade.outcome is UpgradeOutcome.OPEN:
        yield f"unknown how upgrade {old.upgrade.number} ended"
    if new.phase is Phase.SUSPENDED and old.phase is not Phase.SUSPENDED and _unfinished_pods(cluster):
        yield "suspended while a pod runs"
    if _way_back(new) > _way_back(old) > 0 and _was_away(cluster, old):
        yield "a way back was given up because something was away"
    if new.pending_config is None:
        yield from _other_settings(cluster, new)
    if new.attempt < old.attempt or new.epochs < old.epochs or new.requests < old.requests:
        yield "a counter went back"


def _is_successful(status: Status) -> bool:
    return status.upgrade is not None and status.upgrade.outcome is UpgradeOutcome.SUCCEEDED


def _number(status: Status) -> int:
    return status.upgrade.number if status.upgrade is not None else 0


def _way_back(status: Status) -> int:
    """Which one is tried; 0 when none is."""
    return status.upgrade.undo_step if status.phase is Phase.ROLLING_BACK and status.upgrade is not None else 0


def _was_away(cluster: Cluster, status: Status) -> bool:
    pod = cluster.pods.get(status.owner.name) if status.owner else None
    return pod is not None and pod.driver is not None and pod.driver.was_away


def _proof(cluster: Cluster, status: Status) -> bool:
    pod = cluster.pods.get(status.owner.name) if status.owner else None
    assert status.upgrade is not None
    proof = status.upgrade.to.spec.upgrade.proof
    return pod is None or pod.driver is None or pod.driver.committed >= proof.batches


def _unfinished_pods(cluster: Cluster) -> list[str]:
    return [pod.name for pod in cluster.pods.values() if not pod.finished]


def at_the_end(cluster: Cluster) -> Iterator[str]:
    """After a calm: everything ended, and well."""
    yield from outputs(cluster)
    app = cluster.app
    if app.desired.deleting_since_ms is not None:
        if not app.gone:
            yield "the deletion did not end"
        return
    yield from _check_phase_ends(cluster, app.status)


def outputs(cluster: Cluster) -> Iterator[str]:
    """Nothing lost, nothing twice: whatever happened, each position was committed once."""
    odd = [position for position, times in enumerate(cluster.store.outputs) if times != 1]
    if odd:
        yield f"positions {odd[:5]} were committed {[cluster.store.outputs[p] for p in odd[:5]]} times"


def _check_phase_ends(cluster: Cluster, status: Status) -> Iterator[str]:
    installing = status.stable is None
    if status.phase not in RESTING and status.phase is not Phase.RESTARTING and not installing:
        yield f"phase {status.phase.value} did not end"
    upgrade = status.upgrade
    if upgrade is not None and upgrade.outcome is UpgradeOutcome.OPEN and not installing:
        yield f"upgrade {upgrade.number} did not end"
    if status.phase is Phase.NEEDS_HUMAN:
        there = {line.view.name for line in cluster.lines.values() if line.view.complete}
        if {candidate.savepoint for candidate in status.restore_points} != there:
            yield "a person is asked and the restore points are not named"
    running = cluster.app.desired.spec.state is RunState.RUNNING
    if status.phase in (Phase.STABLE, Phase.ROLLED_BACK) and running and not _owner_runs(cluster, status):
        yield f"{status.phase.value} and nothing runs"
    yield from _other_settings(cluster, status)
    held, lines = _savepoints_in_use(status, cluster), cluster.lines.values()
    if status.stable is not None and any(line.view.deleting and line.view.name not in held for line in lines):
        yield "a deleted savepoint did not go"


def _other_settings(cluster: Cluster, status: Status) -> Iterator[str]:
    """The driver runs with the settings of the status."""
    pod = cluster.pods.get(status.owner.name) if status.owner else None
    if status.phase not in RUNNING or status.stable is None or pod is None or pod.driver is None or pod.driver.ended:
        return
    level, runs = status.stable.spec.config["level"], pod.driver.level
    if level != runs:
        yield f"it runs with level {runs} and the status says {level}"


def _savepoints_in_use(status: Status, cluster: Cluster) -> set[str]:
    from headgate_operator.reconcile.context import Context
    from headgate_operator.reconcile.garbage_collection import in_use
    from headgate_operator.reconcile.observed import Observed

    return set(in_use(Context(cluster.app.desired, Observed(), 0), status))


def _owner_runs(cluster: Cluster, status: Status) -> bool:
    pod = cluster.pods.get(status.owner.name) if status.owner else None
    return pod is not None and pod.driver is not None and not pod.driver.ended
