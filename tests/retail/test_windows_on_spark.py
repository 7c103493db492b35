"""The windows over real invoice lines, out of order and one in twenty late, through a broker and Spark."""

from __future__ import annotations

import json
from collections import Counter
from datetime import datetime
from pathlib import Path

import pytest

from conftest import NewTopic
from headgate.records.file_rows import read_rows
from streamcore.kafka import data_clients as clients
from streamcore.kafka.readers import read_topic
from streamcore.kafka.settings import KafkaSettings
from streamcore.spark.session import SparkSettings
from tests.harness.apps.retail_topology import ROOT, retail, schema
from tests.harness.apps.scripted_cuts import Script, Step, run
from tests.harness.oracles.retail_windows import DAY_MS, HOUR_MS, Oracle, Row

pytestmark = [pytest.mark.spark, pytest.mark.slow]

LINES = ROOT / "tests" / "data" / "retail_sample.parquet"
CUT_ROWS = 2_000


def send(kafka: KafkaSettings, topic: str, order: list[int]) -> list[Step]:
    """Send the lines in their order of arrival, in cuts of so many."""
    values = [row.value for row in read_rows(LINES, schema())]
    producer = clients.producer(kafka)
    for row in order:
        producer.produce(topic, values[row], partition=0)
        producer.poll(0)
    assert producer.flush(60) == 0
    ends = [*range(CUT_ROWS, len(order), CUT_ROWS), len(order)]
    clock_ms = 1_790_000_000_000
    return [Step({(topic, 0): end}, clock_ms + number) for number, end in enumerate(ends)]


def ms(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1000)


def panes(kafka: KafkaSettings, topic: str, *key: str) -> Counter[Row]:
    """Return how often each (key, start, end, lines, milli) occurs in a lane."""
    found: Counter[Row] = Counter()
    for record in read_topic(kafka, topic):
        pane = json.loads(record.value or b"")
        bounds = (ms(pane["window_start"]), ms(pane["window_end"]))
        milli = round(float(pane["amount"]) * 1000)
        found[(*(pane[name] for name in key), *bounds, pane["lines"], milli)] += 1
    return found


def test_every_closed_window_equals_the_oracles_and_is_there_once(
    tmp_path: Path, kafka: KafkaSettings, spark_jars: Path, new_topic: NewTopic
) -> None:
    oracle = Oracle(LINES, 4 * DAY_MS)
    topic = new_topic("retail-lines")
    app = retail("retail-on-spark").app(topics={"retail": topic}, shards=3)
    steps = send(kafka, topic, oracle.arrivals.order)
    script = Script(app, kafka, tmp_path / "checkpoint", SparkSettings(spark_jars), steps)
    run(tmp_path, [script])
    report = json.loads(script.reports.read_bytes().splitlines()[-1])
    watermark_ms = report["watermark_ms"]
    assert report["watermarks"].keys() == {topic}
    assert report["watermarks"][topic].keys() == report["offsets"][topic].keys()
    assert max(report["watermarks"][topic].values()) >= watermark_ms

    def ended(rows: set[Row]) -> Counter[Row]:
        return Counter(row for row in rows if int(str(row[-3])) <= watermark_ms)

    for lane, key, wanted in (
        ("customers", ("customer_id",), oracle.sessions("customer")),
        ("countries", ("country",), oracle.sessions("country")),
        ("hours", (), oracle.revenue(HOUR_MS, HOUR_MS)),
        ("sliding", (), oracle.revenue(3 * HOUR_MS, HOUR_MS)),
    ):
        assert panes(kafka, app.lanes[lane], *key) == ended(wanted), lane
    assert len(read_topic(kafka, app.lanes["late"])) == len(oracle.arrivals.late)
    assert not read_topic(kafka, app.lanes["deadletters"])
