"""Where a back-test's events come from: Parquet files, or ranges of topics. Both give batches of the events of streams.

Promises: rows of files become the events that a replay of the files of a stream into one partition would give, in the
order of the files' names, or by event time if files cover the same time; records of a topic become the events that the
app decodes of them. Records that cannot be decoded are counted with the decoder's reason.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from headgate.backtest.columns import convert
from headgate.backtest.file_order import (
    Reading,
    TimeSpan,
    is_out_of_order,
    merge_by_time,
    time_span,
    with_folder_columns,
)
from headgate.errors import InputError
from headgate.records.decoder import EventDecoder
from headgate.records.file_rows import count_rows, json_values, open_parquet, stream_columns
from headgate.records.formats import ALL_JSON, RecordFormats
from headgate.records.inputs import by_stream
from headgate.records.topic_decoder import TopicDecoder
from rulecore.backtest.backtest import EventBatch
from rulecore.streams import RuleInput
from streamcore.cuts.cut_clock import CutClock
from streamcore.kafka.range_reader import RangeReader
from streamcore.kafka.settings import KafkaSettings
from streamcore.offsets import PARTITIONS_PER_TOPIC, StreamOffsets, TopicPartition, next_offsets, ranges_between
from streamcore.schema import EVENT_MS, OFFSET, PARTITION, StreamSchema

BATCH = 200_000
_LEAST = 1_000  # rows of a file that are read at once
_SUFFIXES = (".parquet", ".pq")


# --- files -----------------------------------------------------------------------------------------------------------


def parquet_files(path: Path) -> list[Path]:
    """Return the file, or all Parquet files below a folder in order of their paths; ``InputError`` if there is
    none."""
    if not path.exists():
        raise InputError(f"--parquet: no such file or folder: {path}")
    files = sorted(p for p in path.rglob("*") if p.suffix.lower() in _SUFFIXES) if path.is_dir() else [path]
    if not files:
        raise InputError(f"--parquet: no *.parquet in {path}")
    return files


def files_by_stream(given: Sequence[str], source: RuleInput) -> dict[str, list[Path]]:
    """Return the files of each stream. ``given``: the values of ``--parquet``. Raises ``InputError`` if one is
    missing."""
    named = by_stream(given, source.schema.name, "--parquet")
    for one in source.streams:
        if one.schema.name not in named:
            raise InputError(f"--parquet {one.schema.name}=...: name the file or folder with the events of this stream")
    return {name: parquet_files(Path(text)) for name, text in named.items()}


def count_events(files: list[Path]) -> int:
    """Return the number of rows of all files."""
    return sum(count_rows(file) or 0 for file in files)


def file_batches(
    files: Mapping[str, list[Path]], source: RuleInput, clock_ms: int, limit: int | None = None, size: int = BATCH
) -> Iterator[tuple[int, EventBatch]]:
    """Yield batches of up to about ``size`` rows with their number. ``files``: by stream.

    The rows of a stream are events of one partition; the offset is the row number. Of several streams a batch has rows
    of each, in proportion to their numbers, as a cut of an app with a backlog has.
    """
    names = [one.schema.name for one in source.streams]
    rows = {name: count_events(files[name]) for name in names}
    total = max(1, sum(rows.values()))
    read = {}
    for number, one in enumerate(source.streams):
        name = one.schema.name
        most, count = (None if n is None else -(-n * rows[name] // total) for n in (limit, size))
        read[name] = _stream_batches(files[name], one.schema, clock_ms, most, max(1, count or 0), number)
    empty = {one.schema.name: pl.DataFrame(one.schema.arrow.empty_table()) for one in source.streams}
    ended: set[int] = set()
    while True:
        parts = {name: part for name in names if (part := next(read[name], None)) is not None}
        if not parts:
            return
        ended |= {number * PARTITIONS_PER_TOPIC for number, name in enumerate(names) if name not in parts}
        dead = sum((Counter(rejected) for _, _, rejected in parts.values()), Counter[str]())
        events = empty | {name: frame for name, (_, frame, _) in parts.items()}
        yield sum(count for count, _, _ in parts.values()), EventBatch(events, dead, frozenset(ended))


def _stream_batches(
    files: list[Path], schema: StreamSchema, clock_ms: int, limit: int | None, size: int, number: int
) -> Iterator[tuple[int, pl.DataFrame, Mapping[str, int]]]:
    """Yield the number of rows of each batch, its events, and its rejected rows by reason. ``number``: of the
    source."""
    decode = EventDecoder(schema, clock_ms)
    partition = pl.lit(number * PARTITIONS_PER_TOPIC, pl.Int32).alias(PARTITION)
    for count, events in _in_order(files, decode, size, limit):
        yield count, events.with_columns(partition), decode.take_dead_letters()


def _in_order(files: list[Path], decode: EventDecoder, size: int, limit: int | None) -> Reading:
    """Yield the events of files in the order of their paths, or by event time if that is not in order of time.

    The offset is the number of the row, in the order of paths.
    """
    spans = _spans(files, decode.schema) if len(files) > 1 else None
    if spans is not None and is_out_of_order([span for span, _, _ in spans]):
        piece = max(_LEAST, size // len(files))
        merged = merge_by_time(
            [(span, functools.partial(_read_file, file, decode, at, piece, None)) for span, file, at in spans], size
        )
        left = limit
        for count, events in merged:
            yield (count, events) if left is None else (min(count, left), events.head(left))
            left = None if left is None else left - events.height
            if left is not None and left <= 0:
                return
        return
    offset = 0
    for file in files:
        left = None if limit is None else limit - offset
        for count, events in _read_file(file, decode, offset, size, left):
            yield count, events
            offset += count


def _spans(files: Sequence[Path], schema: StreamSchema) -> list[tuple[TimeSpan, Path, int]] | None:
    """Return each file with rows, with its span of time and the number of rows before it; None if a span is unknown."""
    found, offset = [], 0
    for file in files:
        with open_parquet(file) as opened:
            span, rows = time_span(opened, schema, file), int(opened.metadata.num_rows)
        if span is None and rows:
            return None
        found += [] if span is None else [(span, file, offset)]
        offset += rows
    return found


def _read_file(file: Path, decode: EventDecoder, offset: int, size: int, limit: int | None) -> Reading:
    """Yield the rows of a file as events. ``offset``: of its first row. ``limit``: the most rows."""
    opened = open_parquet(file)
    names = stream_columns(list(opened.schema_arrow.names), decode.schema, file)
    left = limit
    for whole in opened.iter_batches(size):
        if left is not None and left <= 0:
            return
        part = whole if left is None else whole.slice(0, left)
        left = None if left is None else left - part.num_rows
        part = with_folder_columns(part, names, file, decode.schema)
        yield part.num_rows, _events(part, [*names, *part.schema.names[len(names) :]], decode, offset)
        offset += part.num_rows


def _events(part: pa.RecordBatch, names: list[str], decode: EventDecoder, offset: int) -> pl.DataFrame:
    named = pl.from_arrow(pa.RecordBatch.from_arrays(part.columns, names=names))
    assert isinstance(named, pl.DataFrame)
    columns, sure = convert(named, decode.schema)
    engine = columns.with_columns(
        pl.lit(0, pl.Int32).alias(PARTITION),
        pl.int_range(offset, offset + pl.len(), dtype=pl.Int64).alias(OFFSET),
        pl.col(decode.schema.event_time).alias(EVENT_MS),
    )
    if sure.all():
        return engine
    rows = (~sure).arg_true().to_numpy()
    some = part.take(pa.array(rows))
    read = decode.of_lines(json_values(some, names, decode.schema), (rows + offset).tolist())
    return pl.concat([engine.filter(sure), read.select(engine.columns)]).sort(OFFSET)


# --- topics ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TopicRange:
    """Offsets of the partitions of topics: from ``start`` (inclusive) to ``end`` (exclusive)."""

    start: Mapping[TopicPartition, int]
    end: Mapping[TopicPartition, int]

    @property
    def records(self) -> int:
        """Number of offsets in the range, including transaction marks and records that compaction has removed."""
        return sum(self.end[place] - self.start[place] for place in self.end)

    def partitions(self, source: RuleInput) -> list[int]:
        """Return the source partitions with records in the range."""
        return [_source_partition(source, place) for place in self.end if self.end[place] > self.start[place]]

    def first(self, limit: int) -> TopicRange:
        """Return about the first ``limit`` records of the range, shared among the partitions."""
        position = StreamOffsets(CutClock(), self.start)
        return TopicRange(self.start, next_offsets(position, self.end, limit, position.clock).offsets)


def topic_batches(
    kafka: KafkaSettings,
    wanted: TopicRange,
    source: RuleInput,
    clock_ms: int,
    formats: RecordFormats = ALL_JSON,
    size: int = BATCH,
) -> Iterator[tuple[int, EventBatch]]:
    """Yield batches of about ``size`` records with their number, divided as the app's cuts are."""
    streams = TopicDecoder(source, clock_ms, formats)
    numbers = {topic: source.source(topic) for topic in source.topics}
    position = StreamOffsets(CutClock(), wanted.start)
    with closing(RangeReader(kafka)) as reader:
        while any(wanted.end[place] > position.offsets[place] for place in wanted.end):
            after = next_offsets(position, wanted.end, size, position.clock)
            todo = ranges_between(position, after, numbers)
            batches = reader.read(todo, timestamps=streams.reads_timestamps, headers=streams.headers)
            read = [streams(part, topic) for one in batches for topic, part in _by_topic(one, source)]
            events = {
                name: pl.concat([none, *(one[name] for one in read if name in one)]).sort(PARTITION, OFFSET)
                for name, none in streams.no_events().items()
            }
            ended = frozenset(
                _source_partition(source, place) for place, end in wanted.end.items() if after.offsets[place] >= end
            )
            yield sum(s.end - s.start for s in todo), EventBatch(events, streams.take_dead_letters(), ended)
            position = after


def _by_topic(batch: pa.RecordBatch, source: RuleInput) -> Iterator[tuple[str, pa.RecordBatch]]:
    numbers = batch.column("source")
    for number in sorted(pc.unique(numbers).to_pylist()):
        yield source.topics[number], batch.filter(pc.equal(numbers, number))


def _source_partition(source: RuleInput, place: TopicPartition) -> int:
    return source.source(place[0]) * PARTITIONS_PER_TOPIC + place[1]
