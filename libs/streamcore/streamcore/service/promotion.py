"""Promotes a standby: it takes over the checkpoint of the command's epoch, in steps 1 to 3 of ``lifecycle``.

1. Check that the checkpoint exists or may be created (``Savepoints.admit``). A rejection has changed nothing.
2. Acquire the lease of its folder. A crash leaves a lease that goes stale, in a folder that is no checkpoint yet.
3. Check again, because another process may have been faster. Then create the checkpoint unless it exists; its identity
   is written last. A crash leaves files that the next owner replaces, or a complete checkpoint without an owner. If
   the response to the last write was lost, the identity file shows whether the checkpoint exists.

If step 3 fails, it removes the folder, unless that is a complete checkpoint, and releases the lease.
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


def take_over(command: Promote, settings: ServiceSettings, savepoints: Savepoints, runtime: Runtime) -> None:
    """Execute steps 1 to 3. If it raises ``StreamError``, the process owns nothing."""
    epochs = EpochStore(settings.checkpoint)
    # 1. Nothing is written yet.
    savepoints.admit(command)
    # 2. After this, no other process can own the checkpoint.
    checkpoint = epochs.checkpoint(command.epoch).path
    runtime.acquire(checkpoint, command.epoch, partial(epochs.check_not_superseded, command.epoch))
    # 3. From here on, no other process can create it.
    try:
        savepoints.admit(command)
        _create_checkpoint(command, savepoints, epochs)
    except BaseException:
        try:
            epochs.discard_partial(command.epoch)
        finally:
            runtime.release()
        raise


def _create_checkpoint(command: Promote, savepoints: Savepoints, epochs: EpochStore) -> None:
    """Create the checkpoint. Its identity is written last, so a checkpoint with an identity is complete."""
    try:
        savepoints.make(command)
    except Retryable:
        exists = False
        with suppress(StreamError):  # if the storage does not respond, raise the first error
            exists = epochs.exists(command.epoch)
        if not exists:
            raise
        savepoints.make(command)  # checks that the existing checkpoint is complete and this app's


def standalone_checkpoint(settings: ServiceSettings) -> Location:
    """Return the checkpoint of a process without ``--standby``. Raise ``ConfigError`` if its folder has checkpoints of
    epochs."""
    known = EpochStore(settings.checkpoint).existing()
    if known:
        raise ConfigError(
            f"checkpoint {settings.checkpoint}: it holds those of epochs {', '.join(map(str, known))}, of an app that "
            f"is started with --standby and then promoted; to run it by hand, name e{known[-1]} in it as the checkpoint"
        )
    return settings.checkpoint


def settings_for_epoch(settings: S, epoch: int) -> S:
    """Return the settings with the checkpoint of that epoch. The savepoints stay where they are."""
    checkpoint = EpochStore(settings.checkpoint).checkpoint(epoch).path
    return settings.model_copy(update={"checkpoint": checkpoint, "savepoints": settings.savepoints_root})
