"""Makes a hanging transaction: one that the coordinator has ended and whose records stay hidden.

It needs a broker with the settings ``LENIENT``. Such a broker lets a producer write to a partition that the coordinator
does not know to be part of the transaction, so the coordinator writes no marker there.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable

import kafka

from streamcore.cuts.cut_id import CutId
from streamcore.cuts.writer_id import WriterId
from streamcore.kafka.delivery import OutRecord
from streamcore.kafka.markers import Marker
from streamcore.kafka.settings import KafkaSettings
from streamcore.kafka.topics import TopicSpec, ensure_topics

LENIENT = {"transaction.partition.verification.enable": "false"}


def make_hanging_transaction(
    settings: KafkaSettings,
    writer: WriterId,
    markers_topic: str,
    cut: CutId,
    records: Iterable[OutRecord],
    *,
    commit: bool,
) -> None:
    """Write the records and the marker of the cut, and end the transaction without markers in their partitions. The
    markers topic has one partition."""
    scratch = f"{writer.app}.{uuid.uuid4().hex[:8]}"
    ensure_topics(settings, [TopicSpec(scratch, 1)])
    producer = kafka.KafkaProducer(**settings.kafka_python(), transactional_id=writer.transactional_id)
    producer.init_transactions()
    producer.begin_transaction()
    producer.send(scratch, b"known to the coordinator").get(30)
    manager = producer._transaction_manager
    manager.maybe_add_partition_to_transaction = manager._partitions_in_transaction.add
    for record in records:
        producer.send(record.topic, record.value, record.key)
    producer.send(markers_topic, Marker(writer, cut).value, writer.key, partition=0)
    producer.flush(30)
    if commit:
        producer.commit_transaction()
    else:
        producer.abort_transaction()
    producer.close()
