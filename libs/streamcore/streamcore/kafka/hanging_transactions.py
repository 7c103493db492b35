"""Ends a transaction whose markers the broker has lost: a *hanging transaction* (KIP-664).

A transaction coordinator that starts while partitions have no leader, as after ``kill -9`` of all brokers, takes the
partitions for deleted: it skips their transaction markers and records the transaction as complete (seen with Kafka
4.3). The records of the transaction stay invisible although their commit was confirmed, and hide all later records of
the partitions from readers of committed records. The marker of the last cut is among them.

The coordinator still knows how the transaction ended, until the next producer with this transactional id begins. So
before it does, an empty transaction over the same partitions is ended in the same way: its markers end both.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import closing

from streamcore.errors import Retryable
from streamcore.kafka import admin_clients
from streamcore.kafka.delivery import DeliverySettings
from streamcore.kafka.partition_offsets import KafkaPartitionOffsets
from streamcore.kafka.settings import KafkaSettings
from streamcore.offsets import TopicPartition
from streamcore.writer_id import WriterId

_POLL_S = 0.1


def end_hanging_transaction(
    settings: KafkaSettings, writer: WriterId, markers_topic: str, topics: Sequence[str], delivery: DeliverySettings
) -> bool:
    """End the hanging transaction of the writer, if there is one; return whether there was. Fences the writer then.

    ``topics``: those that the writer writes. Only their partitions that hide records get markers; if another writer's
    transaction hides them, the markers change nothing.

    Raises ``Retryable`` if the broker does not answer within ``request_timeout_ms``.
    """
    if not _hidden_partitions(settings, [markers_topic]):
        return False
    committed = _was_committed(settings, writer)
    hidden = _hidden_partitions(settings, [markers_topic, *topics])
    if committed is None or not hidden:
        return False
    _write_markers(settings, writer, hidden, delivery, committed=committed)
    return True


def _hidden_partitions(settings: KafkaSettings, topics: Sequence[str]) -> list[TopicPartition]:
    """Return the partitions with records behind the last stable offset: those of transactions without an end."""
    offsets = KafkaPartitionOffsets(settings, topics)
    stable, ends = offsets.latest(), offsets.high_watermarks()
    return [partition for partition, offset in stable.items() if offset < ends[partition]]


def _was_committed(settings: KafkaSettings, writer: WriterId) -> bool | None:
    """Return whether the last transaction of the writer was committed (or aborted), once the coordinator has ended it.
    None: it is open, and the next ``init_transactions`` aborts it; or the coordinator does not know the writer; or the
    broker is older than Kafka 3.0 and cannot tell."""
    from kafka import errors as kp
    from kafka.admin import TransactionState

    name, deadline = writer.transactional_id, time.monotonic() + settings.request_timeout_ms / 1000
    prepared = (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)
    with (
        closing(admin_clients.admin(settings)) as client,
        admin_clients.naming_errors(settings, f"state of transaction {name}"),
    ):
        try:
            while (state := client.describe_transactions([name])[name].state) in prepared:
                if time.monotonic() > deadline:
                    raise Retryable(
                        f"kafka {settings.bootstrap}: transaction {name} is not complete after "
                        f"{settings.request_timeout_ms} ms; look at the log of the broker"
                    )
                time.sleep(_POLL_S)
        except (kp.TransactionalIdNotFoundError, kp.UnsupportedVersionError, kp.IncompatibleBrokerVersion):
            return None
    ended = {TransactionState.COMPLETE_COMMIT: True, TransactionState.COMPLETE_ABORT: False}
    return ended.get(state)


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
