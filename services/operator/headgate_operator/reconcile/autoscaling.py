"""Decides the number of executors by the driver's load: its lag, and the share of the time that it spends in batches.

A change is an upgrade to a release that differs in the number of executors and Spark partitions, with a savepoint, a
proof and a rollback like any other. The load must be high, or low, for some time without a break, and the limits of
both lie apart: so the number does not swing. A lag of a driver that is not busy is no reason for more executors: it
waits for something else.
"""

from __future__ import annotations

from dataclasses import replace

from headgate_operator.reconcile.context import Context, ReconcileResult, app_event
from headgate_operator.reconcile.observed import Desired, PodView
from headgate_operator.resources.reasons import EventReason
from headgate_operator.resources.release import release_for
from headgate_operator.resources.spec import AutoscalingSpec, StreamAppSpec
from headgate_operator.resources.status import ScaleState, Status, UpgradeOutcome
from streamcore.control.status import DriverStatus

#: How often the pause after a failed change is doubled at most.
_MAX_DOUBLINGS = 5
#: Between the nonce of the spec and the number of the attempt.
_ATTEMPT = ".scale-"
#: From this share of the time in batches on, in percent, more executors help against a lag.
_BUSY_PERCENT = 80


def scaled(desired: Desired, status: Status) -> Desired:
    """Return the app with the number of executors that autoscaling has decided."""
    if not desired.spec.autoscaling.enabled or status.scale is None:
        return desired
    spec = _with_executors(desired.spec, status.scale.executors)
    nonce = _nonce(spec, status, status.scale)
    spec = spec.model_copy(update={"upgrade": spec.upgrade.model_copy(update={"nonce": nonce})})
    return replace(desired, spec=spec, release=release_for(spec, desired.release.generation))


def _nonce(spec: StreamAppSpec, status: Status, scale: ScaleState) -> str:
    """Return the nonce of the release. A release that failed is not tried again, so another attempt is another one."""
    own, stable = spec.upgrade.nonce, status.stable
    if stable is not None and stable.spec.executors == spec.executors:
        running = stable.spec.upgrade.nonce
        return running if running.rpartition(_ATTEMPT)[0] == own else own
    return f"{own[:40]}{_ATTEMPT}{scale.failures}" if scale.failures else own


def _with_executors(spec: StreamAppSpec, executors: int) -> StreamAppSpec:
    """Return the spec with this number of executors, within the bounds, and as many partitions for each as before."""
    policy = spec.autoscaling
    executors = max(policy.min_executors, min(policy.max_executors, executors))
    partitions = max(1, round(spec.shuffle_partitions * executors / max(1, spec.executors)))
    return spec.model_copy(update={"executors": executors, "shuffle_partitions": partitions})


def autoscale(context: Context, status: Status, pod: PodView) -> ReconcileResult:
    """Record the load in the status, and change the number of executors when it has lasted long enough."""
    policy, report = context.desired.spec.autoscaling, pod.driver_status
    if not policy.enabled:
        return ReconcileResult(status if status.scale is None else replace(status, scale=None))
    if report is None or status.stable is None:
        return ReconcileResult(status)
    scale = _observe(context, policy, _current_scale(context, status), report)
    target = scale.executors if _has_failed_change(context, status, scale) else _target(context, policy, scale)
    if target == scale.executors:
        return ReconcileResult(replace(status, scale=scale))
    reason = (
        f"{scale.executors} to {target} executors: {report.busy_percent} % of the time in batches, oldest row "
        f"{round(report.lag_s)} s old"
    )
    changed = replace(status, scale=ScaleState(target, reason, failures=scale.failures))
    return ReconcileResult(changed, (app_event(EventReason.SCALING, reason),))


def _current_scale(context: Context, status: Status) -> ScaleState:
    """Return the state with the number of executors that runs. A failed change is not tried again at once."""
    assert status.stable is not None
    running = status.stable.spec.executors
    scale = status.scale or ScaleState(running)
    if scale.executors == running:
        return scale
    failed = status.upgrade is not None and status.upgrade.outcome is not UpgradeOutcome.SUCCEEDED
    if not failed:
        return replace(scale, executors=running)
    pause_ms = context.desired.spec.autoscaling.down_after << min(scale.failures, _MAX_DOUBLINGS)
    return ScaleState(running, scale.reason, not_before=context.now_ms + pause_ms, failures=scale.failures + 1)


def _has_failed_change(context: Context, status: Status, scale: ScaleState) -> bool:
    """Return whether the spec has a change that failed besides the number of executors: scaling would try it again."""
    assert status.stable is not None
    running = scaled(context.written, replace(status, scale=replace(scale, executors=status.stable.spec.executors)))
    return running.release.revision != status.stable.revision


def _observe(context: Context, policy: AutoscalingSpec, scale: ScaleState, report: DriverStatus) -> ScaleState:
    """Return the state with the times since which the load is high and low."""
    lag_ms, busy = report.lag_s * 1_000, report.busy_percent
    high = lag_ms >= policy.lag and busy >= _BUSY_PERCENT
    low = lag_ms < policy.lag / 2 and busy <= policy.busy_percent
    return replace(
        scale,
        high_since=(scale.high_since or context.now_ms) if high else None,
        low_since=(scale.low_since or context.now_ms) if low else None,
    )


def _target(context: Context, policy: AutoscalingSpec, scale: ScaleState) -> int:
    """Return the number of executors to have: half as many more, or one fewer, within the bounds."""
    bounded = max(policy.min_executors, min(policy.max_executors, scale.executors))
    if bounded != scale.executors:
        return bounded
    if scale.not_before is not None and not context.has_passed(scale.not_before):
        return bounded
    if scale.high_since is not None and context.now_ms - scale.high_since >= policy.up_after:
        return min(policy.max_executors, scale.executors + max(1, scale.executors // 2))
    if scale.low_since is not None and context.now_ms - scale.low_since >= policy.down_after:
        return max(policy.min_executors, scale.executors - 1)
    return bounded


def next_change_ms(status: Status, policy: AutoscalingSpec) -> tuple[int | None, ...]:
    """Return the times at which the number of executors may change if the load stays, in milliseconds since 1970."""
    scale = status.scale
    if scale is None or not policy.enabled:
        return ()
    up_ms = None if scale.high_since is None else scale.high_since + policy.up_after
    down_ms = None if scale.low_since is None else scale.low_since + policy.down_after
    return up_ms, down_ms, scale.not_before
