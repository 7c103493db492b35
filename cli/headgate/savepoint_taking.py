"""What ``headgate savepoint create`` and ``restore`` do: they own the checkpoint for as long as it takes.

A running app owns its checkpoint, so it is asked to take the savepoint itself; one that has stopped is read by a Spark
session of this process.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from headgate.services import ServiceApp
from streamcore.checkpoint.layout import AppIdentity, CheckpointRoot
from streamcore.checkpoint.lease import Lease
from streamcore.errors import ConfigError
from streamcore.savepoint import REWIND, Decisions, RestorePlan, Savepoint, Savepoints, check_name, default_name, plan


@dataclass(frozen=True, slots=True)
class Restored:
    """That a checkpoint is made."""

    epoch: int
    plan: RestorePlan


def create(loaded: ServiceApp, savepoints: Savepoints, name: str, *, accept_unsettled: bool) -> Savepoint:
    """Of the app that has stopped. ``ConfigError`` when it runs, has no batch, or has died within one."""
    from streamcore.spark.savepoints import take_stopped
    from streamcore.spark.start import Start

    root = CheckpointRoot(loaded.settings.checkpoint)
    if root.identity() is None:
        raise ConfigError(f"checkpoint {root.path}: the app has not run there yet")
    with Start(loaded.app.name, root.path, loaded.settings.spark_session) as start:
        epoch = root.prepare(AppIdentity(loaded.app.name, loaded.app.shards))
        named = check_name(name) if name else default_name(loaded.app.name, root.last_committed() or 0, epoch)
        session = start.session()
        return take_stopped(session, loaded.app, root, savepoints, named, accept_unsettled=accept_unsettled)


def restore(loaded: ServiceApp, savepoint: Savepoint, checkpoint: Path, epoch: int, decided: Decisions) -> Restored:
    """``ConfigError`` when the plan does not allow it or the checkpoint is in use."""
    from streamcore.savepoint.describe import describe
    from streamcore.savepoint.restoring import prepare

    planned = plan(savepoint.manifest, describe(loaded.app, savepoint.manifest.tables), decided)
    with Lease(checkpoint):
        rewinds = REWIND in decided.accept
        prepare(savepoint, loaded.app, planned, CheckpointRoot(checkpoint), epoch, rewinds=rewinds)
    return Restored(epoch, planned)
