"""An app that numbers its output, run by ``test_suspended_processes`` as processes on copies of one checkpoint.

Each batch takes some of the numbers 0, 1, 2, ... and writes them to a topic. The app runs until it is killed, or ends
with the message of an error. Checkpoint, offset log and writer are the product's; Spark's two logs are written here.
"""

from __future__ import annotations

import random
import sys
import time
from functools import partial
from pathlib import Path

from streamcore.checkpoint.checkpoint import AppIdentity, CheckpointRoot
from streamcore.checkpoint.offset_log import CutBounds
from streamcore.cuts.cut_clock import CutClock
from streamcore.cuts.writer_id import WriterId
from streamcore.errors import StreamError
from streamcore.kafka.delivery import CommitStep, DeliverySettings, OutRecord, WriterHooks
from streamcore.kafka.exactly_once import MARKER_EVERY, ExactlyOnceWriter
from streamcore.kafka.settings import KafkaSettings
from streamcore.offsets import StreamOffsets
from streamcore.storage.atomic_files import make_folder, write_text

TRANSACTION_MS = 2_000
ENDED = 3
_INPUT = ("numbers", 0)


def plan(root: CheckpointRoot, batch: int) -> CutBounds:
    """Plan the batch: up to five numbers after those of the batch before it."""
    before = root.offsets.read(batch - 1)
    start = StreamOffsets(CutClock(), {_INPUT: 0}) if before is None else before.end
    end = StreamOffsets(CutClock.at(time.time_ns()), {_INPUT: start.offsets[_INPUT] + random.randrange(6)})
    bounds = CutBounds(start, end, "" if before is None else before.id(batch - 1).digest)
    write_text(root.spark / "offsets" / str(batch), "v1\n{}")
    root.offsets.write(batch, bounds)
    return bounds


def main() -> None:
    """Run batches until an error ends the app."""
    bootstrap, app, out, markers, folder = sys.argv[1:]
    root = CheckpointRoot(Path(folder))
    epoch = root.initialise(AppIdentity(app, 1))
    for log in ("offsets", "commits"):
        make_folder(root.spark / log)
    write_text(root.spark / "metadata", "{}")

    def linger(step: CommitStep) -> None:
        if step is CommitStep.BEFORE_COMMIT:
            time.sleep(random.uniform(0, 0.1))  # so that processes are often suspended within a transaction

    delivery = DeliverySettings(transaction_timeout_ms=TRANSACTION_MS, commit_timeout_ms=2_000, recovery_ms=30_000)
    hooks = WriterHooks(on_step=linger, check_history=partial(root.check_history, epoch=epoch))
    kafka, identity = KafkaSettings(bootstrap), WriterId(app, epoch)
    with ExactlyOnceWriter(kafka, identity, markers, delivery=delivery, hooks=hooks) as writer:
        root.check_marker(writer.open(), epoch, MARKER_EVERY)
        while True:
            last = root.last_committed()
            batch = 0 if last is None else last + 1
            bounds = root.offsets.read(batch) or plan(root, batch)
            numbers = range(bounds.start.offsets[_INPUT], bounds.end.offsets[_INPUT])
            writer.commit(bounds.id(batch), [OutRecord(out, None, b"%d" % number) for number in numbers])
            write_text(root.spark / "commits" / str(batch), "v1\n{}")


if __name__ == "__main__":
    try:
        main()
    except StreamError as error:
        print(f"{type(error).__name__}: {error}", flush=True)
        sys.exit(ENDED)
