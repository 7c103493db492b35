"""Where a back-test's events come from: Parquet files, or a range of a topic. Both give batches of the stream's events.

Promises: rows of files become the events that a replay of the files into one partition would give, in the order of the
files' names; records of a topic become the events that the app decodes of them. Records that cannot be decoded are
counted with the decoder's reason.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import polars as pl
import pyarrow as pa

from headgate.backtest.columns import convert
from headgate.errors import InputError
from headgate.records.decoder import EventDecoder
from headgate.records.file_rows import count_rows, json_values, open_parquet, stream_columns
from headgate.records.formats import ALL_JSON, RecordFormats
from rulecore.backtest.backtest import EventBatch
from streamcore.cuts.cut_clock import CutClock
from streamcore.kafka.range_reader import RangeReader
from streamcore.kafka.settings import KafkaSettings
from streamcore.offsets import PARTITIONS_PER_TOPIC, StreamOffsets, TopicPartition, next_offsets, ranges_between
from streamcore.schema import EVENT_MS, OFFSET, PARTITION, StreamSchema
from streamcore.schema.record_layout import header_names, reads_timestamps

BATCH = 200_000
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


def count_events(files: list[Path]) -> int:
    """Return the number of rows of all files."""
    return sum(count_rows(file) or 0 for file in files)


def file_batches(
    files: list[Path], schema: StreamSchema, clock_ms: int, limit: int | None = None, size: int = BATCH
) -> Iterator[tuple[int, EventBatch]]:
    """Yield batches of up to ``size`` rows with their number, as events of one partition; the offset is the row
    number."""
    decode = EventDecoder(schema, clock_ms)
    offset, left = 0, limit
    for file in files:
        source = open_parquet(file)
        names = stream_columns(list(source.schema_arrow.names), schema, file)
        for whole in source.iter_batches(size):
            if left is not None and left <= 0:
                return
            part = whole if left is None else whole.slice(0, left)
            left = None if left is None else left - part.num_rows
            events = _events(part, names, decode, offset)
            yield part.num_rows, EventBatch(events, decode.take_dead_letters())
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


# --- a topic ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TopicRange:
    """Offsets of a topic's partitions: from ``start`` (inclusive) to ``end`` (exclusive)."""

    topic: str
    start: Mapping[TopicPartition, int]
    end: Mapping[TopicPartition, int]

    @property
    def records(self) -> int:
        """Number of offsets in the range, including transaction marks and records that compaction has removed."""
        return sum(self.end[place] - self.start[place] for place in self.end)

    @property
    def partitions(self) -> list[int]:
        """The partitions with records in the range."""
        return [place[1] for place in self.end if self.end[place] > self.start[place]]

    def first(self, limit: int) -> TopicRange:
        """Return about the first ``limit`` records of the range, shared among the partitions."""
        position = StreamOffsets(CutClock(), self.start)
        return TopicRange(self.topic, self.start, next_offsets(position, self.end, limit, position.clock).offsets)


def topic_batches(
    kafka: KafkaSettings,
    wanted: TopicRange,
    schema: StreamSchema,
    clock_ms: int,
    formats: RecordFormats = ALL_JSON,
    size: int = BATCH,
) -> Iterator[tuple[int, EventBatch]]:
    """Yield batches of about ``size`` records with their number, divided as the app's cuts are."""
    decode = formats.decoder(schema, wanted.topic, clock_ms)
    position = StreamOffsets(CutClock(), wanted.start)
    with closing(RangeReader(kafka)) as reader:
        while any(wanted.end[place] > position.offsets[place] for place in wanted.end):
            after = next_offsets(position, wanted.end, size, position.clock)
            todo = ranges_between(position, after, {wanted.topic: 0})
            batches = reader.read(todo, timestamps=reads_timestamps(schema), headers=header_names(schema))
            read = [decode(one, wanted.topic) for one in batches]
            events = pl.concat(read) if read else pl.DataFrame(schema.arrow.empty_table())
            ended = frozenset(p for (_, p), end in wanted.end.items() if after.offsets[wanted.topic, p] >= end)
            yield (
                sum(s.end - s.start for s in todo),
                EventBatch(events.sort(PARTITION, OFFSET), decode.take_dead_letters(), ended),
            )
            position = after


assert PARTITIONS_PER_TOPIC > 0, "a single topic's partitions are numbered as they are"
