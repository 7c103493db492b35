"""The generator on a real broker continues where it stopped, even after a kill."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable

import pytest

from headgate.demo.shop.feed import shop_feed
from headgate.demo.shop.producer import SendProgress, SendRate, positions, produce
from headgate.demo.shop.settings import ShopSettings
from headgate.demo.shop.stream import records
from streamcore.errors import ConfigError
from streamcore.kafka import data_clients as clients
from streamcore.kafka.readers import end_offsets, scan_topic
from streamcore.kafka.settings import KafkaSettings

SHOP = ShopSettings(seed=5, start_ms=1_700_000_000_000)
NewTopic = Callable[..., str]

pytestmark = pytest.mark.kafka


def content(kafka: KafkaSettings, topic: str) -> dict[int, list[tuple[bytes | None, bytes | None]]]:
    found: dict[int, list[tuple[bytes | None, bytes | None]]] = {}
    for record in scan_topic(kafka, topic):
        found.setdefault(record.partition, []).append((record.key, record.value))
    return found


def expected(n: int, partitions: int) -> dict[int, list[tuple[bytes | None, bytes | None]]]:
    made: dict[int, list[tuple[bytes | None, bytes | None]]] = {}
    for record in records(SHOP, 0, n):
        made.setdefault(record.partition(partitions), []).append((record.key, record.value))
    return made


def test_a_topic_holds_the_stream_in_order_by_partition(kafka: KafkaSettings, new_topic: NewTopic) -> None:
    topic = new_topic("shop", 3)
    progress = produce(kafka, shop_feed(topic, SHOP), end=2_500)
    assert (progress.sent, progress.next_index) == (2_500, 2_500)
    assert content(kafka, topic) == expected(2_500, 3)


def test_a_stopped_producer_continues_where_it_stopped(kafka: KafkaSettings, new_topic: NewTopic) -> None:
    topic = new_topic("shop", 2)
    produce(kafka, shop_feed(topic, SHOP), end=700)
    assert max(positions(kafka, [topic]).values()) == 700
    calls: list[SendProgress] = []
    stopped = produce(kafka, shop_feed(topic, SHOP), on_progress=calls.append, should_stop=lambda: len(calls) >= 3)
    assert 700 < stopped.next_index < 2_000
    assert produce(kafka, shop_feed(topic, SHOP), end=2_000).next_index == 2_000
    assert produce(kafka, shop_feed(topic, SHOP), end=2_000).sent == 0
    assert content(kafka, topic) == expected(2_000, 2)


def test_a_killed_generator_neither_loses_nor_repeats_a_record(kafka: KafkaSettings, new_topic: NewTopic) -> None:
    topic = new_topic("shop", 3)
    program = (
        "from headgate.demo.shop.feed import shop_feed\n"
        "from headgate.demo.shop.producer import produce\n"
        "from headgate.demo.shop.settings import ShopSettings\n"
        "from streamcore.kafka.settings import KafkaSettings\n"
        f"feed = shop_feed({topic!r}, ShopSettings(5, 1_700_000_000_000))\n"
        f"produce(KafkaSettings({kafka.bootstrap!r}), feed, end=200_000)\n"
    )
    for _ in range(2):
        before = sum(end_offsets(kafka, [topic]).values())
        child = subprocess.Popen([sys.executable, "-c", program])
        while sum(end_offsets(kafka, [topic]).values()) < before + 3_000:
            assert child.poll() is None, "it ended by itself"
            time.sleep(0.05)
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
    n = max(positions(kafka, [topic]).values()) + 500
    produce(kafka, shop_feed(topic, SHOP), end=n)
    assert content(kafka, topic) == expected(n, 3)


def test_the_generator_keeps_the_rate(kafka: KafkaSettings, new_topic: NewTopic) -> None:
    topic, slept = new_topic("shop", 1), list[float]()
    produce(kafka, shop_feed(topic, SHOP), end=100, rate=SendRate(per_second=50, sleep=slept.append))
    assert len(slept) == 50
    assert slept[-1] == pytest.approx(2.0, abs=0.5)


def test_no_event_is_sent_before_its_time(kafka: KafkaSettings, new_topic: NewTopic) -> None:
    topic, clock, sent_at = new_topic("shop", 1), [SHOP.start_ms], list[tuple[int, int]]()

    def sleep(seconds: float) -> None:
        clock[0] += int(seconds * 1_000)

    rate = SendRate(now_ms=lambda: clock[0], sleep=sleep)
    produce(
        kafka,
        shop_feed(topic, SHOP),
        end=1_100,
        rate=rate,
        on_progress=lambda p: sent_at.append((p.next_index, clock[0])),
    )
    assert all(SHOP.time_ms(next_index - 1) <= now for next_index, now in sent_at)
    assert clock[0] >= SHOP.start_ms + SHOP.block_ms


def test_the_generator_rejects_a_topic_with_foreign_records(kafka: KafkaSettings, new_topic: NewTopic) -> None:
    topic = new_topic("shop", 1)
    client = clients.producer(kafka)
    client.produce(topic, b"{}", headers=[("other", b"1")])
    client.flush(10)
    with pytest.raises(ConfigError, match="are not of the demo shop"):
        produce(kafka, shop_feed(topic, SHOP), end=10)
