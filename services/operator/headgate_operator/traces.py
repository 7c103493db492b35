"""Converts an upgrade to a trace. The spans depend on nothing but the status.

The ids of trace and spans are hashes of the app's uid, the number of the upgrade and the phase. So the trace is the
same if the operator was restarted during the upgrade or sends the trace twice, and a driver can get the id of its
parent span (``traceparent``) before that span has ended.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate

from headgate_operator.resources.status import RESTING, PhaseTime, Status, Upgrade, UpgradeOutcome

_TRACE_BYTES, _SPAN_BYTES = 16, 8  # W3C Trace Context


@dataclass(frozen=True, slots=True)
class AppRef:
    """The app of an upgrade. ``uid``: of the ``StreamApp`` resource; a later app of the same name has another one."""

    namespace: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class Span:
    """A span. ``start_ms`` and ``end_ms``: milliseconds since 1970. ``parent_id`` is 0 for the root span."""

    name: str
    trace_id: int
    span_id: int
    parent_id: int
    start_ms: int
    end_ms: int
    attributes: Mapping[str, str | int]
    failed: bool = False


def ended_upgrade(before: Status, after: Status) -> Upgrade | None:
    """Return the upgrade that is closed in ``after`` and was not in ``before``, or None."""
    upgrade, previous = after.upgrade, before.upgrade
    if upgrade is None or upgrade.outcome is UpgradeOutcome.OPEN:
        return None
    was_closed = (
        previous is not None and previous.number == upgrade.number and previous.outcome is not UpgradeOutcome.OPEN
    )
    return None if was_closed else upgrade


def trace_spans(app: AppRef, upgrade: Upgrade) -> tuple[Span, ...]:
    """Return the spans of a finished upgrade: the root span, and a child span for each phase, in order.

    No phase starts before the previous one: if the clock went back between two phases, the first of them has no length.
    """
    trace, root = _trace_id(app.uid, upgrade), _root_id(app.uid, upgrade)
    phases = [entered for entered in dict.fromkeys(upgrade.phases) if entered.phase not in RESTING]
    times_ms = _non_decreasing(upgrade.started, *(entered.at for entered in phases), upgrade.ended or 0)
    root_span = Span(
        "upgrade",
        trace,
        root,
        0,
        upgrade.started,
        times_ms[-1],
        _upgrade_attributes(app, upgrade),
        _is_failed(upgrade),
    )
    return (
        root_span,
        *(
            Span(entered.phase.value, trace, _phase_id(app.uid, upgrade, entered), root, start_ms, end_ms, {})
            for entered, start_ms, end_ms in zip(phases, times_ms[1:-1], times_ms[2:], strict=True)
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
    return upgrade.outcome in (UpgradeOutcome.REJECTED, UpgradeOutcome.ROLLED_BACK, UpgradeOutcome.NEEDS_HUMAN)


def _non_decreasing(*instants_ms: int) -> list[int]:
    """Return the running maximum of the instants."""
    return list(accumulate(instants_ms, max))


def _trace_id(uid: str, upgrade: Upgrade) -> int:
    return _hash_id(_TRACE_BYTES, uid, upgrade.number)


def _root_id(uid: str, upgrade: Upgrade) -> int:
    return _hash_id(_SPAN_BYTES, uid, upgrade.number, "upgrade")


def _phase_id(uid: str, upgrade: Upgrade, phase: PhaseTime) -> int:
    return _hash_id(_SPAN_BYTES, uid, upgrade.number, phase.phase.value, phase.at)


def _hash_id(size_bytes: int, *parts: str | int) -> int:
    digest = hashlib.sha256("/".join(map(str, parts)).encode()).digest()
    return int.from_bytes(digest[:size_bytes]) or 1  # OpenTelemetry does not allow the id 0
