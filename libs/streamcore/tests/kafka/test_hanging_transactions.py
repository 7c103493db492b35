"""A transaction whose markers the broker has lost is ended as the coordinator recorded it: nothing is lost or twice.

The tests make such a transaction on a broker that lets a producer write to a partition that the coordinator does not
know to be part of the transaction, so the coordinator writes no marker there.
"""

from __future__ import annotations

import uuid
from collections import Counter
from typing import TYPE_CHECKING

import kafka as kafka_python
import pytest

from streamcore.kafka import exactly_once
from streamcore.kafka.delivery import CommitStep, DeliverySettings, OutRecord, WriterHooks
from streamcore.kafka.exactly_once import ExactlyOnceWriter
from streamcore.kafka.hanging_transactions import end_hanging_transaction
from streamcore.kafka.markers import Marker
from streamcore.kafka.readers import read_topic
from streamcore.kafka.settings import KafkaSettings
from streamcore.kafka.topics import TopicSpec, ensure_topics
from streamcore.writer_id import WriterId
from tests.harness.cut_ids import cut_id
from tests.harness.servers import processes

if TYPE_CHECKING:
    from tests.kafka.conftest import NewTopics, Topics

    from conftest import NewBroker

pytestmark = [pytest.mark.kafka, pytest.mark.slow]
RECORDS = 8
#: A reader gives up soon on records that an open transaction hides.
IMPATIENT = DeliverySettings(transaction_timeout_ms=2_000, backoff_ms=50, recovery_ms=1)


def records(topics: Topics, batch: int) -> list[OutRecord]:
    return [OutRecord(topics.out, b"k%d" % n, b"%d:%d" % (batch, n)) for n in range(RECORDS)]


def expected(*batches: int) -> Counter[bytes]:
    return Counter(b"%d:%d" % (batch, n) for batch in batches for n in range(RECORDS))


def read_values(kafka: KafkaSettings, topics: Topics) -> Counter[bytes]:
    return Counter(record.value or b"" for record in read_topic(kafka, topics.out))


def check_visible(kafka: KafkaSettings, topics: Topics, *batches: int) -> None:
    """The committed records are those of the batches. The broker writes transaction markers after it has answered."""
    processes.wait_until(lambda: read_values(kafka, topics) == expected(*batches), "the records of the batches", 20)


def open_writer(
    kafka: KafkaSettings, topics: Topics, hooks: WriterHooks | None = None, delivery: DeliverySettings | None = None
) -> ExactlyOnceWriter:
    name = WriterId(topics.app, 1)
    return ExactlyOnceWriter(kafka, name, topics.markers, delivery=delivery, hooks=hooks, topics=[topics.out])


def make_hanging_transaction(kafka: KafkaSettings, topics: Topics, batch: int, *, commit: bool) -> None:
    """Write the batch and its marker, and end the transaction without markers in their partitions."""
    scratch = f"{topics.app}.{uuid.uuid4().hex[:8]}"
    ensure_topics(kafka, [TopicSpec(scratch, 1)])
    writer = WriterId(topics.app, 1)
    producer = kafka_python.KafkaProducer(**kafka.kafka_python(), transactional_id=writer.transactional_id)
    producer.init_transactions()
    producer.begin_transaction()
    producer.send(scratch, b"known to the coordinator").get(30)
    manager = producer._transaction_manager
    manager.maybe_add_partition_to_transaction = manager._partitions_in_transaction.add
    marker = Marker(writer, cut_id(batch))
    for record in records(topics, batch):
        producer.send(topics.out, record.value, record.key)
    producer.send(topics.markers, marker.value, writer.key, partition=0)
    producer.flush(30)
    if commit:
        producer.commit_transaction()
    else:
        producer.abort_transaction()
    producer.close()


@pytest.fixture(name="lenient")
def _lenient(new_broker: NewBroker) -> KafkaSettings:
    broker = new_broker(extra={"transaction.partition.verification.enable": "false"})
    return KafkaSettings(broker.start(), request_timeout_ms=5_000)


def test_a_hanging_transaction_ends_as_the_coordinator_recorded_it(
    lenient: KafkaSettings, new_topics: NewTopics, monkeypatch: pytest.MonkeyPatch
) -> None:
    committed, aborted = new_topics(lenient), new_topics(lenient)
    for topics in (committed, aborted):
        with open_writer(lenient, topics) as writer:
            writer.open()
            writer.commit(cut_id(0), records(topics, 0))
        make_hanging_transaction(lenient, topics, 1, commit=topics is committed)
        check_visible(lenient, topics, 0)  # the records of batch 1 are hidden

    with open_writer(lenient, committed) as writer:
        assert writer.open() == cut_id(1)
        check_visible(lenient, committed, 0, 1)
        writer.commit(cut_id(2), records(committed, 2))
    check_visible(lenient, committed, 0, 1, 2)

    with open_writer(lenient, aborted) as writer:
        assert writer.open() == cut_id(0)
        writer.commit(cut_id(1), records(aborted, 1))
    check_visible(lenient, aborted, 0, 1)

    unprotected = new_topics(lenient)
    make_hanging_transaction(lenient, unprotected, 1, commit=True)
    with monkeypatch.context() as patch:
        patch.setattr(exactly_once, "end_hanging_transaction", lambda *_: False)
        with open_writer(lenient, unprotected, delivery=IMPATIENT) as writer, pytest.raises(Exception, match="was not"):
            writer.open()


def test_a_transaction_that_is_open_or_of_another_writer_does_not_hang(kafka: KafkaSettings, topics: Topics) -> None:
    delivery = DeliverySettings()
    ours, other = WriterId(topics.app, 1), WriterId(topics.app, 1, "other")
    assert not end_hanging_transaction(kafka, ours, topics.markers, [topics.out], delivery)
    with ExactlyOnceWriter(kafka, ours, topics.markers) as writer:
        writer.open()
        found: list[bool] = []

        def look(step: CommitStep) -> None:
            if step is CommitStep.BEFORE_COMMIT:
                writer._producer.producer.flush()  # type: ignore[union-attr]
                found.append(end_hanging_transaction(kafka, ours, topics.markers, [topics.out], delivery))
                found.append(end_hanging_transaction(kafka, other, topics.markers, [topics.out], delivery))

        writer._hooks = WriterHooks(on_step=look)
        writer.commit(cut_id(0), records(topics, 0))
    assert found == [False, False]
    check_visible(kafka, topics, 0)


def test_a_writer_looks_for_a_hanging_transaction_after_all_brokers_were_away(
    new_broker: NewBroker, new_topics: NewTopics
) -> None:
    broker = new_broker()
    kafka = KafkaSettings(broker.start())
    topics, steps = new_topics(kafka), list[CommitStep]()
    with open_writer(kafka, topics, WriterHooks(on_step=steps.append)) as writer:
        writer.open()
        writer.commit(cut_id(0), records(topics, 0))
        broker.kill()
        broker.start()
        writer.commit(cut_id(1), records(topics, 1))
        writer.commit(cut_id(2), records(topics, 2))
    assert steps.count(CommitStep.FENCED) == 2
    assert steps.count(CommitStep.COMMITTED) == 3
    check_visible(kafka, topics, 0, 1, 2)
