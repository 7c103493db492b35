"""The hooks of the chart on a real API server: they replace the CRDs, and delete the apps at an uninstall."""

from __future__ import annotations

from collections.abc import Callable

from headgate_operator.crds import crds
from headgate_operator.runtime.api_client import Json, Rest
from headgate_operator.runtime.api_paths import path
from headgate_operator.runtime.helm_hooks import remove_apps, replace_crds
from headgate_operator.runtime.manager import Manager, Settings
from headgate_operator.runtime.metrics import Counters
from tests.harness.operator.api_server import app_manifest, until
from tests.harness.operator.kubelet import Kubelet

_CRD = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/savepoints.headgate.dev"


def _columns(crd: Json) -> list[str]:
    return [column["name"] for column in crd["spec"]["versions"][0]["additionalPrinterColumns"]]


def test_an_older_crd_is_replaced_as_a_whole_and_keeps_foreign_labels(rest: Rest) -> None:
    old = rest.get(_CRD)
    old["metadata"]["labels"] = {"kept": "yes"}
    old["spec"]["versions"][0]["additionalPrinterColumns"].append({"name": "Gone", "type": "string", "jsonPath": ".x"})
    rest.put(_CRD, old)
    replace_crds(rest)
    assert _columns(rest.get(_CRD)) == _columns(crds()["savepoints.yaml"])
    assert rest.get(_CRD)["metadata"]["labels"] == {"kept": "yes"}


def test_the_uninstall_hook_deletes_apps_before_the_operator_and_savepoints_can_be_deleted_later(
    rest: Rest, kubeconfig: str, namespace: str, kubelet: Kubelet
) -> None:
    operator = Manager(Rest(kubeconfig, Counters()), Counters(), Settings(namespace, resync_s=2.0))
    operator.start()
    rest.post(path("streamapps", namespace), app_manifest(namespace))
    until(_is_stable(rest, namespace), 120.0)
    assert remove_apps(rest, namespace, ["rules", "never-there"], 90.0) == ()
    operator.stop()
    (last,) = rest.get(path("savepoints", namespace))["items"]
    assert (last["spec"]["reason"], last["status"]["phase"]) == ("deletion", "Complete")
    rest.delete(path("savepoints", namespace, last["metadata"]["name"]), "")
    assert rest.get(path("savepoints", namespace))["items"] == []
    assert kubelet.store.savepoints, "the data stays"


def test_without_an_operator_the_uninstall_hook_names_the_remaining_apps_and_ends(rest: Rest, namespace: str) -> None:
    manifest = app_manifest(namespace)
    manifest["metadata"]["finalizers"] = ["headgate.dev/operator"]
    rest.post(path("streamapps", namespace), manifest)
    assert remove_apps(rest, namespace, ["rules"], 2.0) == ("rules",)


def _is_stable(rest: Rest, namespace: str) -> Callable[[], bool]:
    def stable() -> bool:
        status = rest.get(path("streamapps", namespace, "rules")).get("status", {})
        return bool(status.get("phase") == "Stable")

    return stable
