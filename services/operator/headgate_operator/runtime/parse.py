"""Converts the JSON of the API server to the values of the reconciler, and back."""

from __future__ import annotations

from typing import Any  # JSON of any content

from pydantic import TypeAdapter, ValidationError

from headgate_operator.reconcile.observed import CollectorView, Desired, PodView, SavepointView
from headgate_operator.resources.base import parse_instant_ms
from headgate_operator.resources.release import release_for
from headgate_operator.resources.savepoint import SavepointReason, SavepointStatus
from headgate_operator.resources.spec import StreamAppSpec
from headgate_operator.resources.status import Status
from streamcore.control.commands import COMMAND_ANNOTATION, command_id
from streamcore.control.status import STATUS_ANNOTATION, DriverStatus

Json = dict[str, Any]
FINALIZER = "headgate.dev/operator"

_STATUS = TypeAdapter(Status)
_SAVEPOINT_STATUS = TypeAdapter(SavepointStatus)


class Unusable(Exception):
    """An app whose status cannot be read, or that never had a valid spec. The operator leaves it as it is."""


def read_app(raw: Json) -> tuple[Desired, Status]:
    """Parse an app. If its spec is invalid, the last valid one is taken from the status. ``Unusable`` without one, or
    if the status is invalid.
    """
    try:
        status = _STATUS.validate_python(raw.get("status") or {})
    except ValidationError as error:
        raise Unusable(f"status: {_error_text(error)}") from error
    meta = raw["metadata"]
    generation, problem = int(meta.get("generation", 0)), ""
    try:
        spec = StreamAppSpec.model_validate(raw["spec"])
        release = release_for(spec, generation)
    except ValidationError as error:
        problem = _error_text(error)
        last_valid = _last_valid(status)
        if last_valid is None:
            raise Unusable(f"spec: {problem}") from error
        spec, release = last_valid
    desired = Desired(
        meta["namespace"],
        meta["name"],
        meta["uid"],
        generation,
        spec,
        release,
        finalized=FINALIZER in meta.get("finalizers", ()),
        deleting_since_ms=_instant(meta.get("deletionTimestamp")),
        problem=problem,
    )
    return desired, status


def _last_valid(status: Status) -> tuple[StreamAppSpec, Any] | None:
    """Return the newest spec and release in the status: that of the last upgrade, else the stable one."""
    upgrade, stable = status.upgrade, status.stable
    newest = upgrade.to if upgrade is not None else stable
    return (newest.spec, newest) if newest is not None else None


def _error_text(error: ValidationError) -> str:
    """Return the first five errors, each with its field."""
    return "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors()[:5])


def write_status(status: Status) -> Json:
    """Return the status of an app as JSON."""
    document: Json = _STATUS.dump_python(status, mode="json", by_alias=True, exclude_none=True)
    return document


def write_savepoint_status(status: SavepointStatus) -> Json:
    """Return the status of a savepoint as JSON."""
    document: Json = _SAVEPOINT_STATUS.dump_python(status, mode="json", by_alias=True, exclude_none=True)
    return document


def read_pod(raw: Json) -> PodView:
    """Parse a driver pod. Its command and the driver's status are annotations."""
    meta, status = raw["metadata"], raw.get("status", {})
    annotations = meta.get("annotations") or {}
    return PodView(
        meta["name"],
        meta["uid"],
        _instant(meta.get("creationTimestamp")) or 0,
        _is_finished(status),
        bool(meta.get("deletionTimestamp")),
        command_id(annotations.get(COMMAND_ANNOTATION)),
        DriverStatus.from_json(annotations.get(STATUS_ANNOTATION)),
        _exit_message(status),
    )


def _is_finished(status: Json) -> bool:
    """Return true if no container of the pod runs.

    On a lost node a pod may have the phase Failed while containers run.
    """
    ended = status.get("phase") in ("Succeeded", "Failed")
    containers = status.get("containerStatuses") or ()
    return ended and not any("running" in container.get("state", {}) for container in containers)


def _exit_message(status: Json) -> str:
    """Return why the first container ended or waits, else the message of the pod."""
    for container in status.get("containerStatuses") or ():
        state = container.get("state", {})
        terminated, waiting = state.get("terminated"), state.get("waiting")
        if terminated:
            message = str(terminated.get("message") or terminated.get("reason") or "").strip()[-500:]
            return f"exit code {terminated.get('exitCode')}: {message}"
        if waiting:
            return f"{waiting.get('reason')}: {str(waiting.get('message') or '')[:300]}"
    return str(status.get("message") or "")[:500]


def read_savepoint(raw: Json) -> SavepointView:
    """Parse a ``Savepoint`` resource."""
    meta = raw["metadata"]
    reason = str(raw["spec"].get("reason") or SavepointReason.MANUAL.value)
    return SavepointView(
        meta["name"],
        SavepointReason(reason),
        meta["resourceVersion"],
        _instant(meta.get("creationTimestamp")) or 0,
        _SAVEPOINT_STATUS.validate_python(raw.get("status") or {}),
        bool(meta.get("deletionTimestamp")),
    )


def read_collector(raw: Json) -> CollectorView:
    """Parse a collector."""
    phase = raw.get("status", {}).get("phase")
    finished = phase in ("Succeeded", "Failed")
    return CollectorView(raw["metadata"]["name"], raw["metadata"]["uid"], finished, phase == "Succeeded")


def _instant(text: str | None) -> int | None:
    parsed = parse_instant_ms(text) if text else None
    return parsed if isinstance(parsed, int) else None
