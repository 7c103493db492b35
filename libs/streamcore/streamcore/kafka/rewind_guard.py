"""Rejects a start from a savepoint if batches after the savepoint were already written to the lanes.

The markers of earlier epochs show the last batch with output of each epoch. If the app continued after the savepoint,
or another app was started from it, the lanes hold output that this app would write again.
"""

from __future__ import annotations

from collections.abc import Callable

from streamcore.checkpoint.epoch import FIRST_EPOCH
from streamcore.checkpoint.origin import RestoreOrigin
from streamcore.errors import ConfigError
from streamcore.kafka.exactly_once import MAX_PAST_EPOCHS

#: Returns the last batch with output that an epoch committed, or None.
LastBatch = Callable[[int], int | None]


def check_not_behind_output(origin: RestoreOrigin, epoch: int, last_batch: LastBatch) -> None:
    """Raise ``ConfigError`` if an earlier epoch wrote a batch after the savepoint, unless the restore accepts a rewind.

    Call it after the earlier epochs are fenced and before the first batch of ``epoch``.
    """
    if origin.rewinds:
        return
    for earlier in range(max(FIRST_EPOCH, origin.epoch, epoch - MAX_PAST_EPOCHS), epoch):
        last = last_batch(earlier)
        if last is not None and (earlier > origin.epoch or last > origin.batch):
            raise ConfigError(
                f"savepoint {origin.savepoint} is of batch {origin.batch} of epoch {origin.epoch}, and batch {last} of "
                f"epoch {earlier} was written after it: going on would write that again. Restore a later savepoint, or "
                "restore this one and accept rewind"
            )
