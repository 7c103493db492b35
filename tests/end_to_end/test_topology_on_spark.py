"""A topology with several keyed steps gives the same rows on Spark and in-process, and a restart changes nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from operator import itemgetter
from pathlib import Path
from typing import Any

import orjson
import polars as pl
import pytest

from conftest import NewTopic
from streamcore.app import App
from streamcore.kafka import data_clients as clients
from streamcore.kafka.readers import read_topic
from streamcore.kafka.settings import KafkaSettings
from streamcore.keyed import BroadcastState, CoProcessFunction, ListState, ProcessContext, ProcessFunction, ValueState
from streamcore.operators.base import MAIN
from streamcore.operators.group_calls import GroupContext
from streamcore.operators.windows.general.pane_values import WindowView
from streamcore.operators.windows.process_operator import ProcessWindowFunction
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


def connected(name: str) -> Topology:
    """Return what connects streams: a function of two streams, of a broadcast stream, without a key, and of windows.

    Times are assigned anew, rows are rebalanced, and the key is kept.
    """
    sales = source(SCHEMA, bounded_out_of_orderness(1_000))
    timed = sales.map(at=pl.col("ts").dt.offset_by("1s")).assign_timestamps("at", bounded_out_of_orderness(1_000))
    small, large = timed.filter(pl.col("n") < 5), timed.filter(pl.col("n") >= 5).map(buyer=pl.col("user"))
    pairs = small.key_by("user").connect(large.key_by("buyer")).process(Pairs(), name="pairs", keeps_key=True)
    limits = sales.filter(pl.col("n") == 9)
    limited = timed.key_by("user").connect(limits.broadcast()).process(Above(), name="above")
    split = sales.rebalance().process(Halves(), name="halves")
    changes = timed.key_by("user").window(Tumbling(2_000)).process(Changes(), name="changes")
    return Topology(
        name,
        pairs.key_by("user").process(Numbers(), name="numbers").sink("pairs"),
        limited.sink("above"),
        limited.side("log").sink("log"),
        split.sink("halves"),
        split.side("odd").sink("odd"),
        changes.sink("changes"),
        changes.side("large").sink("large"),
    )


class Pairs(CoProcessFunction):
    outputs = {MAIN: {"user": pl.String, "small": pl.Int64, "large": pl.Int64, "seen": pl.List(pl.Int64)}}
    small = ValueState(int, default=0)
    large = ListState(int, most=4)

    def process1(self, event: Any, context: ProcessContext) -> None:
        self.small += event.n
        context.timers.set(context.event_ms + 500)

    def process2(self, event: Any, context: ProcessContext) -> Iterator[dict[str, object]]:
        self.large.append(event.n)
        yield {"user": event.buyer, "small": self.small, "large": sum(self.large), "seen": list(self.large)}

    def on_timer(self, at_ms: int, context: ProcessContext) -> Iterator[dict[str, object]]:
        yield {"user": context.key, "small": self.small, "large": at_ms, "seen": []}


class Numbers(ProcessFunction):
    outputs = {MAIN: {"user": pl.String, "number": pl.Int64, "large": pl.Int64}}
    number = ValueState(int, default=0)

    def process(self, event: Any, context: ProcessContext) -> Iterator[dict[str, object]]:
        self.number += 1
        yield {"user": event.user, "number": self.number, "large": event.large}


class Above(ProcessFunction):
    outputs = {MAIN: {"user": pl.String, "total": pl.Int64}, "log": {"limits": pl.Int64}}
    total = ValueState(int, default=0)
    limits = BroadcastState(str, int)

    def process_control(self, record: Any, context: ProcessContext) -> Iterator[dict[str, object]]:
        self.limits[record.user] = record.n
        context.side("log", {"limits": len(self.limits)})
        context.apply_to_keyed_state(self.report)
        yield {"user": "limit", "total": record.n}

    def report(self, context: ProcessContext) -> Iterator[dict[str, object]]:
        if self.total > self.limits.get(context.key, 1_000):
            yield {"user": context.key, "total": self.total}
            self.total = 0

    def process(self, event: Any, context: ProcessContext) -> None:
        self.total += event.n


class Halves(ProcessFunction):
    outputs = {MAIN: {"half": pl.Int64}, "odd": {"n": pl.Int64}}

    def process(self, event: Any, context: ProcessContext) -> Iterator[dict[str, object]]:
        if event.n % 2:
            context.side("odd", {"n": event.n})
        else:
            yield {"half": event.n // 2}


class Changes(ProcessWindowFunction):
    outputs = {MAIN: {"total": pl.Int64, "change": pl.Int64}, "large": {"total": pl.Int64}}
    before = ValueState(int, default=0)

    def process(self, window: WindowView, context: GroupContext) -> Iterator[dict[str, object]]:
        total = int(window.elements["n"].sum())
        if total > 15:
            context.side("large", {"total": total})
        yield {"total": total, "change": total - self.before}
        self.before = total


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


def kind(name: str, cloud_type: str) -> StreamSchema:
    """Return a stream of CloudEvents of one type, in a topic with others, with values that Kafka keeps of a record."""
    fields = {
        "at": {"type": "timestamp not null", "from": "_cloudevent.time"},
        "user": {"type": "string not null", "from": "_kafka.key"},
        "trace": {"type": "long", "from": "_kafka.headers.trace"},
        "sent_ms": {"type": "long", "from": "_kafka.timestamp"},
        "place": {"type": "long", "from": "_kafka.offset"},
        "total": {"type": "long", "from": "order.total"},
    }
    when = {"from": "_cloudevent.type", "equals": cloud_type}
    document = {"name": name, "event_time": "at", "keys": [["user"]], "fields": fields, "envelope": "cloudevents"}
    return StreamSchema.parse(document | {"when": when})


def kinds(name: str) -> Topology:
    """Return a topology over two kinds of event in one topic, which meet under one key."""
    paid, refunded = (source(kind(n, n)) for n in ("paid", "refunded"))
    both = paid.map(total=pl.col("total")).union(refunded.map(total=-pl.col("total")))
    balance = operate([both.select("user", "total").key_by("user")], "sums", MakeRunningSums("user", "total"))
    columns = ("user", "trace", "sent_ms", "place", "total")
    return Topology(
        name,
        balance.sink("balance"),
        paid.select(*columns).sink("paid"),
        refunded.select(*columns).sink("refunded"),
    )


SENT_MS = 1_700_000_000_000


def send_kinds(kafka: KafkaSettings, topic: str) -> Sequence[Step]:
    """Send two cuts of events in both modes, one of a third kind, and one that is none."""
    producer = clients.producer(kafka)

    def send(number: int, value: object, **headers: str) -> None:
        named = [(name, text.encode()) for name, text in headers.items()]
        raw = value if isinstance(value, bytes) else orjson.dumps(value)
        producer.produce(topic, raw, b"u%d" % (number % 2), 0, timestamp=SENT_MS + number, headers=named)

    binary = {"ce_specversion": "1.0", "ce_time": "1970-01-01T00:00:01Z"}
    structured = {"specversion": "1.0", "time": "1970-01-01T00:00:02Z"}
    send(0, {"order": {"total": 5}}, **binary, ce_type="paid", trace="70")
    send(1, structured | {"type": "paid", "data": {"order": {"total": 7}}}, other="x")
    send(2, {"order": {"total": 1}}, **binary, ce_type="opened")
    send(3, {"order": {"total": 2}}, **binary, ce_type="refunded", trace="x")
    assert producer.flush(30) == 0
    send(4, structured | {"type": "refunded", "data": {"order": {"total": 3}}}, trace="74")
    send(5, b"{")
    send(6, {"order": {"total": 9}}, **binary, ce_type="paid")
    assert producer.flush(30) == 0
    return [Step({(topic, 0): end}, 1_000_000 + end) for end in (4, 7)]


def check_kinds(kafka: KafkaSettings, app: App) -> None:
    """Check the rows of the kinds, and that what is none is a dead letter."""

    def row(number: int, trace: int | None, total: int) -> dict[str, object]:
        return {"user": f"u{number % 2}", "trace": trace, "sent_ms": SENT_MS + number, "place": number, "total": total}

    def rows(lane: str) -> list[dict[str, object]]:
        return [orjson.loads(record.value or b"") for record in read_topic(kafka, app.lanes[lane])]

    assert sorted(rows("paid"), key=itemgetter("place")) == [row(0, 70, 5), row(1, None, 7), row(6, None, 9)]
    assert rows("refunded") == [row(4, 74, 3)]
    totals = {"u0": 5 - 3 + 9, "u1": 7}
    assert {one["user"]: one["total"] for one in rows("balance")} == totals
    letters = read_topic(kafka, app.lanes["deadletters"])
    assert {(one.header("source_offset"), one.header("reason_code")) for one in letters} == {
        (b"3", b"wrong_type"),
        (b"5", b"not_json"),
    }


def test_output_on_spark_equals_output_in_process_also_after_a_restart(
    tmp_path: Path, kafka: KafkaSettings, spark_jars: Path, new_topic: NewTopic
) -> None:
    topic = new_topic("sales")
    scripts: dict[str, Script] = {}
    steps = send(kafka, topic)
    topologies = {topology.name: topology for topology in (two_steps("steps"), connected("connected"))}
    for name, topology in topologies.items():
        app = topology.app(topics={"sales": topic}, shards=3)
        scripts[name] = Script(app, kafka, tmp_path / f"checkpoint-{name}", SparkSettings(spark_jars), steps)
    shared = new_topic("kinds")
    app = kinds("kinds").app(topics={"paid": shared, "refunded": shared}, shards=3)
    of_kinds = Script(app, kafka, tmp_path / "checkpoint-kinds", SparkSettings(spark_jars), send_kinds(kafka, shared))
    first = [replace(script, steps=script.steps[: len(script.steps) // 2]) for script in (*scripts.values(), of_kinds)]
    run(tmp_path, [*first, *scripts.values(), of_kinds])
    check_kinds(kafka, app)
    for name, topology in topologies.items():
        wanted, lanes = in_process(topology), scripts[name].app.lanes
        for lane in sorted({*lanes} - {"deadletters"}):
            assert expected(wanted[lane]), lane
            assert objects(kafka, lanes[lane]) == expected(wanted[lane]), lane
        letters = read_topic(kafka, lanes["deadletters"])
        assert sorted(str(letter.value) for letter in letters) == sorted(str(letter.value) for letter in wanted.dead)
        codes = {letter.header("reason_code") for letter in letters}
        assert codes == ({b"failed_pane"} if name == "steps" else set())
