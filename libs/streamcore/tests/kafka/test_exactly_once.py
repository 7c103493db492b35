"""The guarantees of the exactly-once writer, except for crashes (``test_crashes``)."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from streamcore.cuts.cut_id import CutId
from streamcore.cuts.writer_id import WriterId
from streamcore.errors import ConfigError, CorruptState, Fenced, Permanent, Retryable
from streamcore.kafka.control_topic import ControlLog
from streamcore.kafka.data_clients import Isolation
from streamcore.kafka.delivery import (
    CommitOutcome,
    CommitStep,
    DeliverySettings,
    OutRecord,
    OutRecords,
    WriterHooks,
    record_bytes,
)
from streamcore.kafka.exactly_once import MARKER_EVERY, ExactlyOnceWriter
from streamcore.kafka.markers import Marker, read_marker
from streamcore.kafka.readers import read_topic
from streamcore.kafka.settings import KafkaSettings
from streamcore.kafka.topics import TopicSpec, check_transaction_timeout, delete_topics, describe, ensure_topics
from tests.harness.cut_ids import cut_id
from tests.harness.oracles.committed_records import read_committed

if TYPE_CHECKING:
    from tests.kafka.conftest import NewTopics, Topics, Wire

    from conftest import NewBroker

pytestmark = pytest.mark.kafka
END_TXN = 26
#: For faults on the wire: give up on a call soon, and try again often.
IMPATIENT = DeliverySettings(commit_timeout_ms=1_000, backoff_ms=50, backoff_max_ms=200, recovery_ms=60_000)


def rows(topics: Topics, batch: int, count: int = 10) -> list[OutRecord]:
    return [OutRecord(topics.out, b"k%d" % n, b"%d:%d" % (batch, n), (("n", b"%d" % n),)) for n in range(count)]


def read_written(kafka: KafkaSettings, topics: Topics) -> Counter[bytes]:
    return Counter(r.value or b"" for r in read_topic(kafka, topics.out))


def expected(*batches: int, count: int = 10) -> Counter[bytes]:
    return Counter(b"%d:%d" % (b, n) for b in batches for n in range(count))


def make_writer(kafka: KafkaSettings, topics: Topics, *, epoch: int = 1, **more: object) -> ExactlyOnceWriter:
    return ExactlyOnceWriter(kafka, WriterId(topics.app, epoch), topics.markers, **more)  # type: ignore[arg-type]


def test_a_batch_has_its_headers_and_the_receipt_counts_its_records(kafka: KafkaSettings, topics: Topics) -> None:
    with make_writer(kafka, topics) as writer:
        assert writer.open() is None
        receipt = writer.commit(cut_id(7), rows(topics, 7))
    record = next(r for r in read_committed(kafka, topics.out, 10) if r.value == b"7:3")
    assert record.headers == (("n", b"3"), ("app", topics.app.encode()), ("epoch", b"1"), ("batch", b"7"))
    assert (receipt.outcome, receipt.records, receipt.attempts) == (CommitOutcome.COMMITTED, 10, 1)
    assert receipt.bytes == sum(record_bytes(r) for r in rows(topics, 7))


def test_a_reopened_writer_skips_the_batches_that_it_committed(kafka: KafkaSettings, topics: Topics) -> None:
    with make_writer(kafka, topics) as first:
        first.open()
        first.commit(cut_id(0), rows(topics, 0))
        first.commit(cut_id(1), rows(topics, 1))
    with make_writer(kafka, topics) as second:
        assert second.open() == cut_id(1)
        assert second.commit(cut_id(1), rows(topics, 1)).outcome is CommitOutcome.SKIPPED
        assert second.commit(cut_id(2), rows(topics, 2)).outcome is CommitOutcome.COMMITTED
    assert read_written(kafka, topics) == expected(0, 1, 2)


def test_an_empty_batch_writes_nothing_and_its_replay_is_harmless(kafka: KafkaSettings, topics: Topics) -> None:
    with make_writer(kafka, topics) as writer:
        writer.open()
        writer.commit(cut_id(0), rows(topics, 0))
        assert writer.commit(cut_id(1), []).outcome is CommitOutcome.EMPTY
    with make_writer(kafka, topics) as writer:
        assert writer.open() == cut_id(0), "the marker remains after an empty batch"
        assert writer.commit(cut_id(1), []).outcome is CommitOutcome.EMPTY
        writer.commit(cut_id(2), rows(topics, 2))
    assert read_written(kafka, topics) == expected(0, 2)
    assert [r.value for r in read_committed(kafka, topics.markers, 2)] == [
        Marker(WriterId(topics.app, 1), cut_id(n)).value for n in (0, 2)
    ]


def test_a_zombie_is_fenced_immediately_and_permanently(kafka: KafkaSettings, topics: Topics) -> None:
    with make_writer(kafka, topics) as zombie, make_writer(kafka, topics) as successor:
        zombie.open()
        zombie.commit(cut_id(0), rows(topics, 0))
        assert successor.open() == cut_id(0)
        with pytest.raises(Fenced, match="another process"):
            zombie.commit(cut_id(1), rows(topics, 1))
        with pytest.raises(ConfigError, match="not open"):
            zombie.commit(cut_id(1), rows(topics, 1))
        assert successor.commit(cut_id(1), rows(topics, 1)).attempts == 1
    assert read_written(kafka, topics) == expected(0, 1)


def test_a_zombie_in_the_middle_of_its_transaction_is_fenced_too(kafka: KafkaSettings, topics: Topics) -> None:
    successor = make_writer(kafka, topics)

    def fence_before_commit(step: CommitStep) -> None:
        if step is CommitStep.BEFORE_COMMIT:
            successor.open()

    with make_writer(kafka, topics, hooks=WriterHooks(on_step=fence_before_commit)) as zombie, successor:
        zombie.open()
        with pytest.raises(Fenced):
            zombie.commit(cut_id(0), rows(topics, 0))
        successor.commit(cut_id(0), rows(topics, 0))
    assert read_written(kafka, topics) == expected(0)


def test_a_zombie_with_thousands_of_records_in_flight_is_fenced_and_does_not_fence_back(
    kafka: KafkaSettings, topics: Topics
) -> None:
    """The client then reports a fatal error, whose cause is the fencing."""
    many = [OutRecords(topics.out, [b"k"] * 20_000, [b"%d" % n for n in range(20_000)])]
    with make_writer(kafka, topics) as zombie, make_writer(kafka, topics) as successor:
        zombie.open()
        successor.open()
        successor.commit(cut_id(0), rows(topics, 0))
        with pytest.raises(Fenced, match="another process"):
            zombie.commit(cut_id(1), many)
        assert successor.commit(cut_id(1), rows(topics, 1)).attempts == 1, "no process fenced it"
    assert read_written(kafka, topics) == expected(0, 1)


def test_a_batch_with_the_same_number_and_other_input_fences_the_writer(kafka: KafkaSettings, topics: Topics) -> None:
    with make_writer(kafka, topics) as theirs, make_writer(kafka, topics) as ours:
        theirs.open()
        theirs.commit(cut_id(3, history=1), rows(topics, 3))
        ours.open()
        for mine, shown in ((3, "batch 3 with other input"), (2, "batch 3 with output")):
            with pytest.raises(Fenced, match=f"batch {mine} is to be written, and the marker shows {shown}"):
                ours.commit(cut_id(mine), rows(topics, mine))
    assert read_written(kafka, topics) == expected(3)


def test_a_copy_that_did_not_plan_the_last_batch_does_not_fence_its_writer(
    kafka: KafkaSettings, topics: Topics
) -> None:
    def reject_history(cut: CutId) -> None:
        raise ConfigError(f"{cut} was written by another copy")

    with make_writer(kafka, topics) as owner:
        owner.open()
        owner.commit(cut_id(0), rows(topics, 0))
        wait_until_stable(kafka, topics)
        with (
            make_writer(kafka, topics, hooks=WriterHooks(check_history=reject_history)) as copy,
            pytest.raises(ConfigError, match="batch 0 was written by another copy"),
        ):
            copy.open()
        assert owner.commit(cut_id(1), rows(topics, 1)).attempts == 1, "no process fenced it"
    assert read_written(kafka, topics) == expected(0, 1)


def wait_until_stable(kafka: KafkaSettings, topics: Topics) -> None:
    """Wait until readers see the marker: a broker answers a commit before all partitions have its mark."""
    assert read_committed(kafka, topics.markers, 1)


def test_a_resumed_writer_whose_transaction_was_aborted_does_not_take_the_app_back(
    kafka: KafkaSettings, topics: Topics
) -> None:
    """Its client reports its fencing, which may also be the broker's time-out; the marker shows a batch that this
    writer has not planned."""
    successor = make_writer(kafka, topics)
    short = DeliverySettings(transaction_timeout_ms=2_000, commit_timeout_ms=2_000)

    def suspend(step: CommitStep) -> None:
        if step is CommitStep.BEFORE_COMMIT:
            successor.open()
            successor.commit(cut_id(0, history=1), rows(topics, 0))
            wait_until_stable(kafka, topics)
            time.sleep(2.5)

    hooks = WriterHooks(on_step=suspend)
    with make_writer(kafka, topics, hooks=hooks, delivery=short) as zombie, successor:
        zombie.open()
        with pytest.raises(Fenced, match="batch 0 with other input"):
            zombie.commit(cut_id(0), rows(topics, 7))
    assert read_written(kafka, topics) == expected(0)


def test_after_fifty_empty_batches_a_marker_is_written_without_records(kafka: KafkaSettings, topics: Topics) -> None:
    with make_writer(kafka, topics) as writer:
        writer.open()
        outcomes = {writer.commit(cut_id(batch), []).outcome for batch in range(MARKER_EVERY)}
    assert outcomes == {CommitOutcome.EMPTY}
    with make_writer(kafka, topics) as writer:
        assert writer.open() == cut_id(MARKER_EVERY - 1)
    assert read_written(kafka, topics) == Counter()


def test_the_writer_stops_when_the_broker_lost_a_committed_batch(
    kafka: KafkaSettings, topics: Topics, wire: Wire
) -> None:
    hooks = WriterHooks(still_owner=lambda: wire.lose_requests(END_TXN, 0))
    with make_writer(replace(kafka, bootstrap=wire.bootstrap), topics, delivery=IMPATIENT, hooks=hooks) as writer:
        writer.open()
        writer.commit(cut_id(0), rows(topics, 0))
        delete_topics(kafka, [topics.markers])
        ensure_topics(kafka, [TopicSpec(topics.markers, 1, compacted=True)])
        wire.lose_requests(END_TXN, 1_000)
        with pytest.raises(Permanent, match=r"the marker shows no batch after batch 0 was committed.*lost records"):
            writer.commit(cut_id(1), rows(topics, 1))
    assert read_written(kafka, topics) == expected(0)


def test_a_new_epoch_starts_from_batch_0_and_fences_the_old_one(kafka: KafkaSettings, topics: Topics) -> None:
    with make_writer(kafka, topics) as old, make_writer(kafka, topics, epoch=3) as new:
        old.open()
        old.commit(cut_id(5), rows(topics, 5))
        assert new.open() is None
        assert new.commit(cut_id(0), rows(topics, 0)).outcome is CommitOutcome.COMMITTED
        with pytest.raises(Fenced):
            old.commit(cut_id(6), rows(topics, 6))
    assert read_written(kafka, topics) == expected(5, 0)


def test_an_open_transaction_of_another_writer_does_not_hide_our_marker(kafka: KafkaSettings, topics: Topics) -> None:
    ours, begun, finish = make_writer(kafka, topics), threading.Event(), threading.Event()

    def hold(step: CommitStep) -> None:
        if step is CommitStep.BEFORE_COMMIT:
            time.sleep(0.3)  # its marker is at the broker, before ours
            begun.set()
            finish.wait(30)

    other_id = WriterId(topics.app, 1, "other")
    other = ExactlyOnceWriter(kafka, other_id, topics.markers, hooks=WriterHooks(on_step=hold))
    with ours, other:
        ours.open()
        other.open()
        thread = threading.Thread(target=lambda: other.commit(cut_id(0), rows(topics, 0)))
        thread.start()
        begun.wait(30)
        ours.commit(cut_id(4), rows(topics, 4))
        with pytest.raises(Retryable, match="an open transaction hides"):
            read_marker(kafka, topics.markers, WriterId(topics.app, 1), timeout_ms=1_500)
        finish.set()
        thread.join(30)
        assert read_marker(kafka, topics.markers, WriterId(topics.app, 1), timeout_ms=10_000) == Marker(
            WriterId(topics.app, 1), cut_id(4)
        )


def test_a_marker_far_from_the_end_is_found(kafka: KafkaSettings, topics: Topics) -> None:
    with make_writer(kafka, topics) as writer:
        writer.open()
        writer.commit(cut_id(11), rows(topics, 11))
    with ControlLog(kafka, topics.markers) as noise:
        for n in range(300):
            noise.publish(f"noise-{n}", b"x")
    with make_writer(kafka, topics) as writer:
        assert writer.open() == cut_id(11)


def test_a_marker_in_an_unknown_format_is_rejected(kafka: KafkaSettings, topics: Topics) -> None:
    with ControlLog(kafka, topics.markers) as other:
        other.publish(WriterId(topics.app, 1).key.decode(), b"minus one")
    with make_writer(kafka, topics) as writer, pytest.raises(CorruptState, match="not a batch number and a digest"):
        writer.open()


def test_a_marker_survives_compaction(kafka: KafkaSettings, topics: Topics) -> None:
    delete_topics(kafka, [topics.markers])
    eager = (("segment.ms", "500"), ("min.cleanable.dirty.ratio", "0.01"), ("delete.retention.ms", "0"))
    ensure_topics(kafka, [TopicSpec(topics.markers, 1, compacted=True, config=eager)])
    with make_writer(kafka, topics) as writer:
        writer.open()
        for batch in range(5):
            writer.commit(cut_id(batch), rows(topics, batch))
            time.sleep(0.6)  # a segment each
    deadline = time.monotonic() + 90
    while len(left := read_topic(kafka, topics.markers)) >= 5 and time.monotonic() < deadline:
        time.sleep(1)
    assert len(left) < 5, "the broker did not compact"
    with make_writer(kafka, topics) as writer:
        assert writer.open() == cut_id(4)
        assert writer.commit(cut_id(4), rows(topics, 4)).outcome is CommitOutcome.SKIPPED


def test_a_commit_whose_response_is_lost_is_not_repeated(kafka: KafkaSettings, topics: Topics, wire: Wire) -> None:
    with make_writer(replace(kafka, bootstrap=wire.bootstrap), topics, delivery=IMPATIENT) as writer:
        writer.open()
        wire.lose_answers(END_TXN, 3)  # more often than the client asks again by itself in a second
        receipt = writer.commit(cut_id(0), rows(topics, 0))
    assert receipt.outcome is CommitOutcome.COMMITTED
    assert wire.seen[END_TXN] > 1
    assert read_written(kafka, topics) == expected(0)


def test_a_commit_that_never_reached_the_broker_is_written_again(
    kafka: KafkaSettings, topics: Topics, wire: Wire
) -> None:
    with make_writer(replace(kafka, bootstrap=wire.bootstrap), topics, delivery=IMPATIENT) as writer:
        writer.open()
        wire.lose_requests(END_TXN, 3)
        receipt = writer.commit(cut_id(0), rows(topics, 0))
    assert receipt.outcome is CommitOutcome.COMMITTED
    assert read_written(kafka, topics) == expected(0)


def lose_first_response(wire: Wire) -> WriterHooks:
    """Break the wire before each response to the first commit, until the writer has replaced its producer."""
    commits: list[CommitStep] = []

    def reached(step: CommitStep) -> None:
        if step is CommitStep.BEFORE_COMMIT and not commits:
            commits.append(step)
            wire.lose_answers(END_TXN, 1_000)

    return WriterHooks(on_step=reached, still_owner=lambda: wire.lose_answers(END_TXN, 0))


@pytest.mark.parametrize("protected", [True, False])
def test_only_the_marker_shows_that_a_commit_without_a_response_succeeded(
    protected: bool, kafka: KafkaSettings, topics: Topics, wire: Wire
) -> None:
    class Forgetful(ExactlyOnceWriter):
        def read_marker(self) -> Marker | None:
            return None

    kind = ExactlyOnceWriter if protected else Forgetful
    through = replace(kafka, bootstrap=wire.bootstrap)
    hooks = lose_first_response(wire)
    with kind(through, WriterId(topics.app, 1), topics.markers, delivery=IMPATIENT, hooks=hooks) as writer:
        writer.open()
        receipt = writer.commit(cut_id(0), rows(topics, 0))
    assert receipt.attempts == 2
    assert read_written(kafka, topics) == (expected(0) if protected else expected(0, 0))


def test_an_unavailable_broker_neither_loses_nor_repeats_records_nor_stops_the_writer(
    kafka: KafkaSettings, topics: Topics, wire: Wire
) -> None:
    through = replace(kafka, bootstrap=wire.bootstrap, request_timeout_ms=2_000)
    with make_writer(through, topics, delivery=IMPATIENT) as writer:
        writer.open()
        for batch in range(6):
            if batch in (2, 4):
                wire.cut()
                threading.Timer(5, wire.restore).start()
            assert writer.commit(cut_id(batch), rows(topics, batch)).outcome is CommitOutcome.COMMITTED
    assert read_written(kafka, topics) == expected(*range(6))


@pytest.mark.parametrize("harm", ["killed", "frozen"])
def test_a_broker_fault_in_the_middle_of_a_commit_neither_loses_nor_repeats_records(
    harm: str, new_broker: NewBroker, new_topics: NewTopics
) -> None:
    broker = new_broker()
    kafka = KafkaSettings(broker.start(), request_timeout_ms=3_000)
    topics = new_topics(kafka)
    harmed: list[CommitStep] = []

    def heal() -> None:
        time.sleep(6)
        broker.start() if harm == "killed" else broker.resume()

    healing = threading.Thread(target=heal)

    def reached(step: CommitStep) -> None:
        if step is CommitStep.BEFORE_COMMIT and not harmed:
            harmed.append(step)
            broker.kill() if harm == "killed" else broker.pause()
            healing.start()

    with make_writer(kafka, topics, delivery=IMPATIENT, hooks=WriterHooks(on_step=reached)) as writer:
        writer.open()
        receipts = [writer.commit(cut_id(batch), rows(topics, batch)) for batch in range(3)]
        healing.join()
    assert receipts[0].attempts > 1, "the fault had an effect"
    assert read_written(kafka, topics) == expected(0, 1, 2)


def test_a_broker_that_stays_unavailable_gives_an_error_that_names_it(
    kafka: KafkaSettings, topics: Topics, wire: Wire
) -> None:
    through = replace(kafka, bootstrap=wire.bootstrap, request_timeout_ms=2_000)
    with make_writer(through, topics, delivery=replace(IMPATIENT, recovery_ms=3_000)) as writer:
        writer.open()
        wire.cut()
        with pytest.raises(Retryable, match=rf"batch 0 failed in.*{wire.bootstrap}.*is the broker up"):
            writer.commit(cut_id(0), rows(topics, 0))
        wire.restore()
        assert writer.open() is None, "the same writer may be opened again"
        assert writer.commit(cut_id(0), rows(topics, 0)).outcome is CommitOutcome.COMMITTED
    assert read_written(kafka, topics) == expected(0)


def test_the_writer_checks_its_ownership_before_it_fences_again(
    kafka: KafkaSettings, topics: Topics, wire: Wire
) -> None:
    def raise_fenced() -> None:
        raise Fenced("the lease was lost")

    through = replace(kafka, bootstrap=wire.bootstrap, request_timeout_ms=2_000)
    with make_writer(through, topics, delivery=IMPATIENT, hooks=WriterHooks(still_owner=raise_fenced)) as writer:
        writer.open()
        wire.cut()
        with pytest.raises(Fenced, match="the lease was lost"):
            writer.commit(cut_id(0), rows(topics, 0))


def test_a_writer_that_lost_the_app_while_it_fenced_again_writes_nothing(
    kafka: KafkaSettings, topics: Topics, wire: Wire
) -> None:
    """A later epoch began meanwhile, fenced us and read our marker; then our fencing went through."""
    fenced: list[CommitStep] = []

    def raise_fenced() -> None:
        wire.lose_requests(END_TXN, 0)
        if len(fenced) > 1:
            raise Fenced("epoch 2 has begun")

    def reached(step: CommitStep) -> None:
        if step is CommitStep.FENCED:
            fenced.append(step)

    through, hooks = replace(kafka, bootstrap=wire.bootstrap), WriterHooks(still_owner=raise_fenced, on_step=reached)
    with make_writer(through, topics, delivery=IMPATIENT, hooks=hooks) as writer:
        writer.open()
        wire.lose_requests(END_TXN, 1_000)
        with pytest.raises(Fenced, match="epoch 2 has begun"):
            writer.commit(cut_id(0), rows(topics, 0))
    assert read_written(kafka, topics) == expected()


def test_a_transaction_that_timed_out_is_written_again(kafka: KafkaSettings, topics: Topics) -> None:
    slept: list[CommitStep] = []

    def sleep_before_commit(step: CommitStep) -> None:
        if step is CommitStep.BEFORE_COMMIT and not slept:
            slept.append(step)
            time.sleep(13)  # the broker looks for transactions to abort every ten seconds

    delivery = DeliverySettings(transaction_timeout_ms=2_000)
    with make_writer(kafka, topics, delivery=delivery, hooks=WriterHooks(on_step=sleep_before_commit)) as writer:
        writer.open()
        receipt = writer.commit(cut_id(0), rows(topics, 0))
    assert receipt.attempts == 2
    assert read_written(kafka, topics) == expected(0)


def test_a_record_above_the_limit_is_replaced_in_the_same_transaction(kafka: KafkaSettings, topics: Topics) -> None:
    def shorten(record: OutRecord, limit_bytes: int) -> OutRecord | None:
        return replace(record, value=(record.value or b"")[:4]) if record.key == b"big" else None

    big = OutRecord(topics.out, b"big", b"x" * 2_000)
    dropped = OutRecord(topics.out, b"hopeless", b"y" * 2_000)
    delivery = DeliverySettings(max_record_bytes=1_000)
    with make_writer(kafka, topics, delivery=delivery, hooks=WriterHooks(replace_oversized=shorten)) as writer:
        writer.open()
        receipt = writer.commit(cut_id(0), [*rows(topics, 0, 3), big, dropped])
    assert (receipt.records, receipt.oversized) == (4, 2)
    assert read_written(kafka, topics) == expected(0, count=3) + Counter([b"xxxx"])


def test_a_batch_of_records_is_written_like_single_records(kafka: KafkaSettings, topics: Topics) -> None:
    def shorten(record: OutRecord, limit_bytes: int) -> OutRecord | None:
        return replace(record, value=(record.value or b"")[:4])

    keys, values = [b"a", None, b"", b"a", b"a"], [b"1", None, b"2", b"x" * 2_000, b"3"]
    many = OutRecords(topics.out, keys, values)
    few = OutRecords(topics.out, keys[:3], values[:3])
    delivery = DeliverySettings(max_record_bytes=1_000)
    with make_writer(kafka, topics, delivery=delivery, hooks=WriterHooks(replace_oversized=shorten)) as writer:
        writer.open()
        receipt = writer.commit(cut_id(0), [few, *rows(topics, 0, 2), OutRecords(topics.out, [], []), many])
    one_by_one = [*few, *rows(topics, 0, 2), *(shorten(r, 0) if r.value == values[3] else r for r in many)]
    assert (receipt.records, receipt.oversized) == (10, 1)
    assert receipt.bytes == sum(record_bytes(record) for record in one_by_one if record is not None)
    found = read_committed(kafka, topics.out, 10)
    common = (("app", topics.app.encode()), ("epoch", b"1"), ("batch", b"0"))
    assert Counter((r.key, r.value) for r in found) == Counter((r.key, r.value) for r in one_by_one if r is not None)
    assert all(r.headers[-3:] == common for r in found)
    assert [r.value for r in found if r.key == b"a"] == [b"1", b"1", b"xxxx", b"3"], "a key's records stay in order"


def test_a_batch_of_records_waits_for_a_full_queue(kafka: KafkaSettings, topics: Topics) -> None:
    with make_writer(kafka, topics, delivery=DeliverySettings(queue_records=50)) as writer:
        writer.open()
        values = [b"0:%d" % n for n in range(1_000)]
        assert writer.commit(cut_id(0), [OutRecords(topics.out, [None] * 1_000, values)]).records == 1_000
    assert read_written(kafka, topics) == expected(0, count=1_000)


def test_one_rejected_record_fails_the_whole_batch_of_records(kafka: KafkaSettings, topics: Topics) -> None:
    delete_topics(kafka, [topics.out])
    ensure_topics(kafka, [TopicSpec(topics.out, 2, config=(("max.message.bytes", "2000"),))])
    noise = random.Random(1).randbytes(5_000)  # nothing to compress
    values = [b"%d" % n for n in range(25_000)]
    with make_writer(kafka, topics) as writer:
        writer.open()
        with pytest.raises(Permanent, match=rf"topic {topics.out}.*max.message.bytes"):
            writer.commit(cut_id(0), [OutRecords(topics.out, [None] * 25_001, [noise, *values])])
    assert not read_written(kafka, topics)


def test_without_a_replacement_a_record_above_the_limit_stops_the_writer(kafka: KafkaSettings, topics: Topics) -> None:
    with make_writer(kafka, topics) as writer:
        writer.open()
        with pytest.raises(Permanent, match=rf"topic {topics.out}: a record of 1000001 bytes, limit 1000000"):
            writer.commit(cut_id(0), [OutRecord(topics.out, None, b"x" * 1_000_001)])
        assert writer.commit(cut_id(0), rows(topics, 0)).outcome is CommitOutcome.COMMITTED, "nothing had begun"


@pytest.mark.parametrize("at_most", [999, 1_000])
def test_a_record_of_exactly_the_limit_is_written(at_most: int, kafka: KafkaSettings, topics: Topics) -> None:
    delivery = DeliverySettings(max_record_bytes=1_000)
    headers = tuple((f"h{n}", b"12345678") for n in range(10))  # 100 bytes
    with make_writer(kafka, topics, delivery=delivery) as writer:
        writer.open()
        receipt = writer.commit(cut_id(0), [OutRecord(topics.out, b"k" * 100, b"v" * (at_most - 200), headers)])
    assert (receipt.bytes, receipt.oversized) == (at_most, 0)


def test_the_error_names_a_topic_with_a_smaller_record_limit(kafka: KafkaSettings, topics: Topics) -> None:
    delete_topics(kafka, [topics.out])
    ensure_topics(kafka, [TopicSpec(topics.out, 2, config=(("max.message.bytes", "2000"),))])
    assert describe(kafka, [topics.out])[topics.out].max_message_bytes == 2_000
    noise = random.Random(1).randbytes(5_000)  # nothing to compress
    with make_writer(kafka, topics) as writer:
        writer.open()
        with pytest.raises(Permanent, match=rf"topic {topics.out}.*max.message.bytes"):
            writer.commit(cut_id(0), [OutRecord(topics.out, b"k", noise)])


def test_the_writer_waits_for_a_full_queue(kafka: KafkaSettings, topics: Topics) -> None:
    with make_writer(kafka, topics, delivery=DeliverySettings(queue_records=50)) as writer:
        writer.open()
        assert writer.commit(cut_id(0), rows(topics, 0, 1_000)).records == 1_000
    assert read_written(kafka, topics) == expected(0, count=1_000)


def test_an_aborted_transaction_is_never_seen_and_leaves_no_marker(kafka: KafkaSettings, topics: Topics) -> None:
    def stop(step: CommitStep) -> None:
        if step is CommitStep.BEFORE_COMMIT:
            time.sleep(0.2)
            raise KeyboardInterrupt

    with make_writer(kafka, topics, hooks=WriterHooks(on_step=stop)) as writer:
        writer.open()
        with pytest.raises(KeyboardInterrupt):
            writer.commit(cut_id(0), rows(topics, 0))
    assert read_topic(kafka, topics.out) == read_topic(kafka, topics.markers) == []
    assert len(read_topic(kafka, topics.out, isolation=Isolation.UNCOMMITTED)) == 10


def test_the_error_names_missing_topics(kafka: KafkaSettings, topics: Topics) -> None:
    absent = ExactlyOnceWriter(kafka, WriterId(topics.app, 1), f"{topics.app}.absent")
    with absent, pytest.raises(ConfigError, match=rf"{topics.app}.absent.*create the topic"):
        absent.open()


def test_a_transaction_time_out_above_that_of_the_broker_is_rejected_with_the_remedy(
    kafka: KafkaSettings, topics: Topics
) -> None:
    check_transaction_timeout(kafka, 60_000)
    with pytest.raises(ConfigError, match=r"set transaction.max.timeout.ms=90000000 .* or lower"):
        check_transaction_timeout(kafka, 90_000_000)
    writer = make_writer(kafka, topics, delivery=DeliverySettings(transaction_timeout_ms=90_000_000))
    with writer, pytest.raises(ConfigError, match="transaction"):
        writer.open()


@pytest.mark.parametrize(("app", "writer", "epoch"), [("a.b", "driver", 1), ("a", "x|y", 1), ("a", "w", 0)])
def test_names_that_could_collide_with_another_writer_are_rejected(app: str, writer: str, epoch: int) -> None:
    with pytest.raises(ConfigError):
        WriterId(app, epoch, writer)
