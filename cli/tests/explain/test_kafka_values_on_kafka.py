"""Explanations and back-tests read key, headers and timestamp of records, and leave out other streams of the topic."""

from __future__ import annotations

import orjson
import pytest

from conftest import NewTopic
from headgate.backtest.sources import TopicRange, topic_batches
from headgate.explain.event_selection import find_events_at
from headgate.explain.kafka_reader import KafkaReader
from headgate.streams.sample import read_topic
from rulecore.compile.rule import RuleLimits, compile_rule
from rulecore.documents.rule import Rule
from rulecore.streams import RuleInput
from streamcore.kafka import data_clients as clients
from streamcore.kafka.settings import KafkaSettings
from streamcore.schema import StreamSchema

pytestmark = pytest.mark.kafka

SENT_MS = 1_790_000_000_000
FIELDS = {
    "at": {"type": "timestamp not null", "from": "_kafka.timestamp"},
    "user": {"type": "string not null", "from": "_kafka.key"},
    "kind": {"type": "string", "from": "_kafka.headers.kind"},
    "place": {"type": "long", "from": "_kafka.offset"},
    "n": "long",
}
SCHEMA = StreamSchema.parse(
    {
        "name": "s",
        "event_time": "at",
        "keys": [["user"]],
        "fields": FIELDS,
        "when": {"from": "_kafka.headers.kind", "equals": "mine"},
    }
)
RULE = compile_rule(
    Rule.model_validate(
        {
            "id": "twice",
            "version": 1,
            "owner": "me",
            "on": "s",
            "group_by": ["user"],
            "within": {"tumbling": "1h"},
            "having": "count(*) >= 2",
            "then": {"severity": "low", "message": "{user}"},
        }
    ),
    {"s": SCHEMA},
    RuleLimits(),
)


def test_the_fields_beside_the_values_are_those_of_the_app(kafka: KafkaSettings, new_topic: NewTopic) -> None:
    topic = new_topic()
    producer = clients.producer(kafka)
    for number, kind in enumerate(("mine", "other", "mine", "mine")):
        user = b"b" if number == 3 else b"a"
        value = orjson.dumps({"n": number})
        producer.produce(topic, value, user, timestamp=SENT_MS + number, headers=[("kind", kind.encode())])
    assert producer.flush(30) == 0
    rows = [
        {"user": user, "kind": "mine", "place": number, "n": number, "at": SENT_MS + number}
        for number, user in ((0, "a"), (2, "a"), (3, "b"))
    ]

    reader, source = KafkaReader(kafka), RuleInput.of_stream(SCHEMA, topic)
    found = find_events_at(reader, source, RULE, (topic, 0, 2), 1_000, SENT_MS + 1_000)
    assert found.events.select(*rows[0]).to_dicts() == rows[:2], "those of the key up to the event"
    other = find_events_at(reader, source, RULE, (topic, 0, 1), 1_000, SENT_MS + 1_000)
    assert other.dead == "it is an event of another stream (see `when` in the stream file), or a tombstone"

    wanted = TopicRange({(topic, 0): 0}, {(topic, 0): 4})
    ((count, batch),) = topic_batches(kafka, wanted, source, SENT_MS + 1_000)
    assert (count, batch.events[SCHEMA.name].select(*rows[0]).to_dicts(), dict(batch.dead_letters)) == (4, rows, {})

    sample = read_topic(kafka, topic, 10)
    assert [(one.record.key, one.record.headers, one.record.offset) for one in sample][1:3] == [
        (b"a", {"kind": b"other"}, 1),
        (b"a", {"kind": b"mine"}, 2),
    ]
