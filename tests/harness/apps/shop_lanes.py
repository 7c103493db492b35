"""The small shop on real topics: sends its events cut by cut, and reads its lanes in sorted order."""

from __future__ import annotations

import json

import orjson
import polars as pl

from streamcore.kafka.readers import read_topic
from streamcore.kafka.settings import KafkaSettings
from tests.harness.apps.orders import send_raw
from tests.harness.apps.scripted_cuts import Step
from tests.harness.apps.versioned_shop import rows


def send(kafka: KafkaSettings, topics: dict[str, str], cuts: int) -> list[Step]:
    """Send the events of some cuts; return the cuts."""
    steps, ends = [], {}
    for cut in range(cuts):
        for stream, frame in rows(cut).items():
            lines = frame.with_columns(pl.col("ts").dt.epoch("ms")).to_dicts()
            ends[topics[stream], 0] = (
                send_raw(kafka, topics[stream], [(None, orjson.dumps(one)) for one in lines])[-1] + 1
            )
        steps.append(Step(dict(ends), 1_000_000 + cut))
    return steps


def objects(kafka: KafkaSettings, topic: str) -> list[str]:
    """Return the records of a lane, sorted."""
    return sorted(json.dumps(json.loads(record.value or b""), sort_keys=True) for record in read_topic(kafka, topic))


def expected_rows(frame: pl.DataFrame) -> list[str]:
    """Return the rows of a lane in-process, sorted."""
    return sorted(json.dumps(json.loads(line), sort_keys=True) for line in frame.write_ndjson().splitlines())
