"""The work queue, the rate limit, and the cache of the API server."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from headgate_operator.runtime.informer_cache import PODS, Cache
from headgate_operator.runtime.parse import Unusable, read_app, read_pod
from headgate_operator.runtime.rate_limiter import RateLimiter
from headgate_operator.runtime.work_queue import WorkQueue


def test_a_key_is_in_the_queue_once_however_often_it_is_added() -> None:
    queue: WorkQueue[str] = WorkQueue()
    for _ in range(5):
        queue.add("a")
    queue.add("b")
    assert [queue.take(), queue.take()] == ["a", "b"]


def test_a_key_in_work_is_not_taken_twice_and_returns_if_it_was_added_meanwhile() -> None:
    queue: WorkQueue[str] = WorkQueue(gap_s=0.0)
    queue.add("a")
    assert queue.take() == "a"
    queue.add("a")
    queue.add("b", 0.01)
    assert queue.take() == "b"
    queue.done("a")
    assert queue.take() == "a"


def test_a_key_that_fails_waits_longer_each_time_until_it_succeeds() -> None:
    queue: WorkQueue[str] = WorkQueue()
    waits = []
    for _ in range(3):
        queue.add("a")
        queue.take()
        waits.append(queue.mark_failed("a"))
    assert waits == [0.1, 0.2, 0.4]
    queue.take()
    queue.done("a")
    queue.add("a")
    queue.take()
    assert queue.mark_failed("a") == 0.1


def test_the_earlier_of_two_times_of_a_key_counts() -> None:
    queue: WorkQueue[str] = WorkQueue()
    queue.add("a", 60.0)
    queue.add("a")
    assert queue.take() == "a"


def test_a_closed_queue_returns_no_key() -> None:
    queue: WorkQueue[str] = WorkQueue()
    given: list[str | None] = []
    thread = threading.Thread(target=lambda: given.append(queue.take()))
    thread.start()
    time.sleep(0.05)
    queue.close()
    thread.join(60.0)
    assert given == [None]


def test_the_rate_limit_holds_after_the_first_burst() -> None:
    now = [0.0]
    pace = RateLimiter(10.0, 5, lambda: now[0])
    waits = [pace.reserve() for _ in range(8)]
    assert waits == pytest.approx([0, 0, 0, 0, 0, 0.1, 0.2, 0.3])
    now[0] = 10.0
    assert pace.reserve() == 0.0


def _pod(version: int, phase: str, *states: dict[str, Any]) -> dict[str, Any]:
    meta = {
        "name": "rules-1",
        "namespace": "shop",
        "uid": "u",
        "resourceVersion": str(version),
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "labels": {"headgate.dev/app": "rules"},
    }
    return {
        "metadata": meta,
        "spec": {},
        "status": {"phase": phase, "containerStatuses": [{"state": s} for s in states]},
    }


def test_a_pod_is_finished_when_none_of_its_containers_runs() -> None:
    assert read_pod(_pod(1, "Failed", {"terminated": {"exitCode": 1}})).finished
    assert read_pod(_pod(1, "Succeeded", {"terminated": {"exitCode": 0}})).finished
    assert not read_pod(_pod(1, "Running", {"running": {}})).finished


def test_a_failed_pod_whose_container_was_last_seen_running_is_not_finished() -> None:
    """The control plane writes such a status for pods on a lost node."""
    assert not read_pod(_pod(1, "Failed", {"running": {}})).finished


def test_the_cache_never_goes_back_to_an_older_version() -> None:
    cache = Cache()
    cache.put(PODS, _pod(7, "Running"))
    cache.put(PODS, _pod(5, "Pending"))
    raw = cache.raw(PODS, ("shop", "rules-1"))
    assert raw is not None
    assert raw["metadata"]["resourceVersion"] == "7"


def test_a_delayed_answer_does_not_restore_a_deleted_object() -> None:
    cache = Cache()
    cache.put(PODS, _pod(7, "Running"))
    cache.drop(PODS, _pod(8, "Running"))
    cache.put(PODS, _pod(7, "Running"))
    assert cache.raw(PODS, ("shop", "rules-1")) is None


def _app(spec: dict[str, Any], status: dict[str, Any]) -> dict[str, Any]:
    meta = {"namespace": "shop", "name": "rules", "uid": "u", "generation": 2}
    return {"metadata": meta, "spec": spec, "status": status}


_GOOD = {"service": "rules", "image": "headgate:1", "config": {}, "checkpoint": {"root": "/c"}}


def test_an_invalid_edit_leaves_the_last_valid_spec() -> None:
    stable = {"revision": "r", "shape": "s", "version": "1", "generation": 1, "spec": _GOOD}
    desired, _ = read_app(_app(_GOOD | {"executors": "many"}, {"stable": stable}))
    assert desired.release.revision == "r"
    assert "executors" in desired.problem


def test_an_app_that_was_never_valid_is_ignored() -> None:
    with pytest.raises(Unusable, match="checkpoint"):
        read_app(_app({"service": "rules"}, {}))


def test_an_invalid_status_is_an_error_and_not_an_empty_status() -> None:
    with pytest.raises(Unusable, match="phase"):
        read_app(_app(_GOOD, {"phase": "Sideways"}))
