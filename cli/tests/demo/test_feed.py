"""The demo shop's events for an app elsewhere: continued where they stopped, and sent slowly at the start."""

from __future__ import annotations

import uuid

import pytest

from headgate.demo.datagen import FIRST_BLOCK_MAX_RATE, rate_phases, send_feed, shop_settings
from headgate.demo.shop.feed import shop_feed
from headgate.demo.shop.settings import EVENTS_PER_BLOCK
from headgate.demo.shop.stream import records
from headgate.main import run
from streamcore.kafka.readers import read_topic
from streamcore.kafka.settings import KafkaSettings

pytestmark = pytest.mark.kafka


def test_a_stopped_feed_continues_where_it_stopped(kafka: KafkaSettings) -> None:
    topic = f"feed-{uuid.uuid4().hex[:8]}"
    feed = shop_feed(topic, shop_settings(3))
    progress: list[int] = []
    assert send_feed(kafka, feed, 30, None, on_progress=progress.append).next_index == 30
    assert progress == [*range(progress[0], 31, progress[0])]
    assert 30 < send_feed(kafka, feed, None, None, should_stop=lambda: True).next_index < 40
    sent = len([*read_topic(kafka, topic)])
    assert send_feed(kafka, feed, 70 - sent, None).next_index == 70
    found = [(record.key, record.value) for record in read_topic(kafka, topic)]
    assert sorted(found, key=str) == sorted(((r.key, r.value) for r in records(shop_settings(3), 0, 70)), key=str)


def test_a_seed_determines_the_events() -> None:
    first = [[r.value for r in records(shop_settings(seed), 0, 50)] for seed in (1, 1, 2)]
    assert first[0] == first[1]
    assert first[0] != first[2]


@pytest.mark.parametrize(
    ("begin", "end", "rate", "phases"),
    [
        (0, None, 5_000.0, [(EVENTS_PER_BLOCK, FIRST_BLOCK_MAX_RATE), (None, 5_000.0)]),
        (0, EVENTS_PER_BLOCK, None, [(EVENTS_PER_BLOCK, FIRST_BLOCK_MAX_RATE)]),
        (10, 20, 5.0, [(20, 5.0)]),
        (EVENTS_PER_BLOCK, EVENTS_PER_BLOCK + 1, 5_000.0, [(EVENTS_PER_BLOCK + 1, 5_000.0)]),
    ],
)
def test_the_feed_sends_the_first_block_slowly_at_any_rate(
    begin: int, end: int | None, rate: float | None, phases: list[tuple[int | None, float | None]]
) -> None:
    assert [*rate_phases(begin, end, rate)] == phases


def test_the_command_reports_the_number_of_sent_events(
    kafka: KafkaSettings, capsys: pytest.CaptureFixture[str]
) -> None:
    topic = f"feed-{uuid.uuid4().hex[:8]}"
    assert (
        run(["demo", "produce", "--bootstrap", kafka.bootstrap, "--topic", topic, "--events", "12", "-o", "json"]) == 0
    )
    assert f'"topic": "{topic}", "records": 12, "next": 12' in capsys.readouterr().out
