"""A producer of records, and a transactional one, from its fencing to its end: the layer between the protocol and the
client.

Errors that the client reports in callbacks (undelivered records, rejected logins) become part of the error that is
raised. Retries and the order of steps are the business of ``exactly_once``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

import confluent_kafka as ck

from streamcore.cuts.writer_id import WriterId
from streamcore.errors import Fenced, Retryable, StreamError
from streamcore.kafka import data_clients as clients
from streamcore.kafka.data_clients import ClientLog
from streamcore.kafka.delivery import DeliverySettings, OutRecord, OutRecords
from streamcore.kafka.markers import Marker, markers_partition, partition_count
from streamcore.kafka.settings import KafkaSettings

_POLL_EVERY_RECORDS = 10_000
_ABORT_TIMEOUT_S = 5.0
_FULL_QUEUE_POLL_S = 0.1
_PURGED = (ck.KafkaError._PURGE_QUEUE, ck.KafkaError._PURGE_INFLIGHT)


@dataclass(frozen=True, slots=True)
class Undelivered:
    """A record that the client could not deliver."""

    error: ck.KafkaError
    topic: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class DeliveryReports:
    """Collects the reports of a client's callbacks. Called with each record that is undelivered."""

    log: ClientLog = field(default_factory=ClientLog)
    undelivered: list[Undelivered] = field(default_factory=list)

    def __call__(self, error: ck.KafkaError | None, message: ck.Message) -> None:
        if error is not None and error.code() not in _PURGED:
            self.undelivered.append(Undelivered(error, str(message.topic()), len(message)))


@dataclass(frozen=True)
class RecordProducer:
    """A producer of records. ``log`` and ``undelivered`` collect the reports of its callbacks."""

    settings: KafkaSettings
    producer: ck.Producer
    log: ClientLog
    undelivered: list[Undelivered] = field(default_factory=list)

    @classmethod
    def without_transactions(cls, settings: KafkaSettings, delivery: DeliverySettings) -> RecordProducer:
        """Return a producer whose records are visible as soon as a broker has them. It sends each once."""
        reports = DeliveryReports()
        producer = clients.idempotent_producer(settings, delivery.options_without_transactions, reports.log, reports)
        return cls(settings, producer, reports.log, reports.undelivered)

    def was_cut_off(self) -> bool:
        """Return whether all brokers were away since the producer was made, as far as the client has noticed."""
        self.producer.poll(0)  # runs the callbacks
        return self.log.was_cut_off

    def produce(self, rows: Sequence[OutRecord | OutRecords], common: list[tuple[str, bytes]]) -> None:
        """Put the records into the client's queue, with the headers ``common`` added to each.

        Stops at the first record that is reported undelivered: the commit, or ``flush``, raises why.
        """
        for n, row in enumerate(rows):
            if isinstance(row, OutRecords):
                self._produce_many(row, common)
            else:
                headers = [*row.headers, *common] if row.headers else common
                self._hand_over(row.topic, row.value, row.key, headers=headers)
            if n % _POLL_EVERY_RECORDS == 0:
                self.producer.poll(0)
            if self.undelivered:
                return

    def _produce_many(self, rows: OutRecords, common: list[tuple[str, bytes]]) -> None:
        """Put many records of one topic into the queue. This loop is most of the driver's cost of output, so it does
        as little as possible per record."""
        topic, produce = rows.topic, self.producer.produce
        for n, (key, value) in enumerate(zip(rows.keys, rows.values, strict=True), 1):
            try:
                produce(topic, value, key, headers=common)
            except BufferError:
                self._hand_over(topic, value, key, headers=common)
            if n % _POLL_EVERY_RECORDS == 0:
                self.producer.poll(0)
                if self.undelivered:
                    return

    def flush(self, timeout_ms: int, action: str) -> None:
        """Wait until the brokers have confirmed every record. Raise the error of the first that is undelivered, and
        ``Retryable`` at the time-out; some records may be written then, and may still be."""
        with self.naming_errors(action):
            left = self.producer.flush(timeout_ms / 1000)
        if self.undelivered:
            raise self._to_stream_error(self.undelivered[0].error, action)
        if left:
            raise Retryable(f"kafka {self.settings.bootstrap}: {action}: {left} records after {timeout_ms} ms")

    def _hand_over(self, topic: str, value: bytes | None, key: bytes | None, **more: object) -> None:
        """Put one record into the queue; wait while the queue is full. The wait ends, because queued records are
        delivered or time out."""
        while True:
            try:
                self.producer.produce(topic, value, key, **more)
                return
            except BufferError:
                self.producer.poll(_FULL_QUEUE_POLL_S)

    @contextmanager
    def naming_errors(self, action: str) -> Iterator[None]:
        """Turn the client's exceptions into errors of ``streamcore.errors``, as ``data_clients.naming_errors`` does.

        After an undelivered record, the error names that record as the cause.
        """
        try:
            yield
        except ck.KafkaException as error:
            raise self._to_stream_error(self._cause(error.args[0]), action) from error
        except SystemError as error:  # reports of records that ran after the client had set its exception
            if not isinstance(error.__cause__, ck.KafkaException):
                raise
            raise self._to_stream_error(error.__cause__.args[0], action) from error

    def _cause(self, error: ck.KafkaError) -> ck.KafkaError:
        """Run the callbacks. Return ``error`` or, for ``_FATAL``, the error that made the producer unusable, which
        ``poll`` raises."""
        try:
            self.producer.poll(0)
        except ck.KafkaException as fatal:
            return fatal.args[0] if error.code() == ck.KafkaError._FATAL else error
        return error

    def _to_stream_error(self, error: ck.KafkaError, action: str) -> StreamError:
        named = clients.confluent_error(error, action, self.settings, self.log)
        if not self.undelivered or isinstance(named, Fenced):
            return named
        first = self.undelivered[0]
        action += f": record of {first.size_bytes} bytes for topic {first.topic}"
        return clients.confluent_error(first.error, action, self.settings, self.log)

    def purge(self) -> None:
        """Drop the records that are still queued; they are not sent."""
        with suppress(ck.KafkaException):
            self.producer.purge(blocking=False)


@dataclass(frozen=True)
class TransactionalProducer(RecordProducer):
    """A producer that has fenced its predecessors."""

    @classmethod
    def fence(cls, settings: KafkaSettings, writer: WriterId, delivery: DeliverySettings) -> TransactionalProducer:
        """Return a producer of this identity, after ending every earlier one and its transaction."""
        reports = DeliveryReports()
        producer = clients.transactional_producer(
            settings, writer.transactional_id, delivery.options, reports.log, reports
        )
        session = cls(settings, producer, reports.log, reports.undelivered)
        with session.naming_errors(f"fencing {writer.transactional_id}"):
            producer.init_transactions(settings.request_timeout_ms / 1000)
        return session

    def marker_partition(self, topic: str, writer: WriterId) -> int:
        """Return the partition of the writer's markers. Raise ``ConfigError`` if the topic does not exist."""
        return markers_partition(writer, partition_count(self.producer, self.settings, topic))

    def produce_marker(self, topic: str, partition: int, marker: Marker) -> None:
        """Put the marker record into the client's queue."""
        self._hand_over(topic, marker.value, marker.writer.key, partition=partition)

    def end(self, *, abort: bool = False) -> None:
        """Close the producer. Without ``abort`` an open transaction stays until the next fencing resolves it."""
        with suppress(ck.KafkaException):
            if abort:
                self.producer.abort_transaction(_ABORT_TIMEOUT_S)
        self.purge()
