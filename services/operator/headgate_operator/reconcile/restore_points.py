"""Leaves a decision to a person, with the savepoints to choose from and the commands that carry out the decision."""

from __future__ import annotations

import json
from dataclasses import replace

from headgate_operator.reconcile.context import Context, ReconcileResult, app_event, close_upgrade, enter_phase
from headgate_operator.resources.reasons import EventReason
from headgate_operator.resources.status import Phase, RestorePoint, Status, UpgradeOutcome


def needs_human(context: Context, status: Status, reason: str, message: str) -> ReconcileResult:
    """Leave the decision to a person: close the open upgrade, if any, and enter the phase NeedsHuman."""
    if status.upgrade is not None and status.upgrade.outcome is UpgradeOutcome.OPEN:
        status = close_upgrade(context, status, UpgradeOutcome.NEEDS_HUMAN, reason, message)
    status = replace(status, pending_command=None, standby=None, owner=None)
    return ReconcileResult(
        enter_phase(context, status, Phase.NEEDS_HUMAN),
        (app_event(EventReason.NEEDS_HUMAN, f"{reason}: {message}", warning=True),),
    )


def restore_points(context: Context) -> tuple[RestorePoint, ...]:
    """Return every complete savepoint, newest first."""
    complete = [savepoint for savepoint in context.observed.savepoints if savepoint.complete]
    complete.sort(key=lambda s: (s.status.epoch, s.status.batch), reverse=True)
    return tuple(
        RestorePoint(s.name, s.status.epoch, s.status.batch, restore_command(context, s.name)) for s in complete
    )


def restore_command(context: Context, savepoint: str) -> str:
    """Return the command that restores the savepoint. The app then writes all output after that savepoint again."""
    nonce = f"{savepoint}-{context.desired.generation}"[:63]
    return _patch_command(context, {"spec": {"restore": {"from": savepoint, "nonce": nonce}}})


def in_place_command(context: Context) -> str:
    """Return the command that runs the version of the current spec on the existing checkpoint."""
    nonce = f"in-place-{context.desired.generation}"
    return _patch_command(context, {"spec": {"upgrade": {"mode": "in-place", "nonce": nonce}}})


def _patch_command(context: Context, change: dict[str, object]) -> str:
    name, namespace = context.desired.name, context.desired.namespace
    return f"kubectl patch streamapp {name} -n {namespace} --type merge -p '{json.dumps(change)}'"
