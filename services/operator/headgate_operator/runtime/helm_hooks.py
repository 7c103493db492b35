"""Hooks of the chart: ``python -m headgate_operator.runtime.helm_hooks crds | remove APP...``.

``crds`` replaces the CRDs in the cluster by those of this image: Helm installs a chart's CRDs and never changes them.

``remove`` runs before an uninstall deletes the operator, which alone can remove the finalizers of an app:

1. It deletes every app. After a crash, the next call finds it deleted.
2. It waits until the apps are gone: drained, with a last savepoint if their ``deletionPolicy`` demands one.
3. It removes the finalizers of the apps' savepoints, as no other process will; otherwise the deletion of their
   namespace would never end. The savepoint resources stay, and so does their data.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Sequence

from headgate_operator.crds import crds
from headgate_operator.runtime.api_client import CONFLICT, GONE, KUBECONFIG, ApiError, Json, Rest, gone_is_fine
from headgate_operator.runtime.api_paths import path
from headgate_operator.runtime.metrics import Counters
from headgate_operator.runtime.orphaned_savepoints import release_savepoint

_CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_PAUSE_S = 1.0


def replace_crds(rest: Rest) -> None:
    """Replace each CRD by that of this image; keep labels and annotations of other writers."""
    for crd in crds().values():
        while not _replace_crd(rest, crd):
            time.sleep(_PAUSE_S)
        _print(f"{crd['metadata']['name']}: replaced by that of this version")


def _replace_crd(rest: Rest, crd: Json) -> bool:
    """Create or replace a CRD; return false if another writer changed it meanwhile."""
    crd_path = f"{_CRDS}/{crd['metadata']['name']}"
    try:
        present = rest.get(crd_path)["metadata"]
    except ApiError as error:
        if error.status != GONE:
            raise
        rest.post(_CRDS, crd)
        return True
    kept = {name: present[name] for name in ("name", "resourceVersion", "labels") if name in present}
    annotations = present.get("annotations", {}) | crd["metadata"]["annotations"]
    try:
        rest.put(crd_path, crd | {"metadata": kept | {"annotations": annotations}})
    except ApiError as error:
        if error.status != CONFLICT:
            raise
        return False
    return True


def remove_apps(rest: Rest, namespace: str, apps: Sequence[str], within_s: float) -> tuple[str, ...]:
    """Delete the apps, and return those that still exist after ``within_s`` seconds."""
    for app in apps:  # 1.
        with gone_is_fine():
            rest.delete(path("streamapps", namespace, app), "")
    left = _until_gone(lambda: [app for app in apps if _exists(rest, namespace, app)], within_s)  # 2.
    if not left:
        _release_savepoints(rest, namespace, apps)  # 3.
    return left


def _until_gone(remaining: Callable[[], list[str]], within_s: float) -> tuple[str, ...]:
    """Poll until nothing remains or ``within_s`` seconds have passed; return what remains."""
    deadline = time.monotonic() + within_s
    while left := remaining():
        if time.monotonic() > deadline:
            return tuple(left)
        time.sleep(_PAUSE_S)
    return ()


def _exists(rest: Rest, namespace: str, app: str) -> bool:
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
    """Run a hook and return its exit code: 1 if an app still exists.

    ``rest``: by default with the pod's service account.
    """
    parser = argparse.ArgumentParser(prog="headgate-operator-hooks", description="Run a hook of the chart.")
    hooks = parser.add_subparsers(dest="hook", required=True)
    hooks.add_parser("crds", help="replace the CRDs by those of this version")
    remove = hooks.add_parser("remove", help="delete apps and wait until they are gone")
    remove.add_argument("apps", nargs="*")
    remove.add_argument("--namespace", required=True)
    remove.add_argument("--within", type=float, default=600.0, help="seconds")
    parsed = parser.parse_args(arguments)
    rest = rest or Rest(os.environ.get(KUBECONFIG), Counters())
    if parsed.hook == "crds":
        replace_crds(rest)
        return 0
    left = remove_apps(rest, parsed.namespace, parsed.apps, parsed.within)
    for app in left:
        _print(
            f"streamapp {app} still exists: does the operator run? kubectl describe streamapp {app} shows what it "
            f"waits for. To remove it without the operator: kubectl patch streamapp {app} --type merge "
            """-p '{"metadata":{"finalizers":null}}', then uninstall again."""
        )
    return 1 if left else 0


def _print(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
