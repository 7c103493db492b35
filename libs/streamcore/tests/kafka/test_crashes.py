"""A process that dies at every step of the protocol, or at any moment, writes every record exactly once."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from streamcore.kafka.data_clients import Isolation
from streamcore.kafka.delivery import CommitStep
from streamcore.kafka.readers import Follower, Record, read_topic
from streamcore.kafka.settings import KafkaSettings
from tests.harness.oracles.committed_records import read_committed

if TYPE_CHECKING:
    from tests.kafka.conftest import Topics

pytestmark = pytest.mark.kafka
APP = Path(__file__).with_name("crashing_app.py")
BATCHES, RECORDS, CRASHED = 6, 20, 77
EXPECTED = Counter(f"{b}:{n}".encode() for b in range(BATCHES) for n in range(RECORDS))

Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start(kafka: KafkaSettings, topics: Topics, tmp_path: Path) -> Start:
    log = tmp_path / "done"
    log.touch()

    def start(step: str = "none", *, protection: str = "on", pause_ms: int = 0) -> subprocess.Popen[str]:
        names = [kafka.bootstrap, topics.app, topics.out, topics.markers, str(log), step, protection, str(pause_ms)]
        return subprocess.Popen([sys.executable, str(APP), *names], stdout=subprocess.PIPE, text=True)

    return start


def values(records: list[Record]) -> Counter[bytes]:
    return Counter(r.value or b"" for r in records)


def run(process: subprocess.Popen[str]) -> int:
    with process:
        return process.wait(60)


@pytest.mark.parametrize("step", list(CommitStep))
def test_a_crash_at_any_step_neither_loses_nor_repeats_a_record(
    step: CommitStep, start: Start, kafka: KafkaSettings, topics: Topics
) -> None:
    assert run(start(step)) == CRASHED
    assert run(start()) == 0
    assert values(read_committed(kafka, topics.out, len(EXPECTED))) == EXPECTED


def test_without_the_marker_the_crash_after_the_commit_repeats_the_batch(
    start: Start, kafka: KafkaSettings, topics: Topics
) -> None:
    assert run(start(CommitStep.COMMITTED, protection="off")) == CRASHED
    assert run(start(protection="off")) == 0
    seen = values(read_topic(kafka, topics.out))
    assert {value for value, count in seen.items() if count > 1} == {f"2:{n}".encode() for n in range(RECORDS)}


def test_a_crash_before_the_commit_leaves_records_that_only_uncommitted_readers_see(
    start: Start, kafka: KafkaSettings, topics: Topics
) -> None:
    assert run(start(CommitStep.BEFORE_COMMIT)) == CRASHED
    committed = read_committed(kafka, topics.out, 2 * RECORDS)
    everything = read_topic(kafka, topics.out, isolation=Isolation.UNCOMMITTED)
    assert len(committed) == 2 * RECORDS
    assert len(everything) == 3 * RECORDS


def test_a_reader_never_sees_a_lost_or_repeated_record_while_writers_are_killed(
    start: Start, kafka: KafkaSettings, topics: Topics
) -> None:
    watched: list[Record] = []
    stop = threading.Event()

    def watch() -> None:
        with Follower(kafka, [topics.out]) as follower:
            while not stop.is_set() or follower_is_behind(watched):
                watched.extend(follower.poll(50))

    def follower_is_behind(seen: list[Record]) -> bool:
        return len(seen) < BATCHES * RECORDS

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    moments = random.Random(20)
    for _ in range(10):
        with start(pause_ms=60) as process:
            assert process.stdout is not None
            process.stdout.readline()  # it is open
            time.sleep(moments.random() * 0.4)
            process.kill()
    assert run(start()) == 0
    stop.set()
    watcher.join(30)

    final = read_committed(kafka, topics.out, len(EXPECTED))
    everything = read_topic(kafka, topics.out, isolation=Isolation.UNCOMMITTED)
    assert values(final) == EXPECTED
    assert not watcher.is_alive(), "the watcher did not see every record"
    assert {(r.partition, r.offset, r.value) for r in watched} == {(r.partition, r.offset, r.value) for r in final}
    assert len(watched) == len(final) <= len(everything)
    for batch in range(BATCHES):
        of_batch = [r for r in final if (r.value or b"").startswith(b"%d:" % batch)]
        assert len({r.header("process") for r in of_batch}) == 1, "a batch is the work of one process, never of two"
