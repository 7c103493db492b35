"""The operator on a real API server with simulated drivers: what users do to an app, and the result."""

from __future__ import annotations

import base64
import json
import logging
from collections.abc import Callable, Iterator

import pytest

from headgate_operator import rbac
from headgate_operator.runtime.api_client import ApiError, Json, Rest
from headgate_operator.runtime.api_paths import path
from headgate_operator.runtime.manager import Manager, Settings
from headgate_operator.runtime.metrics import Counters
from headgate_operator.runtime.namespace_teardown import remove_finalizers_with_namespace
from headgate_operator.runtime.parse import FINALIZER
from tests.harness.operator.api_server import AsUser, app_manifest, until
from tests.harness.operator.driver import Image
from tests.harness.operator.kubelet import Kubelet

_WITHIN_S = 120.0
_RBAC = "/apis/rbac.authorization.k8s.io/v1"


@pytest.fixture(name="user")
def _user(rest: Rest, namespace: str) -> Iterator[str]:
    """Impersonate the service account of the operator, with the rights that the chart gives it."""
    subject = {"kind": "ServiceAccount", "name": "operator", "namespace": namespace}
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "operator"}}
    rest.post(path("serviceaccounts", namespace), account)
    name = f"operator-{namespace}"
    role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": name}}
    rest.post(f"{_RBAC}/clusterroles", role | {"rules": [*rbac.RULES, *rbac.OWN_RULES]})
    of = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}
    binding = role | {"kind": "ClusterRoleBinding", "roleRef": of, "subjects": [subject]}
    rest.post(f"{_RBAC}/clusterrolebindings", binding)
    yield f"system:serviceaccount:{namespace}:operator"
    rest.delete(f"{_RBAC}/clusterrolebindings/{name}", "")
    rest.delete(f"{_RBAC}/clusterroles/{name}", "")


@pytest.fixture(name="operator")
def _operator(kubeconfig: str, namespace: str, user: str) -> Iterator[Manager]:
    rest = AsUser(kubeconfig, user)
    operator = Manager(rest, Counters(), Settings(namespace, resync_s=2.0))
    operator.start()
    yield operator
    operator.stop()


@pytest.fixture(name="status")
def _status(rest: Rest, namespace: str) -> Callable[[], Json]:
    def read() -> Json:
        status: Json = rest.get(path("streamapps", namespace, "rules")).get("status", {})
        return status

    return read


def _edit(rest: Rest, namespace: str, **spec: object) -> None:
    rest.merge(path("streamapps", namespace, "rules"), {"spec": spec})


@pytest.mark.usefixtures("operator")
def test_an_app_is_installed_upgraded_rolled_back_suspended_and_deleted_with_the_rights_of_the_chart(
    rest: Rest, namespace: str, kubelet: Kubelet, status: Callable[[], Json]
) -> None:
    kubelet.images["sim:3"] = Image("sim:3", "crashes-soon")
    rest.post(path("streamapps", namespace), app_manifest(namespace))
    until(lambda: status().get("phase") == "Stable", _WITHIN_S)

    _edit(rest, namespace, image="sim:2")
    until(lambda: status().get("version") == "2" and status()["phase"] == "Stable", _WITHIN_S)
    phases = [entry["phase"] for entry in status()["upgrade"]["phases"]]
    during = ["Preflight", "Stopping", "Verifying", "AwaitingExit", "Promoting", "Starting", "Proving", "Stable"]
    assert phases == during
    assert status()["checkpoint"]["epoch"] == 2

    _edit(rest, namespace, image="sim:3")
    until(lambda: status()["phase"] == "RolledBack", _WITHIN_S)
    assert (status()["version"], status()["upgrade"]["outcome"]) == ("2", "RolledBack")
    past = [(one["number"], one["kind"], one["toVersion"], one["outcome"]) for one in status()["history"]]
    assert past == [(1, "install", "1", "Succeeded"), (2, "upgrade", "2", "Succeeded")]

    _edit(rest, namespace, state="suspended")
    until(lambda: status()["phase"] == "Suspended", _WITHIN_S)
    _edit(rest, namespace, state="running", image="sim:2")
    until(lambda: status()["phase"] in ("Stable", "RolledBack"), _WITHIN_S)

    rest.delete(path("streamapps", namespace, "rules"), "")
    until(lambda: not rest.get(path("streamapps", namespace))["items"], _WITHIN_S)
    lines = rest.get(path("savepoints", namespace))["items"]
    assert "deletion" in {line["spec"]["reason"] for line in lines if line["status"]["phase"] == "Complete"}
    assert set(kubelet.store.outputs) == {1}
    assert kubelet.promoted_beside == []


@pytest.mark.usefixtures("operator")
def test_creating_a_savepoint_takes_it_and_deleting_it_deletes_its_data(
    rest: Rest, namespace: str, kubelet: Kubelet, status: Callable[[], Json]
) -> None:
    rest.post(path("streamapps", namespace), app_manifest(namespace))
    until(lambda: status().get("phase") == "Stable", _WITHIN_S)
    for name in ("friday", "saturday"):
        manifest = {"apiVersion": "headgate.dev/v1alpha1", "kind": "Savepoint", "metadata": {"name": name}}
        rest.post(path("savepoints", namespace), manifest | {"spec": {"app": "rules"}})
        until(
            lambda name=name: (  # type: ignore[misc]
                rest.get(path("savepoints", namespace, name)).get("status", {}).get("phase") == "Complete"
            ),
            _WITHIN_S,
        )
    assert set(kubelet.store.savepoints) == {"friday", "saturday"}
    rest.delete(path("savepoints", namespace, "friday"), "")
    until(lambda: len(rest.get(path("savepoints", namespace))["items"]) == 1, _WITHIN_S)


@pytest.mark.usefixtures("operator", "kubelet")
def test_a_namespace_with_apps_can_be_deleted(rest: Rest, namespace: str, status: Callable[[], Json]) -> None:
    rest.post(path("streamapps", namespace), app_manifest(namespace))
    until(lambda: status().get("phase") == "Stable", _WITHIN_S)
    manifest = {"apiVersion": "headgate.dev/v1alpha1", "kind": "Savepoint", "metadata": {"name": "friday"}}
    rest.post(path("savepoints", namespace), manifest | {"spec": {"app": "rules"}})
    until(lambda: "finalizers" in rest.get(path("savepoints", namespace, "friday"))["metadata"], _WITHIN_S)
    rest.delete(path("namespaces", name=namespace), "")
    until(lambda: not rest.get(path("streamapps", namespace))["items"], _WITHIN_S)
    until(lambda: not rest.get(path("savepoints", namespace))["items"], _WITHIN_S)


def test_an_operator_that_is_deleted_with_its_namespace_removes_the_finalizers_of_the_apps(
    rest: Rest, namespace: str, kubeconfig: str, user: str
) -> None:
    finalizers = [FINALIZER]
    app = app_manifest(namespace)
    rest.post(path("streamapps", namespace), app | {"metadata": app["metadata"] | {"finalizers": finalizers}})
    metadata = {"name": "friday", "finalizers": finalizers}
    manifest = {"apiVersion": "headgate.dev/v1alpha1", "kind": "Savepoint", "metadata": metadata}
    rest.post(path("savepoints", namespace), manifest | {"spec": {"app": "rules"}})
    mine = AsUser(kubeconfig, user)
    remove_finalizers_with_namespace(mine, namespace)
    kept = rest.get(path("streamapps", namespace, "rules"))["metadata"]
    assert kept["finalizers"] == finalizers, "the namespace stays"
    rest.delete(path("namespaces", name=namespace), "")
    until(lambda: "deletionTimestamp" in rest.get(path("streamapps", namespace, "rules"))["metadata"], _WITHIN_S)
    remove_finalizers_with_namespace(mine, namespace)
    until(lambda: not rest.get(path("streamapps", namespace))["items"], _WITHIN_S)
    until(lambda: not rest.get(path("savepoints", namespace))["items"], _WITHIN_S)


@pytest.mark.usefixtures("operator")
def test_the_operator_waits_for_a_pod_on_an_unreachable_node_and_reports_that_it_needs_a_person(
    rest: Rest, namespace: str, kubelet: Kubelet, status: Callable[[], Json], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headgate_operator.reconcile.bring_up.GONE_WITHIN_MS", 1_000)
    rest.post(path("streamapps", namespace), app_manifest(namespace))
    until(lambda: status().get("phase") == "Stable", _WITHIN_S)
    old = status()["owner"]["name"]
    kubelet.ignores_deletion = True  # as a kubelet that does not hear of deletions
    rest.delete(path("pods", namespace, old), "")
    until(lambda: status()["phase"] == "NeedsHuman", _WITHIN_S)
    degraded = next(one for one in status()["conditions"] if one["type"] == "Degraded")
    assert f"--force --grace-period=0 {old}" in degraded["message"]
    assert kubelet.promoted_beside == []
    rest._call("DELETE", path("pods", namespace, old), {"gracePeriodSeconds": 0})
    kubelet.ignores_deletion = False
    until(lambda: status()["phase"] == "Stable", _WITHIN_S)


@pytest.mark.usefixtures("operator", "kubelet")
def test_the_secret_of_spark_is_created_once_and_appears_in_no_log_or_object(
    rest: Rest, namespace: str, status: Callable[[], Json], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    rest.post(path("streamapps", namespace), app_manifest(namespace, executors=2, files={"streams/s.yaml": "name: s"}))
    until(lambda: status().get("phase") == "Stable", _WITHIN_S)
    app = rest.get(path("streamapps", namespace, "rules"))
    (made,) = rest.get(path("secrets", namespace))["items"]
    assert made["metadata"]["ownerReferences"][0]["uid"] == app["metadata"]["uid"]
    secret = base64.b64decode(made["data"]["secret"]).decode()
    assert len(secret) >= 32

    _edit(rest, namespace, image="sim:2")
    until(lambda: status().get("version") == "2" and status()["phase"] == "Stable", _WITHIN_S)
    (still,) = rest.get(path("secrets", namespace))["items"]
    assert still["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]

    kinds = ("streamapps", "pods", "configmaps", "events", "savepoints")
    texts = [caplog.text, *(json.dumps(rest.get(path(kind, namespace))) for kind in kinds)]
    assert not [text for text in texts if secret in text or made["data"]["secret"] in text]
    keys = {key for one in rest.get(path("configmaps", namespace))["items"] for key in one["data"]}
    assert {"streams..s.yaml", "settings.yaml", "executor.yaml"} <= keys


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"checkpoint": {"root": "/elsewhere"}}, "fixed for the app's life"),
        ({"service": "etl"}, "fixed for the app's life"),
        ({"restore": {"from": "friday"}}, "restore.nonce"),
        ({"upgrade": {"mode": "in-place"}, "shufflePartitions": 8}, "needs upgrade.mode: savepoint"),
        ({"upgrade": {"mode": "stateless"}, "savepoints": {"every": "6h"}}, "no savepoints"),
        ({"upgrade": {"mode": "quick"}}, "Unsupported value"),
        ({"executors": -1}, "greater than or equal to 0"),
        ({"deletionDeadline": "soon"}, "should match"),
        ({"files": {"a/b/c.yaml": ""}}, "one folder before it at most"),
        ({"files": {"../up.yaml": ""}}, "one folder before it at most"),
        ({"files": {"a..b": ""}}, "one folder before it at most"),
        ({"files": {"one.yaml": "a" * 100_000, "two.yaml": "a" * 100_000}}, "196608 bytes together"),
        ({"files": {f"f{number}": "" for number in range(51)}}, "at most 50"),
    ],
)
def test_the_api_server_rejects_invalid_specs(rest: Rest, namespace: str, change: Json, words: str) -> None:
    rest.post(path("streamapps", namespace), app_manifest(namespace))
    with pytest.raises(ApiError, match=words):
        _edit(rest, namespace, **change)


@pytest.mark.parametrize("name", ["savepoints", "9rules", "a" * 41, "rules.eu"])
def test_a_name_that_is_invalid_for_pods_is_rejected(rest: Rest, namespace: str, name: str) -> None:
    manifest = app_manifest(namespace)
    manifest["metadata"]["name"] = name
    with pytest.raises(ApiError, match="the name of an app"):
        rest.post(path("streamapps", namespace), manifest)


def test_the_table_of_kubectl_shows_phase_version_batch_lag_and_age(rest: Rest) -> None:
    crd = rest.get("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/streamapps.headgate.dev")
    columns = [column["name"] for column in crd["spec"]["versions"][0]["additionalPrinterColumns"]]
    assert [name for name in columns if name not in ("Ready", "Reason", "Savepoint")] == [
        "Phase",
        "Version",
        "Batch",
        "Lag",
        "Age",
    ]
    established = [c for c in crd["status"]["conditions"] if c["type"] == "NonStructuralSchema"]
    assert not established


def _may(rest: Rest, user: str, namespace: str, group: str, resource: str, verb: str) -> bool:
    name, _, part = resource.partition("/")
    about = {"namespace": namespace, "group": group, "resource": name, "subresource": part, "verb": verb}
    review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview"}
    answer = rest.post(
        "/apis/authorization.k8s.io/v1/subjectaccessreviews",
        review | {"spec": {"user": user, "resourceAttributes": about}},
    )
    return bool(answer["status"]["allowed"])


def test_the_operator_has_the_listed_rights_and_no_others(rest: Rest, namespace: str, user: str) -> None:
    for rule in (*rbac.RULES, *rbac.OWN_RULES):
        for resource in rule["resources"]:
            for verb in rule["verbs"]:
                assert _may(rest, user, namespace, rule["apiGroups"][0], resource, verb), (resource, verb)
    for group, resource, verb in (
        *(("", "secrets", verb) for verb in ("get", "list", "watch", "update", "patch", "delete")),
        ("", "pods/exec", "create"),
        ("", "configmaps", "delete"),
        ("", "configmaps", "list"),
        ("", "nodes", "list"),
        ("", "namespaces", "delete"),
        ("", "persistentvolumeclaims", "delete"),
        ("apps", "deployments", "create"),
        ("headgate.dev", "streamapps", "delete"),
        ("headgate.dev", "streamapps", "create"),
        ("rbac.authorization.k8s.io", "roles", "escalate"),
        ("rbac.authorization.k8s.io", "clusterroles", "bind"),
        ("*", "*", "*"),
    ):
        assert not _may(rest, user, namespace, group, resource, verb), (resource, verb)


def test_a_driver_may_write_to_its_own_pod_and_to_no_other(
    rest: Rest, namespace: str, kubelet: Kubelet, operator: Manager, status: Callable[[], Json]
) -> None:
    del kubelet, operator
    rest.post(path("streamapps", namespace), app_manifest(namespace))
    until(lambda: status().get("phase") == "Stable", _WITHIN_S)
    own, user = status()["owner"]["name"], f"system:serviceaccount:{namespace}:rules-driver"
    review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview"}

    def may(verb: str, resource: str, name: str = "") -> bool:
        about = {"namespace": namespace, "resource": resource, "verb": verb, "name": name}
        spec = {"user": user, "resourceAttributes": about}
        answer = rest.post("/apis/authorization.k8s.io/v1/subjectaccessreviews", review | {"spec": spec})
        return bool(answer["status"]["allowed"])

    assert may("patch", "pods", own)
    assert may("create", "pods")
    assert not may("patch", "pods", "another")
    assert not may("get", "secrets", "kafka-login")
    assert not may("get", "configmaps")
