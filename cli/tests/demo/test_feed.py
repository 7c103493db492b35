"""The shop's events for an app elsewhere: as the story has them, continued where they stopped, gentle at the start."""

from __future__ import annotations

import uuid

import pytest

from headgate.demo.datagen import FIRST_BLOCK_PER_SECOND, feed, phases, shop_for
from headgate.demo.shop.feed import shop_feed
from headgate.demo.shop.settings import BLOCK
from headgate.demo.shop.stream import records
from headgate.main import run
from streamcore.kafka.readers import read_topic
from streamcore.kafka.settings import KafkaSettings

pytestmark = pytest.mark.kafka


def test_what_was_stopped_goes_on_where_it_stopped(kafka: KafkaSettings) -> None:
    topic = f"feed-{uuid.uuid4().hex[:8]}"
    what = shop_feed(topic, shop_for(3))
    told: list[int] = []
    assert feed(kafka, what, 30, None, on_progress=told.append).index == 30
    assert told == [*range(told[0], 31, told[0])]
    assert 30 < feed(kafka, what, None, None, stopping=lambda: True).index < 40
    there = len([*read_topic(kafka, topic)])
    assert feed(kafka, what, 70 - there, None).index == 70
    found = [(record.key, record.value) for record in read_topic(kafka, topic)]
    assert sorted(found, key=str) == sorted(((r.key, r.value) for r in records(shop_for(3), 0, 70)), key=str)


def test_a_seed_is_a_story() -> None:
    first = [[r.value for r in records(shop_for(seed), 0, 50)] for seed in (1, 1, 2)]
    assert first[0] == first[1]
    assert first[0] != first[2]


@pytest.mark.parametrize(
    ("begin", "end", "rate", "paces"),
    [
        (0, None, 5_000.0, [(BLOCK, FIRST_BLOCK_PER_SECOND), (None, 5_000.0)]),
        (0, BLOCK, None, [(BLOCK, FIRST_BLOCK_PER_SECOND)]),
        (10, 20, 5.0, [(20, 5.0)]),
        (BLOCK, BLOCK + 1, 5_000.0, [(BLOCK + 1, 5_000.0)]),
    ],
)
def test_the_first_block_is_gentle_at_any_rate(
    begin: int, end: int | None, rate: float | None, paces: list[tuple[int | None, float | None]]
) -> None:
    assert [*phases(begin, end, rate)] == paces


def test_the_command_says_what_it_sent(kafka: KafkaSettings, capsys: pytest.CaptureFixture[str]) -> None:
    topic = f"feed-{uuid.uuid4().hex[:8]}"
    assert (
        run(["demo", "produce", "--bootstrap", kafka.bootstrap, "--topic", topic, "--events", "12", "-o", "json"]) == 0
    )
    assert f'"topic": "{topic}", "records": 12, "next": 12' in capsys.readouterr().out
