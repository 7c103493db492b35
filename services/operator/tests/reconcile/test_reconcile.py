"""Single decisions of the reconciler, each as an example: a status, observed objects, and the next step."""

from __future__ import annotations

import pickle
from dataclasses import replace

import pytest

from headgate_operator.reconcile import ReconcileResult, reconcile
from headgate_operator.reconcile import actions as act
from headgate_operator.reconcile.observed import Desired, Observed, PodView, SavepointView
from headgate_operator.resources import Phase, SavepointPhase, SavepointReason, SavepointStatus, Status, StreamAppSpec
from headgate_operator.resources.status import (
    Checkpoint,
    GarbageCollection,
    PendingCommand,
    PodRef,
    Upgrade,
    UpgradeKind,
    UpgradeOutcome,
)
from streamcore.control.status import (
    CommandResult,
    CompatibilityInfo,
    DriverPhase,
    DriverStatus,
    NewerEpochInfo,
    SavepointInfo,
)

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
        checkpoint=Checkpoint(1, allow_empty=True, established=True, batch=5),
        epochs=1,
        attempt=1,
        version="1",
        running_since=_NOW,
    )


def _running_pod(**fields: object) -> PodView:
    report = DriverStatus(DriverPhase.RUNNING, epoch=1, batch=9, committed=9, at_ms=_NOW)
    return PodView("old", "u1", driver_status=replace(report, **fields))  # type: ignore[arg-type]


def _stopping_upgrade(desired: Desired, late: bool) -> tuple[Status, Observed]:
    """Return an upgrade whose old version was requested to drain."""
    status = reconcile(desired, Observed((_running_pod(),)), _stable(), _NOW).status
    assert status.standby is not None
    standby = PodView(
        status.standby.name,
        "u2",
        driver_status=DriverStatus(DriverPhase.STANDBY, compatibility=CompatibilityInfo("compatible")),
    )
    observed = Observed((_running_pod(), standby))
    status = reconcile(desired, observed, status, _NOW).status
    assert status.phase is Phase.STOPPING
    assert status.pending_command is not None
    if late:
        status = replace(status, pending_command=replace(status.pending_command, deadline=_NOW))
    return status, observed


def _kinds(step: ReconcileResult) -> list[type]:
    return [type(action) for action in step.actions if not isinstance(action, act.EmitEvent)]


def test_a_stable_app_needs_no_action() -> None:
    status = reconcile(_desired(), Observed((_running_pod(),)), _stable(), _NOW).status
    again = reconcile(_desired(), Observed((_running_pod(),)), status, _NOW)
    assert (again.status, again.actions) == (status, ())


def test_a_status_survives_pickling() -> None:
    status = reconcile(_desired(), Observed((_running_pod(),)), _stable(), _NOW).status
    assert pickle.loads(pickle.dumps(status)) == status


def test_an_upgrade_begins_with_a_standby_and_leaves_the_running_pod_alone() -> None:
    step = reconcile(_desired(2, image="headgate:2"), Observed((_running_pod(),)), _stable(), _NOW)
    assert step.status.phase is Phase.PREFLIGHT
    assert _kinds(step) == [act.CreatePod]


@pytest.mark.parametrize(("verdict", "reason"), [("incompatible", "Incompatible"), ("decision", "NeedsDecision")])
def test_an_impossible_plan_rejects_the_upgrade_for_good(verdict: str, reason: str) -> None:
    desired = _desired(2, image="headgate:2")
    status = reconcile(desired, Observed((_running_pod(),)), _stable(), _NOW).status
    assert status.standby is not None
    standby = PodView(
        status.standby.name,
        "u2",
        driver_status=DriverStatus(DriverPhase.STANDBY, compatibility=CompatibilityInfo(verdict, ("table a",))),
    )
    step = reconcile(desired, Observed((_running_pod(), standby)), status, _NOW)
    assert step.status.phase is Phase.STABLE
    assert step.status.upgrade is not None
    assert (step.status.upgrade.outcome, step.status.upgrade.reason) == (UpgradeOutcome.REJECTED, reason)
    assert step.status.owner == _stable().owner
    again = reconcile(desired, Observed((_running_pod(),)), step.status, _NOW)
    assert again.status.phase is Phase.STABLE
    assert _kinds(again) == []


def test_an_old_version_that_does_not_stop_in_time_is_kept() -> None:
    desired = _desired(2, image="headgate:2")
    status, observed = _stopping_upgrade(desired, late=True)
    step = reconcile(desired, observed, status, _NOW)
    assert (step.status.phase, step.status.owner) == (Phase.STABLE, _stable().owner)
    assert step.status.upgrade is not None
    assert step.status.upgrade.reason == "StopTimeout"


def test_an_old_version_that_does_not_stop_in_time_is_settled_once_if_the_spec_allows_it() -> None:
    desired = _desired(2, image="headgate:2", upgrade={"onStopTimeout": "finishBatch"})
    status, observed = _stopping_upgrade(desired, late=True)
    step = reconcile(desired, observed, status, _NOW)
    assert step.status.phase is Phase.RESTARTING
    assert act.DeletePod("old", "u1") in step.actions
    assert step.status.drain_retried_for == desired.release.revision
    status = replace(_stable(), drain_retried_for=step.status.drain_retried_for)
    again, observed = _stopping_upgrade(desired, late=True)
    kept = reconcile(desired, observed, replace(again, drain_retried_for=status.drain_retried_for), _NOW)
    assert kept.status.phase is Phase.STABLE


def test_a_savepoint_older_than_the_last_commit_is_not_accepted() -> None:
    desired = _desired(2, image="headgate:2")
    status, observed = _stopping_upgrade(desired, late=False)
    assert status.pending_command is not None
    behind = SavepointInfo(status.pending_command.savepoint, 4, 1, "digest", 1)
    pod = _running_pod(results={status.pending_command.id: CommandResult(True, savepoint=behind)})
    line = SavepointView(status.pending_command.savepoint, SavepointReason.UPGRADE, "7", _NOW)
    step = reconcile(desired, replace(observed, pods=(pod, *observed.pods[1:]), savepoints=(line,)), status, _NOW)
    assert step.status.phase is Phase.STABLE
    recorded = [action for action in step.actions if isinstance(action, act.UpdateSavepointStatus)]
    assert [one.status.phase for one in recorded] == [SavepointPhase.FAILED]


def test_a_savepoint_is_not_requested_while_its_data_is_being_deleted() -> None:
    """The cache does not show its deletion yet, and a request waits for it."""
    line = SavepointView("by-hand", SavepointReason.MANUAL, "7", _NOW)
    observed = Observed((_running_pod(),), savepoints=(line,))
    command = reconcile(_desired(), observed, _stable(), _NOW).status.pending_command
    assert command is not None
    assert command.savepoint == "by-hand"
    removing = replace(_stable(), garbage_collection=GarbageCollection(("by-hand",), "rules-c1", 1, _NOW + 1_000))
    assert reconcile(_desired(), observed, removing, _NOW).status.pending_command is None


def test_an_in_place_upgrade_with_another_number_of_partitions_is_rejected_at_once() -> None:
    desired = _desired(2, shufflePartitions=8, upgrade={"mode": "in-place"})
    step = reconcile(desired, Observed((_running_pod(),)), _stable(), _NOW)
    assert (step.status.phase, _kinds(step)) == (Phase.STABLE, [])
    assert step.status.upgrade is not None
    assert step.status.upgrade.reason == "NeedsSavepoint"


def test_an_app_whose_checkpoint_is_gone_needs_a_person() -> None:
    """The checkpoint root is empty or has newer batches: no checkpoint is created."""
    lines = tuple(
        SavepointView(name, SavepointReason.SCHEDULED, "1", 0, SavepointStatus(SavepointPhase.COMPLETE, 1, batch))
        for name, batch in (("early", 3), ("late", 4))
    )
    command = PendingCommand("promote-1", "promote", "old", _NOW + 1_000)
    status = replace(_stable(), phase=Phase.RESTARTING, pending_command=command)
    rejected = PodView(
        "old",
        "u1",
        driver_status=DriverStatus(
            DriverPhase.STANDBY, results={"promote-1": CommandResult(False, "newer", newer_epoch=NewerEpochInfo(2, 7))}
        ),
    )
    step = reconcile(_desired(), Observed((rejected,), lines), status, _NOW)
    assert step.status.phase is Phase.NEEDS_HUMAN
    assert [candidate.savepoint for candidate in step.status.restore_points] == ["late", "early"]
    assert '"from": "late"' in step.status.restore_points[0].command


def test_an_epoch_that_the_checkpoint_root_has_seen_is_not_used_again() -> None:
    """Its checkpoint exists, and the driver would continue from it instead of a restore."""
    line = SavepointView("kept", SavepointReason.MANUAL, "1", 0, SavepointStatus(SavepointPhase.COMPLETE, 1, 3))
    command = PendingCommand("promote-1", "promote", "old", _NOW + 1_000)
    status = replace(_stable(), phase=Phase.RESTARTING, pending_command=command)
    rejected = PodView(
        "old",
        "u1",
        driver_status=DriverStatus(
            DriverPhase.STANDBY, results={"promote-1": CommandResult(False, "over", newer_epoch=NewerEpochInfo(4, -1))}
        ),
    )
    status = reconcile(_desired(), Observed((rejected,), (line,)), status, _NOW).status
    assert status.epochs == 4
    desired = _desired(2, restore={"from": "kept", "nonce": "1"})
    status = reconcile(desired, Observed((), (line,)), status, _NOW).status
    assert status.upgrade is not None
    assert status.upgrade.claim == Checkpoint(5, restore="kept", discard_newer=True)


def _rollback_status() -> Status:
    """Return a rollback that restores the savepoint from before the upgrade, the better of two restore points."""
    claim = Checkpoint(3, restore="before")
    to = _desired(2, image="headgate:2").release
    upgrade = Upgrade(1, UpgradeKind.UPGRADE, to, _NOW, base=Checkpoint(1), promoted=True, savepoint="before")
    upgrade = replace(upgrade, undo_step=1, target=Checkpoint(2, restore="before"), claim=claim)
    command = PendingCommand("promote-1", "promote", "old", _NOW + 1_000)
    return replace(
        _stable(),
        phase=Phase.ROLLING_BACK,
        checkpoint=claim,
        epochs=3,
        pending_command=command,
        upgrade=upgrade,
        restarts=0,
    )


def _rejection(*, retryable: bool) -> Observed:
    answer = CommandResult(False, "Retryable: the storage is away", retryable=retryable)
    return Observed(
        (PodView("old", "u1", driver_status=DriverStatus(DriverPhase.STANDBY, results={"promote-1": answer})),)
    )


@pytest.mark.parametrize(("retry", "way"), [(True, 1), (False, 2)])
def test_a_rollback_gives_up_a_restore_point_after_a_rejection_but_not_after_an_outage(retry: bool, way: int) -> None:
    status = _rollback_status()
    assert status.upgrade is not None
    after = reconcile(_desired(2, image="headgate:2"), _rejection(retryable=retry), status, _NOW).status
    assert after.upgrade is not None
    assert (after.phase, after.upgrade.undo_step, after.owner) == (Phase.ROLLING_BACK, way, None)
    assert (after.upgrade.claim == status.upgrade.claim) == retry
    assert ((after.retry_after or 0) > _NOW) == retry


def test_a_rollback_that_never_reaches_its_storage_needs_a_person() -> None:
    status = replace(_rollback_status(), restarts=5)
    after = reconcile(_desired(2, image="headgate:2"), _rejection(retryable=True), status, _NOW).status
    assert after.phase is Phase.NEEDS_HUMAN


@pytest.mark.parametrize(("retry", "phase"), [(True, Phase.STARTING), (False, Phase.NEEDS_HUMAN)])
def test_a_restore_is_tried_again_after_an_outage(retry: bool, phase: Phase) -> None:
    claim = Checkpoint(3, restore="before", discard_newer=True)
    upgrade = Upgrade(1, UpgradeKind.RESTORE, _desired().release, _NOW, base=Checkpoint(1), claim=claim)
    status = replace(_rollback_status(), phase=Phase.STARTING, checkpoint=claim, upgrade=upgrade)
    after = reconcile(_desired(), _rejection(retryable=retry), status, _NOW).status
    assert after.phase is phase
    assert after.upgrade is not None
    assert after.upgrade.claim == claim


def test_the_first_epoch_is_higher_than_that_of_its_savepoint() -> None:
    line = SavepointView("kept", SavepointReason.DELETION, "1", 0, SavepointStatus(SavepointPhase.COMPLETE, 6, 3))
    for spec, claim in (
        ({"restore": {"from": "kept", "nonce": "1"}}, Checkpoint(7, restore="kept")),
        ({}, Checkpoint(1, allow_empty=True)),
    ):
        status = reconcile(_desired(**spec), Observed((), (line,)), Status(), _NOW).status  # type: ignore[arg-type]
        assert status.upgrade is not None
        assert status.upgrade.claim == claim


def test_a_change_of_settings_is_first_requested_live_and_becomes_an_upgrade_if_rejected() -> None:
    desired = _desired(2, config={"level": 2})
    status = reconcile(desired, Observed((_running_pod(),)), _stable(), _NOW).status
    step = reconcile(desired, Observed((_running_pod(),)), status, _NOW)
    assert step.status.pending_command is not None
    identity = step.status.pending_command.id
    assert step.actions == (act.ReconfigureDriver("old", "u1", identity, desired.release),)
    yes, no = (_running_pod(results={identity: CommandResult(ok)}) for ok in (True, False))
    taken = reconcile(desired, Observed((yes,)), step.status, _NOW).status
    assert (taken.stable, taken.pending_command, taken.phase) == (desired.release, None, Phase.STABLE)
    status = reconcile(desired, Observed((no,)), step.status, _NOW).status
    assert reconcile(desired, Observed((no,)), status, _NOW).status.phase is Phase.PREFLIGHT


def _pending_configuration() -> tuple[Status, str]:
    """Return a status with a pending change of settings, from level 1 to 2."""
    status = reconcile(_desired(2, config={"level": 2}), Observed((_running_pod(),)), _stable(), _NOW).status
    assert status.pending_command is not None
    return status, status.pending_command.id


def test_a_superseded_change_of_settings_is_awaited_and_reverted_if_it_was_applied() -> None:
    status, identity = _pending_configuration()
    back = _desired(3)
    step = reconcile(back, Observed((_running_pod(),)), status, _NOW)
    assert step.status.pending_command == status.pending_command
    assert [action.release for action in step.actions if isinstance(action, act.ReconfigureDriver)] == [
        _desired(2, config={"level": 2}).release
    ]
    yes = Observed((_running_pod(results={identity: CommandResult(True)}),))
    taken = reconcile(back, yes, step.status, _NOW).status
    assert taken.stable == _desired(2, config={"level": 2}).release
    status = reconcile(back, yes, taken, _NOW).status
    again = reconcile(back, yes, status, _NOW)
    assert status.pending_command is not None
    assert again.actions == (act.ReconfigureDriver("old", "u1", status.pending_command.id, back.release),)


def test_a_superseded_change_of_settings_that_was_rejected_changes_nothing() -> None:
    status, identity = _pending_configuration()
    no = Observed((_running_pod(results={identity: CommandResult(False, "another process is needed")}),))
    status = reconcile(_desired(3), no, status, _NOW).status
    step = reconcile(_desired(3), no, status, _NOW)
    assert (step.status.phase, step.status.stable, step.actions) == (Phase.STABLE, _desired().release, ())


def test_a_driver_that_does_not_answer_a_superseded_change_of_settings_is_restarted_in_place() -> None:
    status, _ = _pending_configuration()
    silent = Observed((_running_pod(at_ms=_NOW + 30_000),))
    status = reconcile(_desired(3), silent, status, _NOW + 30_000).status
    step = reconcile(_desired(3), silent, status, _NOW + 30_000)
    assert (step.status.phase, step.status.stable) == (Phase.RESTARTING, _desired().release)
    assert step.status.checkpoint is not None
    assert step.status.checkpoint.epoch == 1
    assert act.DeletePod("old", "u1") in step.actions


@pytest.mark.parametrize("late", [None, CommandResult(True), CommandResult(False)])
def test_a_driver_whose_settings_are_unknown_after_a_rejected_upgrade_is_restarted(
    late: CommandResult | None,
) -> None:
    """The driver did not answer in time, so the change became an upgrade, which is rejected."""
    status, identity = _pending_configuration()
    desired, now_ms = _desired(2, config={"level": 2}), _NOW + 30_000
    silent = _running_pod(at_ms=now_ms)
    status = reconcile(desired, Observed((silent,)), status, now_ms).status
    status = reconcile(desired, Observed((silent,)), status, now_ms).status
    assert status.phase is Phase.PREFLIGHT
    assert status.standby is not None
    standby = PodView(
        status.standby.name,
        "u2",
        driver_status=DriverStatus(DriverPhase.STANDBY, compatibility=CompatibilityInfo("incompatible")),
    )
    status = reconcile(desired, Observed((silent, standby)), status, now_ms).status
    assert status.phase is Phase.STABLE
    pod = _running_pod(at_ms=now_ms, results={identity: late} if late else {})
    step = reconcile(desired, Observed((pod,)), status, now_ms)
    if late is None:
        assert (step.status.phase, step.status.stable) == (Phase.RESTARTING, _desired().release)
    else:
        assert (step.status.phase, step.status.pending_config) == (Phase.STABLE, None)
        assert step.status.stable == (desired.release if late.ok else _desired().release)


def test_a_driver_with_an_unanswered_change_of_settings_gets_no_other_one() -> None:
    status, _ = _pending_configuration()
    desired, now_ms = _desired(3, config={"level": 3}), _NOW + 30_000
    silent = Observed((_running_pod(at_ms=now_ms),))
    status = reconcile(desired, silent, status, now_ms).status
    step = reconcile(desired, silent, status, now_ms)
    assert step.status.phase is Phase.PREFLIGHT
    assert not [action for action in step.actions if isinstance(action, act.ReconfigureDriver)]


def test_a_restart_continues_from_the_checkpoint_and_never_creates_one() -> None:
    status = reconcile(_desired(), Observed(()), _stable(), _NOW).status
    assert status.phase is Phase.RESTARTING
    status = reconcile(_desired(), Observed(()), status, _NOW).status
    assert status.standby is not None
    standby = PodView(status.standby.name, "u2", driver_status=DriverStatus(DriverPhase.STANDBY))
    step = reconcile(_desired(), Observed((standby,)), status, _NOW)
    gos = [action.command for action in step.actions if isinstance(action, act.PromoteStandby)]
    assert [(go.epoch, go.restore, go.allow_empty) for go in gos] == [(1, None, False)]


def test_the_next_pod_waits_while_a_deleted_one_still_runs() -> None:
    ending = replace(_running_pod(), deleting=True)
    status = reconcile(_desired(), Observed((ending,)), _stable(), _NOW).status
    status = reconcile(_desired(), Observed((ending,)), status, _NOW).status
    assert status.standby is not None
    standby = PodView(status.standby.name, "u2", driver_status=DriverStatus(DriverPhase.STANDBY))
    waiting = reconcile(_desired(), Observed((ending, standby)), status, _NOW)
    assert not [action for action in waiting.actions if isinstance(action, act.PromoteStandby)]
    gone = reconcile(_desired(), Observed((standby,)), waiting.status, _NOW)
    assert [type(action) for action in gone.actions] == [act.PromoteStandby]


def test_a_driver_that_sends_no_report_for_too_long_is_replaced() -> None:
    step = reconcile(_desired(), Observed((_running_pod(at_ms=_NOW - 300_001),)), _stable(), _NOW)
    assert step.status.phase is Phase.RESTARTING
    assert act.DeletePod("old", "u1") in step.actions


def test_a_deletion_ends_at_its_deadline_even_if_a_pod_hangs() -> None:
    desired = replace(_desired(), deleting_since_ms=_NOW)
    status = reconcile(desired, Observed((_running_pod(),)), _stable(), _NOW).status
    assert status.phase is Phase.DELETING
    late = reconcile(desired, Observed((_running_pod(),)), status, _NOW + 300_000)
    assert act.RemoveFinalizer() in late.actions


def test_an_invalid_edit_changes_no_running_pod() -> None:
    desired = replace(_desired(2, image="headgate:2"), problem="executors: no number")
    step = reconcile(desired, Observed((_running_pod(),)), _stable(), _NOW)
    assert (step.status.phase, _kinds(step)) == (Phase.STABLE, [])
    degraded = next(condition for condition in step.status.conditions if condition.type == "Degraded")
    assert (degraded.status, degraded.reason) == ("True", "InvalidSpec")


def test_a_first_start_that_waits_for_its_promotion_can_be_suspended() -> None:
    install = Upgrade(1, UpgradeKind.INSTALL, _desired().release, _NOW, claim=Checkpoint(1, allow_empty=True))
    pending = PendingCommand("promote-1", "promote", "old", _NOW + 60_000)
    status = replace(_stable(), phase=Phase.STARTING, stable=None, upgrade=install, pending_command=pending)
    step = reconcile(_desired(2, state="suspended"), Observed((_running_pod(),)), status, _NOW)
    assert step.status.phase is Phase.SUSPENDING
    assert (step.status.owner, step.status.pending_command) == (None, None)
    assert _kinds(step) == [act.DeletePod]
    assert reconcile(_desired(2, state="suspended"), Observed(), step.status, _NOW).status.phase is Phase.SUSPENDED
