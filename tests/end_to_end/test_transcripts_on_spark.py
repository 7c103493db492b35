"""The transcripts of windows and triggers on Spark: each is a stream of its own, each of its steps a cut.

Transcripts without clock steps share one app; every other one has an app of its own, for an app has one clock. Input
comes from topics, goes through decoding, shuffle, state and transaction, and is read back from the lanes.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import groupby
from pathlib import Path

import orjson
import polars as pl
import pytest

from streamcore.aggregates import Aggregate, Collect
from streamcore.kafka import data_clients as clients
from streamcore.kafka.readers import read_topic
from streamcore.kafka.settings import KafkaSettings
from streamcore.kafka.topics import TopicSpec, ensure_topics
from streamcore.limits import Limits
from streamcore.operators.base import LATE_REASON, LATENESS_MS
from streamcore.schema import StreamSchema
from streamcore.spark.session import SparkSettings
from streamcore.topology.stream import source
from streamcore.topology.topology import Topology
from streamcore.topology.windowed_stream import WindowedStream
from streamcore.watermark import WatermarkStrategy
from streamcore.windowing import (
    CountWindow,
    DroppedElement,
    DropReason,
    Element,
    FiredPane,
    GlobalWindow,
    Timing,
    Window,
    WindowCounts,
    WindowOutput,
    WindowSpec,
)
from streamcore.windowing.model import END_OF_TIME_MS, AnyWindow, Fields
from tests.harness.apps.scripted_cuts import Script, Step, run
from tests.harness.oracles.lane_reader import batch_of
from tests.harness.oracles.transcripts import FUNCTIONS, Mismatch, Transcript, load_all

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(1_000)]

#: One of how many transcripts runs: the other two runners have all of them in every run of the tests.
EVERY = int(os.environ.get("HEADGATE_TRANSCRIPTS_EVERY", "3"))
#: A JSON event from before 1970 is a dead letter, so what is about such times is for the other two runners.
ALL = [one for one in load_all() if all((s.element.at if s.element else s.watermark or 0) >= 0 for s in one.steps)]
TRANSCRIPTS = ALL[::EVERY]
FIELDS = ("v", "gap", "hold_ms", "done")
FOREVER_MS = 2**60
Row = Mapping[str, object]


@dataclass
class Recorder:
    """Records the inputs of a transcript as JSON records, a list for each step."""

    spec: WindowSpec
    function: Aggregate
    elements: list[Fields] = field(default_factory=list)
    records: list[list[bytes]] = field(default_factory=list)
    clocks: list[int] = field(default_factory=list)
    counts = WindowCounts()

    def element(self, key: Hashable, value: Fields, event_ms: int) -> WindowOutput:
        fields = {name: _or_null(value.get(name), name) for name in FIELDS}
        row = {"ts": event_ms, "key": key, "at": len(self.elements), **fields}
        self.elements.append(value)
        return self._step([row])

    def watermark(self, watermark_ms: int) -> WindowOutput:
        return self._step([{"ts": 0, "until": watermark_ms}])

    def clock(self, clock_ms: int) -> WindowOutput:
        return self._step([], clock_ms)

    def end_of_stream(self) -> WindowOutput:
        return self._step([{"ts": 0, "over": True}])

    def _step(self, rows: Sequence[Row], clock_ms: int | None = None) -> WindowOutput:
        self.records.append([orjson.dumps(row) for row in rows])
        self.clocks.append(clock_ms if clock_ms is not None else self.clocks[-1] if self.clocks else 0)
        return WindowOutput()


def _or_null(value: object, name: str) -> object:
    """Return null for a value of another type, which would make the event a dead letter."""
    return value if isinstance(value, int) and isinstance(value, bool) == (name == "done") else None


def record_inputs(transcript: Transcript) -> Recorder:
    """Record the inputs of a transcript."""
    recorder = Recorder(transcript.spec.build(), FUNCTIONS[transcript.function])
    for step in transcript.steps:
        step.feed(recorder)
    return recorder


@dataclass
class SparkRun:
    """A transcript that ran on Spark, with the inputs of the reference: each call returns the output of its cut."""

    recorder: Recorder
    counts: WindowCounts
    panes: Mapping[int, Sequence[Row]]
    late: Mapping[int, Sequence[Row]]
    step: int = -1

    def element(self, key: Hashable, value: Fields, event_ms: int) -> WindowOutput:
        return self._next()

    def watermark(self, watermark_ms: int) -> WindowOutput:
        return self._next()

    def clock(self, clock_ms: int) -> WindowOutput:
        return self._next()

    def end_of_stream(self) -> WindowOutput:
        return self._next()

    def _next(self) -> WindowOutput:
        self.step += 1
        firings = tuple(self._firing(row) for row in self.panes.get(self.step, ()))
        return WindowOutput(firings, tuple(self._dropped(row) for row in self.late.get(self.step, ())))

    def _firing(self, row: Row) -> FiredPane:
        seen, value, pane = row["seen"], row["value"], row["pane"]
        assert isinstance(seen, list)
        assert isinstance(pane, int)
        return FiredPane(
            row["key"],
            self._window(row),
            pane,
            Timing(str(row["timing"])),
            pane == 0,
            bool(row["is_final"]),
            bool(row["is_retraction"]),
            tuple(value) if isinstance(value, list) else value,  # type: ignore[arg-type]
            tuple(Element(row["key"], self.recorder.elements[at], 0, 0) for at in seen),
        )

    def _dropped(self, row: Row) -> DroppedElement:
        fields = {name: row[name] for name in FIELDS}
        element = Element(row["key"], fields, 0, 0)  # type: ignore[arg-type]
        lateness_ms = row[LATENESS_MS]
        assert isinstance(lateness_ms, int)
        return DroppedElement(element, self._window(row), DropReason(str(row[LATE_REASON])), lateness_ms)

    def _window(self, row: Row) -> AnyWindow:
        if isinstance(self.recorder.spec.assigner, GlobalWindow):
            assert row["window_start"] is None
            return Window(-END_OF_TIME_MS, END_OF_TIME_MS)
        if not self.recorder.spec.assigner.in_event_time:
            return CountWindow(int(str(row["window_first"])), int(str(row["window_stop"])))
        return Window(_ms(row["window_start"]), _ms(row["window_end"]))


def _ms(text: object) -> int:
    return round(datetime.fromisoformat(str(text)).timestamp() * 1000)


@dataclass
class Group:
    """Transcripts that share an app. ``numbers``: their indexes in ``TRANSCRIPTS``."""

    name: str
    numbers: Sequence[int]

    def topic(self, number: int) -> str:
        return f"{self.name}.t{number}"

    def topology(self, recorders: Mapping[int, Recorder]) -> Topology:
        sinks = []
        for number in self.numbers:
            spec, function = recorders[number].spec, recorders[number].function
            events = source(_schema(number), WatermarkStrategy(0, FOREVER_MS, "until", "over"))
            elements = events.filter(pl.all_horizontal(pl.col("until", "over").is_null()))
            elements = elements.map(transcript=pl.lit(number))
            keyed = elements.select("transcript", "key", *FIELDS, "at").key_by("key").keyed
            windows = WindowedStream(
                keyed,
                spec.assigner,
                spec.trigger,
                spec.accumulation,
                spec.allowed_lateness_ms,
                spec.evictor,
                f"late-{number}",
            )
            panes = windows.aggregate(f"w{number}", value=function, seen=Collect("at"))
            # Lanes of its own: values have different types, and windows by count other columns.
            sinks.append(panes.map(transcript=pl.lit(number)).sink(f"panes-{number}"))
        return Topology(self.name, *sinks)

    def script(self, folder: Path, kafka: KafkaSettings, jars: Path, recorders: Mapping[int, Recorder]) -> Script:
        ensure_topics(kafka, [TopicSpec(self.topic(number)) for number in self.numbers])
        producer = clients.producer(kafka)
        for number in self.numbers:
            for record in (r for step in recorders[number].records for r in step):
                producer.produce(self.topic(number), record, partition=0)
        assert producer.flush(60) == 0
        topics = {f"t{number}": self.topic(number) for number in self.numbers}
        limits = Limits(max_future_ms=FOREVER_MS)
        app = self.topology(recorders).app(topics=topics, shards=2, limits=limits)
        steps = [self._step(cut, recorders) for cut in range(max(len(recorders[n].records) for n in self.numbers))]
        return Script(app, kafka, folder / self.name, SparkSettings(jars, parallelism=1), steps)

    def _step(self, cut: int, recorders: Mapping[int, Recorder]) -> Step:
        ends = {(self.topic(number), 0): sum(map(len, recorders[number].records[: cut + 1])) for number in self.numbers}
        clocks = [recorders[number].clocks for number in self.numbers]
        return Step(ends, max(one[min(cut, len(one) - 1)] for one in clocks))


def _schema(number: int) -> StreamSchema:
    fields = {"ts": "timestamp not null", "key": "string", "v": "long", "gap": "long", "hold_ms": "long"}
    fields |= {"done": "boolean", "at": "long", "until": "timestamp", "over": "boolean"}
    return StreamSchema.parse({"name": f"t{number}", "event_time": "ts", "keys": [["key"]], "fields": fields})


def _groups() -> list[Group]:
    has_clock = [number for number, one in enumerate(TRANSCRIPTS) if any(s.clock is not None for s in one.steps)]
    without_clock = [number for number in range(len(TRANSCRIPTS)) if number not in has_clock]
    return [Group("no-clock", without_clock), *(Group(f"clock{number}", [number]) for number in has_clock)]


def _group_by_step(rows: Sequence[tuple[int, Row]], number: int) -> dict[int, list[Row]]:
    mine = [(batch, row) for batch, row in rows if row["transcript"] == number]
    return {batch: [row for _, row in run] for batch, run in groupby(mine, key=lambda pair: pair[0])}


def _read(kafka: KafkaSettings, topic: str) -> list[tuple[int, Row]]:
    return [(batch_of(record)[1], json.loads(record.value or b"null")) for record in read_topic(kafka, topic)]


def _counts(counted: Counter[str], number: int) -> WindowCounts:
    prefix = f"w{number}."
    mine = {name.removeprefix(prefix): count for name, count in counted.items() if name.startswith(prefix)}
    assert mine.pop("rejected", 0) == 0
    return WindowCounts(**mine)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory, kafka: KafkaSettings, spark_jars: Path) -> dict[int, SparkRun]:
    """Run all transcripts."""
    folder = tmp_path_factory.mktemp("transcripts")
    recorders = {number: record_inputs(transcript) for number, transcript in enumerate(TRANSCRIPTS)}
    groups = _groups()
    scripts = [group.script(folder, kafka, spark_jars, recorders) for group in groups]
    run(folder, scripts, limit_s=900)
    found: dict[int, SparkRun] = {}
    for group, script in zip(groups, scripts, strict=True):
        lanes = script.app.lanes
        assert not _read(kafka, lanes["deadletters"])
        counted = script.total_counters()
        for number in group.numbers:
            panes, late = (_read(kafka, lanes[f"{lane}-{number}"]) for lane in ("panes", "late"))
            found[number] = SparkRun(
                recorders[number], _counts(counted, number), _group_by_step(panes, number), _group_by_step(late, number)
            )
    return found


def test_every_transcript_holds_on_spark_and_every_wrong_one_fails(runs: dict[int, SparkRun]) -> None:
    wrong = {}
    for number, transcript in enumerate(TRANSCRIPTS):
        try:
            transcript.run(lambda _spec, _function, number=number: runs[number])
        except Mismatch as mismatch:
            wrong[transcript.name] = mismatch
    expected = {transcript.name for transcript in TRANSCRIPTS if transcript.wrong}
    unexpected = [str(mismatch) for name, mismatch in wrong.items() if name not in expected]
    assert not unexpected, "\n\n".join(unexpected[:5])
    assert set(wrong) == expected
    assert (len(ALL), len(load_all())) == (122, 127)
    assert len(expected) >= len(TRANSCRIPTS) // 10
    assert len(_groups()) > 1  # with a clock
