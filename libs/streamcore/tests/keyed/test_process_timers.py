"""Timers of keyed functions: both domains, order, deletion, chains, restarts, limits."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import polars as pl

from streamcore.keyed import KeyedLimits, ProcessContext, ProcessFunction, TimeDomain, ValueState
from streamcore.operators.base import MAIN
from streamcore.operators.failures import FAILED
from streamcore.windowing.model import END_OF_TIME_MS
from tests.harness.apps.keyed_operator import runner

OUT = {MAIN: {"text": pl.String}}


class Alarm(ProcessFunction):
    """An event sets a timer ``n`` after it; a negative one deletes it. Every firing outputs its state."""

    outputs = OUT
    domain = TimeDomain.EVENT

    def process(self, event: Any, context: ProcessContext) -> Iterable[object]:
        if event.n >= 0:
            context.timers.set(context.event_ms + event.n, self.domain)
        else:
            context.timers.delete(context.event_ms - event.n, self.domain)
        yield {"text": f"event {context.key} {context.watermark_ms} {context.clock_ms}"}

    def on_timer(self, at_ms: int, context: ProcessContext) -> Iterable[object]:
        yield {"text": f"{context.domain} {context.key} {at_ms} {context.watermark_ms} {context.clock_ms}"}


class ClockAlarm(Alarm):
    domain = TimeDomain.CLOCK


def texts(ports: dict[str, list[tuple[object, ...]]]) -> list[object]:
    return [row[0] for row in ports.get(MAIN, [])]


def test_event_timers_fire_after_the_rows_in_order_of_time_then_of_setting_as_the_watermark_passes() -> None:
    run = runner(Alarm())
    found = texts(
        run.cut([("b", 5, 0), ("a", 5, 0), ("a", 3, 0), ("a", 8, 0), ("b", 5, 0)], watermark_ms=5, clock_ms=9)
    )
    assert found[5:] == ["event a 3 3 9", "event b 5 5 9", "event a 5 5 9"]
    assert texts(run.cut(watermark_ms=7)) == []
    assert texts(run.cut([("c", 0, 3)], watermark_ms=10)) == ["event c 7 9", "event c 3 7 9", "event a 8 8 9"]
    assert run.operator.metrics() == {"timers_fired": 5}


def test_clock_timers_fire_before_the_rows_when_the_clock_moves() -> None:
    run = runner(ClockAlarm())
    run.watermark_ms = 0
    assert texts(run.cut([("a", 100, 0), ("b", 50, 0), ("c", 200, 0)], clock_ms=7))[3:] == []
    assert texts(run.cut([("d", 900, 1)], watermark_ms=1, clock_ms=150)) == [
        "clock b 50 0 150",
        "clock a 100 0 150",
        "event d 0 150",
    ]


def test_a_clock_timer_set_by_a_row_for_a_time_already_reached_fires_in_the_same_cut() -> None:
    assert texts(runner(ClockAlarm()).cut([("a", 0, 5)], watermark_ms=1, clock_ms=7))[1:] == ["clock a 5 1 7"]


def test_the_row_of_a_timer_has_the_time_of_the_timer() -> None:
    assert runner(Alarm()).cut([("a", 3, 1)], watermark_ms=10)[MAIN][1][1] == 4


def test_a_deleted_timer_does_not_fire_even_after_a_restart_and_one_set_twice_fires_once() -> None:
    for restart in (False, True):
        run = runner(Alarm())
        run.cut([("a", 5, 0), ("a", 6, 0), ("b", 5, 0), ("a", 5, 0)])
        if restart:
            run.restart()
        run.cut([("a", -5, 0), ("a", -99, 0)])
        if restart:
            run.restart()
        assert texts(run.cut(watermark_ms=10)) == ["event b 5 5 0", "event a 6 6 0"]
        run.restart()
        assert texts(run.cut(watermark_ms=20)) == []
        assert run.stored_rows("timers").height == 0


def test_timers_keep_their_order_over_restarts() -> None:
    run = runner(Alarm())
    for key in "dbca":
        run.cut([(key, 7, 0)])
        run.restart()
    assert [str(t)[6] for t in texts(run.cut(watermark_ms=7))] == list("dbca")


class Heartbeat(ProcessFunction):
    outputs = OUT
    beats = ValueState(int, default=0)

    def process(self, event: Any, context: ProcessContext) -> None:
        context.timers.set(context.event_ms + event.n)

    def on_timer(self, at_ms: int, context: ProcessContext) -> Iterable[object]:
        self.beats += 1
        context.timers.set(at_ms + 10)
        yield {"text": f"{context.key} {at_ms} {self.beats}"}


def test_a_timer_set_by_a_timer_for_a_time_already_reached_fires_in_the_same_cut_in_its_order() -> None:
    run = runner(Heartbeat())
    assert texts(run.cut([("a", 0, 0), ("b", 5, 0)], watermark_ms=25)) == [
        "a 0 1",
        "b 5 1",
        "a 10 2",
        "b 15 2",
        "a 20 3",
        "b 25 3",
    ]


def test_a_chain_of_timers_does_not_depend_on_how_the_watermark_moves() -> None:
    def run(steps: list[int]) -> list[object]:
        one = runner(Heartbeat())
        found = texts(one.cut([("a", 0, 0), ("b", 5, 0)]))
        for watermark_ms in steps:
            found += texts(one.cut(watermark_ms=watermark_ms))
            one.restart()
        return found

    assert run([100]) == run([*range(0, 101, 7), 100]) == run([3, 50, 100])


def test_an_endless_chain_of_timers_stops_at_its_limit_and_continues_in_the_next_cut() -> None:
    run = runner(Heartbeat(), limits=KeyedLimits(chained_timers=4))
    assert texts(run.cut([("a", 0, 0)], watermark_ms=END_OF_TIME_MS))[-1] == "a 40 5"
    assert run.operator.metrics() == {"timers_fired": 5, "timers_deferred": 1}
    run.restart()
    assert texts(run.cut())[0] == "a 50 6"


class PingPong(ProcessFunction):
    """Each timer sets one of the other domain, for a time already reached."""

    outputs = OUT

    def process(self, event: Any, context: ProcessContext) -> None:
        context.timers.set(event.n)

    def on_timer(self, at_ms: int, context: ProcessContext) -> Iterable[object]:
        if at_ms < 50:
            context.timers.set(0, TimeDomain.CLOCK if context.domain is TimeDomain.EVENT else TimeDomain.EVENT)
        yield {"text": f"{context.key} {at_ms}"}


def test_an_endless_chain_over_both_time_domains_stops_and_delays_no_other_timer() -> None:
    run = runner(PingPong(), limits=KeyedLimits(chained_timers=3))
    found = texts(run.cut([("a", 0, 0), ("b", 90, 0)], watermark_ms=100))
    assert found == ["a 0", "b 90", "a 0", "a 0", "a 0"]
    assert run.operator.metrics() == {"timers_fired": 5, "timers_deferred": 1}
    assert len(texts(run.cut())) == 4


class Inactive(ProcessFunction):
    """Moves its timer with every event, as a function that detects silence does."""

    outputs = OUT

    def process(self, event: Any, context: ProcessContext) -> None:
        context.timers.clear()
        context.timers.set(context.event_ms + 1_000_000)

    def on_timer(self, at_ms: int, context: ProcessContext) -> Iterable[object]:
        yield {"text": f"{context.key} {at_ms}"}


def test_moving_a_timer_with_every_event_accumulates_no_old_timers() -> None:
    run = runner(Inactive())
    for start in range(0, 10_000, 2_000):
        run.cut([("a", 0, ms) for ms in range(start, start + 2_000)])
    assert len(run.operator._store.timers.queues[TimeDomain.EVENT]._queue) <= 3_001
    assert texts(run.cut(watermark_ms=END_OF_TIME_MS)) == ["a 1009999"]


class Failing(Heartbeat):
    def on_timer(self, at_ms: int, context: ProcessContext) -> Iterable[object]:
        yield from super().on_timer(at_ms, context)
        if at_ms == 10:
            raise ValueError("ten")


def test_a_failed_timer_is_consumed_changes_nothing_and_goes_to_the_failed_port_with_its_key() -> None:
    ports = runner(Failing()).cut([("a", 0, 0)], watermark_ms=100)
    assert texts(ports) == ["a 0 1"]
    assert ports[FAILED] == [("a", None, "Failing.on_timer: ValueError: ten", 10)]


class Wrong(ProcessFunction):
    outputs = OUT

    def process(self, event: Any, context: ProcessContext) -> None:
        times: list[Any] = [1.5, True, END_OF_TIME_MS + 1, "soon", None]
        context.timers.set(0 if event.n is None else times[event.n] if event.n < len(times) else event.n)

    def on_timer(self, at_ms: int, context: ProcessContext) -> None:
        return None


def test_an_invalid_time_or_too_many_timers_fail_the_call() -> None:
    run = runner(Wrong(), limits=KeyedLimits(timers_per_key=2))
    assert len(run.cut([("a", n, 0) for n in range(5)])[FAILED]) == 5
    assert "has reached the limit" in str(run.cut([("a", n, 0) for n in (5, 6, 7, 6)])[FAILED][0])


class Late(ProcessFunction):
    outputs = OUT

    def process(self, event: Any, context: ProcessContext) -> Iterable[object]:
        yield {"text": f"{event.n} {context.is_late}"}


def test_late_events_are_delivered_and_marked_as_late() -> None:
    run = runner(Late())
    run.cut(watermark_ms=10)
    assert texts(run.cut([("a", 1, 9), ("a", 2, 10)], watermark_ms=20)) == ["1 True", "2 False"]
