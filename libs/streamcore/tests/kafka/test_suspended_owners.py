"""However owners of copies of a checkpoint are suspended, killed and started, no event is lost or written twice."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from streamcore.cuts.cut_id import CutId
from streamcore.kafka.exactly_once import ExactlyOnceWriter
from tests.harness.faults.simulated_owners import MakeWriter, Schedule, simulated_broker

SCHEDULES = int(os.environ.get("HEADGATE_OWNER_SCHEDULES", "50"))
STEPS = 400


@pytest.fixture
def memory_folder() -> Iterator[Path]:
    """A folder in memory: the schedules sync some ten thousand small files."""
    memory = Path("/dev/shm")
    folder = Path(tempfile.mkdtemp(dir=memory if memory.is_dir() else None))
    yield folder
    shutil.rmtree(folder)


def run(seed: int, folder: Path, patch: pytest.MonkeyPatch, kind: MakeWriter = ExactlyOnceWriter) -> Schedule:
    """Run one schedule to its end and remove its checkpoints."""
    current: list[Schedule] = []
    with simulated_broker(lambda: current[0], patch):
        current.append(Schedule(seed, folder / str(seed), kind))
        current[0].run(STEPS)
        assert current[0].settle() or not current[0].broker.output, f"seed {seed}: no checkpoint can go on"
    shutil.rmtree(folder / str(seed))
    return current[0]


@pytest.mark.slow
def test_suspended_and_copied_owners_neither_lose_nor_repeat_an_event(
    memory_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied = written = 0
    for seed in range(SCHEDULES):
        schedule = run(seed, memory_folder, monkeypatch)
        output = schedule.broker.output
        assert output == list(range(len(output))), f"seed {seed}"
        copied += len(schedule.owners) > 1
        written += len(output)
    assert copied > SCHEDULES / 2
    assert written > 10 * SCHEDULES


class _NumbersOnly(ExactlyOnceWriter):
    """The protection off: a batch whose number is not above the marker counts as written, whichever
    process wrote the marker."""

    def _is_done(self, cut: CutId) -> bool:
        return self._done is not None and cut.batch <= self._done.cut.batch

    def _steps_1_and_2(self) -> None:
        hooks, self._hooks = self._hooks, type(self._hooks)(on_step=self._hooks.on_step)
        try:
            super()._steps_1_and_2()
        finally:
            self._hooks = hooks


@pytest.mark.slow
def test_without_the_digest_in_the_marker_events_are_lost_silently(
    memory_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = []
    for seed in range(15):
        output = run(seed, memory_folder, monkeypatch, _NumbersOnly).broker.output
        wrong += [seed] if output != list(range(len(output))) else []
    assert wrong
