"""A program of a user: run, metrics, savepoint, restart, fork and comparison, on the real broker."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import orjson
import pytest

from conftest import NewTopic
from headgate.local.servers.base import free_port
from headgate.main import run
from streamcore.kafka.readers import read_topic
from streamcore.kafka.settings import KafkaSettings
from tests.harness.apps.orders import send_raw
from tests.harness.servers.lineage_server import LineageServer, lineage_server

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.slow]

PROGRAM = """
from typing import Annotated

import polars as pl
from pydantic import Field

import streamcore as sc

ORDERS = sc.StreamSchema.parse({
    "name": "orders", "event_time": "at", "keys": [["shop"]],
    "fields": {"at": "timestamp not null", "shop": "string not null", "amount": "long not null"},
})

class ShopSettings(sc.ProgramSettings):
    app: str = "large-orders"
    limit: Annotated[int, Field(description="Orders above it are large.")] = 50

class Large(sc.ProcessFunction):
    outputs = {sc.MAIN: {"shop": pl.String, "at": pl.Datetime("ms", "UTC"), "amount": pl.Int64, "number": pl.Int64}}
    number = sc.ValueState(default=0)

    def __init__(self, limit):
        self.limit = limit

    def open(self, context):
        self.seen = context.counter("seen")

    def process(self, event, context):
        self.seen.add()
        self.number += 1
        if event.amount > self.limit:
            yield {"shop": event.shop, "at": event.at, "amount": event.amount, "number": self.number}

def topology(settings: ShopSettings) -> sc.Topology:
    orders = sc.source(ORDERS, sc.bounded_out_of_orderness("1s")).key_by("shop")
    totals = orders.window(sc.Tumbling("1m")).aggregate("totals", orders=sc.Count(), amount=sc.Sum("amount"))
    large = orders.process(Large(settings.limit), name="large")
    return sc.Topology(
        settings.app,
        totals.select("shop", "window_start", "orders", "amount").sink("totals", key="shop"),
        large.sink("large", key="shop"),
    )
"""
LIMIT, FORK_LIMIT = 50, 80
HALF = 300


def orders(first: int, count: int) -> list[dict[str, object]]:
    """Return orders of 3 shops, one a second, with amounts that repeat every 97."""
    return [
        {"at": f"2026-03-02T10:{n // 60:02}:{n % 60:02}Z", "shop": f"s{n % 3}", "amount": (n * 37) % 97}
        for n in range(first, first + count)
    ]


def send(kafka: KafkaSettings, topic: str, rows: Sequence[dict[str, object]]) -> None:
    send_raw(kafka, topic, [(None, orjson.dumps(row)) for row in rows])


@dataclass
class Process:
    """A program's process. ``processed``: the records of the topic that it has committed, by its reports."""

    words: Sequence[str]
    topic: str
    processed: int = 0
    errors: list[str] = field(default_factory=list)

    def start(self) -> Process:
        command = [sys.executable, "-c", "from headgate.main import main; main()", *self.words]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        self.child = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment, start_new_session=True
        )
        self.readers = [threading.Thread(target=read, daemon=True) for read in (self._reports, self._messages)]
        for reader in self.readers:
            reader.start()
        return self

    def _reports(self) -> None:
        assert self.child.stdout is not None
        for line in self.child.stdout:
            cut = orjson.loads(line).get("cut")
            if cut is not None:
                self.processed = sum(cut["offsets"].get(self.topic, {}).values())

    def _messages(self) -> None:
        assert self.child.stderr is not None
        self.errors += [line.decode() for line in self.child.stderr]

    def wait(self, records: int) -> None:
        deadline = time.monotonic() + 240
        while self.processed < records:
            assert self.child.poll() is None, "".join(self.errors[-20:])
            assert time.monotonic() < deadline, f"{self.processed} of {records}"
            time.sleep(0.1)

    def stop(self) -> None:
        self.child.send_signal(signal.SIGTERM)
        assert self.child.wait(60) == 0, "".join(self.errors[-20:])

    def close(self) -> None:
        """End the process if it runs, and release its pipes."""
        if self.child.poll() is None:
            os.killpg(self.child.pid, signal.SIGKILL)
            self.child.wait(10)
        for reader, pipe in zip(self.readers, (self.child.stdout, self.child.stderr), strict=True):
            reader.join(10)
            assert pipe is not None
            pipe.close()


def lane(kafka: KafkaSettings, topic: str) -> Counter[str]:
    return Counter((record.value or b"").decode() for record in read_topic(kafka, topic))


def expected_large(limit: int, first: int, last: int) -> Counter[str]:
    """Return the records of lane ``large`` for the orders from ``first`` to ``last``, all earlier ones counted."""
    numbers: Counter[str] = Counter()
    found: Counter[str] = Counter()
    for n, order in enumerate(orders(0, last)):
        shop, amount = str(order["shop"]), order["amount"]
        numbers[shop] += 1
        assert isinstance(amount, int)
        if amount > limit and n >= first:
            at = str(order["at"]).replace("Z", "+00:00")
            row = {"shop": shop, "at": at, "amount": amount, "number": numbers[shop]}
            found[orjson.dumps(row).decode()] += 1
    return found


@pytest.fixture
def lineage() -> Iterator[LineageServer]:
    with lineage_server() as server:
        yield server


def check_lineage(server: LineageServer, app: str, topic: str) -> None:
    """Assert that the events of the run that has ended cover the topic from its begin to its end, without gaps."""
    events = [event for event in server.events if event["job"]["name"] == app]
    assert (events[0]["eventType"], events[-1]["eventType"]) == ("START", "COMPLETE")
    inputs = [one for event in events for one in event["inputs"] if one["name"] == topic]
    ranges = [one["inputFacets"]["headgate_offsets"] for one in inputs]
    assert set(ranges[0]["from"].values()) == {0}
    assert sum(ranges[-1]["to"].values()) == 2 * HALF
    assert all(before["to"] == after["from"] for before, after in itertools.pairwise(ranges))


def test_a_program_runs_is_forked_from_a_savepoint_and_the_fork_differs_as_an_oracle_says(
    tmp_path: Path,
    kafka: KafkaSettings,
    spark_jars: Path,
    new_topic: NewTopic,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    lineage: LineageServer,
) -> None:
    monkeypatch.setenv("PYTHONPATH", os.environ.get("PYTHONPATH", ""))
    monkeypatch.setattr(sys, "path", [*sys.path])
    file = tmp_path / "large_orders.py"
    file.write_text(PROGRAM)
    reference, topic = f"{file}:topology", new_topic("orders")
    app = topic.replace("orders", "first")
    fork = topic.replace("orders", "second")
    data, port = tmp_path / "data", free_port()
    login = ["--bootstrap", kafka.bootstrap]
    entries = [f"app={app}", f"streams.orders.topic={topic}", "shards=2", f"jars={spark_jars}"]
    entries += [f"telemetry.prometheus_port={port}", f"lineage.url={lineage.url}", "lineage.interval_ms=50"]
    sets = [word for entry in entries for word in ("--set", entry)]
    first = Process(["run", reference, "--reports", *login, *sets, "--data", str(data)], topic)
    second: Process | None = None
    send(kafka, topic, orders(0, HALF))
    try:
        # The first half; its own counter is among the metrics; a savepoint while it runs.
        first.start().wait(HALF)
        assert counted(port) == HALF
        there = ["--service", reference, "--settings", str(data / "settings.json")]
        assert run(["savepoint", "create", "one", *there]) == 0
        assert run(["savepoint", "verify", "one", *there]) == 0
        assert run(["state", "show", "one", "large/values", *there]) == 0
        assert "s1" in capsys.readouterr().out
        # A fork with another limit, beside the first.
        file_of_fork = tmp_path / "fork.json"
        wanted = ["--from", "one", "--as", fork, "--set", f"limit={FORK_LIMIT}", "--write", str(file_of_fork)]
        assert run(["fork", *wanted, "--set", "telemetry.prometheus_port=null", *there, "-o", "json"]) == 0
        made = json.loads(capsys.readouterr().out)
        assert (made["epoch"], made["verdict"], made["of"]) == (1, "compatible", app)
        second = Process(["run", reference, "--reports", "--settings", str(file_of_fork), *login], topic).start()
        send(kafka, topic, orders(HALF, HALF))
        first.wait(2 * HALF)
        second.wait(2 * HALF)
        first.stop()
        check_lineage(lineage, app, topic)
        second.stop()
    finally:
        for process in filter(None, (first, second)):
            process.close()
    # Each has exactly its own output; the fork has none of before the savepoint.
    assert lane(kafka, f"{app}.large") == expected_large(LIMIT, 0, 2 * HALF)
    assert lane(kafka, f"{fork}.large") == expected_large(FORK_LIMIT, HALF, 2 * HALF)
    check_comparison([app, fork, *login, "--since", made["since"]], tmp_path / "difference.svg", capsys)


def counted(port: int) -> float:
    """Return the value of the function's own counter among the metrics."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
        metrics = answer.read().decode()
    (line,) = [one for one in metrics.splitlines() if one.startswith("headgate_function_count_total{")]
    assert 'name="seen"' in line
    assert 'step="large"' in line
    return float(line.rpartition(" ")[2])


def check_comparison(words: Sequence[str], picture: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Check that the apps differ by the orders between the limits, and in nothing else."""
    assert run(["compare", *words, "--svg", str(picture), "-o", "json"]) == 1
    found = {one["lane"]: one for one in json.loads(capsys.readouterr().out)["lanes"]}
    only_a = Counter(orjson.dumps(record["value"]).decode() for record in found["large"]["only_a"])
    assert only_a == expected_large(LIMIT, HALF, 2 * HALF) - expected_large(FORK_LIMIT, HALF, 2 * HALF)
    assert found["large"]["equal"] == expected_large(FORK_LIMIT, HALF, 2 * HALF).total()
    assert (found["large"]["only_b"], found["large"]["changed"]) == ([], [])
    assert found["totals"]["equal"] > 0
    assert (found["totals"]["only_a"], found["totals"]["only_b"], found["totals"]["changed"]) == ([], [], [])
    assert picture.read_text().startswith("<svg")
    assert run(["compare", *words, "--lane", "totals"]) == 0
