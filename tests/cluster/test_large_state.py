"""An upgrade of an app with a large state to more shards on a real cluster: the time without output, and that no state
is lost.

Every user is seen once before the upgrade and some of them again after it. Rules that want to see a user twice within a
day then give one alert each for those users and none for others: what a lost, doubled or mixed up row would change.
"""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Iterator

import pytest

from tests.harness.cluster.apps import App
from tests.harness.cluster.images import IMAGE, KAFKA_IMAGE, build_faulty_image
from tests.harness.cluster.kubectl import KUBECONFIG
from tests.harness.cluster.release import Release, new_namespace, small_pods
from tests.harness.cluster.upgrades import longest_gap_s, phases, print_result
from tests.harness.cluster.visits import QUANTITY, send

#: 0: the short form leaves it out.
MEGABYTES = int(os.environ.get("HEADGATE_CLUSTER_STATE_MB", "0"))
pytestmark = [
    pytest.mark.cluster,
    pytest.mark.slow,
    pytest.mark.timeout(1_800),
    pytest.mark.skipif(
        not (KUBECONFIG and IMAGE and KAFKA_IMAGE and MEGABYTES),
        reason="HEADGATE_CLUSTER_STATE_MB=100 of make cluster-test (KUBECONFIG, HEADGATE_IMAGE, HEADGATE_KAFKA_IMAGE)",
    ),
]
LIMIT_S = 900.0
RULES = 20
#: After the upgrade; before it, as many as the chart sets.
SHARDS = 16
#: Of a user's row with a sum for each rule, about, as a savepoint tells it.
_ROW_BYTES = 88
USERS = max(1, MEGABYTES * 1_000_000 // _ROW_BYTES)
AGAIN = range(0, USERS, max(1, USERS // 1_000))


@pytest.fixture(scope="module")
def release() -> Iterator[Release]:
    with new_namespace(LIMIT_S) as namespace:
        yield Release(namespace)


def _rule(number: int) -> dict[str, object]:
    return {
        "id": f"twice-{number}",
        "version": 1,
        "owner": "tests",
        "on": "shop",
        "where": f"quantity >= {number}",
        "group_by": ["user_id"],
        "within": {"tumbling": "24h"},
        "having": f"sum(quantity) >= {2 * QUANTITY}",
        "then": {"severity": "low", "outcome": "review", "score": 1, "message": "seen twice"},
    }


#: An alert for each of the steady events, so that every cut has an output and a time without any can be seen.
STEADY = {
    "id": "steady",
    "version": 1,
    "owner": "tests",
    "on": "shop",
    "where": "type = 'login'",
    "then": {"severity": "low", "outcome": "review", "score": 1, "message": "a login"},
}


def _alerts(release: Release) -> Counter[tuple[str, str]]:
    found = [json.loads(record.value) for record in release.toolbox.records("rules.alerts")]
    return Counter((a["rule"], a["key"]["user_id"]) for a in found if a["rule"] != STEADY["id"])


def test_an_upgrade_with_a_large_state_loses_nothing(release: Release) -> None:
    app = App(release.namespace, "rules")
    upgrade = {"prepareDeadline": "5m", "startDeadline": "5m", "proof": {"batches": 5, "within": "3m"}}
    release.install({"rules": small_pods(executors=1, upgrade=upgrade)})
    app.wait_until_phase("Stable", LIMIT_S)
    rules = "\n---\n".join(map(json.dumps, [STEADY, *map(_rule, range(RULES))]))
    publish = "cat > /tmp/twice.yaml; headgate rules publish /tmp/twice.yaml --app rules"
    release.toolbox.run("sh", "-c", publish, given=rules)
    release.toolbox.wait_for_output(send(release.toolbox, "view", range(USERS)), LIMIT_S)
    app.wait_until_idle(LIMIT_S)
    assert not _alerts(release)

    steady = send(release.toolbox, "login", range(USERS, USERS + 400 * 20), rate=20)
    time.sleep(10)  # so that there are cuts of one rhythm before it
    number, began_ms = app.upgrades, time.time() * 1_000
    app.change({"image": build_faulty_image("none"), "config": {"shards": SHARDS}})
    outcome = app.wait_until_upgraded(number, LIMIT_S)
    status = app.status
    markers = [record.made_ms for record in release.toolbox.records("rules.markers") if record.made_ms >= began_ms]
    size = _size_mb(release, status)
    print_result(
        "much state",
        mb=size,
        shards=SHARDS,
        users=USERS,
        outcome=outcome,
        phases=phases(status),
        pause_s=longest_gap_s(markers),
    )
    assert outcome == "Succeeded", json.dumps(status["upgrade"])
    release.toolbox.delete(steady)

    release.toolbox.wait_for_output(send(release.toolbox, "view", AGAIN), LIMIT_S)
    app.wait_until_idle(LIMIT_S)
    expected = Counter({(f"twice-{rule}", f"u{user}"): 1 for rule in range(RULES) for user in AGAIN})
    found = _alerts(release)
    assert found == expected, str(((expected - found).most_common(3), (found - expected).most_common(3)))


def _size_mb(release: Release, status: dict[str, dict[str, str]]) -> float:
    shown = json.loads(
        release.toolbox.headgate("savepoint", "show", status["upgrade"]["savepoint"], "--app", "rules", "-o", "json")
    )
    size = sum(int(table["bytes"]) for table in shown["tables"])
    return round(size / 1e6, 1)
