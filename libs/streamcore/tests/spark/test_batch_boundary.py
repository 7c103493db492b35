"""What is asked of a running app is done between two batches, or answered when it ends."""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future
from typing import Any, cast

import pytest

from streamcore.errors import ConfigError, Drained, Retryable
from streamcore.savepoint import Savepoint
from streamcore.spark.batch_boundary import BatchBoundary


def taken(batch: int) -> Savepoint:
    """Only the batch counts here."""
    return cast("Savepoint", batch)


def batch_of(asked: Future[Savepoint]) -> object:
    return asked.result(0)


def failing(batch: int) -> Savepoint:
    raise ConfigError(f"no room for {batch}")


def test_a_savepoint_holds_the_previous_batch_and_the_app_continues() -> None:
    boundary = BatchBoundary("app")
    asked = boundary.savepoint(taken)
    assert not asked.done()
    boundary.on_boundary(8, begun=False)
    assert batch_of(asked) == 7
    boundary.on_boundary(9, begun=False)


def test_a_failed_savepoint_fails_only_its_request() -> None:
    boundary = BatchBoundary("app")
    one, other = boundary.savepoint(failing), boundary.savepoint(taken)
    boundary.on_boundary(8, begun=False)
    assert batch_of(other) == 7
    with pytest.raises(ConfigError, match="no room for 7"):
        one.result(0)


def test_no_savepoint_is_taken_before_a_planned_batch_is_committed() -> None:
    boundary = BatchBoundary("app")
    asked = boundary.savepoint(taken)
    boundary.on_boundary(8, begun=True)
    assert not asked.done()
    boundary.on_boundary(9, begun=False)
    assert batch_of(asked) == 8


def test_a_drain_stops_before_the_next_batch_and_completes_earlier_requests() -> None:
    boundary = BatchBoundary("app")
    asked = boundary.savepoint(taken)
    boundary.drain()
    with pytest.raises(Drained, match="app: stopped before batch 8"):
        boundary.on_boundary(8, begun=False)
    assert batch_of(asked) == 7


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
        """What one thread sees is gone when it takes it: the other one, in which the app ends, was there first."""

        seen = False

        def popleft(self) -> Any:
            if not self.seen:
                self.seen = True
                boundary.close()
            return super().popleft()

    boundary = BatchBoundary("app")
    boundary._wanted = Raced()
    boundary.close()
    asked = boundary.savepoint(taken)
    with pytest.raises(Retryable, match="it ended before the savepoint could be taken"):
        asked.result(0)


def test_requests_to_an_ending_or_ended_app_get_an_answer() -> None:
    boundary = BatchBoundary("app")
    before = boundary.savepoint(taken)
    boundary.close()
    for asked in (before, boundary.savepoint(taken)):
        with pytest.raises(Retryable, match="it ended before the savepoint could be taken"):
            asked.result(0)
