"""Performs the actions of the reconciler at the API server. Performing an action twice changes nothing."""

from __future__ import annotations

import hashlib
import json
import secrets
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any  # manifests are made of anything

from headgate_operator import pods as manifests
from headgate_operator.pods.labels import driver_selector
from headgate_operator.pods.settings import settings
from headgate_operator.reconcile import actions as act
from headgate_operator.reconcile.observed import Desired, PodView
from headgate_operator.resources import API_VERSION
from headgate_operator.resources.status import Status
from headgate_operator.runtime.api_client import CONFLICT, GONE, MANAGER, ApiError, Rest, gone_is_fine
from headgate_operator.runtime.api_paths import path
from headgate_operator.runtime.informer_cache import APPS, PODS, SAVEPOINTS, Cache
from headgate_operator.runtime.orphaned_savepoints import release_savepoint
from headgate_operator.runtime.otlp_traces import Traces
from headgate_operator.runtime.parse import FINALIZER, read_pod, write_savepoint_status, write_status
from headgate_operator.runtime.reconcile_once import CachedApp, StaleRead
from headgate_operator.traces import AppRef, ended_upgrade
from streamcore.control.commands import COMMAND_ANNOTATION, Configure, ValidCommand, format_command

Json = dict[str, Any]
_FORBIDDEN = 403
_PLURALS = {
    "ServiceAccount": "serviceaccounts",
    "ConfigMap": "configmaps",
    "Service": "services",
    "Role": "roles",
    "RoleBinding": "rolebindings",
}


class KubernetesActuator:
    """The ``reconcile_once.Api`` of a real API server. It puts the responses to its writes into the cache at once, so
    that the next reconciliation sees them.
    """

    def __init__(self, rest: Rest, cache: Cache, traces: Traces) -> None:
        self._rest, self._cache, self._traces = rest, cache, traces
        self._applied: dict[tuple[str, str, str], str] = {}
        self._perform: dict[type, Callable[[Desired, Any], None]] = {
            act.AddFinalizer: self._add_finalizer,
            act.RemoveFinalizer: self._remove_finalizer,
            act.CreatePod: self._create_pod,
            act.DeletePod: self._delete_pod,
            act.SendCommand: self._send_command,
            act.ReconfigureDriver: self._configure,
            act.PromoteStandby: self._send_command,
            act.CreateSavepoint: self._create_savepoint,
            act.UpdateSavepointStatus: self._update_savepoint_status,
            act.DeleteSavepoint: self._delete_savepoint,
            act.RemoveSavepointFinalizer: self._release_savepoint,
            act.CreateCollector: self._create_collector,
            act.DeleteCollector: self._delete_pod,
            act.EmitEvent: self._emit_event,
        }

    def write_status(self, seen: CachedApp, status: Status) -> None:
        """See ``Api``. If an upgrade ended with this status, its trace is sent."""
        app = seen.desired
        meta = {"name": app.name, "namespace": app.namespace, "uid": app.uid, "resourceVersion": seen.resource_version}
        raw = self._cache.raw(APPS, (app.namespace, app.name))
        if raw is None:
            raise StaleRead(app.name)
        body = raw | {"metadata": raw["metadata"] | meta, "status": write_status(status)}
        try:
            written = self._rest.put(path(APPS, app.namespace, app.name, "status"), body)
        except ApiError as error:
            raise _to_stale(error) from error
        self._cache.put(APPS, written)
        ended = ended_upgrade(seen.status, status)
        if ended is not None:
            self._traces.upgrade_ended(AppRef(app.namespace, app.name, app.uid), ended)

    def is_newest(self, seen: CachedApp) -> bool:
        """See ``Api``: one GET."""
        app = seen.desired
        try:
            raw = self._rest.get(path(APPS, app.namespace, app.name))
        except ApiError as error:
            raise _to_stale(error) from error
        self._cache.put(APPS, raw)
        return bool(raw["metadata"]["resourceVersion"] == seen.resource_version)

    def pods(self, seen: CachedApp) -> tuple[PodView, ...]:
        """See ``Api``: one LIST."""
        app = seen.desired
        selector = ",".join(f"{name}={value}" for name, value in driver_selector(app.name).items())
        listed = self._rest.get(path(PODS, app.namespace), labelSelector=selector)
        return tuple(sorted(map(read_pod, listed["items"]), key=lambda pod: pod.name))

    def perform(self, seen: CachedApp, action: act.Action) -> None:
        """See ``Api``. ``StaleRead`` if the objects have changed since the decision."""
        self._perform[type(action)](seen.desired, action)

    # -- the app itself ---------------------------------------------------------------------------------------------

    def _add_finalizer(self, app: Desired, _: act.AddFinalizer) -> None:
        self._change_finalizers(app, lambda present: [*present, FINALIZER])

    def _remove_finalizer(self, app: Desired, _: act.RemoveFinalizer) -> None:
        self._change_finalizers(app, lambda present: [name for name in present if name != FINALIZER])

    def _change_finalizers(self, app: Desired, change: Callable[[list[str]], list[str]]) -> None:
        raw = self._cache.raw(APPS, (app.namespace, app.name))
        if raw is None:
            return
        meta = raw["metadata"]
        body = {
            "metadata": {"resourceVersion": meta["resourceVersion"], "finalizers": change(meta.get("finalizers", []))}
        }
        try:
            self._cache.put(APPS, self._rest.merge(path(APPS, app.namespace, app.name), body))
        except ApiError as error:
            raise _to_stale(error) from error

    # -- pods -------------------------------------------------------------------------------------------------------

    def _create_pod(self, app: Desired, action: act.CreatePod) -> None:
        account = manifests.service_account(app)
        shared = [manifests.settings_map(app, action.release), manifests.headless_service(app)]
        access = manifests.access_manifests(app, self._unfinished_drivers(app, action.name))
        files = manifests.files_map(app, action.release)
        for manifest in (*filter(None, (account, files)), *shared, *access):
            self._apply(manifest)
        if action.release.spec.executors:
            self._create_secret(app)
        pod = manifests.driver_pod(app, action.release, action.name, action.savepoint)
        self._create(PODS, app.namespace, pod)

    def _create_secret(self, app: Desired) -> None:
        """Create the app's Secret if it does not exist.

        The response, which contains the Secret, is neither kept nor logged.
        """
        try:
            self._rest.post(path("secrets", app.namespace), manifests.spark_secret(app, secrets.token_urlsafe(48)))
        except ApiError as error:
            if error.status != CONFLICT and not _is_terminating(error):
                raise

    def _unfinished_drivers(self, app: Desired, name: str) -> tuple[str, ...]:
        """Return the names of the driver pods that may run, and ``name``."""
        seen = self._cache.find_app((app.namespace, app.name))
        unfinished = {pod.name for pod in seen.observed.pods if not pod.finished} if seen else set()
        return tuple(sorted(unfinished | {name}))

    def _delete_pod(self, app: Desired, action: act.DeletePod | act.DeleteCollector) -> None:
        try:
            self._rest.delete(path(PODS, app.namespace, action.name), action.uid)
        except ApiError as error:
            if error.status not in (GONE, CONFLICT):
                raise

    def _send_command(self, app: Desired, action: act.SendCommand | act.PromoteStandby) -> None:
        self._annotate_command(app, action.pod, action.uid, action.command)

    def _configure(self, app: Desired, action: act.ReconfigureDriver) -> None:
        document = settings(app.name, action.release.spec)
        self._annotate_command(app, action.pod, action.uid, Configure(action.command_id, document))

    def _annotate_command(self, app: Desired, pod: str, uid: str, command: ValidCommand) -> None:
        body = {"metadata": {"uid": uid, "annotations": {COMMAND_ANNOTATION: format_command(command)}}}
        try:
            self._cache.put(PODS, self._rest.merge(path(PODS, app.namespace, pod), body))
        except ApiError as error:
            raise _to_stale(error) from error

    def _create_collector(self, app: Desired, action: act.CreateCollector) -> None:
        self._create(PODS, app.namespace, manifests.collector_pod(app, action))

    # -- savepoints -------------------------------------------------------------------------------------------------

    def _create_savepoint(self, app: Desired, action: act.CreateSavepoint) -> None:
        meta = {"name": action.name, "namespace": app.namespace, "labels": driver_selector(app.name)}
        manifest = {
            "apiVersion": API_VERSION,
            "kind": "Savepoint",
            "metadata": meta | {"finalizers": [FINALIZER]},
            "spec": {"app": app.name, "reason": action.reason.value},
        }
        self._create(SAVEPOINTS, app.namespace, manifest)

    def _update_savepoint_status(self, app: Desired, action: act.UpdateSavepointStatus) -> None:
        """Write the status of a savepoint. A savepoint that a person created has no finalizer: add it first, so that
        the resource is not gone before its data is removed.
        """
        raw = self._cache.raw(SAVEPOINTS, (app.namespace, action.name))
        version = action.resource_version
        try:
            if raw is not None and FINALIZER not in raw["metadata"].get("finalizers", ()):
                body = {"metadata": {"resourceVersion": version, "finalizers": [FINALIZER]}}
                raw = self._rest.merge(path(SAVEPOINTS, app.namespace, action.name), body)
                version = raw["metadata"]["resourceVersion"]
            body = {"metadata": {"resourceVersion": version}, "status": write_savepoint_status(action.status)}
            written = self._rest.merge(path(SAVEPOINTS, app.namespace, action.name, "status"), body)
            self._cache.put(SAVEPOINTS, written)
        except ApiError as error:
            raise _to_stale(error) from error

    def _delete_savepoint(self, app: Desired, action: act.DeleteSavepoint) -> None:
        with gone_is_fine():
            self._rest.delete(path(SAVEPOINTS, app.namespace, action.name), "")

    def _release_savepoint(self, app: Desired, action: act.RemoveSavepointFinalizer) -> None:
        release_savepoint(self._rest, app.namespace, action.name)

    # -- objects ----------------------------------------------------------------------------------------------------

    def _create(self, plural: str, namespace: str, manifest: Json) -> None:
        """Create an object, unless it exists or its namespace is being deleted."""
        try:
            self._cache.put(plural, self._rest.post(path(plural, namespace), manifest))
        except ApiError as error:
            if error.status != CONFLICT and not _is_terminating(error):
                raise

    def _apply(self, manifest: Json) -> None:
        """Create or change an object by server-side apply, unless this process has already applied the same
        manifest."""
        meta = manifest["metadata"]
        key = (manifest["kind"], meta["namespace"], meta["name"])
        digest = hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()
        if self._applied.get(key) == digest:
            return
        try:
            self._rest.apply(path(_PLURALS[manifest["kind"]], meta["namespace"], meta["name"]), manifest)
        except ApiError as error:
            if not _is_terminating(error):
                raise
        self._applied[key] = digest

    def _emit_event(self, app: Desired, action: act.EmitEvent) -> None:
        """Emit an event. A failure is ignored: it is not worth another reconciliation."""
        now = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        reference = {
            "apiVersion": API_VERSION,
            "kind": "StreamApp",
            "name": app.name,
            "namespace": app.namespace,
            "uid": app.uid,
        }
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": f"{app.name}.{time.time_ns():x}", "namespace": app.namespace},
            "involvedObject": reference,
            "reason": action.reason,
            "message": action.message,
            "type": "Warning" if action.warning else "Normal",
            "source": {"component": MANAGER},
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
        try:
            self._rest.post(path("events", app.namespace), event)
        except ApiError:
            return


def _is_terminating(error: ApiError) -> bool:
    """Return true if the namespace is being deleted, and so accepts no new objects."""
    return error.status == _FORBIDDEN and "being terminated" in str(error)


def _to_stale(error: ApiError) -> Exception:
    """Return ``StaleRead`` for an object that is gone or has changed, and any other error as it is."""
    return StaleRead(str(error)) if error.status in (GONE, CONFLICT) else error
