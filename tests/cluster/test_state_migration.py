"""An upgrade to a version that keeps its state in another layout, on a real cluster."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator

import pytest

from tests.harness.cluster.apps import App
from tests.harness.cluster.images import build_counter_image, long_form, on_a_cluster
from tests.harness.cluster.release import Release, new_namespace, small_pods
from tests.harness.cluster.upgrades import phases, print_result
from tests.harness.cluster.visits import QUANTITY, send

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.slow,
    pytest.mark.timeout(1_800),
    on_a_cluster,
    long_form,
]
LIMIT_S = 480.0
USERS = range(2_000)


@pytest.fixture(scope="module")
def release() -> Iterator[Release]:
    with new_namespace(LIMIT_S) as namespace:
        yield Release(namespace)


def _seen(release: Release, app: App, visits: range) -> None:
    release.toolbox.wait_for_output(send(release.toolbox, "view", visits), LIMIT_S)
    app.wait_until_idle(LIMIT_S)


def _totals(release: Release) -> Counter[tuple[str, str]]:
    rows = [json.loads(record.value) for record in release.toolbox.records("sessions.totals")]
    return Counter((row["user_id"], row["total"]) for row in rows)


def test_a_version_with_another_state_layout_continues_with_the_old_state(release: Release) -> None:
    app = App(release.namespace, "sessions")
    upgrade = {"prepareDeadline": "5m", "startDeadline": "5m", "proof": {"batches": 5, "within": "3m"}}
    sessions = small_pods(enabled=True, image=build_counter_image(1), upgrade=upgrade)
    release.install({"rules": {"enabled": False}, "sessions": sessions})
    app.wait_until_phase("Stable", LIMIT_S)
    _seen(release, app, USERS)

    number = app.upgrades
    app.change({"image": build_counter_image(2)})
    outcome = app.wait_until_upgraded(number, LIMIT_S)
    print_result("migration", outcome=outcome, phases=phases(app.status))
    assert outcome == "Succeeded", json.dumps(app.status["upgrade"])

    _seen(release, app, USERS)
    expected = Counter((f"u{user}", str(QUANTITY)) for user in USERS)
    expected += Counter((f"u{user}", f"{2 * QUANTITY / 100:.2f}") for user in USERS)
    found = _totals(release)
    assert found == expected, str(((expected - found).most_common(3), (found - expected).most_common(3)))
