"""A program of one's own on a real cluster: an upgrade to a version with another layout of its state, and a fork."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from decimal import Decimal

import pytest

from tests.harness.cluster.apps import App
from tests.harness.cluster.images import build_program_image, on_a_cluster
from tests.harness.cluster.kubectl import wait_until
from tests.harness.cluster.release import Release, new_namespace, small_pods
from tests.harness.cluster.upgrades import phases, print_result
from tests.harness.cluster.visits import QUANTITY, send

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.slow,
    pytest.mark.timeout(1_800),
    on_a_cluster,
]
LIMIT_S = 480.0
USERS = range(2_000)


@pytest.fixture(scope="module")
def release() -> Iterator[Release]:
    with new_namespace(LIMIT_S) as namespace:
        yield Release(namespace)


def _send_visits(release: Release, *apps: App) -> None:
    release.toolbox.wait_for_output(send(release.toolbox, "view", USERS), LIMIT_S)
    for app in apps:
        app.wait_until_idle(LIMIT_S)


def _totals(release: Release, app: App) -> Counter[tuple[str, str]]:
    rows = [json.loads(record.value) for record in release.toolbox.records(f"{app.name}.totals")]
    return Counter((row["user_id"], row["total"]) for row in rows)


def _check_totals(release: Release, app: App, *totals: str) -> None:
    expected = Counter((f"u{user}", total) for user in USERS for total in totals)
    found = _totals(release, app)
    assert found == expected, str(((expected - found).most_common(3), (found - expected).most_common(3)))


def _hundreds(visits: int) -> str:
    return str(Decimal(visits * QUANTITY) / 100 + Decimal("0.00"))


def test_a_version_with_another_state_layout_continues_with_the_old_state(release: Release) -> None:
    app = App(release.namespace, "counter")
    upgrade = {"prepareDeadline": "5m", "startDeadline": "5m", "proof": {"batches": 5, "within": "3m"}}
    program = {"enabled": True, "service": "program", "module": "counter:first", "upgrade": upgrade}
    counter = small_pods(image=build_program_image(), config={"shards": 4}, **program)
    release.install({"rules": {"enabled": False}, "counter": counter})
    app.wait_until_phase("Stable", LIMIT_S)
    _send_visits(release, app)

    number = app.upgrades
    app.change({"module": "counter:second"})
    outcome = app.wait_until_upgraded(number, LIMIT_S)
    print_result("migration", outcome=outcome, phases=phases(app.status))
    assert outcome == "Succeeded", json.dumps(app.status["upgrade"])

    _send_visits(release, app)
    _check_totals(release, app, str(QUANTITY), _hundreds(2))


def test_a_fork_continues_from_the_savepoint_of_the_first_app_and_both_have_equal_output(release: Release) -> None:
    app, fork = App(release.namespace, "counter"), App(release.namespace, "counter-b")
    savepoint = {"apiVersion": "headgate.dev/v1alpha1", "kind": "Savepoint", "metadata": {"name": "before"}}
    release.namespace.apply({**savepoint, "spec": {"app": app.name}})
    wait_until(lambda: _savepoint_phase(release) == "Complete", LIMIT_S, "the savepoint", app.describe_failure)

    spec = release.namespace.get("streamapp", app.name)["spec"]
    config = {**spec["config"], "restore": {"app": app.name}, "shards": 8}
    forked = {**spec, "restore": {"from": "before", "nonce": "1"}, "config": config}
    kind = {"apiVersion": "headgate.dev/v1alpha1", "kind": "StreamApp", "metadata": {"name": fork.name}}
    release.namespace.apply({**kind, "spec": forked})
    fork.wait_until_phase("Stable", LIMIT_S)
    _send_visits(release, app, fork)

    _check_totals(release, app, str(QUANTITY), _hundreds(2), _hundreds(3))
    _check_totals(release, fork, _hundreds(3))


def _savepoint_phase(release: Release) -> str:
    return str((release.namespace.get("savepoint", "before").get("status") or {}).get("phase"))
