"""An upgrade as a trace: its spans as values, made from the status and from nothing else.

Identities are hashes of the app's uid, the upgrade's number and the phase, so an operator that was restarted in
between, or reports an upgrade twice, reports the same trace; and a driver can receive its parent (``traceparent``)
before that span has ended.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

from headgate_operator.resources.status import RESTING, PhaseTime, Status, Upgrade, UpgradeOutcome

_TRACE_BYTES, _SPAN_BYTES = 16, 8  # W3C Trace Context


@dataclass(frozen=True, slots=True)
class AppRef:
    """The app of an upgrade. ``uid``: of the resource, so that a later app of the same name is another one."""

    namespace: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class Span:
    """A span. ``start_ms`` and ``end_ms``: milliseconds since 1970. ``parent_id`` is 0 for the root. No span has the id
    0.
    """

    name: str
    trace_id: int
    span_id: int
    parent_id: int
    start_ms: int
    end_ms: int
    attributes: Mapping[str, str | int]
    failed: bool = False


def ended_upgrade(before: Status, after: Status) -> Upgrade | None:
    """Return the upgrade that is over in ``after`` and was not in ``before``."""
    upgrade, was = after.upgrade, before.upgrade
    if upgrade is None or upgrade.outcome is UpgradeOutcome.OPEN:
        return None
    known = was is not None and was.number == upgrade.number and was.outcome is not UpgradeOutcome.OPEN
    return None if known else upgrade


def trace_spans(app: AppRef, upgrade: Upgrade) -> tuple[Span, ...]:
    """Return the spans of a finished upgrade: the root, and in it the phases, one after the other.

    If the clock goes back between two phases, the phase has no length: none begins before the previous one has ended.
    """
    trace, root = _trace_id(app.uid, upgrade), _root_id(app.uid, upgrade)
    phases = [one for one in dict.fromkeys(upgrade.phases) if one.phase not in RESTING]
    starts_ms = _rising(upgrade.started, *(one.at for one in phases), upgrade.ended or 0)
    whole = Span(
        "upgrade",
        trace,
        root,
        0,
        upgrade.started,
        starts_ms[-1],
        _upgrade_attributes(app, upgrade),
        _is_failed(upgrade),
    )
    ends_ms = starts_ms[2:]
    return (
        whole,
        *(
            Span(one.phase.value, trace, _phase_id(app.uid, upgrade, one), root, start_ms, end_ms, {})
            for one, start_ms, end_ms in zip(phases, starts_ms[1:-1], ends_ms, strict=True)
        ),
    )


def traceparent(uid: str, upgrade: Upgrade | None) -> str:
    """Return the W3C ``traceparent`` of the current phase of an open upgrade; empty when no upgrade is open."""
    if upgrade is None or upgrade.outcome is not UpgradeOutcome.OPEN:
        return ""
    parent = _phase_id(uid, upgrade, upgrade.phases[-1]) if upgrade.phases else _root_id(uid, upgrade)
    return f"00-{_trace_id(uid, upgrade):032x}-{parent:016x}-01"


def _upgrade_attributes(app: AppRef, upgrade: Upgrade) -> dict[str, str | int]:
    return {
        "headgate.namespace": app.namespace,
        "headgate.app": app.name,
        "headgate.upgrade.number": upgrade.number,
        "headgate.upgrade.kind": upgrade.kind.value,
        "headgate.upgrade.from_version": upgrade.from_version,
        "headgate.upgrade.to_version": upgrade.to.version,
        "headgate.upgrade.outcome": upgrade.outcome.value,
        "headgate.upgrade.reason": upgrade.reason,
    }


def _is_failed(upgrade: Upgrade) -> bool:
    return upgrade.outcome in (UpgradeOutcome.REFUSED, UpgradeOutcome.ROLLED_BACK, UpgradeOutcome.NEEDS_HUMAN)


def _rising(*instants_ms: int) -> list[int]:
    """Yield the instants; none is before the previous one."""
    risen = [instants_ms[0]]
    for at_ms in instants_ms[1:]:
        risen.append(max(risen[-1], at_ms))
    return risen


def _trace_id(uid: str, upgrade: Upgrade) -> int:
    return _hash_id(_TRACE_BYTES, uid, upgrade.number)


def _root_id(uid: str, upgrade: Upgrade) -> int:
    return _hash_id(_SPAN_BYTES, uid, upgrade.number, "upgrade")


def _phase_id(uid: str, upgrade: Upgrade, phase: PhaseTime) -> int:
    return _hash_id(_SPAN_BYTES, uid, upgrade.number, phase.phase.value, phase.at)


def _hash_id(size_bytes: int, *parts: str | int) -> int:
    digest = hashlib.sha256("/".join(map(str, parts)).encode()).digest()
    return int.from_bytes(digest[:size_bytes]) or 1  # 0 is no identity
