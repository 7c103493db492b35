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
from headgate.demo.shop.settings import EVENTS_PER_BLOCK, ShopSettings, start_before
from headgate.demo.workspace import PARTITIONS
from streamcore.kafka.settings import KafkaSettings
from streamcore.kafka.topics import TopicSpec, ensure_topics

_2020_01_02_MS: Final = 1_577_923_200_000
#: The event time of the first event, in epoch milliseconds: 2020-01-01T20:41:30Z.
START_MS: Final = start_before(_2020_01_02_MS, days=0)
#: The highest rate of the first block, in events per second. The shop's late events come from the second block on, and
#: are late only for an app that has finished a cut before: the first block must take several cuts. No other event may
#: be late: at this rate, an app with one cut per second reads 40 events (4 s of event time) in a cut, which is less
#: than its allowance for disorder (10 s).
FIRST_BLOCK_PER_SECOND: Final = 40.0


@dataclass(frozen=True, slots=True)
class SentRecords:
    """The result of ``send_feed``. ``records``: sent by this call, in all topics. ``next_index``: the index of the next
    event of the stream."""

    records: int
    next_index: int


def shop_settings(seed: int) -> ShopSettings:
    """Return the settings of the demo shop with this seed."""
    return ShopSettings(seed, START_MS)


def send_feed(
    kafka: KafkaSettings,
    feed: Feed,
    events: int | None,
    per_second: float | None,
    should_stop: Callable[[], bool] = lambda: False,
    on_progress: Callable[[int], None] = lambda _: None,
) -> SentRecords:
    """Create the topics that are missing and send ``events`` more events (None: without end), after the last one sent.

    Stops soon after ``should_stop`` returns True. ``on_progress`` is called with the number of events by which this
    call has advanced the stream. Raises the errors of ``produce``.
    """
    ensure_topics(kafka, [TopicSpec(topic, PARTITIONS) for topic in feed.topics])
    begin = max(positions(kafka, feed.topics).values())
    sent = SentRecords(0, begin)
    for end, rate in send_phases(begin, None if events is None else begin + events, per_second):
        if sent.records and should_stop():
            break
        progress = produce(
            kafka,
            feed,
            end=end,
            rate=SendRate(rate),
            should_stop=should_stop,
            on_progress=lambda progress: on_progress(progress.next_index - begin),
        )
        sent = SentRecords(sent.records + progress.sent, max(sent.next_index, progress.next_index))
    return sent


def send_phases(begin: int, end: int | None, per_second: float | None) -> Iterator[tuple[int | None, float | None]]:
    """Yield each phase as its end (an index; None: no end) and its rate in events per second (None: no limit).

    ``begin``: the index of the next event. The rest of the first block is sent at ``FIRST_BLOCK_PER_SECOND`` at most.
    """
    if begin < EVENTS_PER_BLOCK:
        slow_rate = min(per_second or FIRST_BLOCK_PER_SECOND, FIRST_BLOCK_PER_SECOND)
        yield (EVENTS_PER_BLOCK if end is None else min(EVENTS_PER_BLOCK, end)), slow_rate
    if end is None or end > EVENTS_PER_BLOCK:
        yield end, per_second
