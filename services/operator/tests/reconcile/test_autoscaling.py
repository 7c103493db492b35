"""The number of executors follows the load, within bounds, and does not swing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

import pytest

from headgate_operator.reconcile import reconcile, wake_ms
from headgate_operator.reconcile.autoscaling import scaled
from headgate_operator.reconcile.observed import Desired, Observed, PodView
from headgate_operator.resources.spec import StreamAppSpec
from headgate_operator.resources.status import (
    Checkpoint,
    Phase,
    PodRef,
    ScaleState,
    Status,
    Upgrade,
    UpgradeKind,
    UpgradeOutcome,
)
from streamcore.control.status import DriverPhase, DriverStatus

_NOW = 10_000_000
_MINUTE = 60_000
_SPEC: Mapping[str, object] = {
    "service": "rules",
    "image": "headgate:1",
    "config": {},
    "checkpoint": {"root": "/c"},
    "executors": 2,
    "shufflePartitions": 4,
    "autoscaling": {"minExecutors": 1, "maxExecutors": 6},
}
#: Age of the oldest row in seconds, and percent of the time in batches.
HIGH, LOW, NEITHER, WAITING = (90, 95), (1, 20), (40, 60), (90, 30)


def _desired(**spec: object) -> Desired:
    made = Desired.of("shop", "rules", "0a1b2c3d", 1, StreamAppSpec.model_validate({**_SPEC, **spec}))
    return replace(made, finalized=True)


def _stable(desired: Desired) -> Status:
    return Status(
        phase=Phase.STABLE,
        stable=desired.release,
        owner=PodRef("old", desired.release.revision, "u1"),
        checkpoint=Checkpoint(1, allow_empty=True, established=True, batch=5),
        epochs=1,
        attempt=1,
        version="1",
        running_since=_NOW,
    )


def _run(desired: Desired, status: Status, loads: Iterable[tuple[float, int]]) -> tuple[Status, float]:
    """Reconcile every minute with a load; return the last status and the minutes until the app left its phase."""
    minute = 0
    for minute, (lag_s, busy_percent) in enumerate(loads):
        now_ms = _NOW + minute * _MINUTE
        report = DriverStatus(DriverPhase.RUNNING, epoch=1, batch=9, committed=9, at_ms=now_ms)
        pod = PodView("old", "u1", driver_status=replace(report, lag_s=lag_s, busy_percent=busy_percent))
        status = reconcile(desired, Observed((pod,)), status, now_ms).status
        if status.phase is not Phase.STABLE:
            break
    return status, minute


def _target(status: Status) -> tuple[int, int]:
    assert status.upgrade is not None
    spec = status.upgrade.to.spec
    return spec.executors, spec.shuffle_partitions


def test_a_high_load_that_lasts_adds_executors_with_their_partitions() -> None:
    status, minutes = _run(_desired(), _stable(_desired()), [HIGH] * 10)
    assert status.phase is Phase.PREFLIGHT
    assert (_target(status), minutes) == ((3, 6), 3)
    assert status.scale is not None
    assert status.scale.reason == "2 to 3 executors: 95 % of the time in batches, oldest row 90 s old"


def test_a_low_load_that_lasts_longer_removes_one() -> None:
    status, minutes = _run(_desired(), _stable(_desired()), [LOW] * 30)
    assert (_target(status), minutes) == ((1, 2), 16)


@pytest.mark.parametrize(
    "loads",
    [
        [NEITHER] * 60,
        [HIGH, HIGH, NEITHER] * 20,
        [*([LOW] * 14), NEITHER] * 4,
        [WAITING] * 60,
        [HIGH, LOW] * 30,
    ],
    ids=["neither", "high with breaks", "low with breaks", "waiting for something else", "swinging"],
)
def test_the_number_stays_under_any_other_load(loads: list[tuple[float, int]]) -> None:
    status, _ = _run(_desired(), _stable(_desired()), loads)
    assert status.phase is Phase.STABLE


def test_the_bounds_hold_and_new_bounds_apply_at_once() -> None:
    at_most = _desired(autoscaling={"minExecutors": 2, "maxExecutors": 2})
    assert _run(at_most, _stable(at_most), [HIGH, *[LOW] * 60])[0].phase is Phase.STABLE
    more = _desired(autoscaling={"minExecutors": 3, "maxExecutors": 6})
    status, minutes = _run(more, _stable(_desired()), [NEITHER] * 5)
    assert (_target(status), minutes) == ((3, 6), 1)


def test_a_change_that_failed_is_tried_again_only_after_a_pause() -> None:
    desired = _desired()
    status = replace(_stable(desired), scale=ScaleState(3))
    larger = scaled(desired, status).release
    failed = Upgrade(1, UpgradeKind.UPGRADE, larger, _NOW, outcome=UpgradeOutcome.ROLLED_BACK, ended=_NOW)
    status = replace(status, upgrade=failed)
    status, minutes = _run(desired, status, [HIGH] * 30)
    assert status.scale is not None
    assert (status.scale.executors, status.scale.failures, minutes) == (3, 1, 16)
    assert status.upgrade is not None
    assert status.upgrade.to.revision != larger.revision, "a release that failed would not be tried again"


def test_without_bounds_the_spec_decides_and_a_decision_is_forgotten() -> None:
    off = _desired(autoscaling={})
    status, _ = _run(off, replace(_stable(off), scale=ScaleState(5)), [HIGH] * 10)
    assert (status.phase, status.scale) == (Phase.STABLE, None)


def test_the_operator_wakes_when_the_load_has_lasted() -> None:
    desired = _desired()
    status, _ = _run(desired, _stable(desired), [HIGH])
    assert wake_ms(status, desired, _NOW + 1_000, 10 * _MINUTE) == 2 * _MINUTE - 1_000


def test_another_policy_is_no_other_release() -> None:
    assert _desired(autoscaling={}).release.revision == _desired().release.revision


def test_a_version_that_failed_is_not_tried_again_with_another_number_of_executors() -> None:
    """The release of another number of executors would have the image that failed."""
    edited = _desired(image="headgate:2")
    failed = Upgrade(1, UpgradeKind.UPGRADE, edited.release, _NOW, outcome=UpgradeOutcome.ROLLED_BACK, ended=_NOW)
    before = replace(_stable(_desired()), upgrade=failed)
    status, _ = _run(edited, before, [HIGH] * 60)
    assert (status.phase, status.upgrade) == (Phase.STABLE, failed)
