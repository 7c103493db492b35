"""An argument of a wrong kind is rejected where it is written, with what to write instead."""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import numpy as np
import polars as pl
import pytest

from streamcore.aggregates import Accumulator, Count, Custom, Sum
from streamcore.durations import Milliseconds
from streamcore.enrich import Enrichment
from streamcore.errors import ConfigError
from streamcore.keyed import ProcessContext, ProcessFunction
from streamcore.keyed.ttl import Ttl
from streamcore.operators.base import MAIN
from streamcore.operators.joins.interval import JoinInterval
from streamcore.operators.rolling.totals import RollingSpan
from streamcore.schema import StreamSchema
from streamcore.topology.stream import operate, source
from streamcore.topology.topology import Topology
from streamcore.watermark import bounded_out_of_orderness
from streamcore.windowing import (
    AfterCount,
    AfterProcessingTime,
    AfterWatermark,
    AnyOf,
    CountSliding,
    CountTumbling,
    KeepCount,
    KeepRecent,
    OrFinally,
    Repeatedly,
    RevisionPolicy,
    Session,
    Sliding,
    Tumbling,
)
from tests.harness.apps.running_sums import MakeRunningSums


def stream(name: str) -> Any:
    fields = {"ts": "timestamp not null", "k": "string", "v": "long"}
    return source(StreamSchema.parse({"name": name, "event_time": "ts", "keys": [["k"]], "fields": fields}))


class Velocity(ProcessFunction):
    """Passes the events."""

    outputs = {MAIN: {"k": pl.String()}}

    def process(self, event: Any, context: ProcessContext) -> Iterator[object]:
        yield {"k": event.k}

    def process_control(self, record: Any, context: ProcessContext) -> None:
        pass


class Duck:
    """Has the methods of a keyed function, and its base class has not."""

    process = Velocity.process


A: Any = stream("a")
B: Any = stream("b")
KEYED, OTHER = A.key_by("k"), B.key_by("k")
WINDOWED = KEYED.window(Tumbling(60_000))
anything: Any = lambda *arguments: pl.DataFrame()  # noqa: E731

WRONG: list[tuple[Callable[[], object], str]] = [
    (
        lambda: KEYED.connect(B.key_by("k", "v")),
        "connect: the keys are k String and k String, v Int64; key both streams by as many columns of equal types",
    ),
    (lambda: KEYED.connect(OTHER).process(Velocity()), "process: takes a CoProcessFunction, not a Velocity"),
    (lambda: KEYED.connect(B), "connect: takes a BroadcastStream, not a Stream"),
    (lambda: KEYED.connect(B.broadcast()).process(Velocity), "not the class Velocity; write Velocity(...)"),
    (lambda: KEYED.process(Velocity), "process: takes a ProcessFunction, not the class Velocity; write Velocity(...)"),
    (lambda: KEYED.process(Duck()), "process: takes a ProcessFunction, not a Duck"),
    (lambda: KEYED.process(lambda event, context: None), "process: takes a ProcessFunction, not a function"),
    (lambda: KEYED.join(B), "join: takes a KeyedStream, not a Stream; write such as right.key_by('id')"),
    (lambda: A.union(OTHER), "union: takes a Stream, not a KeyedStream"),
    (lambda: KEYED.window(Tumbling), "window: takes an Assigner, not the class Tumbling; write Tumbling(...)"),
    (lambda: KEYED.window(60_000), "window: takes an Assigner, not an int; write such as Tumbling('1m')"),
    (lambda: KEYED.join(OTHER).window(60_000), "window: takes an Assigner, not an int"),
    (lambda: KEYED.join(OTHER).window(Tumbling("9ms")).apply(None, {}), "apply: takes a function, not a NoneType"),
    (lambda: WINDOWED.trigger(AfterWatermark), "trigger: takes a Trigger, not the class AfterWatermark"),
    (lambda: WINDOWED.trigger(Repeatedly(AfterCount)), "Repeatedly: takes a Trigger, not the class AfterCount"),  # type: ignore[arg-type]
    (lambda: WINDOWED.trigger(AfterWatermark(early=10)), "AfterWatermark: takes a Trigger, not an int"),  # type: ignore[arg-type]
    (lambda: AnyOf(AfterWatermark(), AfterCount), "AnyOf: takes a Trigger, not the class AfterCount"),  # type: ignore[arg-type]
    (lambda: OrFinally(AfterWatermark(), 3), "OrFinally: takes a Trigger, not an int"),  # type: ignore[arg-type]
    (lambda: WINDOWED.apply(Velocity, {}), "apply: takes a function, not the class Velocity"),
    (lambda: WINDOWED.evict(KeepCount), "evict: takes an Evictor, not the class KeepCount"),
    (lambda: WINDOWED.evict(10), "evict: takes an Evictor, not an int"),
    (lambda: WINDOWED.aggregate(n=Count), "aggregate n: takes an Aggregate, not the class Count; write Count(...)"),
    (lambda: WINDOWED.aggregate(n=pl.col("v").sum()), "aggregate n: takes an Aggregate, not an Expr"),
    (lambda: WINDOWED.revise("end", n=Count()), "revise: takes a RevisionPolicy, not a str"),
    (lambda: WINDOWED.apply(pl.col("v"), {}), "apply: takes a function, not an Expr; write a function of a WindowView"),
    (lambda: WINDOWED.aggregate(n=Custom(Accumulator)), "Custom: takes an Accumulator, not the class"),  # type: ignore[arg-type]
    (lambda: KEYED.rolling(3_600_000, n=Count()), "rolling: takes a RollingSpan, not an int"),
    (lambda: A.enrich(Enrichment), "enrich: takes an Enrichment, not the class Enrichment"),
    (lambda: source({"name": "a"}), "source: takes a StreamSchema, not a dict"),  # type: ignore[arg-type]
    (lambda: source(A.port.node.stream, 5_000), "source: watermark: takes a WatermarkStrategy, not an int"),  # type: ignore[arg-type]
    (lambda: source(A.port.node.stream, bounded_out_of_orderness), "WatermarkStrategy, not a function"),  # type: ignore[arg-type]
    (lambda: source(A.port.node.stream, time="processing"), "source: time: takes an EventTime, not a str"),  # type: ignore[arg-type]
    (lambda: operate([A], "sums", MakeRunningSums("k", "v")), "sums: takes a KeyedStream, not a Stream"),
    (lambda: Topology("t", WINDOWED.aggregate(v=Sum("v"))), "topology t: takes a SinkNode, not a Stream; end each"),
]


@pytest.mark.parametrize(("write", "message"), WRONG, ids=[message[:60] for _, message in WRONG])
@pytest.mark.quick_cases(8)
def test_an_argument_of_a_wrong_type_is_rejected_where_it_is_written(write: Any, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        write()
    assert message in str(caught.value)


MINUTE = timedelta(minutes=1)
NOT_WHOLE: list[tuple[Callable[[], object], str]] = [
    (lambda: CountTumbling(True), "count: takes a whole number, not True"),
    (lambda: CountSliding(10, 2.5), "every: takes a whole number, not 2.5"),  # type: ignore[arg-type]
    (lambda: AfterCount(1.5), "count: takes a whole number"),  # type: ignore[arg-type]
    (lambda: KeepCount(2.0), "count: takes a whole number"),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("write", "message"), NOT_WHOLE, ids=[message[:40] for _, message in NOT_WHOLE])
def test_a_count_that_is_not_a_whole_number_is_rejected(write: Any, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        write()
    assert message in str(caught.value)


#: What takes a duration, and how the name of its argument begins.
DURATIONS: list[tuple[Callable[[Any], object], str]] = [
    (Tumbling, "size_ms"),
    (lambda at: Sliding("2m", at), "slide_ms"),
    (Session, "gap_ms"),
    (AfterProcessingTime, "delay_ms"),
    (KeepRecent, "span_ms"),
    (lambda at: RevisionPolicy(early_ms=at), "early_ms"),
    (lambda at: WINDOWED.allowed_lateness(at).aggregate(n=Count()), "allowed_lateness"),
    (bounded_out_of_orderness, "max_out_of_orderness_ms"),
    (lambda at: KEYED.join(OTHER).within(0, at), "upper_ms"),
    (lambda at: KEYED.join(OTHER).window(Tumbling("1m"), allowed_lateness_ms=at), "allowed_lateness_ms"),
    (lambda at: KEYED.join(OTHER).latest(refresh_ms=at), "refresh_ms"),
    (KEYED.deduplicate, "horizon_ms"),
    (lambda at: RollingSpan("1h", at, "1m"), "span_ms"),
    (Ttl, "after_ms"),
]


@pytest.mark.parametrize(("write", "name"), DURATIONS, ids=[f"{n}-{name}" for n, (_, name) in enumerate(DURATIONS)])
def test_a_duration_is_text_a_timedelta_or_milliseconds_and_nothing_that_looks_like_seconds(
    write: Callable[[Any], object], name: str
) -> None:
    for right in ("1m", MINUTE, 60_000, Milliseconds(60_000)):
        write(right)
    for wrong, message in (
        (60.0, "takes text such as"),
        (True, "takes text such as"),
        (60, 'would be 60 milliseconds; write "60ms" if you mean that, or "60s", "60m"'),
        ("1 minute", "is no duration; write a whole number and a unit"),
        (timedelta(microseconds=1_500), "no whole number of milliseconds"),
    ):
        with pytest.raises(ConfigError, match=re.escape(message)) as caught:
            write(wrong)
        assert str(caught.value).startswith(f"{name}: ")


def test_a_duration_is_kept_in_milliseconds_and_a_copy_of_it_is_accepted() -> None:
    short = Tumbling("60ms", timedelta(milliseconds=-5))
    assert (short.size_ms, short.offset_ms) == (60, -5)
    assert replace(short, offset_ms="1ms") == Tumbling(Milliseconds(60), Milliseconds(1))
    assert pickle.loads(pickle.dumps(short)) == short
    assert hash(Tumbling("1m")) == hash(Tumbling(60_000))
    assert repr(Sliding("1h", "1m")) == "Sliding(size_ms=3600000, slide_ms=60000, offset_ms=0)"
    interval = JoinInterval("-5m", 0)
    assert (interval.first_ms, interval.last_ms) == (-300_000, 0)


def test_whole_numbers_of_other_libraries_are_accepted() -> None:
    assert Tumbling(np.int64(60_000)).size_ms == 60_000  # type: ignore[arg-type]
