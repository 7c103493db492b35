"""Runs the app of a settings document on a sample, in this process: no Spark, no Kafka, no sink.

Decoding, stages and state are those of the app. The sample of an input is one partition, and all samples are one cut; a
second cut lets time pass, so that what waits for it comes out.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any  # a document is made of anything

import orjson

from headgate.console.output import Json
from headgate.errors import InputError
from streamcore.cuts.cut_clock import CutClock
from streamcore.engine.in_process import InProcessApp, RawRecord, control_record
from streamcore.offsets import source_partitions
from streamcore.wire.lanes import DEAD_LETTERS, LATE, STATUS, Record

if TYPE_CHECKING:
    from headgate.streams.sample import SampleRecord
    from streamcore.app import App
    from streamcore.service.config.settings import ServiceSettings
    from streamcore.service.definition import ServiceDefinition

_LATER_MS = 24 * 3_600_000
#: What is counted beside rows and dead letters, with the words for it.
_COUNTED = {"duplicates": "duplicates", "other_records": "of no stream", "tombstones": "tombstones"}

Row = Mapping[str, Json]


@dataclass(frozen=True, slots=True)
class TrialLetter:
    """A dead letter. ``place``: of its record in the sample; "" if it is of no record."""

    code: str
    reason: str
    place: str = ""
    value: bytes | None = None

    def json(self) -> dict[str, Json]:
        """Return the letter as JSON."""
        value = None if self.value is None else self.value.decode("utf-8", "replace")
        return {"code": self.code, "reason": self.reason, "place": self.place, "value": value}


@dataclass(frozen=True, slots=True)
class TrialResult:
    """The result of a sample. ``rows``: by lane, also of lanes without rows. ``counted``: such as duplicates."""

    records: int
    rows: Mapping[str, Sequence[Row]]
    letters: Sequence[TrialLetter]
    counted: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class TrialInput:
    """The input of a trial. ``records``: by the name of the stream. ``lists``: keys and values of control records.

    ``ends``: whether the input ends, which closes all windows; else only the clock passes on.
    """

    records: Mapping[str, Sequence[SampleRecord]]
    lists: Sequence[tuple[str, bytes]] = ()
    ends: bool = False
    clock_ms: int | None = None


def build_trial_app(service: ServiceDefinition[Any], settings: ServiceSettings) -> App:
    """Build the app of settings with one shard, which gives the rows in the order of the records."""
    return service.build_app(settings.model_copy(update={"shards": 1}))


def run_trial(app: App, given: TrialInput) -> TrialResult:
    """Run the app on a sample. ``InputError`` if a list is rejected or a record is of no input."""
    running = InProcessApp(app)
    clock_ms = time.time_ns() // 1_000_000 if given.clock_ms is None else given.clock_ms
    raw, places = _raw_records(app, given.records, clock_ms)
    lists = [control_record(number, key, value) for number, (key, value) in enumerate(given.lists)]
    output = running.cut_at([*lists, *raw], CutClock.at(clock_ms))
    counted = _count(running)
    ended = {source_partitions(record.source)[record.partition] for record in raw} if given.ends else set()
    output += running.cut_at([], CutClock.at(clock_ms + _LATER_MS), ended=ended)
    _raise_rejected(output)
    lanes = {
        lane: list[Row]() for lane in (*app.lanes, *sorted(app.tables)) if lane not in (DEAD_LETTERS, STATUS, LATE)
    }
    letters = []
    for record in output:
        if record.lane == DEAD_LETTERS:
            letters.append(_letter(record, places))
        elif record.lane != STATUS:
            lanes.setdefault(record.lane, []).extend(_rows(record, app.tables))
    return TrialResult(len(raw), lanes, letters, counted)


def _raw_records(
    app: App, records: Mapping[str, Sequence[SampleRecord]], clock_ms: int
) -> tuple[list[RawRecord], dict[tuple[str, int], str]]:
    """Return the records as a broker would hand them over, and their places in the sample by topic and offset. A record
    without a time of its own, as in a file, comes at the time of the clock."""
    topics = [source.topic for source in app.sources]
    numbers = {source.schema.name: topics.index(source.topic) for source in app.sources}
    offsets: Counter[int] = Counter()
    raw, places = [], {}
    for stream, samples in records.items():
        source = numbers[stream]
        for sample in samples:
            one, offset = sample.record, offsets[source]
            offsets[source] += 1
            headers = dict(one.headers or {})
            time_ms = clock_ms if one.timestamp_ms is None else one.timestamp_ms
            raw.append(RawRecord(source, 0, offset, one.value, one.key, time_ms, headers))
            places[topics[source], offset] = sample.place
    return raw, places


def _count(running: InProcessApp) -> dict[str, int]:
    found: Counter[str] = Counter()
    for output in running.outputs:
        if output.stage + 1 == len(running.app.stages):
            for name, value in output.metrics.counters.items():
                word = next((word for known, word in _COUNTED.items() if name.rpartition(".")[2] == known), None)
                if word is not None and value:
                    found[word] += value
    return dict(found)


def _raise_rejected(output: Iterable[Record]) -> None:
    """Raise ``InputError`` if the app rejected a list."""
    for record in output:
        if record.lane == STATUS:
            status = orjson.loads(record.value or b"{}")
            if status.get("status") != "accepted":
                raise InputError(f"--list: {status.get('rule') or status.get('list')}: {status.get('reason')}")


def _rows(record: Record, tables: Iterable[str]) -> Iterable[Row]:
    if record.lane not in tables:
        return [orjson.loads(record.value or b"null")]
    import polars as pl
    import pyarrow as pa

    from streamcore.wire.lane_rows import LaneRows

    table = pa.ipc.open_stream(record.value).read_all()
    frame = pl.from_arrow(table)
    assert isinstance(frame, pl.DataFrame), "rows of a table"
    return [orjson.loads(value) for value in LaneRows(record.lane, (), frame).values()]


def _letter(record: Record, places: Mapping[tuple[str, int], str]) -> TrialLetter:
    headers = {name: value.decode("utf-8", "replace") for name, value in record.headers}
    offset = headers.get("source_offset", "")
    place = places.get((headers.get("source_topic", ""), int(offset)), "") if offset.isdigit() else ""
    return TrialLetter(headers.get("reason_code", "unknown"), headers.get("reason", ""), place, record.value)
