"""Sends each record exactly once, even if the sender runs repeatedly or is killed at any point.

A compacted ledger topic keeps the ``dedup_key`` of every sent record. The transaction that writes a record also writes
its key to the ledger. Steps:

1. Fence. All senders with one name share a transactional id, so an earlier sender is fenced and its transaction ended.
2. Read the committed ledger. From here on no other sender can add to it.
3. For each call of ``send``: begin, produce the records and their ledger records, commit.

A crash before the commit leaves neither records nor ledger records, a crash after it leaves both. A commit with unknown
outcome raises ``Retryable``; step 1 of a new sender settles the outcome, and step 2 reads it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from streamcore.cuts.writer_id import WriterId
from streamcore.kafka.delivery import DeliverySettings, Headers
from streamcore.kafka.readers import scan_topic
from streamcore.kafka.settings import KafkaSettings
from streamcore.kafka.topics import TopicSpec, ensure_topics
from streamcore.kafka.transactional_producer import TransactionalProducer


@dataclass(frozen=True, slots=True)
class KeyedRecord:
    """A record for one partition. The ledger record has ``dedup_key`` as key and ``ledger_value`` as value."""

    dedup_key: str
    ledger_value: bytes
    topic: str
    partition: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


class IdempotentSender:
    """Sends keyed records. A context manager, for one thread. ``sent``: the ``dedup_key`` of every record sent so far,
    by earlier senders too."""

    def __init__(
        self, settings: KafkaSettings, writer: WriterId, ledger_topic: str, delivery: DeliverySettings | None = None
    ) -> None:
        self.settings, self.ledger_topic = settings, ledger_topic
        self.delivery = delivery or DeliverySettings()
        ensure_topics(settings, [TopicSpec(ledger_topic, 1, compacted=True)])
        self._producer = TransactionalProducer.fence(settings, writer, self.delivery)  # 1
        self.sent = sent_keys(settings, ledger_topic)  # 2

    def send(self, records: Sequence[KeyedRecord]) -> int:
        """Send the records that were not sent before, in one transaction; return their number.

        Raises ``Retryable`` if the outcome is unknown, and ``Fenced`` if a later sender has begun.
        """
        new = {record.dedup_key: record for record in records if record.dedup_key not in self.sent}
        if not new:
            return 0
        with self._producer.naming_errors(f"sending {len(new)} records"):
            self._transaction([*new.values()])  # 3
        self.sent |= set(new)
        return len(new)

    def _transaction(self, records: Sequence[KeyedRecord]) -> None:
        producer = self._producer.producer
        producer.begin_transaction()
        for record in records:
            headers = list(record.headers)
            producer.produce(record.topic, record.value, record.key, partition=record.partition, headers=headers)
            producer.produce(self.ledger_topic, record.ledger_value, record.dedup_key.encode(), partition=0)
        producer.commit_transaction(self.delivery.commit_timeout_ms / 1000)

    def __enter__(self) -> IdempotentSender:
        return self

    def __exit__(self, *_: object) -> None:
        self._producer.end(abort=True)


def sent_keys(settings: KafkaSettings, ledger_topic: str) -> set[str]:
    """Return the ``dedup_key`` of every record in the ledger topic."""
    return {record.key.decode() for record in scan_topic(settings, ledger_topic) if record.key is not None}
