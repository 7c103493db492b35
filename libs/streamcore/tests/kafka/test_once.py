"""A record with a name is sent once, by whichever sender and wherever it is killed."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from conftest import NewTopic
from streamcore.cuts.writer_id import WriterId
from streamcore.errors import StreamError
from streamcore.kafka.idempotent_sender import IdempotentSender, KeyedRecord
from streamcore.kafka.settings import KafkaSettings
from tests.harness.oracles.committed_records import read_committed

pytestmark = pytest.mark.kafka


class Killed(Exception):
    """The process ends here."""


class DiesBeforeCommit(IdempotentSender):
    """The broker has everything but the commit."""

    def _transaction(self, parcels: Sequence[KeyedRecord]) -> None:
        producer = self._producer.producer
        producer.begin_transaction()
        for one in parcels:
            producer.produce(one.topic, one.value, one.key, partition=one.partition)
            producer.produce(self.ledger_topic, one.ledger_value, one.dedup_key.encode(), partition=0)
        producer.flush(10)
        raise Killed


class DiesAfterCommit(IdempotentSender):
    """The commit is done, and its response is lost."""

    def _transaction(self, parcels: Sequence[KeyedRecord]) -> None:
        super()._transaction(parcels)
        raise Killed


@pytest.mark.parametrize("dying", [DiesBeforeCommit, DiesAfterCommit])
def test_a_killed_sender_leaves_all_records_or_none_to_its_successor(
    dying: type[IdempotentSender], kafka: KafkaSettings, new_topic: NewTopic
) -> None:
    topic, memory = new_topic("target"), new_topic("memory", compacted=True)
    writer = WriterId(topic, 1, "replay")
    parcels = [KeyedRecord(f"0/{n}", b"{}", topic, 0, b"k", b"%d" % n) for n in range(5)]
    first = dying(kafka, writer, memory)
    with pytest.raises(Killed):
        first.send(parcels)
    with IdempotentSender(kafka, writer, memory) as second:
        assert second.send(parcels) == (5 if dying is DiesBeforeCommit else 0)
        with pytest.raises(StreamError):  # fenced: it is no longer the owner
            IdempotentSender.send(first, [KeyedRecord("0/9", b"{}", topic, 0, b"k", b"9")])
    assert [record.value for record in read_committed(kafka, topic, 5)] == [b"%d" % n for n in range(5)]


def test_a_name_that_occurs_twice_in_one_batch_is_sent_once(kafka: KafkaSettings, new_topic: NewTopic) -> None:
    topic, memory = new_topic("target"), new_topic("memory", compacted=True)
    with IdempotentSender(kafka, WriterId(topic, 1, "replay"), memory) as sender:
        assert (
            sender.send([KeyedRecord("a", b"", topic, 0, None, b"1"), KeyedRecord("a", b"", topic, 0, None, b"1")]) == 1
        )
    assert len(read_committed(kafka, topic, 1)) == 1
