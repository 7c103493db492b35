"""Replays send all rows in order, at the given speed, and report errors."""

from __future__ import annotations

import dataclasses
import json
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import pytest

from headgate.errors import InputError
from headgate.local.servers.kafka import EmbeddedBroker
from headgate.main import run
from headgate.records.file_rows import Row
from headgate.records.replay import KafkaSink, Speed, SystemClock, replay
from streamcore.errors import StreamError
from streamcore.kafka.readers import read_topic
from streamcore.kafka.settings import KafkaSettings


@dataclasses.dataclass
class ManualClock:
    """A clock that advances only by sleeping."""

    time: float = 100.0

    def now(self) -> float:
        return self.time

    def sleep(self, seconds: float) -> None:
        self.time += seconds


@dataclasses.dataclass
class RecordingSink:
    """A sink that records when each row arrived."""

    clock: ManualClock
    sent: list[tuple[float, bytes]] = dataclasses.field(default_factory=list)
    settled: bool = False

    def send(self, row: Row) -> None:
        self.sent.append((round(self.clock.now() - 100, 3), row.value))

    def flush_all(self) -> None:
        self.settled = True


def replay_rows(speed: str, *times_ms: int | None) -> list[float]:
    clock = ManualClock()
    sink = RecordingSink(clock)
    replay((Row(b"x", None, t) for t in times_ms), sink, Speed.parse(speed), clock)
    assert sink.settled
    return [when for when, _ in sink.sent]


def test_rows_are_sent_at_a_multiple_of_their_event_time() -> None:
    assert replay_rows("2x", 5_000, 6_000, 9_000) == [0, 0.5, 2]


def test_max_does_not_wait() -> None:
    assert replay_rows("max", 0, 3_600_000) == [0, 0]


def test_a_late_row_or_one_without_a_time_is_sent_at_once_and_delays_no_other() -> None:
    assert replay_rows("1x", 1_000, 3_000, 2_000, None, 4_000) == [0, 2, 2, 2, 3]


@pytest.mark.parametrize("text", ["fast", "0x", "-1x", "1", "x", "1e9x"])
def test_an_invalid_speed_is_rejected(text: str) -> None:
    with pytest.raises(InputError, match="1x or 100x"):
        Speed.parse(text)


@pytest.mark.kafka
def test_one_key_keeps_the_files_order_in_one_partition(kafka: KafkaSettings, new_topic: Callable[..., str]) -> None:
    topic = new_topic("replay", 4)
    rows = [Row(str(i).encode(), None if i % 5 == 0 else f"k{i % 7}".encode(), None) for i in range(3_000)]
    sent = replay(rows, KafkaSink(kafka, topic), Speed(None), SystemClock())
    assert sent.rows == 3_000
    places: dict[bytes | None, set[int]] = defaultdict(set)
    orders: dict[bytes | None, list[int]] = defaultdict(list)
    for record in read_topic(kafka, topic):
        places[record.key].add(record.partition)
        orders[record.key].append(int(record.value or b""))
    assert sum(map(len, orders.values())) == 3_000
    assert all(len(partitions) == 1 for partitions in places.values())
    assert all(order == sorted(order) for order in orders.values())
    assert len(set.union(*places.values())) > 1


@pytest.mark.kafka
def test_the_command_sends_a_file_and_reports_it(
    broker: EmbeddedBroker, kafka: KafkaSettings, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "lines.jsonl"
    file.write_text('{"InvoiceNo":"1","CustomerID":7.0}\n\nnot json\n{"InvoiceNo":"2"}\n')
    options = ["--stream", "retail", "--topic", "replay-command", "--bootstrap", broker.bootstrap, "-o", "json"]
    assert run(["replay", str(file), *options]) == 0
    out = capsys.readouterr()
    records = read_topic(kafka, "replay-command")
    assert {r.value for r in records} == {
        b'{"invoice_no":"1","customer_id":7}', b"not json", b'{"invoice_no":"2"}'
    }  # fmt: skip
    report = json.loads(out.out)
    assert (report["rows"], report["bytes"]) == (3, sum(len(r.value or b"") + len(r.key or b"") for r in records))
    assert {r.partition for r in records if r.key is None} == {0}


@pytest.mark.kafka
def test_the_limit_counts_rows(broker: EmbeddedBroker, kafka: KafkaSettings, tmp_path: Path) -> None:
    file = tmp_path / "lines.jsonl"
    file.write_text("1\n" * 10)
    options = ["--stream", "shop", "--topic", "replay-limit", "--bootstrap", broker.bootstrap, "--limit", "4"]
    assert run(["replay", str(file), *options]) == 0
    assert len(read_topic(kafka, "replay-limit")) == 4


@pytest.mark.kafka
def test_a_record_that_is_too_large_for_the_topic_is_an_error(
    kafka: KafkaSettings, new_topic: Callable[..., str]
) -> None:
    sink = KafkaSink(kafka, new_topic("replay"))
    with pytest.raises(StreamError, match="lower the record limit"):
        replay([Row(b"x" * 5_000_000, None, None)], sink, Speed(None), SystemClock())
