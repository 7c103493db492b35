"""Leader election by a Lease, so that one operator works at a time. Two at once do no harm, because every status is
written onto the version that was read.

Clocks of two machines are never compared: a holder is dead when its lease has not changed for ``stale_s`` seconds of
this machine's clock.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime

from headgate_operator.runtime.api_client import GONE, ApiError, Json, Rest
from headgate_operator.runtime.api_paths import path

_LOG = logging.getLogger(__name__)
LEASE = "headgate-operator"


class LeaderElector:
    """Leader election. ``lost`` is called once, when this process must stop; ``waits`` each time that another process
    leads.
    """

    def __init__(
        self, rest: Rest, namespace: str, me: str, lost: Callable[[], None],
        *, waits: Callable[[], None] = lambda: None, stale_s: float = 15.0,
    ) -> None:  # fmt: skip
        self._rest, self._namespace, self._me, self._lost, self._waits = rest, namespace, me, lost, waits
        self._stale_s, self._beat_s = stale_s, stale_s / 5
        self._seen: tuple[str, float] = ("", 0.0)
        self._stop = threading.Event()

    def wait(self) -> bool:
        """Wait until this process leads; return false when it was stopped before."""
        while not self._stop.is_set():
            if self._try():
                threading.Thread(target=self._keep, name="leader", daemon=True).start()
                return True
            self._stop.wait(self._beat_s)
        return False

    def stop(self) -> None:
        """Stop waiting for the lease."""
        self._stop.set()

    def release(self) -> None:
        """Release the lease, so that the next leader need not wait."""
        self._stop.set()
        try:
            lease = self._get()
            if lease is not None and lease["spec"].get("holderIdentity") == self._me:
                lease["spec"]["holderIdentity"] = ""
                self._rest.put(path("leases", self._namespace, LEASE), lease)
        except ApiError as error:
            _LOG.warning("the lease was not released: %s", error)

    def _keep(self) -> None:
        last = time.monotonic()
        while not self._stop.wait(self._beat_s):
            if self._try():
                last = time.monotonic()
            elif time.monotonic() - last > self._stale_s * 2 / 3:
                _LOG.error("leadership is lost")
                self._lost()
                return

    def _try(self) -> bool:
        try:
            lease = self._get()
            if lease is None:
                self._rest.post(path("leases", self._namespace), self._lease())
                return True
            if not self._may_take(lease):
                self._waits()
                return False
            lease["spec"] |= self._spec()
            self._rest.put(path("leases", self._namespace, LEASE), lease)
        except ApiError as error:
            _LOG.info("lease: %s", error)
            return False
        return True

    def _get(self) -> Json | None:
        try:
            return self._rest.get(path("leases", self._namespace, LEASE))
        except ApiError as error:
            if error.status == GONE:
                return None
            raise

    def _may_take(self, lease: Json) -> bool:
        holder, version = lease["spec"].get("holderIdentity"), lease["metadata"]["resourceVersion"]
        if not holder or holder == self._me:
            return True
        if version != self._seen[0]:
            self._seen = (version, time.monotonic())
        return time.monotonic() - self._seen[1] > self._stale_s

    def _spec(self) -> Json:
        now = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
        return {"holderIdentity": self._me, "leaseDurationSeconds": int(self._stale_s), "renewTime": now}

    def _lease(self) -> Json:
        metadata = {"name": LEASE, "namespace": self._namespace}
        return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": self._spec()}
