"""A page of alerts from the index is the page that a search through the topic gives, for every filter and cursor."""

from __future__ import annotations

import random
import uuid

import orjson
import pytest

from headgate.web.state.lanes.alert_records import AlertFilter
from headgate.web.state.lanes.alerts import AlertReader
from headgate.web.state.lanes.newest_first import read_cursor
from headgate.web.state.values import AlertPage
from streamcore.kafka import data_clients as clients
from streamcore.kafka.settings import KafkaSettings
from streamcore.kafka.topics import TopicSpec, ensure_topics

pytestmark = pytest.mark.kafka
COUNT = 400
FILTERS = (
    AlertFilter(),
    AlertFilter(rule="r1"),
    AlertFilter(rule="none"),
    AlertFilter(severity="high"),
    AlertFilter(key="u3"),
    AlertFilter(key="user_id=u3", rule="r2"),
    AlertFilter(key="7", severity="low"),
)


def send(kafka: KafkaSettings, app: str, first: int, count: int) -> None:
    drawn, producer = random.Random(first), clients.producer(kafka)
    for number in range(first, first + count):
        body = {
            "rule": f"r{drawn.randrange(3)}",
            "version": 1,
            "severity": drawn.choice(["low", "high"]),
            "message": f"alert {number}",
            "key": {"user_id": f"u{drawn.randrange(5)}", "number": drawn.randrange(10)},
            "event_time_ms": number,
        }
        value = b"no alert" if drawn.random() < 0.05 else orjson.dumps(body)
        producer.produce(f"{app}.alerts", value, f"id{number}".encode(), partition=drawn.choice([0, 0, 1]))
        if drawn.random() < 0.1:
            producer.flush(10)  # records of several moments
    producer.flush(10)


@pytest.fixture(scope="module")
def app(kafka: KafkaSettings) -> str:
    name = f"index-{uuid.uuid4().hex[:8]}"
    ensure_topics(kafka, [TopicSpec(f"{name}.alerts", 3), TopicSpec(f"{name}.shadow", 1)])
    send(kafka, name, 0, COUNT)
    return name


def every_page(reader: AlertReader, wanted: AlertFilter, limit: int) -> list[str]:
    """Return the ids of all pages, one after the other."""
    found, cursor = list[str](), ""
    for _ in range(COUNT):
        page: AlertPage = reader.page("alerts", wanted, limit, read_cursor(cursor))
        assert len(page.alerts) <= limit
        found += [one.alert_id for one in page.alerts]
        if page.next is None:
            return found
        cursor = page.next
    raise AssertionError("the cursors have no end")


@pytest.mark.parametrize("wanted", FILTERS)
@pytest.mark.parametrize("limit", [7, 50, 1000])
def test_pages_are_those_of_a_search(kafka: KafkaSettings, app: str, wanted: AlertFilter, limit: int) -> None:
    whole = AlertReader(kafka, app, 10_000)
    searched = [one.alert_id for one in whole.lanes["alerts"].search(wanted, COUNT, {}).values]
    assert every_page(whole, wanted, limit) == searched
    assert searched or wanted.rule == "none"
    part = AlertReader(kafka, app, 100)  # the older ones are searched on the topic
    assert sorted(every_page(part, wanted, limit)) == sorted(searched), "none is lost, none comes twice"
    whole.close()
    part.close()


def test_new_alerts_are_there_at_once_and_old_ones_are_dropped(kafka: KafkaSettings, app: str) -> None:
    reader = AlertReader(kafka, app, 100)
    assert reader.page("alerts", AlertFilter(), 1, {}).alerts
    send(kafka, app, 1_000, 300)
    newest = reader.page("alerts", AlertFilter(), 500, {})
    assert newest.read == 100
    assert reader.find("id1299").message == "alert 1299"
    assert reader.find("id3").message == "alert 3", "from the topic"
    reader.close()
