"""Invariants of the operator, checked at each action and at the end of a schedule.

Each violation is a sentence in ``cluster.violations``.
"""

from __future__ import annotations

from collections.abc import Iterator

from headgate_operator.reconcile import actions as act
from headgate_operator.resources.savepoint import SavepointPhase
from headgate_operator.resources.spec import RunState
from headgate_operator.resources.status import RESTING, RUNNING, Phase, Status, UpgradeOutcome
from tests.harness.operator.cluster import Cluster, Pod


def check_single_owner(cluster: Cluster, pod: Pod) -> None:
    """Check at a ``promote`` that no other pod that may still run was ever promoted. A standby owns nothing."""
    others = [p.name for p in cluster.pods.values() if p is not pod and not p.finished and '"promote"' in p.requests]
    if others:
        cluster.violations.append(f"{pod.name} was promoted beside {others}")


def check_savepoint_status(cluster: Cluster, action: act.UpdateSavepointStatus) -> None:
    """Check that a savepoint whose status is complete exists."""
    if action.status.phase is SavepointPhase.COMPLETE and action.name not in cluster.store.savepoints:
        cluster.violations.append(f"savepoint {action.name} is reported as complete and does not exist")


def check_status(cluster: Cluster, old: Status, new: Status) -> None:
    """Check that the status reports nothing that has not happened."""
    cluster.violations.extend(_status_violations(cluster, old, new))


def _status_violations(cluster: Cluster, old: Status, new: Status) -> Iterator[str]:
    checkpoint, upgrade, store = new.checkpoint, new.upgrade, cluster.store
    if checkpoint is not None and checkpoint.established:
        checkpoint_state = store.checkpoints.get(checkpoint.epoch)
        if checkpoint_state is None or not checkpoint_state.commits:
            yield f"epoch {checkpoint.epoch} is reported as established and has no commit"
        elif new.progress is not None and new.owner is not None and checkpoint.batch > checkpoint_state.batch:
            yield f"batch {checkpoint.batch} is reported and the checkpoint is at {checkpoint_state.batch}"
    sealed = (Phase.VERIFYING, Phase.AWAITING_EXIT, Phase.PROMOTING)
    if upgrade is not None and new.phase in sealed and upgrade.savepoint and upgrade.savepoint not in store.savepoints:
        yield f"{new.phase} without savepoint {upgrade.savepoint}"
    if _is_successful(new) and not (_is_successful(old) and new.upgrade == old.upgrade) and not _proof(cluster, new):
        yield "stable without its proof"
    if _number(new) != _number(old) and old.upgrade is not None and old.upgrade.outcome is UpgradeOutcome.OPEN:
        yield f"the outcome of upgrade {old.upgrade.number} is lost"
    if new.phase is Phase.SUSPENDED and old.phase is not Phase.SUSPENDED and _unfinished_pods(cluster):
        yield "suspended while a pod runs"
    if _restore_attempt(new) > _restore_attempt(old) > 0 and _had_outage(cluster, old):
        yield "a restore point was given up because of an outage"
    if new.pending_config is None:
        yield from _settings_violations(cluster, new)
    if new.attempt < old.attempt or new.epochs < old.epochs or new.requests < old.requests:
        yield "a counter decreased"


def _is_successful(status: Status) -> bool:
    return status.upgrade is not None and status.upgrade.outcome is UpgradeOutcome.SUCCEEDED


def _number(status: Status) -> int:
    return status.upgrade.number if status.upgrade is not None else 0


def _restore_attempt(status: Status) -> int:
    """Return the number of the restore point that a rollback tries, 0 outside of a rollback."""
    return status.upgrade.undo_step if status.phase is Phase.ROLLING_BACK and status.upgrade is not None else 0


def _had_outage(cluster: Cluster, status: Status) -> bool:
    pod = cluster.pods.get(status.owner.name) if status.owner else None
    return pod is not None and pod.driver is not None and pod.driver.had_outage


def _proof(cluster: Cluster, status: Status) -> bool:
    pod = cluster.pods.get(status.owner.name) if status.owner else None
    assert status.upgrade is not None
    proof = status.upgrade.to.spec.upgrade.proof
    return pod is None or pod.driver is None or pod.driver.committed >= proof.batches


def _unfinished_pods(cluster: Cluster) -> list[str]:
    return [pod.name for pod in cluster.pods.values() if not pod.finished]


def final_violations(cluster: Cluster) -> Iterator[str]:
    """Yield what is wrong at the end of a schedule, after a time without faults."""
    yield from output_violations(cluster)
    app = cluster.app
    if app.desired.deleting_since_ms is not None:
        if not app.gone:
            yield "the deletion did not end"
        return
    yield from _phase_violations(cluster, app.status)


def output_violations(cluster: Cluster) -> Iterator[str]:
    """Yield the positions that were not committed exactly once."""
    wrong = [position for position, times in enumerate(cluster.store.outputs) if times != 1]
    if wrong:
        yield f"positions {wrong[:5]} were committed {[cluster.store.outputs[p] for p in wrong[:5]]} times"


def _phase_violations(cluster: Cluster, status: Status) -> Iterator[str]:
    installing = status.stable is None
    if status.phase not in RESTING and status.phase is not Phase.RESTARTING and not installing:
        yield f"phase {status.phase.value} did not end"
    upgrade = status.upgrade
    if upgrade is not None and upgrade.outcome is UpgradeOutcome.OPEN and not installing:
        yield f"upgrade {upgrade.number} did not end"
    if status.phase is Phase.NEEDS_HUMAN:
        there = {line.view.name for line in cluster.savepoints.values() if line.view.complete}
        if {candidate.savepoint for candidate in status.restore_points} != there:
            yield "a person is needed and the restore points are not named"
    running = cluster.app.desired.spec.state is RunState.RUNNING
    if status.phase in (Phase.STABLE, Phase.ROLLED_BACK) and running and not _owner_runs(cluster, status):
        yield f"{status.phase.value} and no driver runs"
    yield from _settings_violations(cluster, status)
    held, lines = _savepoints_in_use(status, cluster), cluster.savepoints.values()
    if status.stable is not None and any(line.view.deleting and line.view.name not in held for line in lines):
        yield "a deleted savepoint still exists"


def _settings_violations(cluster: Cluster, status: Status) -> Iterator[str]:
    """Compare the settings of the driver with those that the status reports."""
    pod = cluster.pods.get(status.owner.name) if status.owner else None
    if status.phase not in RUNNING or status.stable is None or pod is None or pod.driver is None or pod.driver.ended:
        return
    level, runs = status.stable.spec.config["level"], pod.driver.level
    if level != runs:
        yield f"the driver runs with level {runs} and the status reports {level}"


def _savepoints_in_use(status: Status, cluster: Cluster) -> set[str]:
    from headgate_operator.reconcile.context import Context
    from headgate_operator.reconcile.garbage_collection import in_use
    from headgate_operator.reconcile.observed import Observed

    return set(in_use(Context(cluster.app.desired, cluster.app.desired, Observed(), 0), status))


def _owner_runs(cluster: Cluster, status: Status) -> bool:
    pod = cluster.pods.get(status.owner.name) if status.owner else None
    return pod is not None and pod.driver is not None and not pod.driver.ended
