"""A batch is planned once, also when several processes plan it: in folders and buckets."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path

import pytest

from streamcore.checkpoint.offset_log import CutBounds, OffsetLog
from streamcore.cuts.cut_clock import CutClock
from streamcore.errors import Fenced
from streamcore.offsets import StreamOffsets
from streamcore.storage import ObjectStore
from streamcore.storage.atomic_files import list_names
from streamcore.storage.location import location


@pytest.fixture
def log(any_place: ObjectStore) -> OffsetLog:
    return OffsetLog(location(any_place.url) / "offsets", keep=5)


def bounds(end: int) -> CutBounds:
    return CutBounds(StreamOffsets(CutClock(), {}), StreamOffsets(CutClock.at(1), {("orders", 0): end}))


def test_a_former_owner_that_plans_a_batch_late_is_fenced_and_changes_nothing(log: OffsetLog) -> None:
    log.write(7, bounds(10))
    with pytest.raises(Fenced, match="has planned this batch; this one ends"):
        log.write(7, bounds(11))
    assert log.read(7) == bounds(10)
    assert len(list_names(log.folder)) == 1, "nothing else is left"


def test_the_same_plan_can_be_written_again(log: OffsetLog) -> None:
    """As after a lost response."""
    for _ in range(2):
        log.write(7, bounds(10))
    assert log.read(7) == bounds(10)


def test_exactly_one_of_many_concurrent_planners_wins(log: OffsetLog) -> None:
    decided, ready = list[int](), threading.Barrier(8)

    def decide(end: int) -> None:
        ready.wait()
        try:
            log.write(7, bounds(end))
        except Fenced:
            return
        decided.append(end)

    rivals = [threading.Thread(target=decide, args=(end,)) for end in range(8)]
    for rival in rivals:
        rival.start()
    for rival in rivals:
        rival.join()
    assert len(decided) == 1
    assert log.read(7) == bounds(decided[0])


def test_the_offset_log_works_without_hard_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def reject_link(*_: object) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", reject_link)
    log = OffsetLog(tmp_path / "offsets")
    log.write(7, bounds(10))
    with pytest.raises(Fenced):
        log.write(7, bounds(11))
    assert log.read(7) == bounds(10)
    assert list_names(log.folder) == ["7"]
