"""Writes the output of a batch to Kafka exactly once, whatever dies in between.

One transaction carries every record of a batch and the marker of that batch. The protocol, for a writer w:

1. ``init_transactions`` for ``<app>.<epoch>.<w>``. Fences any earlier process of w and ends the transaction that it
   left open: committed if it had got as far as asking for the commit, aborted otherwise.
2. Read w's marker: the last batch it committed in this epoch. Only now, after fencing: a marker read before it may
   be overtaken by the process that is being fenced. In an epoch without a marker, the same writer of every earlier
   epoch is fenced too, so that no earlier process writes beside us.
3. A batch that is not above the marker has been written: skip it. Otherwise begin, produce every record, produce the
   marker, commit.

The state that a crash just after each step leaves (``CommitStep``; the tests crash there):

- ``FENCED``, ``MARKER_READ``: nothing. The next process does the same again.
- ``BEGUN``, ``PRODUCED``, ``BEFORE_COMMIT``: an open transaction that no committed reader sees. Step 1 of the next
  process aborts it; its marker is aborted with it, so step 3 writes the batch again.
- ``COMMITTED``: the batch and its marker, while Spark does not know yet. Spark replays the batch, step 2 finds the
  marker, step 3 skips.

**Unknown outcome.** A commit that timed out may or may not have happened. Nothing is guessed: the producer ends, and a
new one starts at step 1, which settles the question before step 2 asks it. Any failure that is neither ``Fenced`` nor
known to be final is treated so, within ``DeliverySettings.recovery_ms``.

Before that step 1 ``WriterHooks.still_owner`` is asked, and after it once more: while it was under way a later epoch
may have begun and fenced us, and ours came after its. A process that begins after the second check fences us again.

**A batch without records** opens no transaction and writes no marker: the marker then stays behind, which harms
nothing. A replay of that batch has no records either (output is a pure function of the batch), so there is nothing to
skip; and the marker is still at or above every batch that *has* written something.

**Too large records.** A record above ``DeliverySettings.max_record_bytes`` is offered to
``WriterHooks.replace_oversized`` *before*
the transaction begins, and the record that this returns goes out in its place in the same transaction. (To report it
and let the caller write a substitute later would lose the substitute in a crash between the two.)

**Transactions that outlive their time-out.** The broker then aborts them and refuses our commit in the words that it
uses for a fenced process. If the time-out has passed since the transaction began, we take it for that, ask
``WriterHooks.still_owner`` and start at step 1; the marker keeps that safe even if we are wrong.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from streamcore.errors import ConfigError, Fenced, Retryable
from streamcore.kafka.delivery import (
    CommitOutcome,
    CommitReceipt,
    CommitStep,
    DeliverySettings,
    OutRecord,
    OutRecords,
    WriterHooks,
    record_bytes,
    refuse_oversized,
)
from streamcore.kafka.markers import Marker, read_marker
from streamcore.kafka.settings import KafkaSettings
from streamcore.kafka.transactional_producer import TransactionalProducer
from streamcore.writer_id import WriterId

#: Earlier epochs that are fenced at the first start of a new one.
MAX_PAST_EPOCHS = 16


@dataclass(slots=True)
class _TransactionBatch:
    """The contents of a transaction: ``count`` records of so many ``bytes``; ``oversized`` were replaced or dropped."""

    rows: list[OutRecord | OutRecords] = field(default_factory=list)
    count: int = 0
    bytes: int = 0
    oversized: int = 0

    def add(self, one: OutRecord | OutRecords, count: int, size: int) -> None:
        """``one`` of ``count`` records."""
        if count:
            self.rows.append(one)
            self.count += count
            self.bytes += size


class ExactlyOnceWriter:
    """One writer of an app. ``open`` first, then ``commit`` batch by batch; one thread at a time.

    After an error other than those that ``commit`` overcomes by itself, the writer is closed for good: build a new
    one, in a new process if it was ``Fenced``.
    """

    def __init__(
        self,
        settings: KafkaSettings,
        writer: WriterId,
        markers_topic: str,
        *,
        delivery: DeliverySettings | None = None,
        hooks: WriterHooks | None = None,
    ) -> None:
        self._settings = settings
        self._writer = writer
        self._markers_topic = markers_topic
        self._delivery = delivery or DeliverySettings()
        self._hooks = hooks or WriterHooks()
        self._producer: TransactionalProducer | None = None
        self._done: Marker | None = None
        self._marker_partition = 0
        self._common = [("app", writer.app.encode()), ("epoch", str(writer.epoch).encode())]

    def open(self) -> int | None:
        """Run steps 1 and 2. Return the last batch this writer has committed in this epoch, or None.

        Raises ``Fenced``, ``ConfigError`` (topic, rights, login, transaction time-out), ``Permanent``, and
        ``Retryable`` when no broker answered within ``recovery_ms``.
        """
        self._retry(self._steps_1_and_2, "open")
        return None if self._done is None else self._done.batch

    def commit(self, batch: int, records: Iterable[OutRecord | OutRecords]) -> CommitReceipt:
        """Run step 3, and steps 1 to 3 again while the outcome is unknown. When it returns, the batch is in Kafka,
        once.

        ``records``: one or many at a time; those of a topic are written in this order.

        Raises the errors of ``open``; then nothing of the batch is visible, unless the error is ``Retryable``: then a
        later ``open`` and ``commit`` of the same batch settle it.
        """
        started = time.perf_counter()
        if self._producer is None:
            raise ConfigError(f"writer {self._writer.transactional_id} is not open; call open() before commit()")
        if self._is_done(batch):
            return CommitReceipt(batch, CommitOutcome.SKIPPED, 0, 0, time.perf_counter() - started)
        fitting = self._build_batch(records)
        if not fitting.rows:
            return CommitReceipt(batch, CommitOutcome.EMPTY, 0, 0, time.perf_counter() - started, fitting.oversized)
        attempts = self._retry(lambda: self._write(batch, fitting.rows), f"commit of batch {batch}")
        seconds = time.perf_counter() - started
        return CommitReceipt(
            batch, CommitOutcome.COMMITTED, fitting.count, fitting.bytes, seconds, fitting.oversized, attempts
        )

    def close(self) -> None:
        """End the producer. An open transaction is aborted; committed records stay."""
        self._end_producer(abort=True)

    def __enter__(self) -> ExactlyOnceWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _is_done(self, batch: int) -> bool:
        return self._done is not None and batch <= self._done.batch

    def _build_batch(self, records: Iterable[OutRecord | OutRecords]) -> _TransactionBatch:
        """Return the records with those above the limit replaced."""
        found, limit = _TransactionBatch(), self._delivery.max_record_bytes
        for one in records:
            if isinstance(one, OutRecord):
                self._add_record(one, found)
            elif one.most_bytes <= limit:
                found.add(one, len(one), one.bytes)
            else:
                for record in one:
                    self._add_record(record, found)
        return found

    def _add_record(self, record: OutRecord, found: _TransactionBatch) -> None:
        size, limit = record_bytes(record), self._delivery.max_record_bytes
        if size <= limit:
            found.add(record, 1, size)
            return
        found.oversized += 1
        substitute = self._hooks.replace_oversized(record, limit)
        if substitute is None:
            return
        size = record_bytes(substitute)
        if size > limit:
            refuse_oversized(substitute, limit)
        found.add(substitute, 1, size)

    def _retry(self, action: Callable[[], None], name: str) -> int:
        """Run until it goes through, starting at step 1 after each ``Retryable``; returns the number of attempts."""
        attempts, pause_ms, deadline = 1, self._delivery.backoff_ms, 0.0
        while True:
            try:
                action()
                return attempts
            except Retryable as error:
                self._end_producer()
                deadline = deadline or time.monotonic() + self._delivery.recovery_ms / 1000
                if time.monotonic() + pause_ms / 1000 > deadline:
                    raise Retryable(f"{name} did not go through in {attempts} attempts: {error}") from error
            except BaseException:
                self._end_producer(abort=True)
                raise
            time.sleep(pause_ms / 1000)
            pause_ms = min(2 * pause_ms, self._delivery.backoff_max_ms)
            attempts += 1
            self._hooks.still_owner()

    def _steps_1_and_2(self) -> None:
        # 1. Fence any earlier process with this identity, and have its transaction ended.
        self._producer = TransactionalProducer.fence(self._settings, self._writer, self._delivery)
        self._marker_partition = self._producer.marker_partition(self._markers_topic, self._writer)
        self._hooks.on_step(CommitStep.FENCED)
        # 2. What is committed now stays so: only this process can add to it.
        self._done = self.read_marker()
        if self._done is None:
            self._fence_past_epochs()
        self._hooks.on_step(CommitStep.MARKER_READ)

    def _write(self, batch: int, rows: Sequence[OutRecord | OutRecords]) -> None:
        """Run step 3. The producer is missing when an earlier attempt failed; that attempt may yet have been
        committed."""
        if self._producer is None:
            self._steps_1_and_2()
            self._hooks.still_owner()
            if self._is_done(batch):
                return
        assert self._producer is not None
        begun = time.monotonic()
        try:
            self._transaction(self._producer, batch, rows)
        except Fenced as error:
            if time.monotonic() - begun < self._delivery.transaction_timeout_ms / 1000:
                raise
            raise Retryable(f"batch {batch}: transaction outlived its time-out: {error}") from error
        self._done = Marker(self._writer, batch)
        self._hooks.on_step(CommitStep.COMMITTED)

    def _transaction(self, session: TransactionalProducer, batch: int, rows: Sequence[OutRecord | OutRecords]) -> None:
        # 3. Everything of the batch, its marker, and one commit for all of it.
        marker = Marker(self._writer, batch)
        with session.naming_errors(f"batch {batch}"):
            session.producer.begin_transaction()
            self._hooks.on_step(CommitStep.BEGUN)
            session.produce(rows, [*self._common, ("batch", marker.value)])
            self._hooks.on_step(CommitStep.PRODUCED)
            session.produce_marker(self._markers_topic, self._marker_partition, marker)
            self._hooks.on_step(CommitStep.BEFORE_COMMIT)
            session.producer.commit_transaction(self._delivery.commit_timeout_ms / 1000)

    def read_marker(self) -> Marker | None:
        """Read the marker of step 2. It stays valid only while no other process can write, that is, after step 1."""
        limit_ms = self._delivery.transaction_timeout_ms + self._settings.request_timeout_ms
        return read_marker(self._settings, self._markers_topic, self._writer, limit_ms)

    def _fence_past_epochs(self) -> None:
        newest = self._writer.epoch - 1
        for epoch in range(newest, max(0, newest - MAX_PAST_EPOCHS), -1):
            past = WriterId(self._writer.app, epoch, self._writer.writer)
            TransactionalProducer.fence(self._settings, past, self._delivery).end()

    def _end_producer(self, *, abort: bool = False) -> None:
        """Close the producer. Without ``abort`` its transaction stays open until the next step 1 resolves it."""
        session, self._producer = self._producer, None
        if session is not None:
            session.end(abort=abort)
