"""Sends records each of which may be sent once only, whoever runs it, how often, and wherever it is killed.

What was sent is remembered in a compacted topic, under a name that the caller gives each record, in the same
transaction as the record itself. Steps:

1. Fence: one transactional id for all senders of a name. An earlier one, alive or not, is ended with its transaction.
2. Read what was sent, committed only. Nobody else can add to it now.
3. For each batch: begin, produce the records and their names, commit.

A crash after 1 or 2 has done nothing. In 3, before the commit, neither records nor names are there, after it both. A
commit whose outcome is unknown raises ``Retryable``; a new sender's step 1 settles it and step 2 sees how.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from streamcore.kafka.delivery import Delivery, Headers
from streamcore.kafka.readers import scan_topic
from streamcore.kafka.session import Session
from streamcore.kafka.settings import KafkaSettings
from streamcore.kafka.topics import TopicSpec, ensure_topics
from streamcore.writer import WriterId


@dataclass(frozen=True, slots=True)
class Parcel:
    """One record for a partition, and the name under which it is remembered. ``said``: what is kept beside the name."""

    name: str
    said: bytes
    topic: str
    partition: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


class OnceSender:
    """Use it as a context. ``sent``: the names of what was sent before. One thread."""

    def __init__(
        self, settings: KafkaSettings, writer: WriterId, memory: str, delivery: Delivery | None = None
    ) -> None:
        self.settings, self.memory = settings, memory
        self.delivery = delivery or Delivery()
        ensure_topics(settings, [TopicSpec(memory, 1, compacted=True)])
        self._session = Session.fence(settings, writer, self.delivery)  # 1
        self.sent = remembered(settings, memory)  # 2

    def send(self, parcels: Sequence[Parcel]) -> int:
        """Those that were not sent before, in one transaction; how many they were."""
        new = {parcel.name: parcel for parcel in parcels if parcel.name not in self.sent}
        if not new:
            return 0
        with self._session.naming_errors(f"sending {len(new)} records"):
            self._transaction([*new.values()])  # 3
        self.sent |= set(new)
        return len(new)

    def _transaction(self, parcels: Sequence[Parcel]) -> None:
        producer = self._session.producer
        producer.begin_transaction()
        for one in parcels:
            headers = list(one.headers)
            producer.produce(one.topic, one.value, one.key, partition=one.partition, headers=headers)
            producer.produce(self.memory, one.said, one.name.encode(), partition=0)
        producer.commit_transaction(self.delivery.commit_timeout_ms / 1000)

    def __enter__(self) -> OnceSender:
        return self

    def __exit__(self, *_: object) -> None:
        self._session.end(abort=True)


def remembered(settings: KafkaSettings, memory: str) -> set[str]:
    """The names of what was sent."""
    return {record.key.decode() for record in scan_topic(settings, memory) if record.key is not None}
