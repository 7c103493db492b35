"""Leader election by a Lease, so that one operator works at a time.

Two leaders at once would do no harm, because every status is written onto the version that was read. Clocks of two
machines are never compared: a holder counts as dead when its lease has not changed for ``stale_s`` seconds of this
machine's clock.
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
    """Acquires and renews the Lease for one process.

    ``on_lost`` is called once, if the lease could not be renewed; the process must then stop. ``on_wait`` is called
    after each attempt that finds another leader.
    """

    def __init__(
        self, rest: Rest, namespace: str, identity: str, on_lost: Callable[[], None],
        *, on_wait: Callable[[], None] = lambda: None, stale_s: float = 15.0,
    ) -> None:  # fmt: skip
        self._rest, self._namespace, self._identity = rest, namespace, identity
        self._on_lost, self._on_wait = on_lost, on_wait
        self._stale_s, self._interval_s = stale_s, stale_s / 5
        #: The newest version of the lease, and the monotonic time in seconds at which it was first seen.
        self._seen: tuple[str, float] = ("", 0.0)
        self._stop = threading.Event()

    def wait(self) -> bool:
        """Wait until this process leads; return false if ``stop`` was called before."""
        while not self._stop.is_set():
            if self._try_acquire():
                threading.Thread(target=self._keep_renewing, name="leader", daemon=True).start()
                return True
            self._stop.wait(self._interval_s)
        return False

    def stop(self) -> None:
        """Stop waiting for the lease."""
        self._stop.set()

    def release(self) -> None:
        """Release the lease, so that the next leader does not wait for it to become stale."""
        self._stop.set()
        try:
            lease = self._get()
            if lease is not None and lease["spec"].get("holderIdentity") == self._identity:
                lease["spec"]["holderIdentity"] = ""
                self._rest.put(path("leases", self._namespace, LEASE), lease)
        except ApiError as error:
            _LOG.warning("the lease was not released: %s", error)

    def _keep_renewing(self) -> None:
        renewed_s = time.monotonic()
        while not self._stop.wait(self._interval_s):
            if self._try_acquire():
                renewed_s = time.monotonic()
            elif time.monotonic() - renewed_s > self._stale_s * 2 / 3:
                _LOG.error("leadership is lost")
                self._on_lost()
                return

    def _try_acquire(self) -> bool:
        """Acquire or renew the lease; return false if another process holds it or the API server fails."""
        try:
            lease = self._get()
            if lease is None:
                self._rest.post(path("leases", self._namespace), self._lease())
                return True
            if not self._may_acquire(lease):
                self._on_wait()
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

    def _may_acquire(self, lease: Json) -> bool:
        """Return true if this process holds the lease, no process does, or its holder has not renewed it for
        ``stale_s``."""
        holder, version = lease["spec"].get("holderIdentity"), lease["metadata"]["resourceVersion"]
        if not holder or holder == self._identity:
            return True
        if version != self._seen[0]:
            self._seen = (version, time.monotonic())
        return time.monotonic() - self._seen[1] > self._stale_s

    def _spec(self) -> Json:
        now = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
        return {"holderIdentity": self._identity, "leaseDurationSeconds": int(self._stale_s), "renewTime": now}

    def _lease(self) -> Json:
        metadata = {"name": LEASE, "namespace": self._namespace}
        return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": self._spec()}
