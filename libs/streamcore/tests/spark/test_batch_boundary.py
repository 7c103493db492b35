"""Requests to a running app are executed between two batches, or answered when it ends."""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future
from typing import Any, cast

import pytest

from streamcore.errors import ConfigError, Drained, Retryable
from streamcore.savepoint import Savepoint
from streamcore.spark.batch_boundary import BatchBoundary


def take_savepoint(batch: int) -> Savepoint:
    """Only the batch counts here."""
    return cast("Savepoint", batch)


def result_of(savepoint: Future[Savepoint]) -> object:
    return savepoint.result(0)


def raise_error(batch: int) -> Savepoint:
    raise ConfigError(f"no room for {batch}")


def test_a_savepoint_holds_the_previous_batch_and_the_app_continues() -> None:
    boundary = BatchBoundary("app")
    savepoint = boundary.savepoint(take_savepoint)
    assert not savepoint.done()
    boundary.on_boundary(8, begun=False)
    assert result_of(savepoint) == 7
    boundary.on_boundary(9, begun=False)


def test_a_failed_savepoint_fails_only_its_request() -> None:
    boundary = BatchBoundary("app")
    one, other = boundary.savepoint(raise_error), boundary.savepoint(take_savepoint)
    boundary.on_boundary(8, begun=False)
    assert result_of(other) == 7
    with pytest.raises(ConfigError, match="no room for 7"):
        one.result(0)


def test_no_savepoint_is_taken_before_a_planned_batch_is_committed() -> None:
    boundary = BatchBoundary("app")
    savepoint = boundary.savepoint(take_savepoint)
    boundary.on_boundary(8, begun=True)
    assert not savepoint.done()
    boundary.on_boundary(9, begun=False)
    assert result_of(savepoint) == 8


def test_a_drain_stops_before_the_next_batch_and_completes_earlier_requests() -> None:
    boundary = BatchBoundary("app")
    savepoint = boundary.savepoint(take_savepoint)
    boundary.drain()
    with pytest.raises(Drained, match="app: stopped before batch 8"):
        boundary.on_boundary(8, begun=False)
    assert result_of(savepoint) == 7


def test_a_drain_runs_a_planned_batch_only_if_it_settles() -> None:
    plain, settling = BatchBoundary("app"), BatchBoundary("app")
    plain.drain()
    with pytest.raises(Drained):
        plain.on_boundary(8, begun=True)
    settling.drain(finish_open_batch=True)
    assert not settling.draining, "a restart runs the batch first"
    settling.on_boundary(8, begun=True)
    with pytest.raises(Drained, match="before batch 9"):
        settling.on_boundary(9, begun=False)


def test_a_request_while_the_app_ends_gets_one_answer() -> None:
    class Raced(deque[Any]):
        """An item that one thread sees is gone when it takes it: the thread that ends the app was first."""

        seen = False

        def popleft(self) -> Any:
            if not self.seen:
                self.seen = True
                boundary.close()
            return super().popleft()

    boundary = BatchBoundary("app")
    boundary._wanted = Raced()
    boundary.close()
    savepoint = boundary.savepoint(take_savepoint)
    with pytest.raises(Retryable, match="it ended before the savepoint could be taken"):
        savepoint.result(0)


def test_requests_to_an_ending_or_ended_app_get_an_answer() -> None:
    boundary = BatchBoundary("app")
    before = boundary.savepoint(take_savepoint)
    boundary.close()
    for savepoint in (before, boundary.savepoint(take_savepoint)):
        with pytest.raises(Retryable, match="it ended before the savepoint could be taken"):
            savepoint.result(0)
