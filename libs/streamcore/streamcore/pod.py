"""The mailbox of a service that runs in a pod: two annotations of that pod.

``headgate.dev/request`` is watched, ``headgate.dev/report`` is patched. No port is open for it; rights on the pod say
who may ask. Promises: what the API server holds is seen sooner or later, whatever happens to it, to the connection or
to the token in between: a watch ends by itself every minute and begins anew with what is there; the token is read again
as it changes. Nobody waits for the API server but the threads that talk to it. The only module that knows a client of
Kubernetes; it takes a second to load, so a thread does that.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from streamcore.errors import ConfigError, Retryable

if TYPE_CHECKING:
    from kubernetes.client import CoreV1Api

REQUEST = "headgate.dev/request"
REPORT = "headgate.dev/report"

_LOG = logging.getLogger(__name__)
_WATCH_S = 60
#: To connect, and to hear something; a watch may be quiet for as long as it lasts.
_CALL_S = (5, 10)
_QUIET_S = 10
_PAUSE_S, _PAUSE_MAX_S = 1.0, 15.0
#: What the client raises: its own errors, those of the library under it, and of sockets.
_OUTSIDE = "kubernetes.", "urllib3."


def in_cluster() -> CoreV1Api:
    """As the pod's own service account."""
    from kubernetes import client, config

    settings = client.Configuration()
    config.load_incluster_config(client_configuration=settings)  # type: ignore[no-untyped-call]
    return client.CoreV1Api(client.ApiClient(settings))


class PodMailbox:
    """Of pod ``name``. ``connect`` makes the client; called again after a failure, as an address may have changed."""

    def __init__(
        self, namespace: str, name: str, connect: Callable[[], CoreV1Api] = in_cluster, watch_s: int = _WATCH_S
    ) -> None:
        self._watch_s = watch_s
        self._namespace, self._name = namespace, name
        self._connect = connect
        self._lock = threading.Lock()
        self._client: CoreV1Api | None = None
        self._request: str | None = None
        self._may_be_new = threading.Event()
        self._closed = threading.Event()
        threading.Thread(target=self._watch_until_closed, name="pod-watch", daemon=True).start()

    @property
    def is_own(self) -> bool:
        """See ``Mailbox``."""
        return True

    def newest(self) -> str | None:
        """See ``Mailbox``."""
        return self._request

    def wait(self, timeout_s: float) -> None:
        """See ``Mailbox``."""
        self._may_be_new.wait(timeout_s)
        self._may_be_new.clear()

    def last_report(self) -> str | None:
        """See ``Mailbox``."""
        with _Naming(f"pod {self._name}"):
            pod = self._api().read_namespaced_pod(self._name, self._namespace, _request_timeout=_CALL_S)
            annotations = None if pod.metadata is None else pod.metadata.annotations
            return (annotations or {}).get(REPORT)

    def publish(self, report: str) -> None:
        """See ``Mailbox``."""
        patch = {"metadata": {"annotations": {REPORT: report}}}
        with _Naming(f"annotation {REPORT} of pod {self._name}"):
            self._api().patch_namespaced_pod(self._name, self._namespace, patch, _request_timeout=_CALL_S)

    def close(self) -> None:
        """See ``Mailbox``. A watch that is open ends with the process."""
        self._closed.set()
        self._may_be_new.set()

    def _api(self) -> CoreV1Api:
        with self._lock:
            if self._client is None:
                self._client = self._connect()
            return self._client

    def _watch_until_closed(self) -> None:
        pause_s = _PAUSE_S
        while not self._closed.is_set():
            began_s = time.monotonic()
            try:
                with _Naming(f"pod {self._name}"):
                    self._watch()
            except (Retryable, ConfigError) as error:
                _LOG.warning("requests are not heard: %s", error)
                if time.monotonic() - began_s > _PAUSE_MAX_S:
                    pause_s = _PAUSE_S
                self._closed.wait(pause_s)
                pause_s = min(2 * pause_s, _PAUSE_MAX_S)
            else:
                pause_s = _PAUSE_S

    def _watch(self) -> None:
        """Once: what is there, and what changes. Ends by itself; a watch that was lost in silence is known by that."""
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
            self._take(event["object"])
            if self._closed.is_set():
                return

    def _take(self, pod: Mapping[str, Mapping[str, Mapping[str, str] | None]]) -> None:
        request = (pod["metadata"].get("annotations") or {}).get(REQUEST)
        if request is not None and request != self._request:
            self._request = request
            self._may_be_new.set()


class _Naming:
    """Turns what the client raises into an error of ours. What is forbidden is ``ConfigError``: rights do not come back
    by waiting, but they are asked for again all the same."""

    def __init__(self, what: str) -> None:
        self._what = what

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: object) -> None:
        if error is None or not isinstance(error, Exception):
            return
        status = getattr(error, "status", None)
        if status in (401, 403):
            raise ConfigError(f"{self._what}: forbidden to this service account: see docs/kubernetes.md") from error
        if isinstance(error, OSError) or type(error).__module__.startswith(_OUTSIDE):
            raise Retryable(f"{self._what}: {status or type(error).__name__}: {_first_line(error)}") from error


def _first_line(error: Exception) -> str:
    reason = getattr(error, "reason", None) or error
    return str(reason).partition("\n")[0][:200]
