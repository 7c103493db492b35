"""A transaction whose markers the broker has lost is ended as the coordinator recorded it: nothing is lost or twice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import kafka as kafka_python
import pytest

from headgate.local.java import Java
from headgate.local.servers.base import Lifetime
from headgate.local.servers.kafka import BrokerSettings, EmbeddedBroker
from streamcore.app import App, Source
from streamcore.cuts.writer_id import WriterId
from streamcore.errors import ConfigError
from streamcore.kafka import exactly_once
from streamcore.kafka.delivery import CommitStep, DeliverySettings, OutRecord, WriterHooks
from streamcore.kafka.exactly_once import ExactlyOnceWriter
from streamcore.kafka.hanging_transactions import end_hanging_transactions
from streamcore.kafka.markers import read_marker
from streamcore.kafka.readers import read_topic
from streamcore.kafka.settings import KafkaSettings
from streamcore.kafka.transactional_producer import TransactionalProducer
from streamcore.kernel import Kernel
from streamcore.schema import StreamSchema
from streamcore.spark.runner import Runner, RunSettings
from streamcore.spark.runtime import Runtime
from streamcore.spark.session import SparkSettings
from tests.harness.cut_ids import cut_id
from tests.harness.faults.hanging_transaction import LENIENT, make_hanging_transaction
from tests.harness.servers import processes

if TYPE_CHECKING:
    from tests.kafka.conftest import NewTopics, Topics

    from conftest import NewBroker

pytestmark = [pytest.mark.kafka, pytest.mark.slow]
RECORDS = 8
SCHEMA = StreamSchema.parse({"name": "s", "event_time": "ts", "keys": [[]], "fields": {"ts": "timestamp not null"}})
#: A reader gives up soon on records that an open transaction hides.
IMPATIENT = DeliverySettings(transaction_timeout_ms=2_000, backoff_ms=50, recovery_ms=1)


def records(topics: Topics, batch: int) -> list[OutRecord]:
    return [OutRecord(topics.out, b"k%d" % n, b"%d:%d" % (batch, n)) for n in range(RECORDS)]


def expected(*batches: int) -> Counter[bytes]:
    return Counter(b"%d:%d" % (batch, n) for batch in batches for n in range(RECORDS))


def read_values(kafka: KafkaSettings, topics: Topics) -> Counter[bytes]:
    return Counter(record.value or b"" for record in read_topic(kafka, topics.out))


def check_visible(kafka: KafkaSettings, topics: Topics, *batches: int) -> None:
    """The committed records are those of the batches. The broker writes transaction markers after it has answered."""
    processes.wait_until(lambda: read_values(kafka, topics) == expected(*batches), "the records of the batches", 20)


def open_writer(
    kafka: KafkaSettings,
    topics: Topics,
    hooks: WriterHooks | None = None,
    delivery: DeliverySettings | None = None,
    *,
    epoch: int = 1,
) -> ExactlyOnceWriter:
    name = WriterId(topics.app, epoch)
    return ExactlyOnceWriter(kafka, name, topics.markers, delivery=delivery, hooks=hooks, topics=[topics.out])


def leave_hanging(kafka: KafkaSettings, topics: Topics, batch: int, *, commit: bool, epoch: int = 1) -> None:
    """Let a writer write the batch in a transaction that hangs."""
    writer, contents = WriterId(topics.app, epoch), records(topics, batch)
    make_hanging_transaction(kafka, writer, topics.markers, cut_id(batch), contents, commit=commit)


@pytest.fixture(name="lenient", scope="module")
def _lenient(tmp_path_factory: pytest.TempPathFactory, java: Java) -> Iterator[KafkaSettings]:
    settings = BrokerSettings(
        tmp_path_factory.mktemp("lenient"),
        0,
        lifetime=Lifetime.WITH_PARENT,
        short_lived=True,
        extra=tuple(LENIENT.items()),
    )
    broker = EmbeddedBroker(settings, java)
    try:
        yield KafkaSettings(broker.start(), request_timeout_ms=5_000)
    finally:
        broker.kill()


def test_a_hanging_transaction_ends_as_the_coordinator_recorded_it(
    lenient: KafkaSettings, new_topics: NewTopics, monkeypatch: pytest.MonkeyPatch
) -> None:
    committed, aborted = new_topics(lenient), new_topics(lenient)
    for topics in (committed, aborted):
        with open_writer(lenient, topics) as writer:
            writer.open()
            writer.commit(cut_id(0), records(topics, 0))
        leave_hanging(lenient, topics, 1, commit=topics is committed)
        check_visible(lenient, topics, 0)  # the records of batch 1 are hidden

    with open_writer(lenient, committed) as writer:
        assert writer.open() == cut_id(1)
        check_visible(lenient, committed, 0, 1)
        writer.commit(cut_id(2), records(committed, 2))
    check_visible(lenient, committed, 0, 1, 2)

    with open_writer(lenient, aborted) as writer:
        assert writer.open() == cut_id(0)
        writer.commit(cut_id(1), records(aborted, 1))
    check_visible(lenient, aborted, 0, 1)

    unprotected = new_topics(lenient)
    leave_hanging(lenient, unprotected, 1, commit=True)
    with monkeypatch.context() as patch:
        patch.setattr(exactly_once, "end_hanging_transactions", lambda *_: [])
        with (
            open_writer(lenient, unprotected, delivery=IMPATIENT) as writer,
            pytest.raises(Exception, match="open transaction"),
        ):
            writer.open()


@pytest.mark.parametrize("protected", [True, False])
def test_hanging_transactions_of_earlier_epochs_end_before_the_first_batch_after_a_restore(
    lenient: KafkaSettings, new_topics: NewTopics, monkeypatch: pytest.MonkeyPatch, protected: bool
) -> None:
    topics = new_topics(lenient)
    for epoch in (1, 2):
        with open_writer(lenient, topics, epoch=epoch) as writer:
            writer.open()
    leave_hanging(lenient, topics, 1, commit=True, epoch=1)
    leave_hanging(lenient, topics, 2, commit=False, epoch=2)
    if not protected:
        monkeypatch.setattr(ExactlyOnceWriter, "_past_writers", lambda _: [])
        with (
            open_writer(lenient, topics, delivery=IMPATIENT, epoch=4) as writer,
            pytest.raises(Exception, match="open transaction"),
        ):
            writer.open()
        return
    with open_writer(lenient, topics, epoch=4) as writer:
        assert writer.open() is None
        writer.commit(cut_id(0), records(topics, 0))
    check_visible(lenient, topics, 0, 1)
    markers = [read_marker(lenient, topics.markers, WriterId(topics.app, epoch), 5_000) for epoch in (1, 2, 4)]
    assert [marker and marker.cut.batch for marker in markers] == [1, None, 0]


def test_a_transaction_whose_abort_at_the_next_start_was_lost_is_aborted(
    lenient: KafkaSettings, new_topics: NewTopics
) -> None:
    topics = new_topics(lenient)
    leave_hanging(lenient, topics, 0, commit=False)
    writer = WriterId(topics.app, 1)
    TransactionalProducer.fence(lenient, writer, DeliverySettings()).end()  # the coordinator forgets the outcome
    check_visible(lenient, topics)
    every, delivery = [topics.markers, topics.out], DeliverySettings()
    assert end_hanging_transactions(lenient, [writer], every, delivery) == [writer]
    assert end_hanging_transactions(lenient, [writer], every, delivery) == []
    with open_writer(lenient, topics) as again:
        assert again.open() is None
        again.commit(cut_id(0), records(topics, 0))
    check_visible(lenient, topics, 0)


def test_a_transaction_in_the_lanes_alone_is_found(lenient: KafkaSettings, new_topics: NewTopics) -> None:
    topics, other = new_topics(lenient), new_topics(lenient)
    elsewhere = replace(topics, markers=other.markers)
    leave_hanging(lenient, elsewhere, 0, commit=False)
    with open_writer(lenient, topics) as writer:
        writer.open()
        writer.commit(cut_id(0), records(topics, 0))
    check_visible(lenient, topics, 0)


def no_kernel() -> Kernel:
    """The app ends before it needs a kernel."""
    raise AssertionError


def start_without_session(
    kafka: KafkaSettings, topics: Topics, inputs: Topics, checkpoint: Path, lanes: Mapping[str, str]
) -> None:
    """Start a process of the app with these lanes, up to the point at which it needs Spark's session."""
    app = App(topics.app, (Source(SCHEMA, inputs.out),), inputs.markers, lanes, (no_kernel,), shards=1)
    spark = SparkSettings(jars=None)
    runtime = Runtime(app.name, None, spark)
    runtime._session.set_exception(ConfigError("no session"))
    runtime.acquire(checkpoint)
    try:
        with pytest.raises(ConfigError, match="no session"):
            Runner(app, RunSettings(kafka, checkpoint, spark, topics.markers), runtime).run()
    finally:
        runtime.release()


def test_a_transaction_in_a_lane_that_the_app_no_longer_has_is_ended(
    lenient: KafkaSettings, new_topics: NewTopics, tmp_path: Path
) -> None:
    topics, inputs = new_topics(lenient), new_topics(lenient)
    start_without_session(lenient, topics, inputs, tmp_path, {"dropped": topics.out, "deleted": f"{topics.app}.gone"})
    leave_hanging(lenient, topics, 0, commit=False)
    start_without_session(lenient, topics, inputs, tmp_path, {})
    neighbour = WriterId(f"{topics.app}-neighbour", 1)
    with ExactlyOnceWriter(lenient, neighbour, inputs.markers) as writer:
        writer.open()
        writer.commit(cut_id(0), records(topics, 1))
    check_visible(lenient, topics, 1)


def test_a_writer_without_the_right_to_read_the_topics_ends_its_hanging_transaction(
    lenient: KafkaSettings, new_topics: NewTopics, monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(*_: object) -> None:
        raise kafka_python.errors.TopicAuthorizationFailedError

    topics = new_topics(lenient)
    leave_hanging(lenient, topics, 0, commit=True)
    monkeypatch.setattr(kafka_python.KafkaAdminClient, "describe_producers", denied)
    with open_writer(lenient, topics) as writer:
        assert writer.open() == cut_id(0)
    check_visible(lenient, topics, 0)


def test_the_transaction_of_a_living_owner_does_not_hang(kafka: KafkaSettings, topics: Topics) -> None:
    """Between batches or with an open transaction, of this epoch or a newer one; and a neighbour shares the lane."""
    delivery, every = DeliverySettings(), [topics.markers, topics.out]
    ours, newer = WriterId(topics.app, 1), WriterId(topics.app, 2)
    writers = [ours, newer, WriterId(topics.app, 2, "other")]
    assert end_hanging_transactions(kafka, writers, every, delivery) == []
    with open_writer(kafka, topics) as writer:
        writer.open()
        writer.commit(cut_id(0), records(topics, 0))
    neighbour = TransactionalProducer.fence(kafka, WriterId(f"{topics.app}-neighbour", 1), delivery)
    neighbour.producer.begin_transaction()
    neighbour.produce(records(topics, 9), [])
    neighbour.producer.flush()
    with open_writer(kafka, topics, epoch=2) as writer:
        writer.open()
        writer.commit(cut_id(0), records(topics, 1))
        found = [end_hanging_transactions(kafka, writers, every, delivery)]  # only the neighbour hides records

        def look(step: CommitStep) -> None:
            if step is CommitStep.BEFORE_COMMIT:
                writer._producer.producer.flush()  # type: ignore[union-attr]
                found.append(end_hanging_transactions(kafka, writers, every, delivery))

        writer._hooks = WriterHooks(on_step=look)
        writer.commit(cut_id(1), records(topics, 2))
        writer._hooks = WriterHooks()
        writer.commit(cut_id(2), records(topics, 3))
    neighbour.producer.commit_transaction()
    neighbour.end()
    assert found == [[], []]
    check_visible(kafka, topics, 0, 1, 2, 3, 9)


def test_a_writer_looks_for_a_hanging_transaction_after_all_brokers_were_away(
    new_broker: NewBroker, new_topics: NewTopics
) -> None:
    broker = new_broker()
    kafka = KafkaSettings(broker.start())
    topics, steps = new_topics(kafka), list[CommitStep]()
    with open_writer(kafka, topics, WriterHooks(on_step=steps.append)) as writer:
        writer.open()
        writer.commit(cut_id(0), records(topics, 0))
        broker.kill()
        broker.start()
        writer.commit(cut_id(1), records(topics, 1))
        writer.commit(cut_id(2), records(topics, 2))
    assert steps.count(CommitStep.FENCED) == 2
    assert steps.count(CommitStep.COMMITTED) == 3
    check_visible(kafka, topics, 0, 1, 2)
