"""A cut that takes long is reported with its phase: once, every minute, and at its end."""

from __future__ import annotations

import logging

import pytest

from streamcore.engine.cut_watch import CutWatch


class Clock:
    """Seconds that a test sets."""

    def __init__(self) -> None:
        self.s = 1_000.0

    def __call__(self) -> float:
        return self.s


def test_a_slow_cut_is_reported_once_then_every_minute_and_at_its_end(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    clock = Clock()
    watch = CutWatch(now_s=clock)
    with watch.cut(7, "tasks of Spark"):
        for _ in range(5):
            clock.s += 5
            watch.check()
        watch.enter("output to opensearch")
        clock.s += 55
        watch.check()
        clock.s += 10
    assert caplog.messages == [
        "batch 7 takes long: it runs for 20 s, the last 20 s of them in: tasks of Spark",
        "batch 7 takes long: it runs for 80 s, the last 55 s of them in: output to opensearch",
        "batch 7 has ended after 90 s: output to opensearch 65 s, tasks of Spark 25 s",
    ]


def test_a_quick_cut_and_the_time_between_two_cuts_are_not_reported(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    clock = Clock()
    watch = CutWatch(now_s=clock)
    with watch.cut(7, "tasks of Spark"):
        clock.s += 19
        watch.check()
    clock.s += 3_600
    watch.check()
    assert not caplog.messages
