"""The product on a real cluster: installed by Helm, changed by kubectl, under load.

The tests depend on each other and run in order. All events are of the demo shop, whose alerts are known without the
product (``headgate.demo.shop.expected_alerts``). After each disturbance all committed alerts are compared with them:
none is lost or repeated.
"""

from __future__ import annotations

import json
import os
import time
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping

import pytest

from headgate.demo.datagen import shop_settings
from headgate.demo.shop.expected_alerts import PER_EVENT, WINDOWED, AlertId, expect
from tests.harness.cluster.apps import App
from tests.harness.cluster.images import build_faulty_image, long_form, on_a_cluster
from tests.harness.cluster.kubectl import Namespace, run, wait_until
from tests.harness.cluster.release import DRIVER, RELEASE, Release, new_namespace, small_pods
from tests.harness.cluster.toolbox import Feeder
from tests.harness.cluster.upgrades import longest_gap_s, phases, print_result

OPENSEARCH = os.environ.get("HEADGATE_CLUSTER_OPENSEARCH", "")
pytestmark = [
    pytest.mark.cluster,
    pytest.mark.slow,
    pytest.mark.timeout(1_800),
    on_a_cluster,
]
SEED, PARTITIONS, BLOCK = 7, 4, 1_000
LIMIT_S = 900.0
SHIPPED = {*PER_EVENT, *WINDOWED}
#: Waits that suit a test: a version that hangs is given up after a minute.
_UPGRADE = {"prepareDeadline": "3m", "startDeadline": "2m", "proof": {"batches": 20, "within": "3m"}}


class Shop:
    """The release, its rules app, and how many events were sent."""

    def __init__(self, namespace: Namespace) -> None:
        self.namespace = namespace
        self.release = Release(namespace)
        self.toolbox = self.release.toolbox
        self.app = App(namespace, "rules")
        self.sent = 0
        self.feeder: Feeder | None = None

    def feed(self, blocks: int, rate: float) -> None:
        """Begin to send more blocks of events; ``check_alerts`` waits for them."""
        self.feeder = self.toolbox.feed(f"feed-{uuid.uuid4().hex[:6]}", blocks * BLOCK, rate, SEED)

    def alerts(self) -> list[tuple[AlertId, bytes]]:
        """Return all committed alerts."""
        return [(AlertId.of(record.value), record.value) for record in self.toolbox.records("rules.alerts")]

    def alerts_of(self, rule: str) -> list[AlertId]:
        """Return the alerts of one rule."""
        return [alert for alert, _ in self.alerts() if alert.rule == rule]

    def check_alerts(self) -> None:
        """Wait until all events are processed, and check that the alerts equal the expected ones."""
        if self.feeder is not None:
            self.sent = self.feeder.wait(LIMIT_S)
            self.feeder = None
        self.app.wait_until_idle(LIMIT_S)
        expected = expect(shop_settings(SEED), self.sent, PARTITIONS)
        alerts = self.alerts()
        found = Counter(alert for alert, _ in alerts if alert.rule in SHIPPED)
        twice = [value for alert, value in alerts if found[alert] > 1]
        missing, wrong = expected.alerts - found.keys(), found.keys() - expected.alerts - expected.uncertain
        found_wrong = {"twice": twice, "missing": missing, "wrong": wrong}
        assert not any(found_wrong.values()), str(found_wrong)
        assert found

    def pause_s(self, since_ms: float) -> float:
        """Return the longest time without a cut since then."""
        return longest_gap_s(r.made_ms for r in self.toolbox.records("rules.markers") if r.made_ms >= since_ms)

    def upgrade(self, outcome: str = "Succeeded", **spec: object) -> None:
        """Change the spec under load; check the outcome and the alerts."""
        before, number = self.app.status["stable"]["revision"], self.app.upgrades
        self.feed(3, 40)
        began = time.time()
        self.app.change(spec)
        found = self.app.wait_until_upgraded(number, LIMIT_S)
        took_s = round(time.time() - began, 1)
        self.check_alerts()
        status = self.app.status
        pause_s = self.pause_s(began * 1_000)
        print_result("upgrade", to=spec, outcome=found, took_s=took_s, phases=phases(status), pause_s=pause_s)
        assert found == outcome, json.dumps(status["upgrade"])
        assert (status["stable"]["revision"] == before) == (outcome != "Succeeded")


@pytest.fixture(scope="module")
def shop() -> Iterator[Shop]:
    with new_namespace(LIMIT_S) as namespace:
        yield Shop(namespace)


def test_a_new_installation_gives_its_first_alert(shop: Shop) -> None:
    began = time.monotonic()
    shop.release.install({"rules": small_pods(executors=1, upgrade=_UPGRADE)})
    shop.app.wait_until_phase("Stable", LIMIT_S)
    stable = time.monotonic() - began
    shop.toolbox.headgate("rules", "publish", "rules/shop", "--app", "rules")
    shop.feed(1, 50)
    wait_until(lambda: bool(shop.alerts()), LIMIT_S, "a first alert", shop.app.describe_failure)
    print_result("installed", stable_s=round(stable, 1), first_alert_s=round(time.monotonic() - began, 1))
    shop.check_alerts()
    assert len(shop.app.executors()) == 1


def test_a_published_rule_takes_effect_in_the_running_app(shop: Shop) -> None:
    before = shop.app.drivers()
    rule = {"id": "any-refund", "version": 1, "owner": "tests", "on": "shop", "where": "type = 'refund'"}
    rule |= {"then": {"severity": "low", "outcome": "review", "score": 1, "message": "a refund"}}
    script = "cat > /tmp/any-refund.yaml; headgate rules publish /tmp/any-refund.yaml --app rules"
    shop.toolbox.run("sh", "-c", script, given=json.dumps(rule))
    assert not shop.alerts_of("any-refund")
    shop.feed(1, 50)
    shop.check_alerts()
    assert shop.alerts_of("any-refund")
    assert [pod["metadata"]["uid"] for pod in shop.app.drivers()] == [pod["metadata"]["uid"] for pod in before]


def test_an_upgrade_by_savepoint_to_more_shards_loses_nothing(shop: Shop) -> None:
    shop.upgrade(image=build_faulty_image("none"), config={"shards": 6})


@long_form
def test_an_upgrade_to_another_number_of_executors_and_partitions_loses_nothing(shop: Shop) -> None:
    shop.upgrade(executors=2, shufflePartitions=4)


@long_form
def test_an_upgrade_in_place_loses_nothing(shop: Shop) -> None:
    shop.upgrade(image=build_faulty_image("none_2"), upgrade={"mode": "in-place"})
    shop.app.change({"upgrade": {"mode": "savepoint"}})
    shop.app.wait_until_seen(LIMIT_S)


@pytest.mark.parametrize(
    ("fault", "outcome"),
    [
        ("ends_later", "RolledBack"),
        pytest.param("ends_at_once", "Rejected", marks=long_form),
        pytest.param("never_ready", "Rejected", marks=long_form),
        pytest.param("never_runs", "RolledBack", marks=long_form),
        pytest.param("stalls_later", "RolledBack", marks=long_form),
    ],
)
def test_a_version_that_fails_is_rolled_back_to_the_previous_one(shop: Shop, fault: str, outcome: str) -> None:
    before = shop.app.status["stable"]["spec"]["image"]
    shop.upgrade(outcome, image=build_faulty_image(fault))
    shop.app.change({"image": before})
    shop.app.wait_until_seen(LIMIT_S)


def test_a_driver_that_is_deleted_is_replaced(shop: Shop) -> None:
    (driver,) = shop.app.drivers()
    shop.feed(2, 40)
    shop.namespace.kubectl("delete", "pod", driver["metadata"]["name"], "--grace-period=0", "--force", "--wait=false")
    wait_until(lambda: bool(_others(shop.app, driver)), LIMIT_S, "another driver", shop.app.describe_failure)
    shop.check_alerts()


def _others(app: App, driver: Mapping[str, dict[str, str]]) -> list[object]:
    return [pod for pod in app.drivers() if pod["metadata"]["uid"] != driver["metadata"]["uid"]]


def test_an_executor_that_is_deleted_is_replaced(shop: Shop) -> None:
    before = shop.app.executors()
    shop.feed(2, 40)
    shop.namespace.kubectl("delete", "pod", before[0], "--grace-period=0", "--force", "--wait=false")
    wait_until(
        lambda: bool({*shop.app.executors()} - {*before}), LIMIT_S, "another executor", shop.app.describe_failure
    )
    shop.check_alerts()


@long_form
def test_an_upgrade_continues_after_the_operator_is_deleted_in_the_middle(shop: Shop) -> None:
    number = shop.app.upgrades
    shop.feed(3, 40)
    shop.app.change({"image": build_faulty_image("none_3")})
    for phases_ in (("Preflight",), ("Stopping", "Verifying", "AwaitingExit", "Promoting", "Starting", "Proving")):
        wait_until(lambda phases_=phases_: shop.app.phase in phases_, LIMIT_S, str(phases_), shop.app.describe_failure)  # type: ignore[misc]
        marks = "app.kubernetes.io/component=operator"
        shop.namespace.kubectl("delete", "pod", "-l", marks, "--grace-period=0", "--force", "--wait=false")
    assert shop.app.wait_until_upgraded(number, LIMIT_S) == "Succeeded"
    shop.check_alerts()


@long_form
def test_the_app_continues_after_the_drain_of_its_node(shop: Shop) -> None:
    """On a cluster of one node: evicted pods come back after the node is uncordoned."""
    (driver,) = shop.app.drivers()
    node = driver["spec"]["nodeName"]
    shop.feed(2, 40)
    try:
        selector = f"headgate.dev/app={shop.app.name}"
        run("kubectl", "cordon", node)
        options = ["--ignore-daemonsets", "--delete-emptydir-data", "--force", "--timeout=180s"]
        run("kubectl", "drain", node, "--pod-selector", selector, *options, limit_s=200)
    finally:
        run("kubectl", "uncordon", node)
    wait_until(lambda: bool(_others(shop.app, driver)), LIMIT_S, "another driver", shop.app.describe_failure)
    shop.check_alerts()


def test_a_suspended_app_continues_when_resumed(shop: Shop) -> None:
    shop.app.change({"state": "suspended"})
    shop.app.wait_until_phase("Suspended", LIMIT_S)
    assert not shop.app.drivers()
    shop.feed(1, 200)
    shop.app.change({"state": "running"})
    shop.app.wait_until_seen(LIMIT_S)
    shop.check_alerts()


@long_form
def test_the_other_services_run_beside_the_rules_app(shop: Shop) -> None:
    """etl and sessions, and search where pods reach an OpenSearch (HEADGATE_CLUSTER_OPENSEARCH)."""
    lanes = {"etl": "etl.payments", "sessions": "sessions.sessions"}
    apps: dict[str, object] = {name: {"enabled": True, "driver": DRIVER} for name in lanes}
    if OPENSEARCH:
        # An OpenSearch that stays knows the apps of an earlier run by their names, and rightly rejects another one.
        name = f"search-{shop.namespace.name.rpartition('-')[2]}"
        index = {"alias": f"{name}-products", "id": ["id"], "deleted": "deleted", "settings": {"number_of_replicas": 0}}
        products = {"schema_file": "/app/streams/products.yaml", "topic": "shop.products"}
        opensearch = {"hosts": [OPENSEARCH], "indexes": {"documents": index}}
        config = {"products": products, "opensearch": opensearch, "publish_changes": True}
        apps[name] = {"enabled": True, "service": "search", "driver": DRIVER, "config": config}
        lanes[name] = f"{name}.changes"
    shop.release.change({"apps": apps})
    for name in lanes:
        App(shop.namespace, name).wait_until_phase("Stable", LIMIT_S)
    shop.feed(1, 100)
    shop.check_alerts()
    for name, lane in lanes.items():
        App(shop.namespace, name).wait_until_idle(LIMIT_S)
        print_result("output", lane=lane, records=len(shop.toolbox.records(lane)))
        assert shop.toolbox.records(lane)


def test_the_command_lists_and_verifies_savepoints(shop: Shop) -> None:
    shop.namespace.apply(
        {
            "apiVersion": "headgate.dev/v1alpha1",
            "kind": "Savepoint",
            "metadata": {"name": "by-hand"},
            "spec": {"app": "rules"},
        }
    )
    wait_until(
        lambda: _savepoint_phase(shop, "by-hand") == "Complete", LIMIT_S, "the savepoint", shop.app.describe_failure
    )
    listed = json.loads(shop.toolbox.headgate("savepoint", "list", "--app", "rules", "-o", "json"))
    assert "by-hand" in json.dumps(listed)
    shop.toolbox.headgate("savepoint", "verify", "by-hand", "--app", "rules")


def _savepoint_phase(shop: Shop, name: str) -> str:
    return str((shop.namespace.get("savepoint", name).get("status") or {}).get("phase"))


def test_helm_test_finds_an_alert_and_uninstall_leaves_no_pod(shop: Shop) -> None:
    shop.namespace.helm("test", RELEASE, "--timeout", "5m")
    shop.namespace.helm("uninstall", RELEASE, "--wait", "--timeout", "10m", limit_s=630)
    wait_until(lambda: not _pods_left(shop), 120, "the release's pods go", lambda: str(_pods_left(shop)))
    assert shop.namespace.items("streamapps") == []


def _pods_left(shop: Shop) -> list[str]:
    names = [pod["metadata"]["name"] for pod in shop.namespace.items("pods")]
    return [name for name in names if not name.startswith("feed-")]
