"""Where the inputs of an app begin and end: offsets or times of topics, and files, which may come before a topic.

A bounded app reads each input to its end, with the watermark at the end of time in the cut that reaches it, and stops.
The bounds are fixed at the first start and stored beside the offsets of the cuts, so that a restart, or a file that is
added meanwhile, changes nothing. A stream with files and a topic reads the files to their end first; the partitions of
the topic hold the watermark back from the cut that ends the files.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from streamcore.app import App
from streamcore.checkpoint.offset_log import OffsetLog
from streamcore.errors import ConfigError, CorruptState
from streamcore.files.listing import FileRange, InputFile, list_input, ranges
from streamcore.offsets import FILES_PARTITION, PartitionOffsets, StreamOffsets, TopicPartition

EARLIEST, LATEST = "earliest", "latest"


@dataclass(frozen=True, slots=True)
class InputBounds:
    """``ends``: the offset at which each partition of a topic ends; None if topics have no end. ``files``: the files of
    each stream that has some, by its topic."""

    ends: Mapping[TopicPartition, int] | None = None
    files: Mapping[str, tuple[InputFile, ...]] = field(default_factory=dict)

    def file_rows(self, topic: str) -> int:
        """Return the number of rows in the files of a topic."""
        return sum(file.rows for file in self.files.get(topic, ()))

    def file_ranges(self, topic: str, start: int, end: int) -> tuple[FileRange, ...]:
        """Return the rows of files between two offsets."""
        return tuple(ranges(self.files[topic], start, end))

    def waits(self, place: TopicPartition, read: StreamOffsets) -> bool:
        """Return whether this partition waits for the files of its stream."""
        topic, partition = place
        if partition == FILES_PARTITION or topic not in self.files:
            return False
        return read.offsets.get((topic, FILES_PARTITION), 0) < self.file_rows(topic)

    def limit(
        self, start: StreamOffsets, ends: Mapping[TopicPartition, int], control: str
    ) -> dict[TopicPartition, int]:
        """Return up to where each partition may be read now."""
        limited = {}
        for place, end in ends.items():
            known = start.offsets.get(place, 0)
            if place[0] == control:
                limited[place] = end
            elif self.waits(place, start):
                limited[place] = known
            elif self.ends is None or place[1] == FILES_PARTITION:
                limited[place] = end
            else:
                limited[place] = max(known, min(end, self.ends.get(place, known)))
        return limited

    def ended(self, read: StreamOffsets, control: str) -> list[TopicPartition]:
        """Return the partitions that are read to their end."""
        places = [place for place in read.offsets if place[0] != control and not self.waits(place, read)]
        return [place for place in places if self._is_read(place, read.offsets[place])]

    def is_finished(self, read: StreamOffsets, control: str) -> bool:
        """Return whether all inputs have an end and are read to it."""
        if self.ends is None:
            return False
        places = [place for place in read.offsets if place[0] != control]
        return all(self._is_read(place, read.offsets[place]) for place in places)

    def _is_read(self, place: TopicPartition, offset: int) -> bool:
        topic, partition = place
        if partition == FILES_PARTITION:
            return offset >= self.file_rows(topic)
        return self.ends is not None and offset >= self.ends.get(place, 0)

    def to_json(self) -> dict[str, object]:
        """Convert to the JSON document that is stored."""
        ends = None if self.ends is None else [[t, p, end] for (t, p), end in sorted(self.ends.items())]
        return {"ends": ends, "files": {t: [[f.path, f.rows] for f in files] for t, files in self.files.items()}}

    @classmethod
    def from_json(cls, document: Mapping[str, object]) -> InputBounds:
        """Parse the value that ``to_json`` returned; ``CorruptState`` for anything else."""
        ends, files = document.get("ends"), document.get("files")
        if not (ends is None or isinstance(ends, list)) or not isinstance(files, dict):
            raise CorruptState(f"bounds of the inputs: {document} are none of ours; start with a new checkpoint")
        return cls(
            None if ends is None else {(t, p): end for t, p, end in ends},
            {topic: tuple(InputFile(path, rows) for path, rows in found) for topic, found in files.items()},
        )


class InputOffsets:
    """Adds the files of streams to the offsets of topics (``PartitionOffsets``)."""

    def __init__(self, topics: PartitionOffsets, files: Mapping[TopicPartition, int]) -> None:
        self._topics = topics
        self._files = files

    def earliest(self) -> Mapping[TopicPartition, int]:
        """See ``PartitionOffsets``."""
        return {**self._topics.earliest(), **dict.fromkeys(self._files, 0)}

    def latest(self) -> Mapping[TopicPartition, int]:
        """See ``PartitionOffsets``."""
        return {**self._topics.latest(), **self._files}

    def for_timestamp(self, time_ms: int) -> Mapping[TopicPartition, int]:
        """See ``PartitionOffsets``. Files have no times: all their rows count as earlier."""
        return {**self._topics.for_timestamp(time_ms), **self._files}


def open_bounds(app: App, log: OffsetLog, topics: PartitionOffsets, ending: str | None) -> InputBounds:
    """Return the bounds of the inputs: those that the first start has stored, or new ones, which are stored.

    ``topics``: of Kafka. ``ending``: where topics end (``offsets.PLACE_PATTERN``); None: no end, unless the app reads
    files only. ``ConfigError`` if there are no files.
    """
    has_files = any(source.files is not None for source in app.sources)
    only_files = not any(source.live for source in app.sources)
    if not has_files and ending is None:
        return InputBounds()
    stored = log.read_inputs()
    if stored is not None:
        return InputBounds.from_json(stored)
    ends = None
    if ending is not None or only_files:
        where = {} if ending is None else resolve(ending, topics, "ending_offsets")
        ends = {place: end for place, end in where.items() if place[0] != app.control_topic}
    bounds = InputBounds(ends, {s.topic: list_input(s.files) for s in app.sources if s.files is not None})
    log.write_inputs(bounds.to_json())
    return bounds


def with_files(topics: PartitionOffsets, bounds: InputBounds) -> PartitionOffsets:
    """Return the offsets of topics and files."""
    if not bounds.files:
        return topics
    return InputOffsets(topics, {(topic, FILES_PARTITION): bounds.file_rows(topic) for topic in bounds.files})


def resolve(where: str, topics: PartitionOffsets, setting: str) -> Mapping[TopicPartition, int]:
    """Return the offset of each partition at a place: ``earliest``, ``latest``, an offset, or a time with its zone."""
    if where == EARLIEST:
        return topics.earliest()
    if where == LATEST:
        return topics.latest()
    if where.isdecimal():
        return dict.fromkeys(topics.latest(), int(where))
    try:
        time = datetime.datetime.fromisoformat(where)
    except ValueError:
        time = None
    if time is None or time.tzinfo is None:
        raise ConfigError(
            f"{setting} {where!r}: write earliest, latest, an offset, or a time with its zone: 2026-12-01T08:00:00Z"
        )
    return topics.for_timestamp(round(time.timestamp() * 1_000))


def kafka_topics(app: App) -> Iterable[str]:
    """Return the topics that the app reads from Kafka: streams of files alone have none."""
    return dict.fromkeys([app.control_topic, *(source.topic for source in app.sources if source.live)])
