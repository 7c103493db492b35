"""Sends the demo shop's records from a thread, at a given rate, until it is stopped.

Promises: only the events that the shop means to be late are late. An event is late if an earlier cut has moved the
watermark past its time; before the first cut there is no watermark. So a new stream begins with primers: a primer is a
portion of records whose event times span less than the app's allowance for disorder, followed by a pause until the app
has processed them.

The position in the stream is read from the topics (``headgate.demo.shop.producer``), so a stop or a crash loses and
repeats no record.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from headgate.demo.shop.feed import Feed
from headgate.demo.shop.producer import SendProgress, SendRate, positions, produce
from headgate.demo.shop.settings import EVENTS_PER_BLOCK, RecordFate
from streamcore.errors import StreamError
from streamcore.kafka.readers import end_offsets
from streamcore.kafka.settings import KafkaSettings

#: The number of records of a primer: 5 s of event time. With the stream's own disorder of 4 s (``stream._JITTER_MS``)
#: this is less than the app's allowance of 10 s.
PRIMER: Final = 50
_WAIT_S: Final = 0.05
#: The number of progress reports from which ``waiting_s`` finds the time at which a record was sent.
_KEPT: Final = 4_000


@dataclass(frozen=True, slots=True)
class GeneratorSettings:
    """``events``: the number to send (None: without end). ``per_second``: events per second (None: no limit)."""

    events: int | None = None
    per_second: float | None = None


def primers(feed: Feed, start: int, partitions: int) -> Iterator[int]:
    """Yield the end of each primer after ``start``, as an index, until every partition that determines the watermark
    has a valid record.

    No primer crosses the end of a block, because event time jumps between blocks.
    """
    missing = {(topic, partition) for topic in feed.topics[: feed.clocks] for partition in range(partitions)}
    for end in range(start + 1, start + EVENTS_PER_BLOCK + 1):
        if (end - start) % PRIMER and end % EVENTS_PER_BLOCK:
            continue
        yield end
        begin = max(start, end - PRIMER)
        valid = (routed for routed in feed.records(begin, end) if routed.record.fate is RecordFate.EVENT)
        missing.difference_update((routed.topic, routed.record.partition(partitions)) for routed in valid)
        if not missing:
            return


class Generator:
    """Sends a feed from a thread, once. ``processed`` returns the number of records that the app has processed.

    ``next_index``: the index of the next event of the stream. ``sent``: the number of records in the topics.
    """

    def __init__(
        self, kafka: KafkaSettings, feed: Feed, settings: GeneratorSettings, processed: Callable[[], int]
    ) -> None:
        self._kafka = kafka
        self._feed = feed
        self._settings = settings
        self._processed = processed
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="generator", daemon=True)
        self._sent: deque[tuple[float, int]] = deque(maxlen=_KEPT)
        self._failure: BaseException | None = None
        self._partitions = 0
        self._sent_before = 0
        self.first_index = 0
        self.next_index = 0
        self.sent = 0

    def start(self) -> None:
        """Read the position of the stream from the topics, and start the thread that sends from there."""
        next_by_partition = positions(self._kafka, self._feed.topics)
        self.first_index = self.next_index = max(next_by_partition.values())
        self._partitions = sum(topic == self._feed.topics[0] for topic, _ in next_by_partition)
        self.sent = self._sent_before = sum(end_offsets(self._kafka, self._feed.topics).values())
        self._thread.start()

    def raise_if_ended(self) -> None:
        """Raise the error that ended the generator, if any."""
        if self._failure is not None:
            raise self._failure

    @property
    def done(self) -> bool:
        """Whether Kafka has acknowledged all records that were to be sent."""
        return not self._thread.is_alive() and self._failure is None

    @property
    def newest_event_ms(self) -> int | None:
        """The undisturbed event time of the last record sent, in epoch milliseconds; None before the first one."""
        return None if self.next_index == 0 else self._feed.shop.time_ms(self.next_index - 1)

    def waiting_s(self, processed: int) -> float:
        """Return the seconds since the first record was sent that the app has not processed; 0 if there is none."""
        if processed >= self.sent:
            return 0.0
        return time.monotonic() - next((when for when, sent in [*self._sent] if sent > processed), time.monotonic())

    def stop(self, limit_s: float) -> bool:
        """Stop once Kafka has acknowledged the records already handed over. Return False if that takes longer than
        ``limit_s`` seconds."""
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join(limit_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            self._send()
        except (StreamError, OSError) as error:
            self._failure = error

    def _send(self) -> None:
        events = self._settings.events
        end = None if events is None else self.first_index + events
        self._produce(self.first_index)  # after a kill, some partitions may be behind the others
        for primer_end in primers(self._feed, 0, self._partitions) if self.first_index == 0 else ():
            if (end is not None and primer_end >= end) or self._stop.is_set():
                break
            self._produce(primer_end)
            while self._processed() < self.sent and not self._stop.wait(_WAIT_S):
                pass
        if not self._stop.is_set():
            self._produce(end)

    def _produce(self, end: int | None) -> None:
        progress = produce(
            self._kafka,
            self._feed,
            end=end,
            rate=SendRate(self._settings.per_second),
            should_stop=self._stop.is_set,
            on_progress=self._set_progress,
        )
        self._set_progress(progress)
        self._sent_before += progress.sent

    def _set_progress(self, progress: SendProgress) -> None:
        self.next_index = max(self.next_index, progress.next_index)
        self.sent = self._sent_before + progress.sent
        self._sent.append((time.monotonic(), self.sent))
