"""A topology with several keyed steps gives the same rows on Spark and in-process, and a restart changes nothing."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import orjson
import polars as pl
import pytest

from conftest import NewTopic
from streamcore.kafka.readers import read_topic
from streamcore.kafka.settings import KafkaSettings
from streamcore.operators.windows.general.pane_values import WindowView
from streamcore.schema import StreamSchema
from streamcore.spark.session import SparkSettings
from streamcore.topology.simulation import Simulation, SimulationResult
from streamcore.topology.stream import operate, source
from streamcore.topology.topology import Topology
from streamcore.watermark import bounded_out_of_orderness
from streamcore.windowing import Tumbling
from tests.harness.apps.orders import send_raw
from tests.harness.apps.running_sums import MakeRunningSums
from tests.harness.apps.scripted_cuts import Script, Step, run

pytestmark = pytest.mark.spark

SCHEMA = StreamSchema.parse(
    {
        "name": "sales",
        "event_time": "ts",
        "keys": [["user"]],
        "fields": {"ts": "timestamp not null", "user": "string not null", "shop": "string not null", "n": "long"},
    }
)
CUTS = 4


def two_steps(name: str) -> Topology:
    """Return a topology: totals by user, counted by first digit; a lane without a key; and a function that fails."""
    sales = source(SCHEMA, bounded_out_of_orderness(1_000))
    by_user = operate([sales.filter(pl.col("n") > 0).key_by("user")], "sums", MakeRunningSums("user", "n"))
    digits = by_user.map(digit=pl.col("total").cast(pl.String).str.slice(0, 1)).select("digit", "total")
    by_digit = operate([digits.key_by("digit")], "sums", MakeRunningSums("digit", "total"), name="by-digit")
    mixed = sales.select(pl.col("user").alias("who"), pl.col("n").alias("total"))
    mixed = mixed.union(by_user.select(pl.col("user").alias("who"), "total"))
    of_both = operate([mixed.key_by("who")], "sums", MakeRunningSums("who", "total"), name="of-both")
    windows = sales.select("user", "n").key_by("user").window(Tumbling(2_000))
    quotients = windows.apply(divide_by_rows_beyond_three, {"quotient": pl.Int64()}, name="fails-on-three")
    return Topology(
        name,
        quotients.sink("quotients", key="user"),
        by_digit.sink("digits", key="digit"),
        of_both.sink("both", key="who"),
        by_user.side("late").sink("late"),
        sales.select("shop", "n").sink("plain", key="shop"),
    )


def divide_by_rows_beyond_three(view: WindowView) -> pl.DataFrame:
    """Divide by a value that is zero for a pane of three rows."""
    return pl.DataFrame({"quotient": [100 // (view.elements.height - 3)]})


def sales(cut: int) -> pl.DataFrame:
    rows = [
        {"ts": (cut * 50 + i) * 100, "user": f"u{(cut + i) % 7}", "shop": "s", "n": (i * 7 + cut) % 11 - 1}
        for i in range(50)
    ]
    late = [{"ts": 0, "user": "u0", "shop": "late", "n": 5}] if cut else []
    return pl.DataFrame(rows + late).with_columns(pl.col("ts").cast(pl.Datetime("ms", "UTC")))


def in_process(topology: Topology) -> SimulationResult:
    simulation, result = Simulation(topology, shards=3), SimulationResult()
    for cut in range(CUTS):
        result.add(simulation.cut({"sales": sales(cut)}, clock_ms=1_000_000 + cut))
    return result


def objects(kafka: KafkaSettings, topic: str) -> list[str]:
    values = [json.loads(record.value or b"null") for record in read_topic(kafka, topic)]
    return sorted(json.dumps(value, sort_keys=True) for value in values)


def expected(rows: pl.DataFrame) -> list[str]:
    return sorted(json.dumps(json.loads(line), sort_keys=True) for line in rows.write_ndjson().splitlines())


def send(kafka: KafkaSettings, topic: str) -> Sequence[Step]:
    steps, end = [], 0
    for cut in range(CUTS):
        rows = sales(cut).with_columns(pl.col("ts").dt.epoch("ms")).to_dicts()
        end = send_raw(kafka, topic, [(None, orjson.dumps(row)) for row in rows])[-1] + 1
        steps.append(Step({(topic, 0): end}, 1_000_000 + cut))
    return steps


def test_output_on_spark_equals_output_in_process_also_after_a_restart(
    tmp_path: Path, kafka: KafkaSettings, spark_jars: Path, new_topic: NewTopic
) -> None:
    topic = new_topic("sales")
    topology = two_steps("steps")
    app = topology.app(topics={"sales": topic}, shards=3)
    steps = send(kafka, topic)
    script = Script(app, kafka, tmp_path / "checkpoint", SparkSettings(spark_jars), steps)
    run(tmp_path, [replace(script, steps=steps[:2]), script])
    wanted = in_process(topology)
    for lane in ("digits", "both", "late", "plain", "quotients"):
        assert expected(wanted[lane])
        assert objects(kafka, app.lanes[lane]) == expected(wanted[lane])
    letters = read_topic(kafka, app.lanes["deadletters"])
    assert sorted(str(letter.value) for letter in letters) == sorted(str(letter.value) for letter in wanted.dead)
    assert {letter.header("reason_code") for letter in letters} == {b"failed_pane"}
