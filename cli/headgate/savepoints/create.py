"""The work of ``headgate savepoint create`` and ``restore``.

A running app owns its checkpoint, so a command asks it to take the savepoint. If the app has stopped, this process owns
the checkpoint and reads it with its own Spark session.
"""

from __future__ import annotations

import time
import uuid
from dataclasses import dataclass

from headgate.errors import InputError
from headgate.programs.service_app import ServiceApp
from streamcore.checkpoint.checkpoint import AppIdentity, CheckpointRoot
from streamcore.checkpoint.epoch import read_epoch
from streamcore.checkpoint.epochs import EpochStore
from streamcore.control.channel import FileChannel, standby_channel
from streamcore.control.commands import TakeSavepoint, format_command
from streamcore.control.status import DriverPhase, DriverStatus
from streamcore.errors import ConfigError
from streamcore.leases.acquire import lease_for
from streamcore.savepoint import (
    CompatibilityReport,
    RestoreDecisions,
    Savepoint,
    SavepointRepository,
    check_name,
    default_name,
)
from streamcore.storage.atomic_files import list_names
from streamcore.storage.location import Location

_POLL_S = 0.2


@dataclass(frozen=True, slots=True)
class RestoredCheckpoint:
    """The epoch of a new checkpoint, and the compatibility report of its restore."""

    epoch: int
    plan: CompatibilityReport


def create(
    loaded: ServiceApp, savepoints: SavepointRepository, name: str, *, accept_unsettled: bool, limit_s: float
) -> Savepoint:
    """Create a savepoint of the app's current state. Raises ``ConfigError`` if the app has no batch, or ended within
    one; ``InputError`` if the app runs and ``name`` is empty, or if it rejects the command or does not respond within
    ``limit_s`` seconds."""
    root = EpochStore(loaded.settings.checkpoint).newest()
    if root is None:
        raise ConfigError(f"checkpoint {loaded.settings.checkpoint}: the app has not run there yet")
    if not _is_running(root):
        return _take_from_stopped(loaded, root, savepoints, name, accept_unsettled=accept_unsettled)
    if not name:
        raise InputError("the app runs, so the batch of the savepoint is not known yet: name the savepoint")
    _request_savepoint(_channel(loaded.settings.checkpoint, root), root, check_name(name), limit_s)
    return savepoints.get(name)


def _is_running(root: CheckpointRoot) -> bool:
    try:
        with lease_for(root.path):
            return False
    except ConfigError:
        return True


def _take_from_stopped(
    loaded: ServiceApp, root: CheckpointRoot, savepoints: SavepointRepository, name: str, *, accept_unsettled: bool
) -> Savepoint:
    from streamcore.spark.runtime import Runtime
    from streamcore.spark.savepoint_writer import take_savepoint_of_stopped

    with Runtime(loaded.app.name, root.path, loaded.settings.spark_session) as runtime:
        epoch = root.initialise(AppIdentity.of(loaded.app.name, loaded.app.key_space))
        named = check_name(name) if name else default_name(loaded.app.name, root.last_committed() or 0, epoch)
        session = runtime.session()
        return take_savepoint_of_stopped(
            session, loaded.app, root, savepoints, named, accept_unsettled=accept_unsettled
        )


def _channel(checkpoint: Location, root: CheckpointRoot) -> FileChannel:
    """Return the channel of the app that owns ``root``. A standby app has its own, whose status names its epoch."""
    if root.path == checkpoint:
        return FileChannel(checkpoint)
    folder = standby_channel(checkpoint)
    text = FileChannel(folder).last_status() if list_names(folder) else None
    status = None if text is None else DriverStatus.from_json(text)
    if status is None or (status.phase, status.epoch) != (DriverPhase.RUNNING, read_epoch(root.epoch_path)):
        raise InputError(
            f"checkpoint {root.path}: the app that owns it is controlled by the operator; create a Savepoint "
            "resource (kubectl apply), or stop the app first"
        )
    return FileChannel(folder)


def _request_savepoint(channel: FileChannel, root: CheckpointRoot, name: str, limit_s: float) -> None:
    """Ask the running app for a savepoint on its control channel, and wait for its result."""
    identity = uuid.uuid4().hex
    channel.send(format_command(TakeSavepoint(identity, name)))
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        text = channel.last_status()
        status = None if text is None else DriverStatus.from_json(text)
        result = None if status is None else status.results.get(identity)
        if result is not None:
            if not result.ok:
                raise InputError(f"the app did not create the savepoint: {result.message}")
            return
        channel.wait(_POLL_S)
    raise InputError(f"the app that owns checkpoint {root.path} has not responded for {limit_s:.0f} s; see its log")


def new_checkpoint(checkpoint: Location) -> Location:
    """Return the default target of a restore; raises ``ConfigError`` if the folder holds one checkpoint per
    epoch, as the operator's do."""
    epochs = EpochStore(checkpoint).existing()
    if epochs:
        raise ConfigError(
            f"checkpoint {checkpoint}: it holds the checkpoints of epochs {', '.join(map(str, epochs))}; name a folder"
            " with --checkpoint, or have the operator restore it (spec.restore of the StreamApp)"
        )
    return checkpoint


def restore(
    loaded: ServiceApp, savepoint: Savepoint, checkpoint: Location, epoch: int, decisions: RestoreDecisions
) -> RestoredCheckpoint:
    """Restore the savepoint; raises ``ConfigError`` if the savepoint is not compatible or the checkpoint is in use."""
    from streamcore.savepoint.app_description import check_app_compatibility
    from streamcore.savepoint.restore import restore_checkpoint

    report = check_app_compatibility(savepoint.manifest, loaded.app, decisions)
    with lease_for(checkpoint):
        rewinds = decisions.rewinds
        restore_checkpoint(savepoint, loaded.app, report, CheckpointRoot(checkpoint), epoch, rewinds=rewinds)
    return RestoredCheckpoint(epoch, report)
