"""A small app that dies at a given step: run by ``test_crashes`` as a process of its own.

It commits batches ``0 .. BATCHES-1`` of a few records each and keeps, like Spark, a log of the batches that it knows to
be done, written *after* the commit. Started again, it goes on after the last batch in that log, so a crash between
the commit and the log replays a batch.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from streamcore.cuts.cut_id import CutId
from streamcore.cuts.writer_id import WriterId
from streamcore.kafka.at_least_once import AtLeastOnceWriter
from streamcore.kafka.data_clients import idempotent_producer
from streamcore.kafka.delivery import CommitStep, OutRecord, OutRecords, WriterHooks
from streamcore.kafka.exactly_once import ExactlyOnceWriter
from streamcore.kafka.markers import Marker
from streamcore.kafka.settings import KafkaSettings
from streamcore.kafka.transactional_producer import DeliveryReports, RecordProducer, TransactionalProducer

BATCHES = 6
RECORDS = 20
CRASHED = 77


class ForgetfulWriter(ExactlyOnceWriter):
    """The writer with its protection switched off: it never sees a marker."""

    def read_marker(self) -> Marker | None:
        return None


class UnconfirmedWriter(AtLeastOnceWriter):
    """The writer without transactions and without its protection: it does not wait for the brokers, which get the
    records twenty seconds later."""

    def _produce(self, _: TransactionalProducer, rows: Sequence[OutRecord | OutRecords], headers: Any) -> None:
        if self._sender is None:
            reports, options = DeliveryReports(), {**self._delivery.options_without_transactions, "linger.ms": 20_000}
            producer = idempotent_producer(self._settings, options, reports.log, reports)
            self._sender = RecordProducer(self._settings, producer, reports.log, reports.undelivered)
        super()._produce(_, rows, headers)

    def _confirm(self, sender: RecordProducer) -> None:
        pass


WRITERS = {
    "on": ExactlyOnceWriter,
    "off": ForgetfulWriter,
    "at-least-once": AtLeastOnceWriter,
    "unconfirmed": UnconfirmedWriter,
}


def batch_records(batch: int, out: str) -> list[OutRecord]:
    """Return the records of a batch, as a pure function of it; a header names the process that wrote a record."""
    attempt = (("process", str(os.getpid()).encode()),)
    return [OutRecord(out, b"%d" % n, b"%d:%d" % (batch, n), attempt) for n in range(RECORDS)]


def crash_at(where: CommitStep | None, batch: Callable[[], int], at_batch: int) -> Callable[[CommitStep], None]:
    def reached(step: CommitStep) -> None:
        at_start = step in (CommitStep.FENCED, CommitStep.MARKER_READ)
        if step is where and (at_start or batch() == at_batch):
            time.sleep(0.2)  # the broker has the produced records by now
            os._exit(CRASHED)

    return reached


def main(arguments: list[str]) -> None:
    bootstrap, app, out, markers, log_path, step, protection, pause_ms = arguments
    log = Path(log_path)
    done = log.read_text().splitlines()
    batch = int(done[-1]) + 1 if done else 0
    hooks = WriterHooks(on_step=crash_at(CommitStep(step) if step != "none" else None, lambda: batch, 2))
    with WRITERS[protection](KafkaSettings(bootstrap), WriterId(app, 1), markers, hooks=hooks) as writer:
        writer.open()
        print("open", flush=True)
        while batch < BATCHES:
            writer.commit(CutId(batch, f"{batch:015x}"), batch_records(batch, out))
            time.sleep(int(pause_ms) / 1000)
            with log.open("a") as file:
                file.write(f"{batch}\n")
            batch += 1


if __name__ == "__main__":
    main(sys.argv[1:])
