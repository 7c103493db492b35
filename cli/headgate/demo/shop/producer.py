"""Sends an invented stream to its topics, and goes on where it stopped.

Promises: whatever way a run ends (a kill -9 included), a topic holds, for each partition, a beginning of that
partition's part of the stream, and the next run continues each part exactly behind it. For that, every record carries
its index as a header, the producer is idempotent (a partition's records stay in order), and a run begins with a look at
the last record of every partition. The topics must hold nothing else.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from headgate.demo.shop.feed import Feed, RoutedRecord
from headgate.demo.shop.settings import BLOCK
from streamcore.errors import ConfigError, Retryable
from streamcore.kafka import data_clients as clients
from streamcore.kafka.readers import Follower, end_offsets
from streamcore.kafka.settings import KafkaSettings

INDEX_HEADER: Final = "shop-index"
#: Send so many first and let the app finish a cut with them: only then is a late record certain to be late.
PRIMER: Final = BLOCK
#: Topic and number.
Partition = tuple[str, int]
_CHUNK: Final = 200
_FLUSH_S: Final = 60.0
_READ_LAST_MS: Final = 30_000


@dataclass(frozen=True, slots=True)
class SendRate:
    """``per_second``: records, None for as many as go. An event later than the clock waits for the clock."""

    per_second: float | None = None
    now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000
    sleep: Callable[[float], None] = time.sleep


@dataclass(frozen=True, slots=True)
class SendProgress:
    """The progress of a run: records handed to the client by this run, and the index of the next one."""

    sent: int
    next_index: int


def positions(settings: KafkaSettings, topics: Sequence[str]) -> dict[Partition, int]:
    """For each partition of the topics, the index after that of its last record (0 for an empty partition)."""
    ends = end_offsets(settings, topics)
    wanted = {place: end - 1 for place, end in ends.items() if end > 0}
    last = dict.fromkeys(ends, 0)
    deadline = time.monotonic() + _READ_LAST_MS / 1_000
    with Follower(settings, topics, since=ends | wanted) as follower:
        while wanted:
            if time.monotonic() > deadline:
                raise Retryable(f"topics {', '.join(topics)}: their last records could not be read; is the broker up?")
            for record in follower.poll(200):
                place = (record.topic, record.partition)
                if record.offset == wanted.get(place):
                    del wanted[place]
                    last[place] = _index(record.topic, record.header(INDEX_HEADER)) + 1
    return last


def _index(topic: str, header: bytes | None) -> int:
    if header is None or not header.isdigit():
        raise ConfigError(f"topic {topic}: holds records that the shop did not make; use another topic or delete it")
    return int(header)


def produce(
    settings: KafkaSettings,
    feed: Feed,
    *,
    stop: int | None = None,
    pace: SendRate | None = None,
    stopping: Callable[[], bool] = lambda: False,
    on_progress: Callable[[SendProgress], None] = lambda _: None,
) -> SendProgress:
    """Send all records before index ``stop`` (None: without end) that their topics do not hold yet.

    Returns when they are all acknowledged, or soon after ``stopping`` returns True. ``on_progress`` is called every
    ``_CHUNK`` records. Raises ``streamcore.errors``.
    """
    pace = pace or SendRate()
    done = positions(settings, feed.topics)
    progress = SendProgress(0, min(done.values()))
    sender = _Sender(settings, feed.topics)
    partitions = Counter(topic for topic, _ in done)
    for chunk in _chunks(feed, partitions, done, stop, pace):
        sender.send(chunk, partitions)
        progress = SendProgress(progress.sent + len(chunk), chunk[-1].record.index + 1)
        on_progress(progress)
        if stopping():
            break
    else:
        progress = SendProgress(progress.sent, max(progress.next_index, stop or 0))
    sender.finish()
    return progress


class _Sender:
    """A producer that stops at the first undelivered record, because later records must not overtake it."""

    def __init__(self, settings: KafkaSettings, topics: Sequence[str]) -> None:
        self.settings = settings
        self.where = f"topic {', '.join(topics)}"
        self.client = clients.producer(settings)
        self.failed: list[str] = []

    def send(self, chunk: Sequence[RoutedRecord], partitions: Mapping[str, int]) -> None:
        with clients.naming_errors(self.settings, f"produce to {self.where}"):
            for one in chunk:
                while not self._enqueue(one, partitions[one.topic]):
                    self.client.poll(0.1)
            self.client.poll(0)
        self._raise_if_failed()

    def finish(self) -> None:
        with clients.naming_errors(self.settings, f"produce to {self.where}"):
            unsent = self.client.flush(_FLUSH_S)
        if unsent:
            self.failed.append(f"{unsent} records were not acknowledged in {_FLUSH_S:.0f} s")
        self._raise_if_failed()

    def _enqueue(self, one: RoutedRecord, partitions: int) -> bool:
        """Return False while the client's queue is full."""
        record = one.record
        try:
            self.client.produce(
                one.topic,
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
                f"kafka {self.settings.bootstrap}: {self.where}: {self.failed[0]}; is the broker up? Run it"
                " again, it goes on where it stopped"
            )


def _chunks(
    feed: Feed, partitions: Mapping[str, int], done: Mapping[Partition, int], stop: int | None, pace: SendRate
) -> Iterator[list[RoutedRecord]]:
    """Yield the missing records in paced chunks."""
    begun, sent, chunk = time.monotonic(), 0, list[RoutedRecord]()
    size = _CHUNK if pace.per_second is None else max(1, min(_CHUNK, int(pace.per_second / 20)))
    for one in feed.records(min(done.values()), stop):
        if one.record.index < done[one.topic, one.record.partition(partitions[one.topic])]:
            continue
        while (ahead_ms := feed.shop.time_ms(one.record.index) - pace.now_ms()) > 0:
            if chunk:
                yield chunk
                chunk = []
            pace.sleep(min(ahead_ms / 1_000, 0.5))
        chunk.append(one)
        if len(chunk) == size:
            yield chunk
            sent, chunk = sent + len(chunk), []
            if pace.per_second is not None:
                pace.sleep(max(0.0, begun + sent / pace.per_second - time.monotonic()))
    if chunk:
        yield chunk
