"""What users and the cluster do to an app: valid and invalid edits, savepoints, failing nodes, deleted pods."""

from __future__ import annotations

import random
from dataclasses import replace

from headgate_operator.reconcile.observed import Desired
from headgate_operator.resources.savepoint import SavepointReason
from headgate_operator.resources.spec import (
    AutoscalingSpec,
    DeletionPolicy,
    RollbackPolicy,
    RunState,
    StopTimeout,
    StreamAppSpec,
    UpgradeMode,
)
from tests.harness.operator.cluster import Cluster
from tests.harness.operator.driver import FAULTS, Image

_SPEC: dict[str, object] = {
    "service": "rules",
    "image": "sim:0",
    "config": {"level": 0},
    "checkpoint": {"root": "/checkpoints"},
    "upgrade": {
        "prepareDeadline": "60s",
        "stopDeadline": "60s",
        "startDeadline": "60s",
        "proof": {"batches": 3, "within": "120s"},
    },
    "savepoints": {"every": "120s", "keep": 2},
    "deletionDeadline": "200s",
    "driver": {"hangDeadline": "120s", "terminationGrace": "20s"},
}
MODES = (UpgradeMode.SAVEPOINT, UpgradeMode.SAVEPOINT, UpgradeMode.IN_PLACE, UpgradeMode.STATELESS)


def first_spec(rng: random.Random) -> StreamAppSpec:
    """Return the spec of a new app."""
    spec = StreamAppSpec.model_validate(_SPEC)
    mode = rng.choice(MODES)
    stop = rng.choice(tuple(StopTimeout))
    rollback = rng.choice((RollbackPolicy.AUTOMATIC, RollbackPolicy.AUTOMATIC, RollbackPolicy.MANUAL))
    upgrade = spec.upgrade.model_copy(update={"mode": mode, "on_stop_timeout": stop, "rollback": rollback})
    return spec.model_copy(update={"upgrade": upgrade, "deletion_policy": rng.choice(tuple(DeletionPolicy))})


def edit(cluster: Cluster, spec: StreamAppSpec) -> None:
    """Write a new generation of the spec."""
    app = cluster.app
    if app.gone or app.desired.deleting_since_ms is not None:
        return
    old = app.desired
    made = Desired.of(old.namespace, old.name, old.uid, old.generation + 1, spec)
    app.desired, app.version = replace(made, finalized=old.finalized), app.version + 1


def change_image(cluster: Cluster, rng: random.Random, fault: str | None = None) -> None:
    """Begin an upgrade to a new image."""
    spec = cluster.app.desired.spec
    state = max(image.state for image in cluster.images.values()) + (rng.random() < 0.2)
    image = Image(f"sim:{len(cluster.images)}", fault or rng.choice(FAULTS), state, rng.random() < 0.5)
    cluster.images[image.name] = image
    other_mode = rng.random() < 0.3 and not spec.autoscaling.enabled
    mode = rng.choice(MODES) if other_mode else spec.upgrade.mode
    upgrade = spec.upgrade.model_copy(update={"mode": mode})
    edit(cluster, spec.model_copy(update={"image": image.name, "upgrade": upgrade}))


def change_settings(cluster: Cluster, rng: random.Random) -> None:
    """Change the settings of the service, or go back to the stable ones, perhaps while a change is being applied."""
    stable, level = cluster.app.status.stable, rng.randint(0, 3)
    back = stable is not None and rng.random() < 0.5
    config = stable.spec.config if stable is not None and back else {"level": level}
    edit(cluster, cluster.app.desired.spec.model_copy(update={"config": config}))


def change_partitions(cluster: Cluster, rng: random.Random) -> None:
    """Change the number of partitions, which needs an upgrade by savepoint."""
    edit(cluster, cluster.app.desired.spec.model_copy(update={"shuffle_partitions": rng.randint(2, 4)}))


def change_autoscaling(cluster: Cluster, rng: random.Random) -> None:
    """Switch autoscaling on, with other bounds, or off. It needs upgrades by savepoint."""
    spec = cluster.app.desired.spec
    bounds = {"min_executors": rng.randint(1, 2), "max_executors": rng.choice((0, 2, 4))}
    times = {"lag": 10_000, "up_after": 2_000, "down_after": 4_000}
    policy = AutoscalingSpec.model_validate(bounds | times)
    upgrade = spec.upgrade.model_copy(update={"mode": UpgradeMode.SAVEPOINT})
    edit(cluster, spec.model_copy(update={"autoscaling": policy, "upgrade": upgrade, "executors": 2}))


def toggle_suspension(cluster: Cluster, rng: random.Random) -> None:
    """Suspend or resume the app."""
    spec = cluster.app.desired.spec
    other = RunState.RUNNING if spec.state is RunState.SUSPENDED else RunState.SUSPENDED
    edit(cluster, spec.model_copy(update={"state": other}))


def resume(cluster: Cluster, rng: random.Random) -> None:
    """Resume the app if it is suspended."""
    if cluster.app.desired.spec.state is RunState.SUSPENDED:
        toggle_suspension(cluster, rng)


def edit_invalidly(cluster: Cluster, rng: random.Random) -> None:
    """Write an invalid spec."""
    app = cluster.app
    if not app.gone:
        app.desired = replace(app.desired, generation=app.desired.generation + 1, problem="no such thing")
        app.version += 1


def restore(cluster: Cluster, rng: random.Random) -> None:
    """Restore a savepoint, or one that does not exist."""
    names = [*sorted(cluster.savepoints), "missing"]
    spec = cluster.app.desired.spec
    chosen = spec.restore.model_copy(update={"from_": rng.choice(names), "nonce": f"n{cluster.next()}"})
    edit(cluster, spec.model_copy(update={"restore": chosen}))


def create_savepoint(cluster: Cluster, rng: random.Random) -> None:
    """Create a ``Savepoint``."""
    cluster.create_savepoint(f"manual-{cluster.next()}", SavepointReason.MANUAL)


def delete_savepoint(cluster: Cluster, rng: random.Random) -> None:
    """Delete a ``Savepoint``."""
    if cluster.savepoints:
        cluster.delete_savepoint(rng.choice(sorted(cluster.savepoints)))


def delete_app(cluster: Cluster, rng: random.Random) -> None:
    """Delete the app, once."""
    app = cluster.app
    if app.desired.deleting_since_ms is None and app.desired.finalized:
        app.desired, app.version = replace(app.desired, deleting_since_ms=cluster.now_ms), app.version + 1


def delete_pod(cluster: Cluster, rng: random.Random) -> None:
    """Delete a pod, as an eviction does."""
    if cluster.pods:
        pod = cluster.pods[rng.choice(sorted(cluster.pods))]
        pod.deleting_since = pod.deleting_since or cluster.now_ms


def crash_pod(cluster: Cluster, rng: random.Random) -> None:
    """Kill the process of a pod."""
    running = [pod for pod in cluster.pods.values() if pod.driver is not None and not pod.driver.ended]
    if running:
        driver = rng.choice(running).driver
        assert driver is not None
        driver.kill()


def fail_node(cluster: Cluster, rng: random.Random) -> None:
    """Make a node unreachable or dead; its pods are deleted and do not end."""
    node = rng.choice(cluster.nodes)
    node.reachable = False
    if rng.random() < 0.6:
        node.dead = True
        for pod in cluster.pods.values():
            if pod.node is node and pod.driver is not None:
                pod.driver.kill()
    for pod in cluster.pods.values():
        if pod.node is node and rng.random() < 0.7:
            pod.deleting_since = pod.deleting_since or cluster.now_ms


def restore_node(cluster: Cluster, rng: random.Random) -> None:
    """Make nodes reachable again, or remove them with their pods."""
    for node in cluster.nodes:
        gone = not node.reachable and (node.dead or rng.random() < 0.3)
        for pod in [pod for pod in cluster.pods.values() if pod.node is node and gone]:
            cluster.force_delete(pod)
        node.reachable, node.dead = True, False


ACTIONS = (
    (change_image, 10),
    (change_settings, 3),
    (change_partitions, 1),
    (change_autoscaling, 2),
    (toggle_suspension, 1),
    (resume, 3),
    (edit_invalidly, 1),
    (restore, 1),
    (create_savepoint, 3),
    (delete_savepoint, 2),
    (delete_app, 0.4),
    (delete_pod, 2),
    (crash_pod, 2),
    (fail_node, 2),
    (restore_node, 4),
)
