"""The operator as a process: watches feed a queue of apps, workers reconcile them, one process leads."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from headgate_operator.reconcile import wake_ms
from headgate_operator.resources import Status
from headgate_operator.runtime import liveness
from headgate_operator.runtime.actuator import KubernetesActuator
from headgate_operator.runtime.api_client import ApiError, Rest
from headgate_operator.runtime.informer import Informer
from headgate_operator.runtime.informer_cache import APPS, PODS, SAVEPOINTS, Cache, Key
from headgate_operator.runtime.metrics import Counters
from headgate_operator.runtime.orphaned_savepoints import release_orphans
from headgate_operator.runtime.otlp_traces import NO_TRACES, Traces
from headgate_operator.runtime.parse import Unusable
from headgate_operator.runtime.reconcile_once import NotExclusive, StaleRead, reconcile_once
from headgate_operator.runtime.work_queue import WorkQueue

_LOG = logging.getLogger(__name__)
#: Selects driver pods and collectors, and not the executors, which Spark manages.
_MANAGED = "app.kubernetes.io/managed-by=headgate-operator"


@dataclass(frozen=True)
class Settings:
    """Settings of the operator process.

    ``namespace``: the namespace to watch; empty for all. ``workers``: threads that reconcile apps. ``resync_s``:
    longest time between two reconciliations of an app, in seconds.
    """

    namespace: str = ""
    workers: int = 2
    resync_s: float = 30.0


def clock_ms() -> int:
    """Return the current time in milliseconds since 1970."""
    return time.time_ns() // 1_000_000


class Manager:
    """The watches, the queue and the workers of the operator."""

    def __init__(
        self,
        rest: Rest,
        counters: Counters,
        settings: Settings,
        clock: Callable[[], int] = clock_ms,
        traces: Traces = NO_TRACES,
    ) -> None:
        self._rest, self._counters, self._settings, self._clock = rest, counters, settings, clock
        self._cache = Cache()
        self._api = KubernetesActuator(rest, self._cache, traces)
        self._queue: WorkQueue[Key] = WorkQueue()
        kinds = ((APPS, ""), (SAVEPOINTS, ""), (PODS, _MANAGED))
        self._watches = [
            Informer(rest, self._cache, kind, settings.namespace, self._queue.add, selector) for kind, selector in kinds
        ]
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        """Start the watches, wait for their first lists, and start the workers."""
        for watch in self._watches:
            watch.start()
        for watch in self._watches:
            watch.synced.wait()
        for number in range(self._settings.workers):
            thread = threading.Thread(target=self._work, name=f"worker-{number}", daemon=True)
            thread.start()
            self._threads.append(thread)
        self._queue.add(liveness.LOOP_KEY)

    def stop(self) -> None:
        """Stop the watches, and wait up to 10 s for each worker to finish its reconciliation."""
        for watch in self._watches:
            watch.stop.set()
        self._queue.close()
        for thread in self._threads:
            thread.join(10.0)

    def apps(self) -> dict[Key, Status]:
        """Return the status of each app, by key; apps with an unreadable status or spec are left out."""
        statuses = {}
        for key in self._cache.apps():
            with suppress(Unusable):
                if (seen := self._cache.find_app(key)) is not None:
                    statuses[key] = seen.status
        return statuses

    def _work(self) -> None:
        while (key := self._queue.take()) is not None:
            self._counters.add("reconciles", "all")
            try:
                self._queue.done(key, self._check_loop() if key == liveness.LOOP_KEY else self._reconcile(key))
            except (StaleRead, NotExclusive) as reason:
                self._counters.add("reconciles", type(reason).__name__)
                self._queue.mark_failed(key)
            except ApiError as error:
                after_s = self._queue.mark_failed(key)
                _LOG.warning("%s/%s: retried in %.1f s: %s", *key, after_s, error)
            except Exception:  # a bug that one app triggers must not stop the others
                self._queue.mark_failed(key)
                _LOG.exception("%s/%s", *key)

    def _check_loop(self) -> float:
        liveness.check_loop(self._rest, self._settings.namespace)
        return liveness.EVERY_S

    def _reconcile(self, key: Key) -> float | None:
        """Reconcile an app; return the seconds until the next time, or None if the app does not exist."""
        try:
            seen = self._cache.find_app(key)
        except Unusable as reason:
            _LOG.error("%s/%s is not reconciled: %s", *key, reason)
            return self._settings.resync_s
        if seen is None:
            release_orphans(self._rest, self._cache, key)
            return None
        status = reconcile_once(self._api, seen, self._clock)
        if status.phase is not seen.status.phase:
            _LOG.info("%s/%s: %s to %s", *key, seen.status.phase.value, status.phase.value)
        return wake_ms(status, seen.desired, self._clock(), int(self._settings.resync_s * 1_000)) / 1_000 + 0.01
