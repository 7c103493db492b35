"""Converts the API server's JSON to the reconciler's values and back. Pure."""

from __future__ import annotations

from typing import Any  # JSON of other people's making

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
    """A resource without any valid content."""


def read_app(raw: Json) -> tuple[Desired, Status]:
    """Parse an app. ``Unusable`` when no edit of it was ever valid, or an unknown writer wrote its status."""
    try:
        status = _STATUS.validate_python(raw.get("status") or {})
    except ValidationError as error:
        raise Unusable(f"status: {_first(error)}") from error
    meta = raw["metadata"]
    generation, problem = int(meta.get("generation", 0)), ""
    try:
        spec = StreamAppSpec.model_validate(raw["spec"])
        release = release_for(spec, generation)
    except ValidationError as error:
        problem = _first(error)
        last = _last_valid(status)
        if last is None:
            raise Unusable(f"spec: {problem}") from error
        spec, release = last
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
    upgrade, stable = status.upgrade, status.stable
    newest = upgrade.to if upgrade is not None else stable
    return (newest.spec, newest) if newest is not None else None


def _first(error: ValidationError) -> str:
    return "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors()[:5])


def write_status(status: Status) -> Json:
    """Return the status as the resource holds it."""
    made: Json = _STATUS.dump_python(status, mode="json", by_alias=True, exclude_none=True)
    return made


def write_savepoint_status(status: SavepointStatus) -> Json:
    """Return the status as the resource holds it."""
    made: Json = _SAVEPOINT_STATUS.dump_python(status, mode="json", by_alias=True, exclude_none=True)
    return made


def read_pod(raw: Json) -> PodView:
    """Parse a driver's pod. It is finished only when the kubelet reports that no container of it runs."""
    meta, status = raw["metadata"], raw.get("status", {})
    marks = meta.get("annotations") or {}
    return PodView(
        meta["name"],
        meta["uid"],
        _instant(meta.get("creationTimestamp")) or 0,
        _is_finished(status),
        bool(meta.get("deletionTimestamp")),
        command_id(marks.get(COMMAND_ANNOTATION)),
        DriverStatus.from_json(marks.get(STATUS_ANNOTATION)),
        _ending(status),
    )


def _is_finished(status: Json) -> bool:
    """Return true when the pod has ended. A lost node's pod has the phase Failed while containers run: not finished."""
    ended = status.get("phase") in ("Succeeded", "Failed")
    return ended and not any("running" in one.get("state", {}) for one in status.get("containerStatuses") or ())


def _ending(status: Json) -> str:
    for one in status.get("containerStatuses") or ():
        state = one.get("state", {})
        ended, waits = state.get("terminated"), state.get("waiting")
        if ended:
            words = str(ended.get("message") or ended.get("reason") or "").strip()[-500:]
            return f"exit code {ended.get('exitCode')}: {words}"
        if waits:
            return f"{waits.get('reason')}: {str(waits.get('message') or '')[:300]}"
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
    """Parse a pod that removes data."""
    phase = raw.get("status", {}).get("phase")
    finished = phase in ("Succeeded", "Failed")
    return CollectorView(raw["metadata"]["name"], raw["metadata"]["uid"], finished, phase == "Succeeded")


def _instant(text: str | None) -> int | None:
    parsed = parse_instant_ms(text) if text else None
    return parsed if isinstance(parsed, int) else None
