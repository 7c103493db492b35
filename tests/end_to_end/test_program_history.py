"""A program with a pattern reads files, then the topic live, over a savepoint and a fork: what a loop finds."""

from __future__ import annotations

import json
import os
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import orjson
import pytest

from conftest import NewTopic
from headgate.main import run
from streamcore.kafka.settings import KafkaSettings
from tests.end_to_end.test_program import Process, lane, orders, send

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.slow]

PROGRAM = """
import polars as pl

import streamcore as sc

ORDERS = sc.StreamSchema.parse({
    "name": "orders", "event_time": "at", "keys": [["shop"]],
    "fields": {"at": "timestamp not null", "shop": "string not null", "amount": "long not null"},
})
high = sc.matched("high")
pattern = (
    sc.Pattern.begin("high").where(pl.col("amount") > 80)
    .followed_by("low").where(sc.candidate("amount") * 2 < high.last("amount"))
    .within("20s")
)

def topology(settings: sc.ProgramSettings) -> sc.Topology:
    fallen = sc.source(ORDERS, sc.bounded_out_of_orderness("1s")).key_by("shop").pattern(pattern)
    rows = fallen.select("fallen", high=high.last("amount"), low=sc.matched("low").last("amount"))
    return sc.Topology(settings.app, rows.select("shop", "high", "low").sink("fallen", key="shop"))
"""
PART = 150


def fallen(rows: Sequence[dict[str, object]]) -> Counter[str]:
    """Return the records of the lane. Rows of a shop are three seconds apart."""
    found: Counter[str] = Counter()
    for n, row in enumerate(rows):
        for later in rows[n + 1 : n + 20]:
            high, low = int(str(row["amount"])), int(str(later["amount"]))
            if high > 80 and later["shop"] == row["shop"] and 2 * low < high:
                found[orjson.dumps({"shop": row["shop"], "high": high, "low": low}).decode()] += 1
                break
    return found


def wait_for_match(kafka: KafkaSettings, topic: str) -> None:
    """Wait until the lane has a record: a savepoint before the first would leave all of them to the fork."""
    deadline = time.monotonic() + 240
    while not lane(kafka, topic):
        assert time.monotonic() < deadline, f"no record in {topic}"
        time.sleep(0.1)


def test_history_then_live_over_a_savepoint_and_a_fork(
    tmp_path: Path,
    kafka: KafkaSettings,
    spark_jars: Path,
    new_topic: NewTopic,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PYTHONPATH", os.environ.get("PYTHONPATH", ""))
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "fallen_orders.py").write_text(PROGRAM)
    (tmp_path / "history.jsonl").write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in orders(0, PART)))
    reference, topic = f"{tmp_path / 'fallen_orders.py'}:topology", new_topic("orders")
    app, fork, data = topic.replace("orders", "live"), topic.replace("orders", "fork"), tmp_path / "data"
    login = ["--bootstrap", kafka.bootstrap]
    entries = [f"app={app}", f"streams.orders.topic={topic}", "shards=2", f"jars={spark_jars}"]
    entries += [f"streams.orders.files={tmp_path / 'history.jsonl'}", "streams.orders.then_topic=true"]
    sets = [word for entry in entries for word in ("--set", entry)]
    first = Process(["run", reference, "--reports", *login, *sets, "--data", str(data)], topic)
    fork_of_it: Process | None = None
    there = ["--service", reference, "--settings", str(data / "settings.json")]
    end = {"at": "2026-03-02T12:00:00Z", "shop": "s0", "amount": 75}
    try:
        first.start()
        send(kafka, topic, orders(PART, PART))
        first.wait(PART)
        wait_for_match(kafka, f"{app}.fallen")
        assert run(["savepoint", "create", "one", *there]) == 0
        assert run(["savepoint", "verify", "one", *there]) == 0
        first.stop()
        first.close()
        capsys.readouterr()
        file = tmp_path / "fork.json"
        assert run(["fork", "--from", "one", "--as", fork, "--write", str(file), *there, "-o", "json"]) == 0
        assert json.loads(capsys.readouterr().out)["verdict"] == "compatible"
        words = ["run", reference, "--reports", *login, "--settings", str(file)]
        fork_of_it = Process(words, topic).start()
        send(kafka, topic, [*orders(2 * PART, PART), end])
        fork_of_it.wait(2 * PART + 1)
        fork_of_it.stop()
    finally:
        for process in filter(None, (first, fork_of_it)):
            process.close()
    every, before = fallen(orders(0, 3 * PART)), fallen(orders(0, 2 * PART))
    assert every.total() > 50
    of_first, of_fork = lane(kafka, f"{app}.fallen"), lane(kafka, f"{fork}.fallen")
    assert of_first <= before
    assert every - before <= of_fork < every
    assert every <= of_first + of_fork, "the fork goes on where the savepoint is"
