"""Single decisions of the reconciler, each as an example: what is remembered and seen, what is decided."""

from __future__ import annotations

import pickle
from dataclasses import replace

import pytest

from headgate_operator.protocol import Answer, Plan, Report, Sealed
from headgate_operator.reconcile import Step, reconcile
from headgate_operator.reconcile import actions as act
from headgate_operator.reconcile.world import Desired, Observed, PodView, SavepointView
from headgate_operator.resources import Phase, SavepointPhase, SavepointReason, SavepointStatus, Status, StreamAppSpec
from headgate_operator.resources.status import Asked, Checkpoint, Outcome, PodRef

_NOW = 10_000_000
_SPEC = {"service": "rules", "image": "headgate:1", "config": {"level": 1}, "checkpoint": {"root": "/c"}}


def _desired(generation: int = 1, **spec: object) -> Desired:
    made = Desired.of("shop", "rules", "0a1b2c3d", generation, StreamAppSpec.model_validate({**_SPEC, **spec}))
    return replace(made, finalized=True)


def _stable() -> Status:
    owner = PodRef("old", _desired().release.revision, "u1")
    return Status(
        phase=Phase.STABLE,
        stable=_desired().release,
        owner=owner,
        checkpoint=Checkpoint(1, begin=True, established=True, batch=5),
        epochs=1,
        attempt=1,
        version="1",
        running_since=_NOW,
    )


def _running(**said: object) -> PodView:
    report = Report("running", epoch=1, batch=9, committed=9, at_ms=_NOW)
    return PodView("old", "u1", report=replace(report, **said))  # type: ignore[arg-type]


def _stopping(desired: Desired, late: bool) -> tuple[Status, Observed]:
    """An upgrade whose old version was asked to end."""
    status = reconcile(desired, Observed((_running(),)), _stable(), _NOW).status
    assert status.standby is not None
    standby = PodView(status.standby.name, "u2", report=Report("standby", plan=Plan("compatible")))
    observed = Observed((_running(), standby))
    status = reconcile(desired, observed, status, _NOW).status
    assert status.phase is Phase.STOPPING
    assert status.asked is not None
    if late:
        status = replace(status, asked=replace(status.asked, deadline=_NOW))
    return status, observed


def _kinds(step: Step) -> list[type]:
    return [type(action) for action in step.actions if not isinstance(action, act.Tell)]


def test_nothing_is_done_when_everything_is_as_it_should_be() -> None:
    status = reconcile(_desired(), Observed((_running(),)), _stable(), _NOW).status
    again = reconcile(_desired(), Observed((_running(),)), status, _NOW)
    assert (again.status, again.actions) == (status, ())


def test_a_status_is_a_value() -> None:
    status = reconcile(_desired(), Observed((_running(),)), _stable(), _NOW).status
    assert pickle.loads(pickle.dumps(status)) == status


def test_an_upgrade_begins_with_a_standby_and_the_running_pod_is_not_touched() -> None:
    step = reconcile(_desired(2, image="headgate:2"), Observed((_running(),)), _stable(), _NOW)
    assert step.status.phase is Phase.PREFLIGHT
    assert _kinds(step) == [act.CreatePod]


@pytest.mark.parametrize(("verdict", "reason"), [("incompatible", "Incompatible"), ("decision", "NeedsDecision")])
def test_a_plan_that_cannot_be_refuses_the_upgrade_and_it_is_not_tried_again(verdict: str, reason: str) -> None:
    desired = _desired(2, image="headgate:2")
    status = reconcile(desired, Observed((_running(),)), _stable(), _NOW).status
    assert status.standby is not None
    standby = PodView(status.standby.name, "u2", report=Report("standby", plan=Plan(verdict, ("table a",))))
    step = reconcile(desired, Observed((_running(), standby)), status, _NOW)
    assert step.status.phase is Phase.STABLE
    assert step.status.upgrade is not None
    assert (step.status.upgrade.outcome, step.status.upgrade.reason) == (Outcome.REFUSED, reason)
    assert step.status.owner == _stable().owner
    again = reconcile(desired, Observed((_running(),)), step.status, _NOW)
    assert again.status.phase is Phase.STABLE
    assert _kinds(again) == []


def test_a_version_that_does_not_stop_in_time_is_kept() -> None:
    desired = _desired(2, image="headgate:2")
    status, observed = _stopping(desired, late=True)
    step = reconcile(desired, observed, status, _NOW)
    assert (step.status.phase, step.status.owner) == (Phase.STABLE, _stable().owner)
    assert step.status.upgrade is not None
    assert step.status.upgrade.reason == "StopTimeout"


def test_a_version_that_does_not_stop_in_time_is_settled_once_if_that_is_wanted() -> None:
    desired = _desired(2, image="headgate:2", upgrade={"onStopTimeout": "settle"})
    status, observed = _stopping(desired, late=True)
    step = reconcile(desired, observed, status, _NOW)
    assert step.status.phase is Phase.RESTARTING
    assert act.DeletePod("old", "u1") in step.actions
    assert step.status.settled == desired.release.revision
    status = replace(_stable(), settled=step.status.settled)
    again, observed = _stopping(desired, late=True)
    kept = reconcile(desired, observed, replace(again, settled=status.settled), _NOW)
    assert kept.status.phase is Phase.STABLE


def test_a_savepoint_that_is_behind_what_was_committed_is_not_believed() -> None:
    desired = _desired(2, image="headgate:2")
    status, observed = _stopping(desired, late=False)
    assert status.asked is not None
    behind = Sealed(status.asked.savepoint, 4, 1, "digest", 1)
    pod = _running(answers={status.asked.id: Answer(True, savepoint=behind)})
    line = SavepointView(status.asked.savepoint, SavepointReason.UPGRADE, "7", _NOW)
    step = reconcile(desired, replace(observed, pods=(pod, *observed.pods[1:]), savepoints=(line,)), status, _NOW)
    assert step.status.phase is Phase.STABLE
    recorded = [action for action in step.actions if isinstance(action, act.RecordSavepoint)]
    assert [one.status.phase for one in recorded] == [SavepointPhase.FAILED]


def test_another_number_of_partitions_in_place_is_refused_before_anything_was_done() -> None:
    desired = _desired(2, shufflePartitions=8, upgrade={"mode": "in-place"})
    step = reconcile(desired, Observed((_running(),)), _stable(), _NOW)
    assert (step.status.phase, _kinds(step)) == (Phase.STABLE, [])
    assert step.status.upgrade is not None
    assert step.status.upgrade.reason == "NeedsSavepoint"


def test_a_checkpoint_that_is_not_there_any_more_is_a_matter_for_a_person() -> None:
    """The driver found a root that holds something newer, or nothing: it is not begun anew."""
    lines = tuple(
        SavepointView(name, SavepointReason.SCHEDULED, "1", 0, SavepointStatus(SavepointPhase.COMPLETE, 1, batch))
        for name, batch in (("early", 3), ("late", 4))
    )
    asked = Asked("go-1", "go", "old", _NOW + 1_000)
    status = replace(_stable(), phase=Phase.RESTARTING, asked=asked)
    refused = PodView("old", "u1", report=Report("standby", answers={"go-1": Answer(False, "newer", newer=(2, 7))}))
    step = reconcile(_desired(), Observed((refused,), lines), status, _NOW)
    assert step.status.phase is Phase.NEEDS_HUMAN
    assert [candidate.savepoint for candidate in step.status.candidates] == ["late", "early"]
    assert '"from": "late"' in step.status.candidates[0].command


def test_a_restart_goes_on_from_the_checkpoint_and_never_begins_one() -> None:
    status = reconcile(_desired(), Observed(()), _stable(), _NOW).status
    assert status.phase is Phase.RESTARTING
    status = reconcile(_desired(), Observed(()), status, _NOW).status
    assert status.standby is not None
    standby = PodView(status.standby.name, "u2", report=Report("standby"))
    step = reconcile(_desired(), Observed((standby,)), status, _NOW)
    gos = [action.request for action in step.actions if isinstance(action, act.Go)]
    assert [(go.epoch, go.restore, go.begin) for go in gos] == [(1, "", False)]


def test_a_pod_that_is_deleted_and_not_gone_keeps_the_next_one_waiting() -> None:
    ending = replace(_running(), deleting=True)
    status = reconcile(_desired(), Observed((ending,)), _stable(), _NOW).status
    status = reconcile(_desired(), Observed((ending,)), status, _NOW).status
    assert status.standby is not None
    standby = PodView(status.standby.name, "u2", report=Report("standby"))
    waiting = reconcile(_desired(), Observed((ending, standby)), status, _NOW)
    assert not [action for action in waiting.actions if isinstance(action, act.Go)]
    gone = reconcile(_desired(), Observed((standby,)), waiting.status, _NOW)
    assert [type(action) for action in gone.actions] == [act.Go]


def test_a_driver_that_says_nothing_for_too_long_is_replaced() -> None:
    step = reconcile(_desired(), Observed((_running(at_ms=_NOW - 300_001),)), _stable(), _NOW)
    assert step.status.phase is Phase.RESTARTING
    assert act.DeletePod("old", "u1") in step.actions


def test_a_deletion_ends_at_its_deadline_whatever_hangs() -> None:
    desired = replace(_desired(), deleting_since_ms=_NOW)
    status = reconcile(desired, Observed((_running(),)), _stable(), _NOW).status
    assert status.phase is Phase.DELETING
    late = reconcile(desired, Observed((_running(),)), status, _NOW + 300_000)
    assert act.RemoveFinalizer() in late.actions


def test_an_edit_that_cannot_be_used_changes_nothing_that_runs() -> None:
    desired = replace(_desired(2, image="headgate:2"), problem="executors: no number")
    step = reconcile(desired, Observed((_running(),)), _stable(), _NOW)
    assert (step.status.phase, _kinds(step)) == (Phase.STABLE, [])
    degraded = next(condition for condition in step.status.conditions if condition.type == "Degraded")
    assert (degraded.status, degraded.reason) == ("True", "InvalidSpec")
