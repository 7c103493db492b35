"""Ends transactions whose markers the broker has lost: *hanging transactions* (KIP-664).

A transaction coordinator that starts while partitions have no leader, as after ``kill -9`` of all brokers, takes the
partitions for deleted: it skips their transaction markers and records the transaction as complete (seen with Kafka
4.3). The records of the transaction stay invisible although their commit was confirmed, and hide all later records of
the partitions from readers of committed records. The marker of the last cut is among them.

The coordinator still knows how the transaction ended, until the next producer with this transactional id begins. So
before it does, an empty transaction over the same partitions is ended in the same way: its markers end both. It has
forgotten the partitions, so they are looked for in every topic that the app has written, also those of lanes that it no
longer has (``CheckpointRoot.written_topics``). After a restore the writers of the earlier epochs are looked at too,
because their hanging transactions hide the output of the new epoch as well.

An open transaction, which a killed process left, needs no search: the coordinator knows its partitions, and aborts it
in all of them when the next producer begins.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import closing
from typing import TYPE_CHECKING

from streamcore.cuts.writer_id import WriterId
from streamcore.errors import Retryable
from streamcore.kafka import admin_clients
from streamcore.kafka.delivery import DeliverySettings
from streamcore.kafka.partition_offsets import KafkaPartitionOffsets, list_partitions
from streamcore.kafka.settings import KafkaSettings
from streamcore.offsets import TopicPartition

if TYPE_CHECKING:
    import kafka
    from kafka.admin import TransactionDescription

_POLL_S = 0.1


def end_hanging_transactions(
    settings: KafkaSettings, writers: Sequence[WriterId], topics: Sequence[str], delivery: DeliverySettings
) -> list[WriterId]:
    """End the hanging transactions of the writers in ``topics``; return the writers that had one. Fences these, and no
    other writer: the transaction of a process that writes is open, and does not hang.

    ``topics``: all that the writers have ever written, for the coordinator has forgotten which were in the transaction.
    Those that are deleted, or that this client may not see any more, are left out.

    Raises ``Retryable`` if the broker does not answer within ``request_timeout_ms``.
    """
    topics = list(list_partitions(settings, topics, skip_forbidden=True))
    if not _hidden_partitions(settings, topics):
        return []
    ended = []
    with closing(admin_clients.admin(settings)) as client:
        for writer in writers:
            search = _Search(settings, writer, topics, client)
            with admin_clients.naming_errors(settings, f"state of transaction {writer.transactional_id}"):
                committed, partitions = search.find()
            if partitions:
                _write_markers(settings, writer, partitions, delivery, committed=committed)
                ended.append(writer)
    return ended


def _hidden_partitions(settings: KafkaSettings, topics: Sequence[str]) -> list[TopicPartition]:
    """Return the partitions with records behind the last stable offset: those of transactions without an end."""
    offsets = KafkaPartitionOffsets(settings, topics)
    stable, ends = offsets.latest(), offsets.high_watermarks()
    return [partition for partition, offset in stable.items() if offset < ends[partition]]


class _Search:
    """Looks for the hanging transaction of a writer."""

    def __init__(
        self, settings: KafkaSettings, writer: WriterId, topics: Sequence[str], client: kafka.KafkaAdminClient
    ) -> None:
        self._settings = settings
        self._name = writer.transactional_id
        self._topics = topics
        self._client = client

    def find(self) -> tuple[bool, list[TopicPartition]]:
        """Return whether the last transaction was committed, and the partitions in which it hangs.

        No partitions: the transaction is open, and the next ``init_transactions`` aborts it; or no process of the
        writer has ended one in the last days; or the broker is older than Kafka 3.0 and cannot tell.

        If the coordinator knows only that the transaction has ended, it was aborted: a producer that begins (its
        ``init_transactions``) aborts the open transaction of the one before.
        """
        from kafka.admin import TransactionState

        described = self._describe_ended()
        if described is None:
            return False, []
        hanging = self._open_partitions(described.producer_id)
        if hanging is None:
            # Without a look at the partitions: the markers change nothing where another writer hides the records.
            hanging = (
                [] if described.state == TransactionState.EMPTY else _hidden_partitions(self._settings, self._topics)
            )
        # A process of the writer that has begun its next transaction meanwhile explains the open partitions.
        if not hanging or self._describe_ended() != described:
            return False, []
        return described.state == TransactionState.COMPLETE_COMMIT, hanging

    def _describe_ended(self) -> TransactionDescription | None:
        """Return how the last transaction of the writer ended; wait while the coordinator ends it. None: it is open, or
        unknown."""
        from kafka import errors as kp
        from kafka.admin import TransactionState

        deadline = time.monotonic() + self._settings.request_timeout_ms / 1000
        prepared = (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)
        try:
            while (described := self._client.describe_transactions([self._name])[self._name]).state in prepared:
                if time.monotonic() > deadline:
                    raise Retryable(
                        f"kafka {self._settings.bootstrap}: transaction {self._name} is not complete after "
                        f"{self._settings.request_timeout_ms} ms; look at the log of the broker"
                    )
                time.sleep(_POLL_S)
        except (kp.TransactionalIdNotFoundError, kp.UnsupportedVersionError, kp.IncompatibleBrokerVersion):
            return None
        ended = (TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT, TransactionState.EMPTY)
        return described if described.state in ended else None

    def _open_partitions(self, producer_id: int) -> list[TopicPartition] | None:
        """Return the hidden partitions for which a transaction of the producer is open. None: this client may not read
        the topics, or the broker is too old."""
        from kafka import TopicPartition as KafkaTopicPartition
        from kafka import errors as kp

        hidden = [KafkaTopicPartition(*one) for one in _hidden_partitions(self._settings, self._topics)]
        try:
            producers = self._client.describe_producers(hidden)
        except (kp.AuthorizationError, kp.UnsupportedVersionError, kp.IncompatibleBrokerVersion):
            return None
        return [
            (partition.topic, partition.partition)
            for partition, state in producers.items()
            if any(
                one.producer_id == producer_id and one.current_transaction_start_offset >= 0
                for one in state.active_producers
            )
        ]


def _write_markers(
    settings: KafkaSettings,
    writer: WriterId,
    partitions: Sequence[TopicPartition],
    delivery: DeliverySettings,
    *,
    committed: bool,
) -> None:
    """Commit or abort a transaction that has the partitions and no records."""
    import kafka

    name, limit_s = writer.transactional_id, settings.request_timeout_ms / 1000
    with admin_clients.naming_errors(settings, f"ending the hanging transaction of {name}"):
        producer = kafka.KafkaProducer(
            **settings.kafka_python(),
            transactional_id=name,
            transaction_timeout_ms=delivery.transaction_timeout_ms,
            max_block_ms=settings.request_timeout_ms,
        )
        try:
            producer.init_transactions()
            producer.begin_transaction()
            # A producer adds a partition with the first record for it; there is no call without a record.
            manager = producer._transaction_manager
            for topic, partition in partitions:
                manager.maybe_add_partition_to_transaction(kafka.TopicPartition(topic, partition))
            producer._sender.wakeup()
            deadline = time.monotonic() + limit_s
            while manager.has_partitions_to_add() and time.monotonic() < deadline:
                time.sleep(_POLL_S)
            if committed:
                producer.commit_transaction()
            else:
                producer.abort_transaction()
        finally:
            producer.close(limit_s)
