"""Hooks of the chart: ``python -m headgate_operator.runtime.helm_hooks crds | remove APP...``.

``crds`` puts the CRDs of this image in place of those that are there: Helm makes a chart's CRDs and never changes them.

``remove`` goes before an uninstall takes the operator away, which alone can let go of an app:
 1. every app is deleted. A crash after: called again, it is deleted already.
 2. it waits until they are gone: drained, with a last savepoint where their ``deletionPolicy`` asks for one.
 3. it lets go of savepoints of those apps, as no other process will: else their namespace's deletion would never end.
    They stay, and so does their data.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Sequence

from headgate_operator.crds import crds
from headgate_operator.runtime.api_client import CONFLICT, GONE, ApiError, Json, Rest, gone_is_fine
from headgate_operator.runtime.api_paths import path
from headgate_operator.runtime.metrics import Counters
from headgate_operator.runtime.orphaned_savepoints import release_savepoint

_CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_PAUSE_S = 1.0


def replace_crds(rest: Rest) -> None:
    """Each as a whole; labels and annotations of others stay."""
    for crd in crds().values():
        while not _replace_crd(rest, crd):
            time.sleep(_PAUSE_S)
        _say(f"{crd['metadata']['name']}: as this version has it")


def _replace_crd(rest: Rest, crd: Json) -> bool:
    """Put the image's CRD in place; return false when another writer changed it meanwhile."""
    where = f"{_CRDS}/{crd['metadata']['name']}"
    try:
        there = rest.get(where)["metadata"]
    except ApiError as error:
        if error.status != GONE:
            raise
        rest.post(_CRDS, crd)
        return True
    kept = {name: there[name] for name in ("name", "resourceVersion", "labels") if name in there}
    annotations = there.get("annotations", {}) | crd["metadata"]["annotations"]
    try:
        rest.put(where, crd | {"metadata": kept | {"annotations": annotations}})
    except ApiError as error:
        if error.status != CONFLICT:
            raise
        return False
    return True


def remove_apps(rest: Rest, namespace: str, apps: Sequence[str], within_s: float) -> tuple[str, ...]:
    """Those that are still there when the time is over."""
    for app in apps:  # 1.
        with gone_is_fine():
            rest.delete(path("streamapps", namespace, app), "")
    left = _until_gone(lambda: [app for app in apps if _is_there(rest, namespace, app)], within_s)  # 2.
    if not left:
        _release_savepoints(rest, namespace, apps)  # 3.
    return left


def _until_gone(there: Callable[[], list[str]], within_s: float) -> tuple[str, ...]:
    deadline = time.monotonic() + within_s
    while left := there():
        if time.monotonic() > deadline:
            return tuple(left)
        time.sleep(_PAUSE_S)
    return ()


def _is_there(rest: Rest, namespace: str, app: str) -> bool:
    try:
        rest.get(path("streamapps", namespace, app))
    except ApiError as error:
        if error.status != GONE:
            raise
        return False
    return True


def _release_savepoints(rest: Rest, namespace: str, apps: Sequence[str]) -> None:
    with gone_is_fine():  # without the CRD there are none
        for raw in rest.get(path("savepoints", namespace))["items"]:
            if raw["spec"]["app"] in apps and raw["metadata"].get("finalizers"):
                release_savepoint(rest, namespace, raw["metadata"]["name"])


def main(arguments: Sequence[str] | None = None, rest: Rest | None = None) -> int:
    """Exit code 1: an app is still there. ``rest``: of the pod's own service account, if none is given."""
    parser = argparse.ArgumentParser(prog="headgate-operator-chores", description="What the chart's hooks do.")
    chores = parser.add_subparsers(dest="chore", required=True)
    chores.add_parser("crds", help="put this version's CRDs in place")
    removing = chores.add_parser("remove", help="delete apps and wait until they are gone")
    removing.add_argument("apps", nargs="*")
    removing.add_argument("--namespace", required=True)
    removing.add_argument("--within", type=float, default=600.0, help="seconds")
    said = parser.parse_args(arguments)
    rest = rest or Rest(os.environ.get("KUBECONFIG"), Counters())
    if said.chore == "crds":
        replace_crds(rest)
        return 0
    left = remove_apps(rest, said.namespace, said.apps, said.within)
    for app in left:
        _say(
            f"streamapp {app} is still there: does the operator run? kubectl describe streamapp {app} says what it "
            f"waits for. To leave it without its operator: kubectl patch streamapp {app} --type merge "
            """-p '{"metadata":{"finalizers":null}}', then uninstall again."""
        )
    return 1 if left else 0


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
