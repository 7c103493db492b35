"""Restore points for a person who has to decide: the existing savepoints, their meaning, and the commands."""

from __future__ import annotations

import json
from dataclasses import replace

from headgate_operator.reconcile.context import Context, ReconcileResult, app_event, close_upgrade, enter_phase
from headgate_operator.resources.reasons import EventReason
from headgate_operator.resources.status import Phase, RestorePoint, Status, UpgradeOutcome


def needs_human(context: Context, status: Status, reason: str, message: str) -> ReconcileResult:
    """Stop and leave the decision to a person. Close the upgrade, if one is open."""
    if status.upgrade is not None and status.upgrade.outcome is UpgradeOutcome.OPEN:
        status = close_upgrade(context, status, UpgradeOutcome.NEEDS_HUMAN, reason, message)
    status = replace(status, pending_command=None, standby=None, owner=None)
    return ReconcileResult(
        enter_phase(context, status, Phase.NEEDS_HUMAN),
        (app_event(EventReason.NEEDS_HUMAN, f"{reason}: {message}", warning=True),),
    )


def restore_points(context: Context) -> tuple[RestorePoint, ...]:
    """Return every complete savepoint, newest first."""
    there = [savepoint for savepoint in context.observed.savepoints if savepoint.complete]
    there.sort(key=lambda s: (s.status.epoch, s.status.batch), reverse=True)
    return tuple(RestorePoint(s.name, s.status.epoch, s.status.batch, restore_command(context, s.name)) for s in there)


def restore_command(context: Context, savepoint: str) -> str:
    """Return the command that goes back to the savepoint. The app writes all later output again."""
    nonce = f"{savepoint}-{context.desired.generation}"[:63]
    return _patch(context, {"spec": {"restore": {"from": savepoint, "nonce": nonce}}})


def in_place_command(context: Context) -> str:
    """Return the command that continues from the checkpoint as it is, with the currently wanted version."""
    nonce = f"in-place-{context.desired.generation}"
    return _patch(context, {"spec": {"upgrade": {"mode": "in-place", "nonce": nonce}}})


def _patch(context: Context, change: dict[str, object]) -> str:
    name, namespace = context.desired.name, context.desired.namespace
    return f"kubectl patch streamapp {name} -n {namespace} --type merge -p '{json.dumps(change)}'"
