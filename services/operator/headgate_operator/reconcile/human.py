"""A person has to decide: the restore points that there are, what each of them means, and the commands."""

from __future__ import annotations

import json
from dataclasses import replace

from headgate_operator.reconcile.step import Context, Step, close, enter, told
from headgate_operator.resources.status import Candidate, Outcome, Phase, Status


def needs_human(context: Context, status: Status, reason: str, message: str) -> Step:
    """Stop deciding. The upgrade, if one is open, is over."""
    if status.upgrade is not None and status.upgrade.outcome is Outcome.OPEN:
        status = close(context, status, Outcome.NEEDS_HUMAN, reason, message)
    status = replace(status, asked=None, standby=None, owner=None)
    return Step(enter(context, status, Phase.NEEDS_HUMAN), (told("NeedsHuman", f"{reason}: {message}", warning=True),))


def candidates(context: Context) -> tuple[Candidate, ...]:
    """Every savepoint that is there, newest first."""
    there = [savepoint for savepoint in context.observed.savepoints if savepoint.complete]
    there.sort(key=lambda s: (s.status.epoch, s.status.batch), reverse=True)
    return tuple(Candidate(s.name, s.status.epoch, s.status.batch, restore_command(context, s.name)) for s in there)


def restore_command(context: Context, savepoint: str) -> str:
    """What to type to go back to it. What was written after it will be written again."""
    nonce = f"{savepoint}-{context.desired.generation}"[:63]
    return _patch(context, {"spec": {"restore": {"from": savepoint, "nonce": nonce}}})


def in_place_command(context: Context) -> str:
    """What to type to go on from the checkpoint as it is, with the version that is wanted now."""
    nonce = f"in-place-{context.desired.generation}"
    return _patch(context, {"spec": {"upgrade": {"mode": "in-place", "nonce": nonce}}})


def _patch(context: Context, change: dict[str, object]) -> str:
    name, namespace = context.desired.name, context.desired.namespace
    return f"kubectl patch streamapp {name} -n {namespace} --type merge -p '{json.dumps(change)}'"
