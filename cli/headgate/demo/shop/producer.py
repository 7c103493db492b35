"""Sends the stream of the demo shop to its topics, and continues where an earlier run stopped.

Promises: however a run ends (kill -9 included), each partition holds its records of the stream from the first up to
some record without a gap, and the next run continues each partition with the next record. For that, every record
carries its index as a header, the producer is idempotent (a partition's records stay in order), and a run begins by
reading the last record of every partition. The topics must hold no other records.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from headgate.demo.shop.feed import Feed, RoutedRecord
from headgate.demo.shop.settings import EVENTS_PER_BLOCK
from streamcore.errors import ConfigError, Retryable
from streamcore.kafka import data_clients as clients
from streamcore.kafka.readers import Follower, end_offsets
from streamcore.kafka.settings import KafkaSettings

INDEX_HEADER: Final = "shop-index"
#: The number of records that an app must have processed before a late record is certain to be late for it.
PRIMER: Final = EVENTS_PER_BLOCK
#: A topic and the number of one of its partitions.
Partition = tuple[str, int]
_CHUNK: Final = 200
_FLUSH_S: Final = 60.0
_READ_LAST_MS: Final = 30_000


@dataclass(frozen=True, slots=True)
class SendRate:
    """``per_second``: records per second; None: no limit. A record whose event time is ahead of ``now_ms`` waits."""

    per_second: float | None = None
    now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000
    sleep: Callable[[float], None] = time.sleep


@dataclass(frozen=True, slots=True)
class SendProgress:
    """``sent``: the records that this run has handed to the Kafka client. ``next_index``: the index of the next one."""

    sent: int
    next_index: int


def positions(settings: KafkaSettings, topics: Sequence[str]) -> dict[Partition, int]:
    """Return, for each partition of the topics, the index after that of its last record (0 for an empty partition)."""
    ends = end_offsets(settings, topics)
    last_offsets = {partition: end - 1 for partition, end in ends.items() if end > 0}
    last = dict.fromkeys(ends, 0)
    deadline = time.monotonic() + _READ_LAST_MS / 1_000
    with Follower(settings, topics, since=ends | last_offsets) as follower:
        while last_offsets:
            if time.monotonic() > deadline:
                raise Retryable(f"topics {', '.join(topics)}: their last records could not be read; is the broker up?")
            for record in follower.poll(200):
                partition = (record.topic, record.partition)
                if record.offset == last_offsets.get(partition):
                    del last_offsets[partition]
                    last[partition] = _index(record.topic, record.header(INDEX_HEADER)) + 1
    return last


def _index(topic: str, header: bytes | None) -> int:
    if header is None or not header.isdigit():
        raise ConfigError(f"topic {topic}: holds records that are not of the demo shop; use another topic or delete it")
    return int(header)


def produce(
    settings: KafkaSettings,
    feed: Feed,
    *,
    end: int | None = None,
    rate: SendRate | None = None,
    should_stop: Callable[[], bool] = lambda: False,
    on_progress: Callable[[SendProgress], None] = lambda _: None,
) -> SendProgress:
    """Send all records before index ``end`` (None: without end) that their topics do not hold yet.

    Returns when Kafka has acknowledged them all, or soon after ``should_stop`` returns True. ``on_progress`` is called
    after every chunk of at most ``_CHUNK`` records. Raises ``Retryable`` if Kafka does not acknowledge a record, and
    ``ConfigError`` if a topic holds records of another producer.
    """
    rate = rate or SendRate()
    next_by_partition = positions(settings, feed.topics)
    progress = SendProgress(0, min(next_by_partition.values()))
    sender = _Sender(settings, feed.topics)
    partitions = Counter(topic for topic, _ in next_by_partition)
    for chunk in _chunks(feed, partitions, next_by_partition, end, rate):
        sender.send(chunk, partitions)
        progress = SendProgress(progress.sent + len(chunk), chunk[-1].record.index + 1)
        on_progress(progress)
        if should_stop():
            break
    else:
        progress = SendProgress(progress.sent, max(progress.next_index, end or 0))
    sender.finish()
    return progress


class _Sender:
    """A Kafka producer that gives up at the first undelivered record, because later records must not overtake it."""

    def __init__(self, settings: KafkaSettings, topics: Sequence[str]) -> None:
        self.settings = settings
        self.source = f"topic {', '.join(topics)}"
        self.client = clients.producer(settings)
        self.failed: list[str] = []

    def send(self, chunk: Sequence[RoutedRecord], partitions: Mapping[str, int]) -> None:
        with clients.naming_errors(self.settings, f"produce to {self.source}"):
            for routed in chunk:
                while not self._enqueue(routed, partitions[routed.topic]):
                    self.client.poll(0.1)
            self.client.poll(0)
        self._raise_if_failed()

    def finish(self) -> None:
        with clients.naming_errors(self.settings, f"produce to {self.source}"):
            unsent = self.client.flush(_FLUSH_S)
        if unsent:
            self.failed.append(f"{unsent} records were not acknowledged in {_FLUSH_S:.0f} s")
        self._raise_if_failed()

    def _enqueue(self, routed: RoutedRecord, partitions: int) -> bool:
        """Return False while the client's queue is full."""
        record = routed.record
        try:
            self.client.produce(
                routed.topic,
                record.value,
                record.key,
                partition=record.partition(partitions),
                headers=[(INDEX_HEADER, b"%d" % record.index)],
                on_delivery=self._on_delivery,
            )
        except BufferError:
            return False
        return True

    def _on_delivery(self, error: object, _message: object) -> None:
        if error is not None:
            self.failed.append(str(error))

    def _raise_if_failed(self) -> None:
        if self.failed:
            self.client.purge()
            raise Retryable(
                f"kafka {self.settings.bootstrap}: {self.source}: {self.failed[0]}; is the broker up? Run the"
                " command again: it continues where it stopped"
            )


def _chunks(
    feed: Feed,
    partitions: Mapping[str, int],
    next_by_partition: Mapping[Partition, int],
    end: int | None,
    rate: SendRate,
) -> Iterator[list[RoutedRecord]]:
    """Yield the missing records in chunks, and sleep between chunks to keep the rate."""
    started_s, sent, chunk = time.monotonic(), 0, list[RoutedRecord]()
    size = _CHUNK if rate.per_second is None else max(1, min(_CHUNK, int(rate.per_second / 20)))
    for routed in feed.records(min(next_by_partition.values()), end):
        if routed.record.index < next_by_partition[routed.topic, routed.record.partition(partitions[routed.topic])]:
            continue
        while (ahead_ms := feed.shop.time_ms(routed.record.index) - rate.now_ms()) > 0:
            if chunk:
                yield chunk
                chunk = []
            rate.sleep(min(ahead_ms / 1_000, 0.5))
        chunk.append(routed)
        if len(chunk) == size:
            yield chunk
            sent, chunk = sent + len(chunk), []
            if rate.per_second is not None:
                rate.sleep(max(0.0, started_s + sent / rate.per_second - time.monotonic()))
    if chunk:
        yield chunk
