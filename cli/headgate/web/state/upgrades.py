"""The upgrades of an app on Kubernetes, from the status of its ``StreamApp``, and its savepoints.

The operator writes every step of an upgrade there before it takes it; nothing else is asked.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final  # JSON of the API server

from pydantic import TypeAdapter, ValidationError

from headgate.kubernetes_login import find_kubeconfig
from headgate.web.state.values import (
    ClusterSavepoint,
    RestorePointValue,
    UpgradePhaseValue,
    UpgradesValue,
    UpgradeValue,
)
from headgate_operator.resources.savepoint import SavepointPhase, SavepointStatus
from headgate_operator.resources.status import PastUpgrade, Phase, RestorePoint, UpgradeKind, UpgradeOutcome

if TYPE_CHECKING:
    from headgate_operator.runtime.api_client import Rest

Json = dict[str, Any]
#: How long an answer serves all pages, in seconds.
_FRESH_S: Final = 1.0
_TIMEOUT_S: Final = (2.0, 5.0)
_PREPARING: Final = {Phase.PREFLIGHT}
_PROVING: Final = {Phase.PROVING}
_PAST = TypeAdapter(PastUpgrade)
_POINTS = TypeAdapter(tuple[RestorePoint, ...])
_SAVEPOINT = TypeAdapter(SavepointStatus)
_NO_CLUSTER = (
    "No StreamApp is named. For an app on Kubernetes start the console with --stream-app NAMESPACE/NAME, or write "
    "stream_app in its settings. An app without a cluster is upgraded by stopping its process and starting another."
)


class UpgradeReader:
    """Reads one ``StreamApp``. ``stream_app``: its namespace and name with a slash between; None: there is no cluster.
    ``kubeconfig``: address and login of the API server; None: that of the environment, else the service
    account of the pod. Thread-safe."""

    def __init__(self, stream_app: str | None, kubeconfig: Path | None, now_s: Callable[[], float] = time.time) -> None:
        self._stream_app, self._kubeconfig, self._now_s = stream_app, kubeconfig, now_s
        self._lock = threading.Lock()
        self._rest: Rest | None = None
        self._known: tuple[float, UpgradesValue] | None = None

    def read(self) -> UpgradesValue:
        """Return the upgrades, the newest first. What cannot be read is a note."""
        if self._stream_app is None:
            return UpgradesValue(stream_app=None, notes=(_NO_CLUSTER,))
        with self._lock:
            if self._known is None or not 0 <= self._now_s() - self._known[0] < _FRESH_S:
                answer = self._ask(self._stream_app)
                self._known = self._now_s(), answer  # it also serves those who have waited for it
            return self._known[1]

    def _ask(self, stream_app: str) -> UpgradesValue:
        from headgate_operator.runtime.api_client import ApiError, Rest  # 0.3 s, which other pages do not need
        from headgate_operator.runtime.api_paths import path
        from headgate_operator.runtime.metrics import Counters

        namespace, _, name = stream_app.partition("/")
        try:
            if self._rest is None:
                self._rest = Rest(find_kubeconfig(self._kubeconfig), Counters(), _TIMEOUT_S)
            raw = self._rest.get(path("streamapps", namespace, name))
        except ApiError as error:
            return UpgradesValue(stream_app=stream_app, notes=(_explain(stream_app, error.status, str(error)),))
        try:
            return read_upgrades(raw, self._rest.get(path("savepoints", namespace))["items"])
        except ApiError as error:
            return read_upgrades(raw, [], (f"The savepoints cannot be listed: {error}",))


def read_upgrades(raw: Mapping[str, Any], savepoints: list[Json], notes: tuple[str, ...] = ()) -> UpgradesValue:
    """Return the upgrades of a ``StreamApp`` as the API server has it, with its ``Savepoint`` resources."""
    meta, status = raw["metadata"], raw.get("status") or {}
    stream_app = f"{meta['namespace']}/{meta['name']}"
    try:
        found = [_PAST.validate_python(one) for one in status.get("history") or ()]
        if (newest := status.get("upgrade")) is not None:
            found.append(_PAST.validate_python({**newest, "toVersion": newest["to"]["version"]}))
        points = _POINTS.validate_python(status.get("restorePoints") or ())
        own = [_savepoint(one) for one in savepoints if one["spec"].get("app") == meta["name"]]
    except (ValidationError, KeyError, TypeError) as error:
        fault = f"The status of {stream_app} cannot be read: {str(error)[:300]}"
        fault += "; an operator of another version may have written it"
        return UpgradesValue(stream_app=stream_app, notes=(*notes, fault))
    degraded = (one for one in status.get("conditions") or () if (one["type"], one["status"]) == ("Degraded", "True"))
    return UpgradesValue(
        stream_app=stream_app,
        phase=status.get("phase") or Phase.PENDING.value,
        version=status.get("version") or "",
        degraded=next((str(one.get("message", "")) for one in degraded), ""),
        upgrades=tuple(_upgrade(one) for one in reversed(found)),
        savepoints=tuple(sorted(own, key=lambda one: (-(one.completed_ms or 0), one.name))),
        restore_points=tuple(
            RestorePointValue(savepoint=one.savepoint, epoch=one.epoch, batch=one.batch, command=one.command)
            for one in points
        ),
        notes=notes,
    )


def _upgrade(one: PastUpgrade) -> UpgradeValue:
    phases, back = list[UpgradePhaseValue](), False
    ends = [*(entered.at for entered in one.phases[1:]), one.ended]
    for entered, end in zip(one.phases, ends, strict=False):
        back = back or entered.phase is Phase.ROLLING_BACK
        until = end if one.ended is None or end is None else min(end, one.ended)
        if one.ended is not None and entered.at >= one.ended:  # the phase in which the app rests afterwards
            break
        phases.append(
            UpgradePhaseValue(
                name=entered.phase.value,
                meaning=entered.phase.occurs,
                part=_part(entered.phase, back=back),
                start_ms=entered.at,
                end_ms=until,
            )
        )
    outcome = one.outcome
    return UpgradeValue(
        number=one.number,
        kind=one.kind.value,
        from_version=one.from_version,
        to_version=one.to_version,
        started_ms=one.started,
        ended_ms=one.ended,
        outcome=outcome.value,
        meaning=outcome.occurs,
        remedy="" if outcome in (UpgradeOutcome.OPEN, UpgradeOutcome.SUCCEEDED) else outcome.remedy,
        rolled_back=back,
        reason=one.reason,
        message=one.message,
        savepoint=one.savepoint,
        phases=tuple(phases),
        stops=one.kind is not UpgradeKind.INSTALL,
    )


def _part(phase: Phase, *, back: bool) -> str:
    """Return which part of an upgrade a phase is, after the way back has begun or before it."""
    if back:
        return "back"
    if phase in _PREPARING:
        return "prepare"
    return "prove" if phase in _PROVING else "stop"


def _savepoint(raw: Json) -> ClusterSavepoint:
    found = _SAVEPOINT.validate_python(raw.get("status") or {})
    return ClusterSavepoint(
        name=raw["metadata"]["name"],
        reason=str(raw["spec"].get("reason") or "manual"),
        phase=found.phase.value,
        batch=found.batch if found.phase is SavepointPhase.COMPLETE else None,
        epoch=found.epoch if found.phase is SavepointPhase.COMPLETE else None,
        completed_ms=found.completed,
        bytes=found.size_bytes,
        message=found.message,
    )


def _explain(stream_app: str, status: int, words: str) -> str:
    if status == 404:
        return f"The cluster has no StreamApp {stream_app}; compare with kubectl get streamapps --all-namespaces."
    if status in (401, 403):
        need = "its account needs get on streamapps and list on savepoints"
        return f"The console may not read StreamApp {stream_app}: {need}. {words}"
    return f"The API server does not answer: {words}"
