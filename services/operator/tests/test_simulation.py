"""The operator's own code on a model of a cluster, by seeds; and each protection, which is shown to be needed.

``HEADGATE_SCHEDULES`` is how many; a failure prints its seed, and ``HEADGATE_SEED=N`` runs that one alone, with
``HEADGATE_TRACE=1`` and ``-s`` step by step.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import replace

import pytest

from headgate_operator.reconcile import ReconcileResult, garbage_collection
from headgate_operator.reconcile import bring_up as bringing
from headgate_operator.reconcile import reconcile as real_reconcile
from headgate_operator.reconcile import upgrade as upgrading
from headgate_operator.reconcile.driver_commands import CommandState
from headgate_operator.resources.status import Checkpoint, Status, Upgrade
from headgate_operator.runtime import reconcile_once as reconciliation
from headgate_operator.runtime.reconcile_once import CachedApp
from streamcore.control.status import CommandResult
from tests.harness.operator import user_actions
from tests.harness.operator.operators import Operator
from tests.harness.operator.schedule import Faults, Schedule

_SCHEDULES = int(os.environ.get("HEADGATE_SCHEDULES", "150"))
_SEED = os.environ.get("HEADGATE_SEED")
#: Seeds that are tried until an invariant is violated because a protection is off.
_TRIES = 400


def _run_schedule(seed: int, faults: Faults | None = None) -> list[str]:
    schedule = Schedule(seed, faults or Faults())
    try:
        return schedule.run()
    except AssertionError as error:
        return [f"assertion: {error}"]


@pytest.mark.timeout(0)
def test_the_invariants_hold_under_crashes_lags_and_user_actions() -> None:
    """One owner; every upgrade ends; no savepoint in use is deleted; the status reports no future; no output twice."""
    seeds = [int(_SEED)] if _SEED else range(_SCHEDULES)
    failed = {}
    for seed in seeds:
        violations = _run_schedule(seed)
        if violations:
            failed[seed] = violations
            print(f"seed {seed}: {violations}")
        if len(failed) > 5:
            break
    assert not failed, f"HEADGATE_SEED={next(iter(failed))} shows the first of: {failed}"


def test_a_seed_gives_the_same_schedule_again() -> None:
    first, second = Schedule(7), Schedule(7)
    assert first.run() == second.run()
    assert first.cluster.app.status == second.cluster.app.status
    assert first.cluster.store == second.cluster.store


def _act_before_writing(operator: Operator, seen: CachedApp, clock_ms: Callable[[], int]) -> Status:
    """Reconcile with the actions before the write of the status."""
    step = real_reconcile(seen.desired, seen.observed, seen.status, clock_ms())
    reconciliation.act(operator, seen, step)
    if step.status != seen.status:
        operator.write_status(seen, step.status)
    return step.status


def _find_violation(faults: Faults, word: str = "") -> str:
    """Return the first violation that contains the word, empty if no seed shows one."""
    for seed in range(_TRIES):
        violations = [violation for violation in _run_schedule(seed, faults) if word in violation]
        if violations:
            return violations[0]
    return ""


def test_without_the_wait_for_the_end_of_the_old_pod_two_pods_own_a_checkpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bringing, "wait_for_exclusive", lambda *_: None)
    monkeypatch.setattr(upgrading, "wait_for_exclusive", lambda *_: None)
    monkeypatch.setattr(reconciliation, "_check_exclusive", lambda *_: None)
    assert _find_violation(Faults(), "was promoted beside")


def test_an_operator_that_acts_before_it_writes_the_status_breaks_an_invariant(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reconciliation, "_check_exclusive", lambda *_: None)
    assert _find_violation(Faults(reconcile=_act_before_writing))


@pytest.mark.slow
def test_without_a_wait_for_superseded_settings_the_driver_runs_with_others_than_the_status(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The operator does not wait for the answer to a change of settings, and users change settings often."""
    monkeypatch.setattr(user_actions, "ACTIONS", (*user_actions.ACTIONS, (user_actions.change_settings, 30)))
    module = sys.modules["headgate_operator.reconcile.steady_state"]
    monkeypatch.setattr(module, "absorb_config_result", lambda status, _: replace(status, pending_config=None))
    assert _find_violation(Faults(), "and the status reports")


@pytest.mark.slow
def test_without_a_read_past_the_cache_a_running_app_is_reported_as_suspended() -> None:
    assert _find_violation(Faults(disabled={"read_past_cache"}), "suspended while a pod runs")


def test_without_resource_versions_two_operators_undo_each_others_writes() -> None:
    assert _find_violation(Faults(disabled={"versions"}), "a counter decreased")


def test_a_collection_that_ignores_references_deletes_a_savepoint_of_a_rollback(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(garbage_collection, "in_use", lambda *_: frozenset())
    assert _find_violation(Faults(), "was removed while in use")


def test_a_rollback_that_discards_newer_batches_writes_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rollback restores the old savepoint although the new version has committed."""
    module = sys.modules["headgate_operator.reconcile.rollback"]  # its main function has its name
    real = module.rollback_checkpoints

    def discard_newer(status: Status, upgrade: Upgrade) -> tuple[Checkpoint, ...]:
        if not upgrade.promoted or not upgrade.savepoint:
            return tuple(real(status, upgrade))
        return (Checkpoint(status.epochs + 1, restore=upgrade.savepoint, discard_newer=True),)

    monkeypatch.setattr(module, "rollback_checkpoints", discard_newer)
    monkeypatch.setattr("tests.harness.operator.store.KEEP_DISCARDED_OUTPUTS", True)
    assert _find_violation(Faults(), "were committed")


def test_a_retryable_rejection_that_is_treated_as_final_breaks_an_invariant(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bringing, "_on_rejection", _reject_finally)
    assert _find_violation(Faults(), "because of an outage")


def _reject_finally(status: Status, answer: CommandResult) -> bringing.BringUpResult:
    step = ReconcileResult(status)
    return bringing.BringUpResult(
        bringing.BringUpState.FAILED, step, "GoRejected", answer.message, rejected=True, newer=answer.newer_epoch
    )


def test_without_the_proof_a_new_version_is_stable_too_early(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["headgate_operator.reconcile.proving"], "_is_proven", lambda *_: True)
    assert _find_violation(Faults(), "without its proof")


def test_an_upgrade_that_begins_in_the_step_that_ends_another_hides_its_outcome(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("headgate_operator.reconcile.ended_upgrade", lambda *_: None)
    assert _find_violation(Faults(), "the outcome of upgrade")


def test_without_the_check_of_its_savepoint_an_upgrade_continues_without_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """The upgrade continues without the savepoint of the old version."""
    monkeypatch.setattr(upgrading, "advance_command", lambda *_: (CommandState.DONE, (), ""))
    assert _find_violation(Faults(), "without savepoint")
