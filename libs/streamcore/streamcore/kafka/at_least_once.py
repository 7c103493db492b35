"""Writes the output of each cut to Kafka at least once: a reader sees it before the cut is committed.

The protocol of ``exactly_once`` with one difference, in step 3: a producer without transactions sends the records, and
the brokers confirm all of them before the transaction of the marker, which holds nothing else, is committed. So

- a ``read_committed`` reader gets a record as soon as a broker has it, without the end of a transaction;
- nothing is lost: a marker proves that every record of its cut, and of those before it, is confirmed;
- a cut whose records were sent without its marker (the process was killed, the outcome is unknown) is written again,
  as a whole, in order: its records appear twice, in each of their partitions first in part and then in full;
- an earlier process that still runs is fenced by its marker as ever, and ends; until then it may write the records of
  one more cut, which another process writes as well.
"""

from __future__ import annotations

from collections.abc import Sequence

from streamcore.errors import Fenced, Retryable
from streamcore.kafka.delivery import OutRecord, OutRecords
from streamcore.kafka.exactly_once import ExactlyOnceWriter
from streamcore.kafka.transactional_producer import RecordProducer, TransactionalProducer


class AtLeastOnceWriter(ExactlyOnceWriter):
    """A writer whose records are in no transaction. Its interface, hooks and errors are those of the exactly-once
    writer; after ``Retryable`` from ``commit`` some records of the cut may be visible."""

    _sender: RecordProducer | None = None

    def _produce(
        self, _: TransactionalProducer, rows: Sequence[OutRecord | OutRecords], headers: list[tuple[str, bytes]]
    ) -> None:
        """Send the records and wait until the brokers have confirmed them. The transaction will hold the marker."""
        if not rows:
            return
        self._hooks.still_owner()  # nothing fences these records
        if self._sender is None:
            self._sender = RecordProducer.without_transactions(self._settings, self._delivery)
        try:
            with self._sender.naming_errors("sending the records"):
                self._sender.produce(rows, headers)
            self._confirm(self._sender)
        except Fenced as error:  # no other process can fence this producer: its broker has lost its sequence
            raise Retryable(str(error)) from error

    def _confirm(self, sender: RecordProducer) -> None:
        sender.flush(self._delivery.commit_timeout_ms, "sending the records")

    def _end_producer(self, *, abort: bool = False) -> None:
        """Close both producers; records that are still queued are not sent."""
        sender, self._sender = self._sender, None
        if sender is not None:
            sender.purge()
        super()._end_producer(abort=abort)
