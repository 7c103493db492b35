"""The invented shop as a thread: sends events at a pace, can be stopped, and never makes an event late by accident.

Lateness depends on the records that the app has read before, and before its first cut it has read none. So a new
stream begins with primers: few records, together no longer than the app allows for disorder, and then a pause until
their cut is done.

Positions live in the topics themselves (``headgate.demo.shop.producer``), so a stop of any kind loses and repeats
nothing.
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
from headgate.demo.shop.settings import BLOCK, RecordFate
from streamcore.errors import StreamError
from streamcore.kafka.readers import end_offsets
from streamcore.kafka.settings import KafkaSettings

#: Records of a primer: 5 s of event time, which with the stream's own disorder stays below what the app allows.
PRIMER: Final = 50
_WAIT_S: Final = 0.05
_KEPT: Final = 4_000


@dataclass(frozen=True, slots=True)
class GeneratorSettings:
    """The records to send: ``events`` more (None: without end), so many per second (None: as fast as possible)."""

    events: int | None = None
    per_second: float | None = None


def primers(feed: Feed, start: int, partitions: int) -> Iterator[int]:
    """Where to pause after ``start``: as often as it takes until every partition of the topics whose event time counts
    has had a good record.

    No primer crosses a block, for time jumps between blocks.
    """
    clocks = feed.topics[: feed.clocks]
    missing = {(topic, partition) for topic in clocks for partition in range(partitions)}
    for end in range(start + 1, start + BLOCK + 1):
        if (end - start) % PRIMER and end % BLOCK:
            continue
        yield end
        begin = max(start, end - PRIMER)
        good = (one for one in feed.records(begin, end) if one.record.fate is RecordFate.EVENT)
        missing.difference_update((one.topic, one.record.partition(partitions)) for one in good)
        if not missing:
            return


class Generator:
    """One run of a feed. ``processed`` returns how many records of its topics the app has finished.

    ``next_index`` is the place in the story, ``sent`` the number of records in the topics.
    """

    def __init__(
        self, kafka: KafkaSettings, feed: Feed, orders: GeneratorSettings, processed: Callable[[], int]
    ) -> None:
        self._kafka = kafka
        self._feed = feed
        self._orders = orders
        self._processed = processed
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="generator", daemon=True)
        self._sent: deque[tuple[float, int]] = deque(maxlen=_KEPT)
        self._failure: BaseException | None = None
        self._partitions = 0
        self._before = 0
        self.first_index = 0
        self.next_index = 0
        self.sent = 0

    def start(self) -> None:
        """Find out where the stream stopped, then send from there in a thread."""
        done = positions(self._kafka, self._feed.topics)
        self.first_index = self.next_index = max(done.values())
        self._partitions = sum(topic == self._feed.topics[0] for topic, _ in done)
        self.sent = self._before = sum(end_offsets(self._kafka, self._feed.topics).values())
        self._thread.start()

    def check(self) -> None:
        """Raise the error that ended the generator, if any."""
        if self._failure is not None:
            raise self._failure

    @property
    def done(self) -> bool:
        """Everything that was ordered is acknowledged."""
        return not self._thread.is_alive() and self._failure is None

    @property
    def newest_event_ms(self) -> int | None:
        """The stream's clock at the record that was sent last."""
        return None if self.next_index == 0 else self._feed.shop.time_ms(self.next_index - 1)

    def waiting_s(self, processed: int) -> float:
        """For how long the first record that is not processed has been sent."""
        if processed >= self.sent:
            return 0.0
        return time.monotonic() - next((when for when, sent in [*self._sent] if sent > processed), time.monotonic())

    def stop(self, limit_s: float) -> bool:
        """Stop after the current portion, acknowledged; False when that takes longer than the limit."""
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
        events = self._orders.events
        end = None if events is None else self.first_index + events
        self._produce(self.first_index)  # after a kill, some partitions may be behind the others
        for pause in primers(self._feed, 0, self._partitions) if self.first_index == 0 else ():
            if (end is not None and pause >= end) or self._stop.is_set():
                break
            self._produce(pause)
            while self._processed() < self.sent and not self._stop.wait(_WAIT_S):
                pass
        if not self._stop.is_set():
            self._produce(end)

    def _produce(self, stop: int | None) -> None:
        pace = SendRate(self._orders.per_second)
        done = produce(
            self._kafka,
            self._feed,
            stop=stop,
            pace=pace,
            stopping=self._stop.is_set,
            on_progress=self._note,
        )
        self._note(done)
        self._before += done.sent

    def _note(self, progress: SendProgress) -> None:
        self.next_index = max(self.next_index, progress.next_index)
        self.sent = self._before + progress.sent
        self._sent.append((time.monotonic(), self.sent))
