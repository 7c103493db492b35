"""Dead letters of an app: pages of them, their counts by code, one by its position."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from headgate.dead_letters.model import DeadLetter, DeadLetterFilter, to_dead_letter
from headgate.dead_letters.resend import read_sent_positions
from headgate.errors import InputError
from headgate.explain.kafka_reader import KafkaReader, KafkaRecord
from headgate.web.problems import not_found
from headgate.web.state.code_counts import CodeCounts
from headgate.web.state.lanes.newest_first import NewestFirst
from headgate.web.state.values import DeadLetterPage, DeadLetterValue
from streamcore.kafka.readers import Record, scan_topic
from streamcore.kafka.settings import KafkaSettings
from streamcore.wire.lanes import DEAD_LETTERS

_HEADERS = ("source_topic", "source_partition", "source_offset", "reason_code", "reason")


@dataclass(frozen=True, slots=True)
class DeadLetterReader:
    """Reads the dead letters of an app. ``scan``: the most records that one search reads."""

    kafka: KafkaSettings
    app: str
    scan: int
    codes: CodeCounts = field(init=False)

    def __post_init__(self) -> None:
        """Make the counts; the topic is read when they are asked first."""
        object.__setattr__(self, "codes", CodeCounts(self.kafka, self.topic, self.scan, _HEADERS))

    @property
    def topic(self) -> str:
        """The topic of the dead letters."""
        return f"{self.app}.{DEAD_LETTERS}"

    def page(self, wanted: DeadLetterFilter, limit: int, below: Mapping[int, int]) -> DeadLetterPage:
        """Return up to ``limit`` dead letters, the newest first, and the counts by code of the newest ``scan``."""
        rows, found = NewestFirst(self._reader(), self.topic, dict(below)), list[DeadLetter]()
        for record in rows:
            dead_letter = to_dead_letter(_as_record(record))
            if wanted.matches(dead_letter):
                found.append(dead_letter)
            if len(found) >= limit or rows.read >= self.scan:
                break
        sent = read_sent_positions(self.kafka, self.topic) if found else set[str]()
        codes, read = self.codes.read()
        shown = tuple(_value(one, sent) for one in found)
        return DeadLetterPage(dead_letters=shown, codes=codes, read=read, next=rows.cursor)

    def find(self, partition: int, offset: int) -> DeadLetterValue:
        """Return the dead letter at a position. ``ProblemError`` if there is none."""
        record = self._record(partition, offset)
        return _value(to_dead_letter(_as_record(record)), read_sent_positions(self.kafka, self.topic))

    def letter(self, partition: int, offset: int) -> DeadLetter:
        """Return the dead letter at a position with all that is needed to send it again. ``ProblemError`` if there is
        none."""
        self._record(partition, offset)
        ends = self._reader().bounds(self.topic)[1]
        behind = ends[self.topic, partition] - offset
        for record in scan_topic(self.kafka, self.topic, last_offsets=behind):
            if (record.partition, record.offset) == (partition, offset):
                return to_dead_letter(record)
        raise not_found(f"{self.topic} {partition}/{offset}: the record is gone")

    def _record(self, partition: int, offset: int) -> KafkaRecord:
        try:
            return self._reader().record(self.topic, partition, offset)
        except InputError as error:
            raise not_found(str(error)) from None

    def _reader(self) -> KafkaReader:
        reader = KafkaReader(self.kafka)
        reader.headers = _HEADERS
        return reader


def _as_record(record: KafkaRecord) -> Record:
    headers = tuple((name, value) for name, value in record.headers.items() if value is not None)
    return Record(record.topic, record.partition, record.offset, record.timestamp_ms, record.key, record.value, headers)


def _value(letter: DeadLetter, sent: set[str]) -> DeadLetterValue:
    source = letter.source
    return DeadLetterValue(
        at=letter.position,
        time_ms=letter.timestamp_ms,
        code=letter.code,
        reason=letter.reason,
        source=None if source is None else f"{source.topic}:{source.partition}:{source.offset}",
        key=show_bytes(letter.key),
        value=show_bytes(letter.value),
        sent_again=letter.position in sent,
    )


def show_bytes(value: bytes | None) -> str | None:
    """Return bytes as text; those that are none are escaped."""
    return None if value is None else value.decode(errors="backslashreplace")
