"""Creating, checking, reading and following topics."""

from __future__ import annotations

import threading
import time
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from kafka.admin import ConfigResource, ConfigResourceType

from streamcore.cuts.writer_id import WriterId
from streamcore.errors import ConfigError, Permanent, Retryable
from streamcore.kafka import admin_clients as control_plane
from streamcore.kafka import data_clients as clients
from streamcore.kafka.control_topic import ControlLog, RecordOffset, control_topic, disable_compaction
from streamcore.kafka.data_clients import Isolation
from streamcore.kafka.delivery import OutRecord
from streamcore.kafka.exactly_once import ExactlyOnceWriter
from streamcore.kafka.readers import Follower, Record, end_offsets, read_topic, scan_topic
from streamcore.kafka.settings import KafkaSettings
from streamcore.kafka.topics import TopicSpec, delete_topics, describe, ensure_topics, wait_for_broker
from tests.harness.cut_ids import cut_id
from tests.harness.oracles.committed_records import read_committed

if TYPE_CHECKING:
    from tests.kafka.conftest import Topics, Wire

pytestmark = pytest.mark.kafka


def fill(kafka: KafkaSettings, topic: str, values: list[bytes], *, partition: int = 0) -> None:
    producer = clients.producer(kafka)
    for value in values:
        producer.produce(topic, value, partition=partition)
    assert producer.flush(30) == 0


def test_ensure_topics_creates_topics_once_and_accepts_existing_ones(kafka: KafkaSettings, topics: Topics) -> None:
    name = f"{topics.app}.more"
    spec = TopicSpec(name, 3, retention_ms=3_600_000, config=(("max.message.bytes", "5000"),))
    try:
        first = ensure_topics(kafka, [spec, TopicSpec(topics.out, 2)])
        assert ensure_topics(kafka, [spec, TopicSpec(topics.out, 2)]) == first
        assert (first[0].name, first[0].partitions, first[0].max_message_bytes) == (name, 3, 5_000)
    finally:
        delete_topics(kafka, [name])
    assert describe(kafka, [name]) == {}


def test_a_topic_with_other_settings_is_rejected_and_not_changed(kafka: KafkaSettings, topics: Topics) -> None:
    with pytest.raises(ConfigError, match=rf"{topics.out}: has 2 partitions, the app is set to 5"):
        ensure_topics(kafka, [TopicSpec(topics.out, 5)])
    with pytest.raises(ConfigError, match=rf"{topics.out}: cleanup.policy is delete, the app needs compact"):
        ensure_topics(kafka, [TopicSpec(topics.out, 2, compacted=True)])
    assert describe(kafka, [topics.out])[topics.out].partitions == 2


def test_the_error_explains_why_a_topic_cannot_be_created(kafka: KafkaSettings, topics: Topics) -> None:
    with pytest.raises(ConfigError, match=r"create topic .*correct the setting"):
        ensure_topics(kafka, [TopicSpec(f"{topics.app}.wide", replication=9)])
    with pytest.raises((ConfigError, Permanent, Retryable), match="create topic"):
        ensure_topics(kafka, [TopicSpec(f"{topics.app}.odd", config=(("no.such.setting", "1"),))])


def test_waiting_for_a_broker_fails_after_the_limit_and_succeeds_when_it_comes_up(
    kafka: KafkaSettings, wire: Wire
) -> None:
    through = replace(kafka, bootstrap=wire.bootstrap)
    wire.cut()
    began = time.monotonic()
    with pytest.raises(Retryable, match=rf"{wire.bootstrap}.*is the broker up"):
        wait_for_broker(through, 1_000)
    assert time.monotonic() - began < 20
    timer = threading.Timer(1, wire.restore)
    timer.start()
    wait_for_broker(through, 30_000)
    timer.join()
    assert wire.seen, "the broker responded"


def test_both_readers_return_the_same_records(kafka: KafkaSettings, topics: Topics) -> None:
    fill(kafka, topics.out, [b"%d" % n for n in range(500)], partition=0)
    fill(kafka, topics.out, [b"%d" % n for n in range(300)], partition=1)
    with ExactlyOnceWriter(kafka, WriterId(topics.app, 1), topics.markers) as writer:
        writer.open()
        writer.commit(cut_id(0), [OutRecord(topics.out, b"k", None, (("h", b"1"), ("h", b"2")))])
    independent = read_committed(kafka, topics.out, 801)
    assert independent == sorted(scan_topic(kafka, topics.out), key=lambda r: (r.partition, r.offset))
    assert len(independent) == 801
    last = next(r for r in independent if r.key == b"k")
    assert last.value is None
    assert last.header("h") == b"2"
    assert last.header("absent") is None


def test_an_empty_topic_reads_as_empty(kafka: KafkaSettings, topics: Topics) -> None:
    assert read_topic(kafka, topics.out) == list(scan_topic(kafka, topics.out)) == []


def test_readers_respect_their_limits_and_name_missing_topics(kafka: KafkaSettings, topics: Topics) -> None:
    fill(kafka, topics.out, [b"x"] * 20)
    with pytest.raises(Permanent, match="more than 10 records"):
        read_topic(kafka, topics.out, limit_records=10)
    absent = f"{topics.app}.absent"
    with pytest.raises(ConfigError, match=rf"{absent}.*create the topic"):
        read_topic(kafka, absent)
    with pytest.raises(ConfigError, match=rf"{absent}.*create the topic"):
        list(scan_topic(kafka, absent))


def test_end_offsets_count_committed_or_all_records(kafka: KafkaSettings, topics: Topics) -> None:
    fill(kafka, topics.out, [b"x"] * 7, partition=1)
    assert end_offsets(kafka, [topics.out]) == {(topics.out, 0): 0, (topics.out, 1): 7}
    assert end_offsets(kafka, [topics.out], isolation=Isolation.UNCOMMITTED)[topics.out, 1] == 7


def test_a_follower_starts_at_the_given_offsets_and_continues(kafka: KafkaSettings, topics: Topics) -> None:
    fill(kafka, topics.out, [b"old"] * 5)
    with Follower(kafka, [topics.out], since=end_offsets(kafka, [topics.out])) as follower:
        assert follower.poll(200) == []
        fill(kafka, topics.out, [b"new-1", b"new-2"])
        seen: list[bytes | None] = []
        while len(seen) < 2:
            seen += [r.value for r in follower.poll(1_000)]
    assert seen == [b"new-1", b"new-2"]


def test_the_control_log_returns_all_records_in_order_and_follows_new_ones(
    kafka: KafkaSettings, topics: Topics
) -> None:
    name = f"{topics.app}.control"
    ensure_topics(kafka, [control_topic(name)])
    try:
        with ControlLog(kafka, name) as log:
            assert log.read_log() == []
            changes = [("a", b"1"), ("b", b"1"), ("a", b"2"), ("b", None)]
            positions = [log.publish(key, value) for key, value in changes]
            assert positions == [RecordOffset(0, n) for n in range(4)]
            assert [(r.key, r.value) for r in log.read_log()] == [(k.encode(), v) for k, v in changes]
            with log.follow(4) as follower:
                log.publish("c", b"3")
                found: list[Record] = []
                while not found:
                    found = follower.poll(1_000)
        assert [(r.key, r.value, r.offset) for r in found] == [(b"c", b"3", 4)]
    finally:
        delete_topics(kafka, [name])


def test_a_compacted_control_topic_is_changed_to_keep_every_record(kafka: KafkaSettings, topics: Topics) -> None:
    name = f"{topics.app}.control"
    assert not disable_compaction(kafka, name), "there is none yet"
    ensure_topics(kafka, [TopicSpec(name, 1, compacted=True)])
    try:
        with ControlLog(kafka, name) as log:
            log.publish("a", b"1")
            with pytest.raises(ConfigError, match="compact"):
                ensure_topics(kafka, [control_topic(name)])
            assert disable_compaction(kafka, name)
            assert not disable_compaction(kafka, name), "once"
            assert ensure_topics(kafka, [control_topic(name)])[0].cleanup_policy == "delete"
            assert [(r.key, r.value) for r in log.read_log()] == [(b"a", b"1")]
        with closing(control_plane.admin(kafka)) as admin:
            resources = [ConfigResource(ConfigResourceType.TOPIC, name, None)]
            options = admin.describe_configs(resources, config_filter="all")["topic"][name]
        kept = {n: options[n]["value"] for n in ("retention.ms", "retention.bytes", "segment.ms")}
        assert kept == {"retention.ms": "-1", "retention.bytes": "-1", "segment.ms": "604800000"}
    finally:
        delete_topics(kafka, [name])


def test_publishing_to_a_topic_that_does_not_exist_is_an_error(kafka: KafkaSettings, topics: Topics) -> None:
    impatient = replace(kafka, request_timeout_ms=2_000)
    with (
        ControlLog(impatient, f"{topics.app}.absent") as log,
        pytest.raises((ConfigError, Retryable), match="publish a"),
    ):
        log.publish("a", b"1")
