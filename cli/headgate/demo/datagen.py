"""Sends the events of the invented shop to Kafka, for an app that runs elsewhere.

A stream is a pure function of its seed, and its records carry their numbers (``headgate.demo.shop.producer``), so a
producer that was stopped in any way continues at the next record, and the expected output for the first ``n`` records
can be computed without the app.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from headgate.demo.shop.feed import Feed
from headgate.demo.shop.producer import SendRate, positions, produce
from headgate.demo.shop.settings import BLOCK, ShopSettings, start_before
from headgate.demo.workspace import PARTITIONS
from streamcore.kafka.settings import KafkaSettings
from streamcore.kafka.topics import TopicSpec, ensure_topics

#: On 2020-01-01.
START_MS: Final = start_before(1_577_923_200_000, days=0)
#: Of the first block. What is late depends on what the app has read before, so it must come in several cuts; an app
#: that makes a cut a second reads less than its allowance for disorder in each.
FIRST_BLOCK_PER_SECOND: Final = 40.0


@dataclass(frozen=True, slots=True)
class SentRecords:
    """``records``: sent by this run, in all topics; ``index``: of the next event of the story."""

    records: int
    index: int


def shop_for(seed: int) -> ShopSettings:
    """Return the shop for a seed."""
    return ShopSettings(seed, START_MS)


def feed(
    kafka: KafkaSettings,
    what: Feed,
    events: int | None,
    per_second: float | None,
    stopping: Callable[[], bool] = lambda: False,
    on_progress: Callable[[int], None] = lambda _: None,
) -> SentRecords:
    """Make the topics that are missing, and send so many more events (None: without end), from where they stopped.
    ``on_progress`` hears now and then how many events this run has come on."""
    ensure_topics(kafka, [TopicSpec(topic, PARTITIONS) for topic in what.topics])
    begin = max(positions(kafka, what.topics).values())
    fed = SentRecords(0, begin)
    for stop, pace in phases(begin, None if events is None else begin + events, per_second):
        if fed.records and stopping():
            break
        before = fed
        done = produce(
            kafka,
            what,
            stop=stop,
            pace=SendRate(pace),
            stopping=stopping,
            on_progress=lambda progress: on_progress(progress.next_index - begin),
        )
        fed = SentRecords(before.records + done.sent, max(before.index, done.next_index))
    return fed


def phases(begin: int, end: int | None, per_second: float | None) -> Iterator[tuple[int | None, float | None]]:
    """Up to which number, and how many a second."""
    if begin < BLOCK:
        gentle = min(per_second or FIRST_BLOCK_PER_SECOND, FIRST_BLOCK_PER_SECOND)
        yield (BLOCK if end is None else min(BLOCK, end)), gentle
    if end is None or end > BLOCK:
        yield end, per_second
