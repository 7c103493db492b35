"""Whether an app that begins from a savepoint would write again what was written after it.

The markers of earlier epochs show how far each of them came. A savepoint that an app was stopped with is the last word
of its epoch; if the app went on after it, or another was begun from it, their output stands in the lanes already.
"""

from __future__ import annotations

from collections.abc import Callable

from streamcore.checkpoint.origin import RestoreOrigin
from streamcore.errors import ConfigError
from streamcore.kafka.exactly_once import MAX_PAST_EPOCHS

#: The last batch with output that an epoch committed, None for none.
LastBatch = Callable[[int], int | None]


def check_not_behind_output(origin: RestoreOrigin, epoch: int, last_batch: LastBatch) -> None:
    """``ConfigError`` when an earlier epoch wrote a batch that is not in the savepoint, unless the restore accepts a
    rewind.

    Call it after the earlier epochs are fenced, before the first batch of this one.
    """
    if origin.rewinds:
        return
    for earlier in range(max(origin.epoch, epoch - MAX_PAST_EPOCHS), epoch):
        last = last_batch(earlier)
        if last is not None and (earlier > origin.epoch or last > origin.batch):
            raise ConfigError(
                f"savepoint {origin.savepoint} is of batch {origin.batch} of epoch {origin.epoch}, and batch {last} of "
                f"epoch {earlier} was written after it: going on would write that again. Restore a later savepoint, or "
                "restore this one and accept rewind"
            )
