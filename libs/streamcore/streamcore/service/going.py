"""How a standby that is told to go comes to own the checkpoint of its epoch: steps 1 to 3 of ``life``.

1. Look whether the checkpoint is there, or may be made (``Epochs.admit``). A refusal has changed nothing.
2. Own it: a folder with a lease. A crash leaves a lease that goes stale, in a folder that counts for nothing.
3. Look again, for somebody else may have been faster; then make it, its identity last, unless it is there. A crash
   leaves what the next one makes anew, or a checkpoint that is whole and that nobody owns. An answer that was lost is
   not guessed: what is there after all was made.

What goes wrong in step 3 takes the folder away again, if it is no checkpoint yet, and lets go of the lease.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from streamcore.checkpoint.epochs import Epochs
from streamcore.errors import ConfigError, Retryable, StreamError
from streamcore.location import Location
from streamcore.service.requests import Go
from streamcore.service.savepoints import Savepoints
from streamcore.service.settings import ServiceSettings

if TYPE_CHECKING:
    from streamcore.spark.start import Start

S = TypeVar("S", bound=ServiceSettings)


def owned(go: Go, settings: ServiceSettings, savepoints: Savepoints, start: Start) -> None:
    """Steps 1 to 3. ``StreamError`` when it may not be; nothing is owned then."""
    epochs = Epochs(settings.checkpoint)
    # 1. Nothing is touched before it is known to be right.
    savepoints.admit(go)
    # 2. From here on nobody else.
    checkpoint = epochs.checkpoint(go.epoch).path
    start.own(checkpoint, go.epoch, partial(epochs.fence, go.epoch))
    # 3. A checkpoint, whole.
    try:
        savepoints.admit(go)
        _make(go, savepoints, epochs)
    except BaseException:
        try:
            epochs.discard(go.epoch)
        finally:
            start.disown()
        raise


def _make(go: Go, savepoints: Savepoints, epochs: Epochs) -> None:
    """The identity is written last, and by nobody but the owner: with it, all that was to be made is there."""
    try:
        savepoints.make(go)
    except Retryable:
        made = False
        with suppress(StreamError):  # a place that is away says nothing of it
            made = epochs.is_made(go.epoch)
        if not made:
            raise
        savepoints.make(go)  # looks whether what is there is the app's, and whole


def alone(settings: ServiceSettings) -> Location:
    """The checkpoint of a process that is not told to go: the one of the settings, unless it is not for such a one."""
    made = Epochs(settings.checkpoint).made()
    if made:
        raise ConfigError(
            f"checkpoint {settings.checkpoint}: it holds those of epochs {', '.join(map(str, made))}, of an app that "
            f"is started with --standby and told to go; to run it by hand, name e{made[-1]} in it as the checkpoint"
        )
    return settings.checkpoint


def within(settings: S, epoch: int) -> S:
    """The settings of whoever owns that epoch: everything else is where it was."""
    checkpoint = Epochs(settings.checkpoint).checkpoint(epoch).path
    return settings.model_copy(update={"checkpoint": checkpoint, "savepoints": settings.savepoint_place})
