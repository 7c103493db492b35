"""Manifests of pods: the restricted profile of pod security, no secrets, and the contract with a driver."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from headgate_operator import pods
from headgate_operator.pods.parts import executor_template
from headgate_operator.pods.settings import settings
from headgate_operator.reconcile.actions import CreateCollector
from headgate_operator.reconcile.observed import Desired
from headgate_operator.resources import StreamAppSpec

_SPEC = {
    "service": "rules",
    "image": "headgate:1.4.0",
    "config": {"kafka": {"bootstrap": "k:9092", "password_file": "/etc/headgate/secret/password"}, "shards": 4},
    "secret": "kafka-login",
    "executors": 2,
    "shufflePartitions": 4,
    "checkpoint": {"root": "/var/lib/headgate", "claim": "rules"},
    "executor": {"resources": {"limits": {"memory": "2Gi"}}},
}


@pytest.fixture(name="app")
def _app() -> Desired:
    return Desired.of("shop", "rules", "0a1b2c3d", 1, StreamAppSpec.model_validate(_SPEC))


def _pods(app: Desired) -> list[dict[str, Any]]:
    return [
        pods.driver_pod(app, app.release, "rules-0a1b2-1", "before"),
        executor_template(app, app.release),
        pods.collector_pod(app, CreateCollector("rules-0a1b2-c1", app.release, ("before",))),
    ]


def test_every_pod_passes_the_restricted_profile(app: Desired) -> None:
    for pod in _pods(app):
        spec = pod["spec"]
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        for container in spec["containers"]:
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }
            scratch = "spark-local-dir-1" if container["name"] == "executor" else "scratch"
            assert {"name": scratch, "mountPath": "/tmp"} in container["volumeMounts"]
            assert {"name": scratch, "emptyDir": {}} in spec["volumes"]
        kinds = {kind for volume in spec["volumes"] for kind in volume if kind != "name"}
        assert kinds <= {"emptyDir", "configMap", "secret", "persistentVolumeClaim"}


def test_only_the_driver_has_access_to_the_api_server(app: Desired) -> None:
    driver, *others = _pods(app)
    assert driver["spec"]["serviceAccountName"] == "rules-driver"
    assert all(pod["spec"]["automountServiceAccountToken"] is False for pod in others)


def test_a_driver_is_a_standby_that_never_restarts_in_place(app: Desired) -> None:
    spec = pods.driver_pod(app, app.release, "rules-0a1b2-1", "before")["spec"]
    args = spec["containers"][0]["args"]
    assert args[:3] == ["python", "-m", "headgate_rules"]
    assert args[-3:] == ["--standby", "--restore-from", "before"]
    assert spec["restartPolicy"] == "Never"


def test_a_driver_may_write_to_the_drivers_of_its_app_only(app: Desired) -> None:
    role, binding = pods.access_manifests(app, ("rules-0a1b2-1", "rules-0a1b2-2"))
    patching = [rule for rule in role["rules"] if "patch" in rule["verbs"]]
    assert [rule["resourceNames"] for rule in patching] == [["rules-0a1b2-1", "rules-0a1b2-2"]]
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": "rules-driver", "namespace": "shop"}]


def test_the_operator_sets_paths_and_executors_and_keeps_the_app_name(app: Desired) -> None:
    spec = app.spec.model_copy(update={"config": {"checkpoint": "/elsewhere", "app": "shop-rules"}})
    document = settings("rules", spec)
    assert document["checkpoint"] == "/var/lib/headgate/rules"
    assert document["app"] == "shop-rules"
    assert document["executors"] == {
        "count": 2,
        "cores": 2,
        "memory": "512m",
        "overhead": "1536m",
        "cpu": "1",
        "template": "/etc/headgate/executor.yaml",
        "secret_file": "/etc/headgate/spark/secret",
    }


def test_a_collector_deletes_the_named_savepoints_and_ignores_missing_ones(app: Desired) -> None:
    some = pods.collector_pod(app, CreateCollector("c", app.release, ("one", "two")))["spec"]["containers"][0]["args"]
    where = ["--savepoints", "/var/lib/headgate/savepoints", "--app", "rules"]
    assert some == ["headgate", "savepoint", "delete", *where, "--missing-ok", "one", "two"]
    purge = pods.collector_pod(app, CreateCollector("c", app.release, (), everything=True))["spec"]["containers"][0][
        "args"
    ]
    assert purge == ["headgate", "savepoint", "purge", *where, "--checkpoint", "/var/lib/headgate/rules"]


def test_each_content_of_settings_has_an_immutable_config_map_of_its_own(app: Desired) -> None:
    made = pods.settings_map(app, app.release)
    assert made["immutable"] is True
    volume = next(v for v in _pods(app)[0]["spec"]["volumes"] if v["name"] == "settings")
    assert volume["configMap"]["name"] == made["metadata"]["name"]
    other = Desired.of("shop", "rules", "0a1b2c3d", 2, app.spec.model_copy(update={"config": {}}))
    assert pods.settings_map(other, other.release)["metadata"]["name"] != made["metadata"]["name"]
    assert json.loads(made["data"]["settings.yaml"])["kafka"]["bootstrap"] == "k:9092"
    assert set(made["data"]) == {"settings.yaml", "executor.yaml"}


def test_a_setting_of_telemetry_keeps_the_defaults_of_the_others(app: Desired) -> None:
    config = {"telemetry": {"otlp_endpoint": "http://collector:4318", "logs": "text"}}
    telemetry = settings("rules", app.spec.model_copy(update={"config": config}))["telemetry"]
    assert telemetry == {"otlp_endpoint": "http://collector:4318", "logs": "text", "prometheus_port": 9464}
    assert settings("rules", app.spec)["telemetry"] == {"logs": "json", "prometheus_port": 9464}


def test_driver_and_executors_mount_the_secret_of_spark_and_collectors_do_not(app: Desired) -> None:
    driver, executor, collector = _pods(app)
    for pod in (driver, executor):
        assert {"name": "spark", "mountPath": "/etc/headgate/spark", "readOnly": True} in _mounts(pod)
        assert {"name": "spark", "secret": {"secretName": "rules-0a1b2-spark", "defaultMode": 0o440}} in _volumes(pod)
    assert "spark" not in {volume["name"] for volume in _volumes(collector)}


def test_without_executors_the_driver_mounts_no_secret(app: Desired) -> None:
    alone = _change_spec(app, executors=0)
    assert "spark" not in {volume["name"] for volume in _volumes(_pods(alone)[0])}
    assert "executors" not in settings("rules", alone.spec)


def test_a_recreated_app_has_another_secret_and_each_is_deleted_with_its_app(app: Desired) -> None:
    made = pods.spark_secret(app, "x" * 64)
    assert made["metadata"]["ownerReferences"][0]["uid"] == "0a1b2c3d"
    assert base64.b64decode(made["data"]["secret"]) == b"x" * 64
    again = Desired.of("shop", "rules", "ffffffff", 1, app.spec)
    assert pods.spark_secret(again, "y")["metadata"]["name"] != made["metadata"]["name"]


_FILES = {"orders.yaml": "name: orders", "streams/orders.yaml": "name: other"}


def test_files_are_mounted_in_driver_and_executors_where_the_settings_expect_them(app: Desired) -> None:
    filed = _change_spec(app, files=_FILES)
    made = pods.files_map(filed, filed.release)
    assert made is not None
    assert made["immutable"] is True
    for pod in _pods(filed)[:2]:
        assert {"name": "files", "mountPath": "/etc/headgate/files", "readOnly": True} in _mounts(pod)
        volume = next(v["configMap"] for v in _volumes(pod) if v["name"] == "files")
        assert volume["name"] == made["metadata"]["name"]
        assert {item["path"]: made["data"][item["key"]] for item in volume["items"]} == _FILES
    assert pods.files_map(app, app.release) is None


def test_a_changed_file_makes_another_revision_and_another_pod(app: Desired) -> None:
    one, other = _change_spec(app, files=_FILES), _change_spec(app, files={"orders.yaml": "name: changed"})
    assert one.release.shape != other.release.shape
    assert pods.files_map(one, one.release) != pods.files_map(other, other.release)


def test_a_new_version_of_the_operator_finds_the_config_maps_of_an_old_one(app: Desired) -> None:
    filed = _change_spec(app, files=_FILES, executors=0)
    made = pods.files_map(filed, filed.release)
    assert made is not None
    assert made["metadata"]["name"] == "rules-0a1b2-files-a0f24ada15"
    assert pods.settings_map(app, app.release)["metadata"]["name"] == "rules-0a1b2-88a1cb145c"
    assert pods.settings_map(filed, filed.release)["metadata"]["name"] == "rules-0a1b2-c67e982b7f"


def _change_spec(app: Desired, **spec: object) -> Desired:
    return Desired.of("shop", "rules", "0a1b2c3d", 2, app.spec.model_copy(update=spec))


def _mounts(pod: dict[str, Any]) -> list[dict[str, Any]]:
    return list(pod["spec"]["containers"][0]["volumeMounts"])


def _volumes(pod: dict[str, Any]) -> list[dict[str, Any]]:
    return list(pod["spec"]["volumes"])


def test_every_object_is_owned_by_its_app(app: Desired) -> None:
    made = [*_pods(app)[::2], pods.settings_map(app, app.release), pods.headless_service(app)]
    for manifest in made:
        assert manifest["metadata"]["ownerReferences"][0]["uid"] == "0a1b2c3d"
        assert manifest["metadata"]["labels"]["app.kubernetes.io/managed-by"] == "headgate-operator"
    assert "app.kubernetes.io/managed-by" not in executor_template(app, app.release)["metadata"]["labels"]


def test_a_driver_of_a_program_runs_the_topology_that_the_spec_names() -> None:
    spec = StreamAppSpec.model_validate(_SPEC | {"service": "program", "module": "revenue:topology"})
    program = Desired.of("shop", "revenue", "0a1b2c3d", 1, spec)
    args = pods.driver_pod(program, program.release, "revenue-0a1b2-1")["spec"]["containers"][0]["args"]
    assert args[:5] == ["python", "-m", "streamcore.service.program", "revenue:topology", "--settings"]
    assert args[-1] == "--standby"
