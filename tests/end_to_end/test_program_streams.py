"""A stream's document that is published to a running program of a user, on Spark and the real broker."""

from __future__ import annotations

import os
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml

from conftest import NewTopic
from headgate.main import run
from streamcore.kafka.readers import read_topic
from streamcore.kafka.settings import KafkaSettings
from tests.end_to_end.test_program import Process, send

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.slow]

DOCUMENT: dict[str, Any] = {
    "name": "orders",
    "event_time": "at",
    "keys": [["shop"]],
    "fields": {"at": "timestamp not null", "shop": "string not null", "amount": "long"},
}
PROGRAM = """
import polars as pl

import streamcore as sc

ORDERS = sc.StreamSchema.parse({document})

class Totals(sc.ProcessFunction):
    outputs = {{sc.MAIN: {{"shop": pl.String, "total": pl.Int64}}}}
    total = sc.ValueState(default=0)

    def process(self, event, context):
        self.total += event.amount
        yield {{"shop": event.shop, "total": self.total}}

def topology() -> sc.Topology:
    orders = sc.source(ORDERS, sc.bounded_out_of_orderness("1s"))
    totals = orders.select("shop", "amount").key_by("shop").process(Totals(), name="totals")
    return sc.Topology("noted-orders", orders.sink("copies"), totals.sink("totals", key="shop"))
"""
EACH = 20


def orders(first: int, **fields: object) -> list[dict[str, object]]:
    """Return orders of one shop, with the amount 1."""
    times = (f"2026-03-02T10:00:{n:02}Z" for n in range(first, first + EACH))
    return [{"at": at, "shop": "s", "amount": 1, **fields} for at in times]


def test_a_running_program_has_a_published_field_with_its_state_also_after_a_kill(
    tmp_path: Path,
    kafka: KafkaSettings,
    spark_jars: Path,
    new_topic: NewTopic,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PYTHONPATH", os.environ.get("PYTHONPATH", ""))
    (tmp_path / "noted_orders.py").write_text(PROGRAM.format(document=DOCUMENT))
    topic = new_topic("orders")
    app, target = topic.replace("orders", "noted"), ["--bootstrap", kafka.bootstrap]
    entries = [f"app={app}", f"streams.orders.topic={topic}", "shards=2", f"jars={spark_jars}"]
    sets = [word for entry in entries for word in ("--set", entry)]
    words = ["run", f"{tmp_path / 'noted_orders.py'}:topology", "--reports", *target, *sets]
    words += ["--data", str(tmp_path / "data")]

    def publish(version: int, **fields: str) -> int:
        file, changed = tmp_path / "orders.yaml", DOCUMENT["fields"] | fields
        file.write_text(yaml.safe_dump({**DOCUMENT, "version": version, "fields": changed}, sort_keys=False))
        return run(["streams", "publish", str(file), "--app", app, *target])

    process = Process(words, topic)
    try:
        send(kafka, topic, orders(0, note="early"))
        process.start().wait(EACH)
        assert publish(2, note="string") == 0
        assert "accepted" in capsys.readouterr().out
        send(kafka, topic, orders(EACH, note="late"))
        process.wait(2 * EACH)
        assert publish(3, note="string", amount="string") == 1
        assert "amount" in capsys.readouterr().out
        os.killpg(process.child.pid, signal.SIGKILL)
        process.close()
        send(kafka, topic, orders(2 * EACH, note="again"))
        process = Process(words, topic)
        process.start().wait(3 * EACH)
        process.stop()
    finally:
        process.close()
    copies = [orjson.loads(record.value or b"") for record in read_topic(kafka, f"{app}.copies")]
    assert Counter(one.get("note") for one in copies) == {None: EACH, "late": EACH, "again": EACH}
    assert {one["at"] for one in copies if one.get("note") == "again"} == {
        f"2026-03-02T10:00:{n}+00:00" for n in range(40, 60)
    }
    totals = [orjson.loads(record.value or b"")["total"] for record in read_topic(kafka, f"{app}.totals")]
    assert sorted(totals) == [*range(1, 3 * EACH + 1)], "the sum goes on over the document and the kill"
