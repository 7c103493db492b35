"""Ranges of the partitions of a real broker: each record once, in order, whatever was read before."""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING

import confluent_kafka as ck
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from confluent_kafka import admin
from kafka import KafkaProducer

from streamcore.errors import ConfigError, Permanent, Retryable
from streamcore.kafka import data_clients as clients
from streamcore.kafka.control_keys import ControlKeyReader
from streamcore.kafka.partition_offsets import KafkaPartitionOffsets
from streamcore.kafka.range_reader import RangeReader
from streamcore.kafka.readers import scan_topic
from streamcore.kafka.settings import KafkaSettings
from streamcore.offsets import OffsetRange
from streamcore.wire.raw import header_columns

if TYPE_CHECKING:
    from tests.kafka.conftest import Wire

    from conftest import NewTopic

pytestmark = pytest.mark.kafka

Row = tuple[int, int, bytes | None, bytes | None]


def write(kafka: KafkaSettings, topic: str, count: int, partitions: int = 1, first: int = 0) -> None:
    """Write ``count`` records to each partition: key ``k<n>``, value ``<partition>:<n>``."""
    producer = clients.producer(kafka)
    for n in range(first, first + count):
        for partition in range(partitions):
            producer.produce(topic, b"%d:%d" % (partition, n), b"k%d" % n, partition)
    assert producer.flush(30) == 0


def rows(batches: Iterable[pa.RecordBatch]) -> list[Row]:
    """Return (partition, offset, key, value) of all records in order of arrival."""
    names = ("partition", "offset", "key", "value")
    return [row for b in batches for row in zip(*(b.column(n).to_pylist() for n in names), strict=True)]


def expected(partition: int, start: int, end: int) -> list[Row]:
    return [(partition, n, b"k%d" % n, b"%d:%d" % (partition, n)) for n in range(start, end)]


@pytest.fixture
def reader(kafka: KafkaSettings) -> Iterator[RangeReader]:
    with closing(RangeReader(kafka)) as one:
        yield one


def test_the_reader_returns_the_timestamps_of_the_broker_on_request(
    kafka: KafkaSettings, new_topic: NewTopic, reader: RangeReader
) -> None:
    topic = new_topic()
    producer = clients.producer(kafka)
    for ms in (1_700_000_000_123, 1_700_000_000_001):
        producer.produce(topic, b"v", timestamp=ms)
    assert producer.flush(30) == 0
    spans = [OffsetRange(0, topic, 0, 0, 2)]
    (batch,) = reader.read(spans, timestamps=True)
    assert batch.column("timestamp_ms").to_pylist() == [1_700_000_000_123, 1_700_000_000_001]
    (silent,) = reader.read(spans)
    assert silent.column("timestamp_ms").to_pylist() == [1_700_000_000_123, None]


def test_the_reader_returns_the_headers_that_are_named(
    kafka: KafkaSettings, new_topic: NewTopic, reader: RangeReader
) -> None:
    topic = new_topic()
    producer = clients.producer(kafka)
    producer.produce(topic, b"v", headers=[("kind", b"a"), ("other", b"x"), ("kind", b"b"), ("none", None)])
    producer.produce(topic, b"v")
    assert producer.flush(30) == 0
    (batch,) = reader.read([OffsetRange(0, topic, 0, 0, 2)], headers=("kind", "none"))
    columns = {name: column.to_pylist() for name, column in header_columns(batch).items()}
    assert columns == {"kind": [b"b", None], "none": [None, None]}, "of two with one name the last one counts"


def test_keys_of_control_records_say_what_they_are_about(kafka: KafkaSettings, new_topic: NewTopic) -> None:
    topic, producer = new_topic(), clients.producer(kafka)
    for key in (b"list/a", b"part/b", b"rule", b"list/a", None, b"list/c"):
        producer.produce(topic, b"v", key)
    assert producer.flush(30) == 0
    reader, data = ControlKeyReader(kafka), (b"list/", b"part/")
    found = {
        (start, end): reader.all_begin_with(data, [OffsetRange(-1, topic, 0, start, end)])
        for start, end in ((0, 2), (1, 3), (3, 4), (3, 5), (5, 6), (0, 6))
    }
    assert [span for span, is_data in found.items() if is_data] == [(0, 2), (3, 4), (5, 6)]
    assert not reader.all_begin_with((), [OffsetRange(-1, topic, 0, 0, 1)])
    assert not reader.all_begin_with(data, [OffsetRange(-1, topic, 0, 0, 5_000)]), "so many are not read twice"
    assert reader.all_begin_with(data, [])


class RawName(str):
    """A header's name whose bytes are not its text: other clients write what they like."""

    raw: bytes

    def encode(self, *_: object) -> bytes:
        return self.raw


def raw_name(raw: bytes) -> RawName:
    name = RawName("name")
    name.raw = raw
    return name


def test_a_header_whose_name_is_no_utf8_stops_nothing(
    kafka: KafkaSettings, new_topic: NewTopic, reader: RangeReader
) -> None:
    topic = new_topic()
    names = [b"\xff\xfe", b"\xed\xa0\x80", b"", b"x" * 4_000] * 100
    with closing(KafkaProducer(bootstrap_servers=kafka.bootstrap)) as producer:
        for name in names:
            producer.send(topic, b"v", headers=[("kind", b"a"), (raw_name(name), b"y"), ("other", b"\xff")])
        producer.flush(30)
    (batch,) = reader.read([OffsetRange(0, topic, 0, 0, len(names))], headers=("kind", "other"))
    columns = {name: column.to_pylist() for name, column in header_columns(batch).items()}
    assert columns["other"] == [b"\xff"] * len(names)
    assert columns["kind"] == [b"a"] * len(names)
    scanned = scan_topic(kafka, topic)
    assert [len(record.headers) for record in scanned] == [2, 2, 3, 3] * 100, "the first two names are no UTF-8"


def test_ranges_are_read_with_keys_values_and_source(
    kafka: KafkaSettings, new_topic: NewTopic, reader: RangeReader
) -> None:
    topic = new_topic(partitions=2)
    write(kafka, topic, 500, 2)
    (batch,) = reader.read([OffsetRange(7, topic, 0, 100, 250), OffsetRange(7, topic, 1, 0, 3)])
    assert set(batch.column("source").to_pylist()) == {7}
    assert sorted(rows([batch])) == expected(0, 100, 250) + expected(1, 0, 3)


def test_readers_that_take_turns_in_any_order_read_exactly_their_ranges(
    kafka: KafkaSettings, new_topic: NewTopic
) -> None:
    """Cuts of random lengths, shared out at random: a partition changes its reader, pauses, and is read again."""
    topics, chance = [new_topic(partitions=3), new_topic()], random.Random(5)
    for topic, partitions in zip(topics, (3, 1), strict=True):
        write(kafka, topic, 20_000, partitions)
    places = [(topics[0], 0), (topics[0], 1), (topics[0], 2), (topics[1], 0)]
    done = dict.fromkeys(places, 0)
    readers = [RangeReader(kafka) for _ in range(2)]
    again = 0
    while any(end < 20_000 for end in done.values()):
        cut = [
            OffsetRange(topics.index(t), t, p, start, min(20_000, start + chance.choice([1, 10, 3_000, 7_000])))
            for (t, p), start in done.items()
            if start < 20_000 and chance.random() < 0.8
        ]
        chance.shuffle(cut)
        split = chance.randrange(len(cut) + 1)
        for one, share in zip(readers, (cut[:split], cut[split:]), strict=True):
            wanted = [row for s in share for row in add_source(s.source, expected(s.partition, s.start, s.end))]
            found = [row for b in one.read(share) for n in (0, 1) for row in add_source(n, rows([filter_source(b, n)]))]
            assert sorted(found) == sorted(wanted)
        if chance.random() < 0.7:
            done |= {(s.topic, s.partition): s.end for s in cut}
        else:
            again += 1
    assert again, "a cut was read again"
    for one in readers:
        one.close()


def add_source(source: int, found: list[Row]) -> list[tuple[int, Row]]:
    return [(source, row) for row in found]


def filter_source(batch: pa.RecordBatch, source: int) -> pa.RecordBatch:
    return batch.filter(pc.equal(batch.column("source"), source))


def test_a_range_whose_reading_was_abandoned_can_be_read_again(
    kafka: KafkaSettings, new_topic: NewTopic, reader: RangeReader
) -> None:
    topic = new_topic()
    write(kafka, topic, 50_000)
    span = OffsetRange(0, topic, 0, 10, 45_000)
    early = reader.read([span])
    assert rows([next(early)])[0] == expected(0, 10, 11)[0]
    early.close()
    assert rows(reader.read([span])) == expected(0, 10, 45_000)
    assert rows(reader.read([OffsetRange(0, topic, 0, 45_000, 50_000)])) == expected(0, 45_000, 50_000)


def test_offsets_without_records_are_skipped(kafka: KafkaSettings, new_topic: NewTopic, reader: RangeReader) -> None:
    """Transactions, some of them aborted, each with a marker behind it; the last offsets of a span hold none."""
    topic = new_topic()
    producer = ck.Producer(kafka.librdkafka() | {"transactional.id": topic})
    producer.init_transactions(30)
    kept = []
    for number in range(6):
        producer.begin_transaction()
        for n in range(3):
            producer.produce(topic, b"%d.%d" % (number, n), partition=0)
        if number % 2:
            assert producer.flush(30) == 0
            producer.abort_transaction(30)
        else:
            producer.commit_transaction(30)
            kept += [b"%d.%d" % (number, n) for n in range(3)]
    end = KafkaPartitionOffsets(kafka, [topic]).latest()[topic, 0]
    assert end == 24
    assert [value for *_, value in rows(reader.read([OffsetRange(0, topic, 0, 0, end)]))] == kept
    values = []
    for start in range(end):  # offset by offset, over markers and aborted records
        values += [value for *_, value in rows(reader.read([OffsetRange(0, topic, 0, start, start + 1)]))]
    assert values == kept


def test_deleted_records_are_an_error_and_not_a_gap(
    kafka: KafkaSettings, new_topic: NewTopic, reader: RangeReader
) -> None:
    topic = new_topic()
    write(kafka, topic, 100)
    client = admin.AdminClient(kafka.librdkafka())
    for future in client.delete_records([ck.TopicPartition(topic, 0, 60)]).values():
        future.result(30)
    with pytest.raises(Permanent, match=f"topic {topic}, partition 0: offset 50 does not exist"):
        rows(reader.read([OffsetRange(0, topic, 0, 50, 100)]))
    assert rows(reader.read([OffsetRange(0, topic, 0, 60, 100)])) == expected(0, 60, 100)


def test_the_reader_waits_for_an_unavailable_broker_and_then_names_it(
    kafka: KafkaSettings, wire: Wire, new_topic: NewTopic
) -> None:
    topic = new_topic()
    write(kafka, topic, 10)
    slow = replace(kafka, bootstrap=wire.bootstrap, request_timeout_ms=1_500)
    with closing(RangeReader(slow)) as reader:
        assert len(rows(reader.read([OffsetRange(0, topic, 0, 0, 5)]))) == 5
        wire.cut()
        write(kafka, topic, 10, first=10)
        with pytest.raises(Retryable, match="no record arrived for 1500 ms"):
            rows(reader.read([OffsetRange(0, topic, 0, 5, 20)]))
        wire.restore()
        assert rows(reader.read([OffsetRange(0, topic, 0, 5, 20)])) == expected(0, 5, 20)


def test_the_latest_offsets_are_those_of_committed_records_and_include_new_partitions(
    kafka: KafkaSettings, new_topic: NewTopic
) -> None:
    topics = [new_topic(partitions=2), new_topic()]
    write(kafka, topics[0], 4, 2)
    ends = KafkaPartitionOffsets(kafka, topics, partition_discovery_interval_ms=0)
    wanted = {(topics[0], 0): 4, (topics[0], 1): 4, (topics[1], 0): 0}
    assert ends.latest() == wanted
    assert ends.earliest() == dict.fromkeys(wanted, 0)
    producer = ck.Producer(kafka.librdkafka() | {"transactional.id": topics[1]})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topics[1], b"open", partition=0)
    producer.flush(30)
    assert ends.latest()[topics[1], 0] == 0, "an open transaction must not be read"
    producer.commit_transaction(30)
    until = time.monotonic() + 30
    while (
        ends.latest()[topics[1], 0] == 0 and time.monotonic() < until
    ):  # the broker puts its mark after it has answered
        time.sleep(0.05)
    assert ends.latest()[topics[1], 0] == 2
    grow(kafka, topics[1], 3)
    assert ends.latest() == wanted | {(topics[1], 0): 2, (topics[1], 1): 0, (topics[1], 2): 0}


def grow(kafka: KafkaSettings, topic: str, partitions: int) -> None:
    client = admin.AdminClient(kafka.librdkafka())
    for future in client.create_partitions([admin.NewPartitions(topic, partitions)]).values():
        future.result(30)


def test_the_error_names_a_missing_topic(kafka: KafkaSettings) -> None:
    with pytest.raises(ConfigError, match="nowhere"):
        KafkaPartitionOffsets(replace(kafka, request_timeout_ms=2_000), ["nowhere"]).latest()
