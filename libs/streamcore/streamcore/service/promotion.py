"""Promotion: a standby that receives ``go`` takes over the checkpoint of its epoch, in steps 1 to 3 of ``life``.

1. Look whether the checkpoint is there, or may be made (``EpochStore.admit``). A refusal has changed nothing.
2. Own it: a folder with a lease. A crash leaves a lease that goes stale, in a folder that counts for nothing.
3. Look again, because another process may have been faster; then make it, its identity last, unless it is there. A
crash leaves files that the next owner makes anew, or a whole checkpoint without an owner. If an answer was lost, the
step does not guess: a checkpoint that exists was made.

A failure in step 3 removes the folder again, if it is no checkpoint yet, and lets go of the lease.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from streamcore.checkpoint.epochs import EpochStore
from streamcore.control.commands import Promote
from streamcore.errors import ConfigError, Retryable, StreamError
from streamcore.service.config.settings import ServiceSettings
from streamcore.service.savepoint_api import Savepoints
from streamcore.storage.location import Location

if TYPE_CHECKING:
    from streamcore.spark.runtime import Runtime

S = TypeVar("S", bound=ServiceSettings)


def take_over(go: Promote, settings: ServiceSettings, savepoints: Savepoints, start: Runtime) -> None:
    """Execute steps 1 to 3. Raises ``StreamError`` on a refusal; the process owns nothing then."""
    epochs = EpochStore(settings.checkpoint)
    # 1. Nothing is touched before it is known to be right.
    savepoints.admit(go)
    # 2. From here on nobody else.
    checkpoint = epochs.checkpoint(go.epoch).path
    start.acquire(checkpoint, go.epoch, partial(epochs.check_not_superseded, go.epoch))
    # 3. A checkpoint, whole.
    try:
        savepoints.admit(go)
        _make(go, savepoints, epochs)
    except BaseException:
        try:
            epochs.discard_partial(go.epoch)
        finally:
            start.release()
        raise


def _make(go: Promote, savepoints: Savepoints, epochs: EpochStore) -> None:
    """Make the checkpoint; only the owner writes the identity, last: with it, everything that had to be made exists."""
    try:
        savepoints.make(go)
    except Retryable:
        made = False
        with suppress(StreamError):  # a place that is away says nothing of it
            made = epochs.exists(go.epoch)
        if not made:
            raise
        savepoints.make(go)  # looks whether what is there is the app's, and whole


def standalone_checkpoint(settings: ServiceSettings) -> Location:
    """Return the checkpoint of a process without ``--standby``; ``ConfigError`` if it holds those of epochs."""
    made = EpochStore(settings.checkpoint).existing()
    if made:
        raise ConfigError(
            f"checkpoint {settings.checkpoint}: it holds those of epochs {', '.join(map(str, made))}, of an app that "
            f"is started with --standby and told to go; to run it by hand, name e{made[-1]} in it as the checkpoint"
        )
    return settings.checkpoint


def settings_for_epoch(settings: S, epoch: int) -> S:
    """Return the settings of the owner of that epoch: everything else keeps its place."""
    checkpoint = EpochStore(settings.checkpoint).checkpoint(epoch).path
    return settings.model_copy(update={"checkpoint": checkpoint, "savepoints": settings.savepoints_root})
