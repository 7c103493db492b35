"""The control channel of a service that runs in a pod: two annotations of that pod.

``headgate.dev/command`` is watched, ``headgate.dev/status`` is patched. No port is open for it; RBAC on the pod decides
who may send commands. Promises: a command that the API server holds is seen eventually, whatever happens to the server,
the connection or the token in between: a watch ends by itself every minute and the next one lists the present state;
the token is read again when it changes. Only the threads that talk to the API server wait for it. The only module that
imports a client of Kubernetes; that takes a second, so a thread does it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from streamcore.control.commands import COMMAND_ANNOTATION
from streamcore.control.status import STATUS_ANNOTATION
from streamcore.errors import ConfigError, Retryable
from streamcore.outages import LastingWarning

if TYPE_CHECKING:
    from kubernetes.client import CoreV1Api

_LOG = logging.getLogger(__name__)
_WATCH_S = 60
#: Timeouts to connect and to read; a watch may be silent for its whole duration.
_CALL_S = (5, 10)
_QUIET_S = 10
_PAUSE_S, _PAUSE_MAX_S = 1.0, 15.0
#: Packages whose errors the client raises, beside those of sockets.
_CLIENT_PACKAGES = "kubernetes.", "urllib3."


def in_cluster() -> CoreV1Api:
    """Return a client that authenticates as the pod's service account."""
    from kubernetes import client, config

    settings = client.Configuration()
    config.load_incluster_config(client_configuration=settings)  # type: ignore[no-untyped-call]
    return client.CoreV1Api(client.ApiClient(settings))


class PodAnnotationChannel:
    """The channel of pod ``name``. ``connect`` makes the client; called again after a failure, as the address may have
    changed."""

    def __init__(
        self, namespace: str, name: str, connect: Callable[[], CoreV1Api] = in_cluster, watch_s: int = _WATCH_S
    ) -> None:
        self._watch_s = watch_s
        self._namespace, self._name = namespace, name
        self._connect = connect
        self._lock = threading.Lock()
        self._client: CoreV1Api | None = None
        self._command: str | None = None
        self._may_be_new = threading.Event()
        self._closed = threading.Event()
        threading.Thread(target=self._watch_until_closed, name="pod-watch", daemon=True).start()

    @property
    def exclusive(self) -> bool:
        """Return True: a pod has one process."""
        return True

    def latest_command(self) -> str | None:
        """Return the command that ``ControlChannel.latest_command`` specifies."""
        return self._command

    def wait(self, timeout_s: float) -> None:
        """Wait as ``ControlChannel`` promises."""
        self._may_be_new.wait(timeout_s)
        self._may_be_new.clear()

    def last_status(self) -> str | None:
        """Return the status that ``ControlChannel.last_status`` specifies."""
        with _TranslateErrors(f"pod {self._name}"):
            pod = self._api().read_namespaced_pod(self._name, self._namespace, _request_timeout=_CALL_S)
            annotations = None if pod.metadata is None else pod.metadata.annotations
            return (annotations or {}).get(STATUS_ANNOTATION)

    def publish(self, status: str) -> None:
        """Replace the status, as ``ControlChannel`` promises."""
        patch = {"metadata": {"annotations": {STATUS_ANNOTATION: status}}}
        with _TranslateErrors(f"annotation {STATUS_ANNOTATION} of pod {self._name}"):
            self._api().patch_namespaced_pod(self._name, self._namespace, patch, _request_timeout=_CALL_S)

    def close(self) -> None:
        """Stop watching. An open watch ends with the process."""
        self._closed.set()
        self._may_be_new.set()

    def _api(self) -> CoreV1Api:
        with self._lock:
            if self._client is None:
                self._client = self._connect()
            return self._client

    def _watch_until_closed(self) -> None:
        pause_s = _PAUSE_S
        warning = LastingWarning(_LOG)
        while not self._closed.is_set():
            began_s = time.monotonic()
            try:
                with _TranslateErrors(f"pod {self._name}"):
                    self._watch()
            except (Retryable, ConfigError) as error:
                again = f"still cannot watch for commands, for {warning.seconds:.0f} s now: {error}"
                warning.warn(f"cannot watch for commands, trying again: {error}", again)
                if time.monotonic() - began_s > _PAUSE_MAX_S:
                    pause_s = _PAUSE_S
                self._closed.wait(pause_s)
                pause_s = min(2 * pause_s, _PAUSE_MAX_S)
            else:
                pause_s = _PAUSE_S
                warning.end(f"commands are watched again, after {warning.seconds:.0f} s")

    def _watch(self) -> None:
        """List and watch once. Ends by itself, which also detects a connection that was lost silently."""
        from kubernetes import watch

        events = watch.Watch().stream(  # type: ignore[no-untyped-call]
            self._api().list_namespaced_pod,
            self._namespace,
            field_selector=f"metadata.name={self._name}",
            timeout_seconds=self._watch_s,
            _request_timeout=(_CALL_S[0], self._watch_s + _QUIET_S),
            deserialize=False,
        )
        for event in events:
            self._accept(event["object"])
            if self._closed.is_set():
                return

    def _accept(self, pod: Mapping[str, Mapping[str, Mapping[str, str] | None]]) -> None:
        command = (pod["metadata"].get("annotations") or {}).get(COMMAND_ANNOTATION)
        if command is not None and command != self._command:
            self._command = command
            self._may_be_new.set()


class _TranslateErrors:
    """Translate the client's errors into ours. Forbidden is ``ConfigError``: rights do not return by waiting, though
    the call is repeated all the same."""

    def __init__(self, resource: str) -> None:
        self._resource = resource

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: object) -> None:
        if error is None or not isinstance(error, Exception):
            return
        status = getattr(error, "status", None)
        if status in (401, 403):
            raise ConfigError(f"{self._resource}: forbidden to this service account: see docs/kubernetes.md") from error
        if isinstance(error, OSError) or type(error).__module__.startswith(_CLIENT_PACKAGES):
            raise Retryable(f"{self._resource}: {status or type(error).__name__}: {_first_line(error)}") from error


def _first_line(error: Exception) -> str:
    reason = getattr(error, "reason", None) or error
    return str(reason).partition("\n")[0][:200]
