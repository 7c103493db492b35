"""Sends the events of the demo shop to Kafka, for an app that runs elsewhere.

The stream is a pure function of its seed, and each record carries its index (``headgate.demo.shop.producer``). So a
producer that was stopped or killed continues at the next record, and the expected output for the first ``n`` events can
be computed without the app.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from headgate.demo.shop.feed import Feed
from headgate.demo.shop.producer import SendRate, positions, produce
from headgate.demo.shop.settings import EVENTS_PER_BLOCK, ShopSettings, shop_start_ms
from headgate.demo.workspace import PARTITIONS
from streamcore.kafka.settings import KafkaSettings
from streamcore.kafka.topics import TopicSpec, ensure_topics

_2020_01_02_MS: Final = 1_577_923_200_000
#: The event time of the first event, in epoch milliseconds: 2020-01-01T20:41:30Z.
START_MS: Final = shop_start_ms(_2020_01_02_MS, days=0)
#: The highest rate of the first block, in events per second. The shop sends late events from the second block on. They
#: are late only if the app has finished a cut before them, so the first block must take several cuts. All other events
#: must be in time: at this rate, an app with one cut per second reads 40 events (4 s of event time) in a cut, which is
#: less than its ``max_out_of_orderness_ms`` (10 s).
FIRST_BLOCK_MAX_RATE: Final = 40.0


@dataclass(frozen=True, slots=True)
class SendResult:
    """The result of ``send_feed``. ``record_count``: records sent by this call, in all topics. ``next_index``: the
    index of the next event of the stream."""

    record_count: int
    next_index: int


def shop_settings(seed: int) -> ShopSettings:
    """Return the settings of the demo shop with this seed."""
    return ShopSettings(seed, START_MS)


def send_feed(
    kafka: KafkaSettings,
    feed: Feed,
    max_events: int | None,
    events_per_second: float | None,
    should_stop: Callable[[], bool] = lambda: False,
    on_progress: Callable[[int], None] = lambda _: None,
) -> SendResult:
    """Create the topics that are missing, and send the events after the last one sent: at most ``max_events`` (None:
    without end), at ``events_per_second`` (None: without limit).

    Stops soon after ``should_stop`` returns True. ``on_progress`` is called with the number of events by which this
    call has advanced the stream. Raises the errors of ``produce``.
    """
    ensure_topics(kafka, [TopicSpec(topic, PARTITIONS) for topic in feed.topics])
    begin = max(positions(kafka, feed.topics).values())
    sent = SendResult(0, begin)
    for end, rate in rate_phases(begin, None if max_events is None else begin + max_events, events_per_second):
        if sent.record_count and should_stop():
            break
        progress = produce(
            kafka,
            feed,
            end=end,
            rate=SendRate(rate),
            should_stop=should_stop,
            on_progress=lambda progress: on_progress(progress.next_index - begin),
        )
        sent = SendResult(sent.record_count + progress.sent, max(sent.next_index, progress.next_index))
    return sent


def rate_phases(
    begin: int, end: int | None, events_per_second: float | None
) -> Iterator[tuple[int | None, float | None]]:
    """Yield each phase as its end (an index; None: no end) and its rate in events per second (None: no limit).

    ``begin``: the index of the next event. The rest of the first block is sent at ``FIRST_BLOCK_MAX_RATE`` at most.
    """
    if begin < EVENTS_PER_BLOCK:
        slow_rate = min(events_per_second or FIRST_BLOCK_MAX_RATE, FIRST_BLOCK_MAX_RATE)
        yield (EVENTS_PER_BLOCK if end is None else min(EVENTS_PER_BLOCK, end)), slow_rate
    if end is None or end > EVENTS_PER_BLOCK:
        yield end, events_per_second
