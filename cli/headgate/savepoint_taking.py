"""What ``headgate savepoint create`` and ``restore`` do: they own the checkpoint for as long as it takes.

A running app owns its checkpoint, so it is asked to take the savepoint itself; one that has stopped is read by a Spark
session of this process.
"""

from __future__ import annotations

import time
import uuid
from dataclasses import dataclass

from headgate.errors import InputError
from headgate.services import ServiceApp
from streamcore.checkpoint.epoch import read_epoch
from streamcore.checkpoint.epochs import Epochs
from streamcore.checkpoint.files import names_in
from streamcore.checkpoint.layout import AppIdentity, CheckpointRoot
from streamcore.checkpoint.lease import lease_on
from streamcore.errors import ConfigError
from streamcore.location import Location
from streamcore.savepoint import Decisions, RestorePlan, Savepoint, Savepoints, check_name, default_name
from streamcore.service.mailbox import FileMailbox, standby_mailbox
from streamcore.service.report import Phase, Report
from streamcore.service.requests import TakeSavepoint

_LOOK_S = 0.2


@dataclass(frozen=True, slots=True)
class Restored:
    """That a checkpoint is made."""

    epoch: int
    plan: RestorePlan


def create(
    loaded: ServiceApp, savepoints: Savepoints, name: str, *, accept_unsettled: bool, limit_s: float
) -> Savepoint:
    """Of the app as it is now. ``ConfigError`` when it has no batch, or has died within one; ``InputError`` for an app
    that runs when it is not named, or when the app refuses or says nothing within ``limit_s``."""
    root = Epochs(loaded.settings.checkpoint).newest()
    if root is None:
        raise ConfigError(f"checkpoint {loaded.settings.checkpoint}: the app has not run there yet")
    if not _runs(root):
        return _of_stopped(loaded, root, savepoints, name, accept_unsettled=accept_unsettled)
    if not name:
        raise InputError("the app runs, so nobody knows yet after which batch this will be: give it a name")
    _ask(_mailbox(loaded.settings.checkpoint, root), root, check_name(name), limit_s)
    return savepoints.get(name)


def _runs(root: CheckpointRoot) -> bool:
    try:
        with lease_on(root.path):
            return False
    except ConfigError:
        return True


def _of_stopped(
    loaded: ServiceApp, root: CheckpointRoot, savepoints: Savepoints, name: str, *, accept_unsettled: bool
) -> Savepoint:
    from streamcore.spark.savepoints import take_stopped
    from streamcore.spark.start import Start

    with Start(loaded.app.name, root.path, loaded.settings.spark_session) as start:
        epoch = root.prepare(AppIdentity(loaded.app.name, loaded.app.shards))
        named = check_name(name) if name else default_name(loaded.app.name, root.last_committed() or 0, epoch)
        session = start.session()
        return take_stopped(session, loaded.app, root, savepoints, named, accept_unsettled=accept_unsettled)


def _mailbox(checkpoint: Location, root: CheckpointRoot) -> FileMailbox:
    """Of whoever owns ``root``. One that was told to go has its own, and says in it which epoch it runs."""
    if root.path == checkpoint:
        return FileMailbox(checkpoint)
    folder = standby_mailbox(checkpoint)
    said = FileMailbox(folder).last_report() if names_in(folder) else None
    report = None if said is None else Report.from_json(said)
    if report is None or (report.phase, report.epoch) != (Phase.RUNNING, read_epoch(root.epoch_path)):
        raise InputError(
            f"checkpoint {root.path}: the app that owns it answers to its pod; there, create a Savepoint "
            "(kubectl apply), or stop it first"
        )
    return FileMailbox(folder)


def _ask(mailbox: FileMailbox, root: CheckpointRoot, name: str, limit_s: float) -> None:
    """By the running app's mailbox; returns when it has answered."""
    identity = uuid.uuid4().hex
    mailbox.ask(TakeSavepoint(identity, name).to_json())
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        said = mailbox.last_report()
        report = None if said is None else Report.from_json(said)
        answer = None if report is None else report.answers.get(identity)
        if answer is not None:
            if not answer.ok:
                raise InputError(f"the app did not take it: {answer.message}")
            return
        mailbox.wait(_LOOK_S)
    raise InputError(f"the app that owns checkpoint {root.path} has not answered for {limit_s:.0f} s; look at its log")


def new_checkpoint(checkpoint: Location) -> Location:
    """Where a restore goes that is told no place: ``ConfigError`` when it would be among those of an operator's."""
    made = Epochs(checkpoint).made()
    if made:
        raise ConfigError(
            f"checkpoint {checkpoint}: it holds those of epochs {', '.join(map(str, made))}; name a folder with "
            "--checkpoint, or have the operator restore it (spec.restore of the StreamApp)"
        )
    return checkpoint


def restore(loaded: ServiceApp, savepoint: Savepoint, checkpoint: Location, epoch: int, decided: Decisions) -> Restored:
    """``ConfigError`` when the plan does not allow it or the checkpoint is in use."""
    from streamcore.savepoint.describe import plan_for
    from streamcore.savepoint.restoring import prepare

    planned = plan_for(savepoint.manifest, loaded.app, decided)
    with lease_on(checkpoint):
        rewinds = decided.rewinds
        prepare(savepoint, loaded.app, planned, CheckpointRoot(checkpoint), epoch, rewinds=rewinds)
    return Restored(epoch, planned)
