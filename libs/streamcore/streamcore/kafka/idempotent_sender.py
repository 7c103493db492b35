"""Sends each record once only, however often the sender runs and wherever it is killed.

A compacted ledger topic keeps the ``dedup_key`` of every record sent, written in the same transaction as the record
itself. Steps:

1. Fence: one transactional id for all senders of a name. An earlier one, alive or not, is ended with its transaction.
2. Read the committed ledger of sent records. No other sender can add to it now.
3. For each batch: begin, produce the records and their names, commit.

A crash after 1 or 2 has done nothing. In 3, before the commit, neither records nor names are there, after it both. A
commit whose outcome is unknown raises ``Retryable``; a new sender's step 1 settles it and step 2 sees how.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from streamcore.kafka.delivery import DeliverySettings, Headers
from streamcore.kafka.readers import scan_topic
from streamcore.kafka.settings import KafkaSettings
from streamcore.kafka.topics import TopicSpec, ensure_topics
from streamcore.kafka.transactional_producer import TransactionalProducer
from streamcore.writer_id import WriterId


@dataclass(frozen=True, slots=True)
class KeyedRecord:
    """One record for a partition. ``dedup_key`` identifies it in the ledger topic, with ``ledger_value`` as value."""

    dedup_key: str
    ledger_value: bytes
    topic: str
    partition: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


class IdempotentSender:
    """A context manager, for one thread. ``sent``: the keys of the records sent before."""

    def __init__(
        self, settings: KafkaSettings, writer: WriterId, ledger_topic: str, delivery: DeliverySettings | None = None
    ) -> None:
        self.settings, self.ledger_topic = settings, ledger_topic
        self.delivery = delivery or DeliverySettings()
        ensure_topics(settings, [TopicSpec(ledger_topic, 1, compacted=True)])
        self._producer = TransactionalProducer.fence(settings, writer, self.delivery)  # 1
        self.sent = sent_keys(settings, ledger_topic)  # 2

    def send(self, records: Sequence[KeyedRecord]) -> int:
        """Send the records that were not sent before, in one transaction; return their number."""
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
    """Return the keys of the records that were sent."""
    return {record.key.decode() for record in scan_topic(settings, ledger_topic) if record.key is not None}
