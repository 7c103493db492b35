"""The manifests of the chart, rendered by Helm for several sets of values."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from headgate.web.access.guard import HEALTH_PATH
from headgate.web.settings import ConsoleSettings
from headgate_operator import rbac
from headgate_operator.pods.image import SECRET_FOLDER
from headgate_operator.resources import StreamAppSpec
from streamcore.kafka.settings import KafkaSettings
from tests.harness.servers.chart import (
    CASES,
    CHART,
    CONSOLE,
    EVERYTHING,
    OWN_SERVERS,
    Manifest,
    helm,
    pod_specs,
    render_manifests,
    run,
    select_kind,
    template,
)
from tools.chart_values import SERVICES

pytestmark = pytest.mark.slow  # Helm renders the chart for each of them

_STANDARD = {"name", "instance", "component", "version", "part-of", "managed-by"}


@pytest.fixture(name="made", params=sorted(CASES))
def _made(request: pytest.FixtureRequest) -> list[Manifest]:
    return render_manifests(CASES[request.param])


def test_helm_lint_accepts_the_chart() -> None:
    completed = helm("lint", str(CHART), "--strict", "--kube-version", "1.34.4")
    assert completed.returncode == 0, completed.stdout


def test_the_suites_of_the_chart_pass_in_helm_unittest() -> None:
    completed = run("helm-unittest", "--strict", str(CHART))
    assert completed.returncode == 0, completed.stdout
    assert len(list((CHART / "tests").glob("*_test.yaml"))) == int(re.findall(r"(\d+) passed", completed.stdout)[1])


def test_every_pod_passes_the_restricted_profile_and_writes_nothing_into_its_image(made: list[Manifest]) -> None:
    for name, pod in pod_specs(made).items():
        assert pod["securityContext"]["runAsNonRoot"] is True, name
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}, name
        assert pod["enableServiceLinks"] is False, name
        for container in pod["containers"]:
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }
            assert container["resources"]["limits"]["memory"], name
            assert "/tmp" in [mount["mountPath"] for mount in container["volumeMounts"]]
        kinds = {kind for volume in pod["volumes"] for kind in volume if kind != "name"}
        assert kinds <= {"emptyDir", "configMap", "persistentVolumeClaim", "secret"}, name


def test_only_the_operator_the_console_and_the_hooks_have_access_to_the_api_server(made: list[Manifest]) -> None:
    for name, pod in pod_specs(made).items():
        if name.endswith(("-operator", "-console", "-crds", "-uninstall")):
            assert pod["serviceAccountName"] == name.split("/")[1]
        else:
            assert pod["automountServiceAccountToken"] is False, name


def test_every_image_has_a_version_or_a_digest(made: list[Manifest]) -> None:
    images = [c["image"] for pod in pod_specs(made).values() for c in pod["containers"]]
    images += [app["spec"]["image"] for app in select_kind(made, "StreamApp").values()]
    for image in images:
        assert re.search(r"(:[0-9][^:/]*|@sha256:[0-9a-f]{64})$", image), image


def test_the_manifests_contain_no_secret(made: list[Manifest]) -> None:
    assert not select_kind(made, "Secret")
    for name, pod in pod_specs(made).items():
        for container in pod["containers"]:
            assert not [e for e in container.get("env", ()) if re.search("(?i)password|secret|token", str(e))], name
            assert not re.search("(?i)password|token", str(container["args"])) if "args" in container else True


def test_pods_that_use_kafka_mount_the_secret_that_the_values_name(made: list[Manifest]) -> None:
    named = {app["spec"].get("secret") for app in select_kind(made, "StreamApp").values()} - {None, ""}
    for name, pod in pod_specs(made).items():
        mounted = {volume["secret"]["secretName"] for volume in pod["volumes"] if "secret" in volume}
        own = {"console-files"} if name.endswith("-console") else set()
        logs_in = "-test-" in name or name.endswith(("-toolbox", "-console"))
        assert mounted == (named if logs_in else set()) | own, name


_ENV = [{"name": "KAFKA_KEY", "valueFrom": {"secretKeyRef": {"name": "keys", "key": "kafka"}}}]
_LOGINS: Manifest = OWN_SERVERS | {
    "toolbox": {"enabled": True},
    "appDefaults": {
        "secret": "headgate-logins",
        "driver": {
            "env": _ENV,
            "volumes": [{"name": "ca", "configMap": {"name": "company-ca"}}],
            "volumeMounts": [{"name": "ca", "mountPath": "/etc/ca"}],
        },
    },
}


@pytest.mark.parametrize("kind", ["Pod", "Deployment"])
def test_the_command_logs_in_to_kafka_as_the_drivers_do(kind: str) -> None:
    made = render_manifests(_LOGINS)
    (app,) = select_kind(made, "StreamApp").values()
    (pod,) = (pod for name, pod in pod_specs(made).items() if name.startswith(kind) and not name.endswith("-operator"))
    (container,) = pod["containers"]
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    assert volumes["secret"]["secret"] == {"secretName": "headgate-logins", "defaultMode": 0o440}
    assert (mounts["secret"], mounts["ca"]) == (SECRET_FOLDER, "/etc/ca")
    assert volumes["ca"]["configMap"] == {"name": "company-ca"}
    assert _ENV[0] in container["env"]
    file = Path(next(entry["value"] for entry in container["env"] if entry["name"] == "HEADGATE_KAFKA"))
    login = volumes["login"]["configMap"]
    (item,) = login["items"]
    assert Path(mounts["login"]) / item["path"] == file
    login_settings = json.loads(select_kind(made, "ConfigMap")[login["name"]]["data"][item["key"]])
    assert login_settings == app["spec"]["config"]["kafka"]
    assert KafkaSettings(**login_settings).password_file == Path(SECRET_FOLDER) / "kafka"


def test_the_console_starts_from_the_settings_of_the_chart() -> None:
    made = render_manifests(EVERYTHING)
    document = yaml.safe_load(select_kind(made, "ConfigMap")["demo-headgate-console"]["data"]["console.yaml"])
    settings = ConsoleSettings.model_validate(document)
    assert [app.name for app in settings.apps] == ["rules"]
    assert (settings.host, settings.port) == ("0.0.0.0", 8808)
    assert settings.access is not None
    pod = select_kind(made, "Deployment")["demo-headgate-console"]["spec"]["template"]["spec"]
    mounts = {mount["mountPath"] for mount in pod["containers"][0]["volumeMounts"]}
    assert settings.access.login is not None
    for file in (settings.signing_key, settings.access.login.client_secret_file):
        assert file is not None
        assert str(file.parent) in mounts
    assert str(settings.apps[0].streams) in mounts
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert pod["containers"][0][probe]["httpGet"] == {"path": HEALTH_PATH, "port": "http"}
    service = select_kind(made, "Service")["demo-headgate-console"]["spec"]
    labels = select_kind(made, "Deployment")["demo-headgate-console"]["spec"]["template"]["metadata"]["labels"]
    assert service["selector"].items() <= labels.items()
    (rule,) = select_kind(made, "Ingress")["demo-headgate-console"]["spec"]["rules"]
    assert f"https://{rule['host']}" == settings.access.public_address
    assert not [one for one in render_manifests() if "console" in one["metadata"]["name"]]


@pytest.mark.parametrize(
    ("console", "message"),
    [
        ({"enabled": True}, "console.access"),
        ({"enabled": True, "access": {"public_address": "https://x.org", "grants": []}}, "grants"),
        ({"enabled": True, "access": {**CONSOLE["access"], "anonymous": True}}, "anonymous"),
    ],
)
def test_a_console_without_a_login_is_refused(console: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        template({"console": console})


def test_a_probe_logs_in_with_the_login_of_its_app() -> None:
    own = {"secret": "risk-logins", "config": {"kafka": {"username": "risk"}}}
    made = render_manifests(OWN_SERVERS | {"apps": {"rules": own}})
    pod = select_kind(made, "Pod")["demo-headgate-test-rules"]["spec"]
    assert [v["secret"]["secretName"] for v in pod["volumes"] if "secret" in v] == ["risk-logins"]
    login = select_kind(made, "ConfigMap")["demo-headgate-test-rules-login"]["data"]["kafka.json"]
    assert json.loads(login)["username"] == "risk"


def test_every_name_and_every_label_is_short_enough(made: list[Manifest]) -> None:
    for one in made:
        meta = one["metadata"]
        assert len(meta["name"]) <= 63
        assert {f"app.kubernetes.io/{name}" for name in _STANDARD} <= set(meta["labels"]), meta["name"]
        assert all(len(value) <= 63 for value in meta["labels"].values())


def test_objects_of_a_release_with_a_long_name_have_unique_short_names() -> None:
    made = render_manifests(EVERYTHING, release="a-release-with-a-name-as-long-as-helm-takes-it-at-all")
    names = [(one["kind"], one["metadata"]["name"]) for one in made]
    assert len(set(names)) == len(names)
    assert max(len(name) for _, name in names) <= 63


def test_selectors_match_their_own_pods_and_no_others(made: list[Manifest]) -> None:
    workloads = [one for one in made if one["kind"] in ("Deployment", "StatefulSet")]
    for one in workloads:
        wanted = one["spec"]["selector"]["matchLabels"].items()
        found = [
            w["metadata"]["name"] for w in workloads if wanted <= w["spec"]["template"]["metadata"]["labels"].items()
        ]
        assert found == [one["metadata"]["name"]]


def test_the_operator_accepts_the_specs_of_the_apps(made: list[Manifest]) -> None:
    for app in select_kind(made, "StreamApp").values():
        StreamAppSpec.model_validate(app["spec"])


@pytest.mark.parametrize("case", sorted(CASES))
def test_every_service_accepts_the_settings_of_its_app(case: str) -> None:
    for name, app in select_kind(render_manifests(CASES[case]), "StreamApp").items():
        config = json.loads(json.dumps(app["spec"]["config"]).replace("/app/streams/", f"{CHART.parents[1]}/streams/"))
        settings = SERVICES[app["spec"]["service"]].model_validate(config | {"checkpoint": "/var/lib/headgate/x"})
        assert settings.app == name


def test_the_streams_that_the_defaults_name_are_in_the_image() -> None:
    named = set(re.findall(r"/app/(streams/[a-z_]+\.yaml)", (CHART / "values.yaml").read_text()))
    assert named
    assert all((CHART.parents[1] / file).is_file() for file in named)


def test_by_default_there_is_a_rules_app_on_a_kafka_of_its_own_with_its_event_topic() -> None:
    made = render_manifests()
    (app,) = select_kind(made, "StreamApp").values()
    service = select_kind(made, "Service")["demo-headgate-kafka"]
    bootstrap = app["spec"]["config"]["kafka"]["bootstrap"]
    assert bootstrap == "demo-headgate-kafka.shop.svc:9092"
    (kafka,) = select_kind(made, "StatefulSet").values()
    (container,) = kafka["spec"]["template"]["spec"]["containers"]
    assert container["env"] == [{"name": "KAFKA_ADVERTISED", "value": bootstrap}]
    assert service["spec"]["selector"].items() <= kafka["spec"]["template"]["metadata"]["labels"].items()
    topics = next(pod for name, pod in pod_specs(made).items() if "-topics-" in name)
    assert "shop:4" in topics["containers"][0]["args"]


def test_the_chart_installs_no_servers_when_external_ones_are_named() -> None:
    made = render_manifests(OWN_SERVERS)
    (app,) = select_kind(made, "StreamApp").values()
    assert app["spec"]["config"]["kafka"]["bootstrap"] == "k1.example:9093,k2.example:9093"
    assert app["spec"]["secret"] == "headgate-logins"
    assert app["spec"]["checkpoint"] == {"root": "s3://bucket/headgate"}
    assert not {"StatefulSet", "PersistentVolumeClaim", "Service"} & {one["kind"] for one in made}
    assert app["spec"]["image"].endswith("a" * 64)


def test_values_must_name_kafka_when_the_chart_does_not_install_it() -> None:
    with pytest.raises(ValueError, match="name the brokers"):
        template({"kafka": {"enabled": False}})


def test_values_of_an_app_override_the_defaults_even_if_empty() -> None:
    values = {"appDefaults": {"executors": 2, "secret": "logins"}, "apps": {"rules": {"executors": 0, "secret": ""}}}
    (app,) = select_kind(render_manifests(values), "StreamApp").values()
    assert (app["spec"]["executors"], app["spec"]["secret"]) == (0, "")
    assert app["spec"]["savepoints"] == {"every": "6h", "keep": 10}


def test_large_numbers_are_rendered_as_integers() -> None:
    text = template({"apps": {"rules": {"config": {"output_retention_ms": 604800000, "max_matches": 123456789}}}})
    assert "output_retention_ms: 604800000\n" in text
    assert "max_matches: 123456789\n" in text


def _rules(made: list[Manifest], *kinds: str) -> list[dict[str, Any]]:
    return [rule for one in made if one["kind"] in kinds for rule in one["rules"]]


def test_the_operator_has_the_rights_of_its_own_list_in_one_namespace_or_in_all() -> None:
    one, everywhere = render_manifests(), render_manifests({"operator": {"allNamespaces": True}})
    assert select_kind(one, "Role")["demo-headgate-operator"]["rules"] == list(rbac.RULES)
    assert select_kind(everywhere, "ClusterRole")["demo-headgate-operator-shop"]["rules"] == list(rbac.RULES)
    for made in (one, everywhere):
        assert select_kind(made, "Role")["demo-headgate-operator-lease"]["rules"] == list(rbac.OWN_RULES)
    args = next(p for n, p in pod_specs(one).items() if n.endswith("-operator"))["containers"][0]["args"]
    assert args[-2:] == ["--namespace", "shop"]


def test_no_role_has_a_wildcard_or_reads_secrets(made: list[Manifest]) -> None:
    for rule in _rules(made, "Role", "ClusterRole"):
        assert "*" not in [*rule["apiGroups"], *rule["resources"], *rule["verbs"]]
        assert rule["resources"] != ["secrets"] or rule["verbs"] == ["create"]


def test_without_all_namespaces_only_the_hook_for_crds_has_rights_in_the_cluster() -> None:
    made = render_manifests()
    assert set(select_kind(made, "ClusterRole")) == {"demo-headgate-crds-shop"}
    hook = select_kind(made, "ClusterRole")["demo-headgate-crds-shop"]["metadata"]["annotations"]
    assert hook["helm.sh/hook"] == "pre-install,pre-upgrade,pre-rollback"
    assert not select_kind(render_manifests({"crds": {"upgrade": False}}), "ClusterRole")


def test_the_uninstall_hook_may_delete_the_apps_of_the_release_and_no_others() -> None:
    made = render_manifests(EVERYTHING)
    apps = select_kind(made, "Role")["demo-headgate-uninstall"]["rules"][0]
    assert (apps["resourceNames"], apps["verbs"]) == (["etl", "rules", "search", "sessions"], ["get", "delete"])
    assert select_kind(made, "Job")["demo-headgate-uninstall"]["spec"]["activeDeadlineSeconds"] > 600


@pytest.mark.parametrize("replicas", [1, 2])
def test_no_disruption_budget_blocks_the_drain_of_a_node_with_a_single_replica(replicas: int) -> None:
    budgets = select_kind(render_manifests({"operator": {"replicas": replicas}}), "PodDisruptionBudget")
    assert len(budgets) == replicas - 1
    assert all(one["spec"].get("maxUnavailable") == 1 for one in budgets.values())


def test_the_operator_requests_at_most_150_mebibytes_of_memory() -> None:
    operator = next(p for n, p in pod_specs(render_manifests()).items() if n.endswith("-operator"))
    assert operator["containers"][0]["resources"]["limits"]["memory"] == "150Mi"


def test_only_their_own_executors_reach_drivers() -> None:
    policies = select_kind(render_manifests(EVERYTHING), "NetworkPolicy")
    driver = policies["demo-headgate-etl-driver"]["spec"]
    assert driver["podSelector"] == {"matchLabels": {"headgate.dev/app": "etl"}}
    spark, metrics = driver["ingress"]
    (peer,) = spark["from"]
    assert peer["podSelector"]["matchLabels"]["app.kubernetes.io/instance"] == "etl"
    assert peer["podSelector"]["matchLabels"]["app.kubernetes.io/component"] == "executor"
    assert [port["port"] for port in spark["ports"]] == [7078, 7079]
    assert metrics == {"ports": [{"port": 9464}]}


@pytest.mark.parametrize(
    ("endpoint", "port"),
    [("http://collector.observe:4318", 4318), ("https://otel.example/in", 443), ("http://collector", 80), ("", None)],
)
def test_the_operator_may_connect_to_its_trace_collector_and_has_none_by_default(
    endpoint: str, port: int | None
) -> None:
    made = render_manifests(EVERYTHING | {"operator": {"otlpEndpoint": endpoint}})
    (pod,) = (pod for name, pod in pod_specs(made).items() if name.endswith("-operator"))
    endpoints = [one["value"] for one in pod["containers"][0]["env"] if one["name"].startswith("OTEL_")]
    assert endpoints == ([endpoint] if endpoint else [])
    policy = select_kind(made, "NetworkPolicy")["demo-headgate-operator"]["spec"]
    assert [one["port"] for rule in policy["egress"][1:] for one in rule["ports"]] == ([port] if port else [])


def test_files_of_an_app_are_mounted_where_its_probe_reads_them() -> None:
    app = {
        "files": {"streams/orders.yaml": "name: orders\n"},
        "config": {"streams": [{"schema_file": "/etc/headgate/files/streams/orders.yaml", "topic": "orders"}]},
    }
    made = render_manifests({"apps": {"rules": app}})
    pod = select_kind(made, "Pod")["demo-headgate-test-rules"]["spec"]
    args = pod["containers"][0]["args"]
    assert args[args.index("--streams") + 1] == "/etc/headgate/files/streams"
    assert args[args.index("--stream") + 1] == "orders"
    (item,) = next(v["configMap"]["items"] for v in pod["volumes"] if v["name"] == "files")
    assert select_kind(made, "ConfigMap")["demo-headgate-test-rules"]["data"][item["key"]] == "name: orders\n"
    assert item["path"] == "streams/orders.yaml"


def test_the_version_of_the_chart_equals_that_of_the_product() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    version = re.search(r'^version = "(.*)"', (CHART.parents[1] / "pyproject.toml").read_text(), re.M)
    assert version is not None
    assert chart["version"] == chart["appVersion"] == version[1]
