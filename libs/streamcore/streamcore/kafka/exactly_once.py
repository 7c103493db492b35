"""Writes the output of each cut to Kafka exactly once, even if the process is killed at any point.

One transaction carries every record of a batch and the marker of that batch. The protocol, for a writer w:

1. Read w's marker, which names the last cut that w committed in this epoch, and ask ``WriterHooks.check_history``
   whether this app planned that cut. If it did not, another process writes with another copy of the checkpoint, and
   this one ends without harming it. Then ``init_transactions`` for ``<app>.<epoch>.<w>``. The broker fences any earlier
   process of w and ends the transaction that it left open: commits it if the commit was already requested, aborts it
   otherwise.
2. Read the marker again, and ask again: fencing comes first, because the process that is being fenced could otherwise
   commit after the read. In an epoch without a marker, the writer w of every earlier epoch is fenced too, so that no
   earlier process writes at the same time.
3. Skip a batch whose number and digest the marker has: it is written. A marker above the batch, or one with another
   digest, proves another writer: ``Fenced``. Otherwise begin, produce every record, produce the marker, commit.

The state that a crash just after each step leaves (``CommitStep``; the tests crash there):

- ``FENCED``, ``MARKER_READ``: nothing was written. The next process begins at step 1.
- ``BEGUN``, ``PRODUCED``, ``BEFORE_COMMIT``: an open transaction that no committed reader sees. Step 1 of the next
  process aborts the records and the marker in it, so step 3 writes the batch again.
- ``COMMITTED``: the batch and its marker are committed, but Spark has not recorded the batch as done. Spark replays
  the batch, step 2 finds the marker, step 3 skips the batch.

**Unknown outcome.** A commit that timed out may or may not have happened. The writer closes the producer and creates a
new one, which begins at step 1: fencing settles the outcome, and step 2 then reads it. The writer does this after
every failure that is neither ``Fenced`` nor known to be final, for at most ``DeliverySettings.recovery_ms``.

``WriterHooks.still_owner`` is called before that step 1, and again after it: meanwhile a process of a later epoch may
have fenced this writer, and this writer's own step 1 would then have come after it. A process that begins after the
second check fences this writer again.

**A commit that the brokers forget.** Brokers that were all killed may leave a confirmed transaction without its end
(``hanging_transactions``). So step 1 ends such a transaction first, as the coordinator has recorded its outcome; in an
epoch without a visible marker also those of the writer w in every earlier epoch. And the writer begins at step 1 after
all brokers were away.

**A batch without records** opens no transaction and writes no marker. The marker then stays at an earlier batch, which
is harmless: a replay of the empty batch has no records either (output is a pure function of the batch), and the marker
is still at or above every batch that *has* records. Every ``MARKER_EVERY`` batches a marker is written all the same, so
that the offset log always has the batch of the marker, and its digest can be compared.

**Too large records.** A record above ``DeliverySettings.max_record_bytes`` is passed to
``WriterHooks.replace_oversized`` *before* the transaction begins, and the returned record is written instead, in the
same transaction. (If the caller wrote the substitute later, a crash in between would lose it.)

**Transactions that outlive their time-out.** The broker aborts such a transaction and rejects the commit with the error
code of a fenced process. If the time-out has passed since the transaction began, the writer assumes this cause, calls
``WriterHooks.still_owner`` and begins at step 1. If the writer was really fenced, the marker shows it: the process that
fenced it has written a batch that this one has not planned.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from streamcore.cuts.cut_id import CutId
from streamcore.cuts.writer_id import WriterId
from streamcore.errors import ConfigError, Fenced, Permanent, Retryable
from streamcore.kafka.delivery import (
    CommitOutcome,
    CommitReceipt,
    CommitStep,
    DeliverySettings,
    OutRecord,
    OutRecords,
    WriterHooks,
    record_bytes,
    reject_oversized,
)
from streamcore.kafka.hanging_transactions import end_hanging_transactions
from streamcore.kafka.markers import Marker, read_marker, read_stable_marker
from streamcore.kafka.settings import KafkaSettings
from streamcore.kafka.systems import transactions_dependency
from streamcore.kafka.transactional_producer import TransactionalProducer

#: How many earlier epochs the first writer of a new epoch fences.
MAX_PAST_EPOCHS = 16
#: The marker is at most so many batches old, even if they have no records. The offset log keeps more.
MARKER_EVERY = 50


@dataclass(slots=True)
class _TransactionBatch:
    """The contents of a transaction: ``count`` records of ``bytes`` bytes in total; ``oversized`` records were replaced
    or dropped."""

    rows: list[OutRecord | OutRecords] = field(default_factory=list)
    count: int = 0
    bytes: int = 0
    oversized: int = 0

    def add(self, row: OutRecord | OutRecords, count: int, size_bytes: int) -> None:
        """Append ``row``, which holds ``count`` records of ``size_bytes`` in total."""
        if count:
            self.rows.append(row)
            self.count += count
            self.bytes += size_bytes


class ExactlyOnceWriter:
    """One writer of an app. Call ``open`` once, then ``commit`` for each batch; one thread at a time. ``topics``: those
    that it writes or earlier processes of it wrote, beside the markers topic.

    Once ``open`` or ``commit`` has raised, the writer is closed for good. Build a new writer, and after ``Fenced`` in a
    new process.
    """

    def __init__(
        self,
        settings: KafkaSettings,
        writer: WriterId,
        markers_topic: str,
        *,
        delivery: DeliverySettings | None = None,
        hooks: WriterHooks | None = None,
        topics: Sequence[str] = (),
    ) -> None:
        self._settings = settings
        self._writer = writer
        self._markers_topic = markers_topic
        self._delivery = delivery or DeliverySettings()
        self._hooks = hooks or WriterHooks()
        self._topics = topics
        self._producer: TransactionalProducer | None = None
        self._done: Marker | None = None
        self._marker_partition = 0
        self._transactions = transactions_dependency(settings, writer)
        self._common = [("app", writer.app.encode()), ("epoch", str(writer.epoch).encode())]

    def open(self) -> CutId | None:
        """Run steps 1 and 2. Return the last cut that this writer has committed in this epoch, or None.

        Raises ``Fenced``, ``ConfigError`` (topic, permissions, login, transaction time-out), ``Permanent``, the error
        of ``check_history``, and ``Retryable`` if no broker answers within ``recovery_ms``.
        """
        self._done = None
        self._retry(self._steps_1_and_2, "open")
        return self._last_cut

    def commit(self, cut: CutId, records: Iterable[OutRecord | OutRecords]) -> CommitReceipt:
        """Write the cut (step 3), and run steps 1 to 3 again while the outcome is unknown. On return, Kafka holds the
        cut exactly once.

        ``records`` of one topic are written in the given order.

        Raises the errors of ``open``. After ``Retryable`` the cut may or may not be committed; a new writer's
        ``open``, and ``commit`` of this cut, settle that. After any other error, nothing of the cut is visible.
        """
        started, batch = time.perf_counter(), cut.batch
        if self._producer is None:
            raise ConfigError(f"writer {self._writer.transactional_id} is not open; call open() before commit()")
        if self._is_done(cut):
            return CommitReceipt(batch, CommitOutcome.SKIPPED, 0, 0, time.perf_counter() - started)
        fitting = self._build_batch(records)
        if not fitting.rows and not self._marker_is_due(batch):
            return CommitReceipt(batch, CommitOutcome.EMPTY, 0, 0, time.perf_counter() - started, fitting.oversized)
        attempts = self._retry(lambda: self._write(cut, fitting.rows), f"commit of batch {batch}")
        seconds = time.perf_counter() - started
        outcome = CommitOutcome.COMMITTED if fitting.rows else CommitOutcome.EMPTY
        return CommitReceipt(batch, outcome, fitting.count, fitting.bytes, seconds, fitting.oversized, attempts)

    def close(self) -> None:
        """Abort an open transaction and close the producer. Committed records stay."""
        self._end_producer(abort=True)

    def __enter__(self) -> ExactlyOnceWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _is_done(self, cut: CutId) -> bool:
        """Return whether the marker is that of the cut. Raise ``Fenced`` if it proves another writer."""
        if self._done is None or self._done.cut.batch < cut.batch:
            return False
        if self._done.cut == cut:
            return True
        raise Fenced(
            f"kafka {self._settings.bootstrap}: {self._writer.transactional_id}: {cut} is to be written, and the "
            f"marker shows {self._done.cut} with {'other input' if self._done.cut.batch == cut.batch else 'output'}: "
            "another process runs the app with another copy of the checkpoint; this one ends. Keep one of the two"
        )

    @property
    def _last_cut(self) -> CutId | None:
        return None if self._done is None else self._done.cut

    def _marker_is_due(self, batch: int) -> bool:
        return batch - (-1 if self._done is None else self._done.cut.batch) >= MARKER_EVERY

    def _build_batch(self, records: Iterable[OutRecord | OutRecords]) -> _TransactionBatch:
        """Collect the records of a transaction, with oversized ones replaced or dropped."""
        contents, limit = _TransactionBatch(), self._delivery.max_record_bytes
        for row in records:
            if isinstance(row, OutRecord):
                self._add_record(row, contents)
            elif row.max_record_bytes <= limit:
                contents.add(row, len(row), row.bytes)
            else:
                for record in row:
                    self._add_record(record, contents)
        return contents

    def _add_record(self, record: OutRecord, contents: _TransactionBatch) -> None:
        """Add the record, or its replacement if it is too large. Raise ``Permanent`` if that is too large as well."""
        size, limit = record_bytes(record), self._delivery.max_record_bytes
        if size <= limit:
            contents.add(record, 1, size)
            return
        contents.oversized += 1
        substitute = self._hooks.replace_oversized(record, limit)
        if substitute is None:
            return
        size = record_bytes(substitute)
        if size > limit:
            reject_oversized(substitute, limit)
        contents.add(substitute, 1, size)

    def _retry(self, action: Callable[[], None], name: str) -> int:
        """Run ``action`` until it succeeds and return the number of attempts.

        After each ``Retryable`` the producer is dropped, so that the next attempt begins at step 1. Raises
        ``Retryable`` after ``recovery_ms``, counted from the first failure.
        """
        attempts, pause_ms, deadline = 1, self._delivery.backoff_ms, 0.0
        while True:
            try:
                with self._hooks.outages.attempt(self._transactions, name):
                    action()
                return attempts
            except Retryable as error:
                self._end_producer()
                deadline = deadline or time.monotonic() + self._delivery.recovery_ms / 1000
                if time.monotonic() + pause_ms / 1000 > deadline:
                    raise Retryable(f"{name} failed in {attempts} attempts: {error}") from error
            except BaseException:
                self._end_producer(abort=True)
                raise
            time.sleep(pause_ms / 1000)
            pause_ms = min(2 * pause_ms, self._delivery.backoff_max_ms)
            attempts += 1
            self._hooks.still_owner()

    def _steps_1_and_2(self) -> None:
        # 1. Only a process whose history the marker shows may fence. Then fence any earlier process with this
        # transactional id; the broker ends its open transaction.
        if (seen := self.read_stable_marker()) is not None:
            self._hooks.check_history(seen.cut)
        # Before the fencing, which makes the coordinator forget how the last transaction ended.
        writers = [self._writer] if seen is not None else [self._writer, *self._past_writers()]
        end_hanging_transactions(self._settings, writers, [self._markers_topic, *self._topics], self._delivery)
        self._producer = TransactionalProducer.fence(self._settings, self._writer, self._delivery)
        self._marker_partition = self._producer.marker_partition(self._markers_topic, self._writer)
        self._hooks.on_step(CommitStep.FENCED)
        # 2. From here on only this process can add markers, so the marker that is read now is the last one.
        before, self._done = self._done, self.read_marker()
        if self._done is None:
            self._fence_past_epochs()
        else:
            self._hooks.check_history(self._done.cut)
        self._check_not_lost(before)
        self._hooks.on_step(CommitStep.MARKER_READ)

    def _check_not_lost(self, before: Marker | None) -> None:
        """Raise ``Permanent`` if the marker is older than ``before``, the one that this writer committed last."""
        if before is not None and (self._done is None or self._done.cut.batch < before.cut.batch):
            raise Permanent(
                f"kafka {self._settings.bootstrap}: topic {self._markers_topic}: the marker shows "
                f"{self._done.cut if self._done else 'no batch'} after {before.cut} was committed: the broker lost "
                "records that it had confirmed; restore the app from a savepoint that is not later"
            )

    def _write(self, cut: CutId, rows: Sequence[OutRecord | OutRecords]) -> None:
        """Run step 3, after steps 1 and 2 if an earlier attempt failed: that attempt may have been committed. Also
        after all brokers were away, because they may have lost the end of the last transaction."""
        if self._producer is not None and self._producer.was_cut_off():
            self._end_producer()
        if self._producer is None:
            self._steps_1_and_2()
            self._hooks.still_owner()
            if self._is_done(cut):
                return
        assert self._producer is not None
        begun = time.monotonic()
        try:
            self._transaction(self._producer, Marker(self._writer, cut), rows)
        except Fenced as error:
            if time.monotonic() - begun < self._delivery.transaction_timeout_ms / 1000:
                raise
            raise Retryable(f"{cut}: transaction outlived its time-out: {error}") from error
        self._done = Marker(self._writer, cut)
        self._hooks.on_step(CommitStep.COMMITTED)

    def _transaction(
        self, session: TransactionalProducer, marker: Marker, rows: Sequence[OutRecord | OutRecords]
    ) -> None:
        # 3. All records of the batch and the marker, in one transaction.
        with session.naming_errors(str(marker.cut)):
            session.producer.begin_transaction()
            self._hooks.on_step(CommitStep.BEGUN)
            self._produce(session, rows, [*self._common, ("batch", str(marker.cut.batch).encode())])
            self._hooks.on_step(CommitStep.PRODUCED)
            session.produce_marker(self._markers_topic, self._marker_partition, marker)
            self._hooks.on_step(CommitStep.BEFORE_COMMIT)
            session.producer.commit_transaction(self._delivery.commit_timeout_ms / 1000)

    def _produce(
        self, session: TransactionalProducer, rows: Sequence[OutRecord | OutRecords], headers: list[tuple[str, bytes]]
    ) -> None:
        """Produce the records of the batch, in the transaction that has begun."""
        session.produce(rows, headers)

    def read_marker(self) -> Marker | None:
        """Read the marker of step 2. It stays valid only while no other process can write, that is, after step 1."""
        # Another writer's open transaction hides the end of the partition until its time-out has passed.
        timeout_ms = self._delivery.transaction_timeout_ms + self._settings.request_timeout_ms
        return read_marker(self._settings, self._markers_topic, self._writer, timeout_ms)

    def read_stable_marker(self) -> Marker | None:
        """Read the marker of step 1, which another process may replace at any time."""
        timeout_ms = self._settings.request_timeout_ms
        return read_stable_marker(self._settings, self._markers_topic, self._writer, timeout_ms)

    def _fence_past_epochs(self) -> None:
        for past in self._past_writers():
            TransactionalProducer.fence(self._settings, past, self._delivery).end()

    def _past_writers(self) -> list[WriterId]:
        """Return this writer in the last ``MAX_PAST_EPOCHS`` epochs, newest first."""
        newest = self._writer.epoch - 1
        epochs = range(newest, max(0, newest - MAX_PAST_EPOCHS), -1)
        return [WriterId(self._writer.app, epoch, self._writer.writer) for epoch in epochs]

    def _end_producer(self, *, abort: bool = False) -> None:
        """Close the producer. Without ``abort`` its transaction stays open until the next step 1 resolves it."""
        session, self._producer = self._producer, None
        if session is not None:
            session.end(abort=abort)
