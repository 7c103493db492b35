"""A process that dies at every step of the protocol, or at any moment, writes every record exactly once; without
transactions at least once."""

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

from streamcore.cuts.cut_id import CutId
from streamcore.cuts.writer_id import WriterId
from streamcore.errors import Fenced, Permanent
from streamcore.kafka.at_least_once import AtLeastOnceWriter
from streamcore.kafka.data_clients import Isolation
from streamcore.kafka.delivery import CommitOutcome, CommitStep, OutRecord, WriterHooks
from streamcore.kafka.exactly_once import ExactlyOnceWriter
from streamcore.kafka.readers import Follower, Record, read_topic
from streamcore.kafka.settings import KafkaSettings
from streamcore.kafka.topics import TopicSpec, delete_topics, ensure_topics
from tests.harness.oracles.committed_records import read_committed

if TYPE_CHECKING:
    from tests.kafka.conftest import Topics

pytestmark = pytest.mark.kafka
APP = Path(__file__).with_name("crashing_app.py")
BATCHES, RECORDS, CRASHED = 6, 20, 77
EXPECTED = Counter(f"{b}:{n}".encode() for b in range(BATCHES) for n in range(RECORDS))

#: Steps after the brokers have confirmed the records of the batch, and before its marker is committed.
SENT = (CommitStep.PRODUCED, CommitStep.BEFORE_COMMIT)

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


def records_of(batch: int, out: str) -> list[OutRecord]:
    return [OutRecord(out, b"%d" % n, b"%d:%d" % (batch, n)) for n in range(RECORDS)]


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


@pytest.mark.parametrize("step", list(CommitStep))
def test_a_crash_loses_nothing_and_repeats_the_batch_whose_marker_is_missing(
    step: CommitStep, start: Start, kafka: KafkaSettings, topics: Topics
) -> None:
    assert run(start(step, protection="at-least-once")) == CRASHED
    assert run(start(protection="at-least-once")) == 0
    twice = Counter(f"2:{n}".encode() for n in range(RECORDS)) if step in SENT else Counter()
    assert values(read_topic(kafka, topics.out)) == EXPECTED + twice


def test_a_marker_before_the_records_are_confirmed_loses_them(
    start: Start, kafka: KafkaSettings, topics: Topics
) -> None:
    assert run(start(CommitStep.COMMITTED, protection="unconfirmed")) == CRASHED
    assert run(start(protection="at-least-once")) == 0
    lost = EXPECTED - values(read_topic(kafka, topics.out))
    assert {value.partition(b":")[0] for value in lost} == {b"0", b"1", b"2"}


def test_a_writer_that_is_killed_again_and_again_loses_nothing(
    start: Start, kafka: KafkaSettings, topics: Topics
) -> None:
    moments = random.Random(19)
    for _ in range(6):
        with start(pause_ms=60, protection="at-least-once") as process:
            assert process.stdout is not None
            process.stdout.readline()  # it is open
            time.sleep(moments.random() * 0.4)
            process.kill()
    assert run(start(protection="at-least-once")) == 0
    assert set(values(read_topic(kafka, topics.out))) == set(EXPECTED)


def test_records_are_visible_before_their_marker_and_stay_in_order(kafka: KafkaSettings, topics: Topics) -> None:
    seen: dict[CommitStep, int] = {}

    def look(step: CommitStep) -> None:
        if step in (CommitStep.BEGUN, CommitStep.PRODUCED):
            seen[step] = len(read_topic(kafka, topics.out))

    hooks = WriterHooks(on_step=look)
    with AtLeastOnceWriter(kafka, WriterId(topics.app, 1), topics.markers, hooks=hooks) as writer:
        assert writer.open() is None
        receipt = writer.commit(CutId(0, "a"), records_of(0, topics.out))
        assert (receipt.outcome, receipt.records, receipt.attempts) == (CommitOutcome.COMMITTED, RECORDS, 1)
        assert writer.commit(CutId(0, "a"), records_of(0, topics.out)).outcome is CommitOutcome.SKIPPED
    assert seen == {CommitStep.BEGUN: 0, CommitStep.PRODUCED: RECORDS}
    records = read_topic(kafka, topics.out)
    assert records[0].header("batch") == b"0"
    for partition in {record.partition for record in records}:
        own = [int((record.value or b"").split(b":")[1]) for record in records if record.partition == partition]
        assert own == sorted(own)


def test_both_modes_fence_each_other_and_go_on_from_one_marker(kafka: KafkaSettings, topics: Topics) -> None:
    identity = WriterId(topics.app, 1)
    with AtLeastOnceWriter(kafka, identity, topics.markers) as first:
        first.open()
        first.commit(CutId(0, "a"), records_of(0, topics.out))
        with ExactlyOnceWriter(kafka, identity, topics.markers) as second:
            assert second.open() == CutId(0, "a")
            with pytest.raises(Fenced):
                first.commit(CutId(1, "b"), records_of(1, topics.out))
            second.commit(CutId(1, "b"), records_of(1, topics.out))
    with AtLeastOnceWriter(kafka, identity, topics.markers) as third:
        assert third.open() == CutId(1, "b")
    written = values(read_topic(kafka, topics.out))
    assert {count for value, count in written.items() if value.startswith(b"0:")} == {1}
    assert {count for value, count in written.items() if value.startswith(b"1:")} == {2}, "by the fenced one too"


def test_a_record_that_the_topic_rejects_is_an_error_and_no_marker(kafka: KafkaSettings, topics: Topics) -> None:
    delete_topics(kafka, [topics.out])
    ensure_topics(kafka, [TopicSpec(topics.out, 2, config=(("max.message.bytes", "2000"),))])
    large = OutRecord(topics.out, b"k", random.Random(0).randbytes(5_000))
    with AtLeastOnceWriter(kafka, WriterId(topics.app, 1), topics.markers) as writer:
        writer.open()
        with pytest.raises(Permanent, match=r"max\.message\.bytes"):
            writer.commit(CutId(0, "a"), [large])
    with AtLeastOnceWriter(kafka, WriterId(topics.app, 1), topics.markers) as writer:
        assert writer.open() is None
