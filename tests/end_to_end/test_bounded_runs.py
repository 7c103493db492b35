"""Bounded input on Spark: files and closed ranges of topics give the output of the same rows in process, to the end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import orjson
import polars as pl
import pytest

import streamcore as sc
from conftest import NewTopic
from streamcore.files.listing import FileInput
from streamcore.kafka.readers import read_topic
from streamcore.kafka.settings import KafkaSettings
from streamcore.limits import Limits
from streamcore.wire.lane_rows import LaneRows
from tests.harness.apps.orders import send_raw
from tests.harness.apps.scripted_cuts import Script, run

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.slow]

ORDERS = sc.StreamSchema.parse(
    {
        "name": "orders",
        "event_time": "at",
        "keys": [["shop"]],
        "fields": {"at": "timestamp not null", "shop": "string not null", "amount": "long not null"},
    }
)
ROWS = [
    {"at": f"2026-03-02T{10 + n // 3600:02}:{n // 60 % 60:02}:{n % 60:02}+00:00", "shop": f"s{n % 3}", "amount": n % 97}
    for n in range(400)
]
CUT = 70  # events, so that no input fits in one cut


def topology(name: str, format: sc.Json | sc.Csv) -> sc.Topology:
    """Windows that only the end of the input closes, and totals without windows."""
    orders = sc.source(ORDERS, sc.bounded_out_of_orderness("10s"), format=format)
    by_minute = orders.key_by("shop").window(sc.Tumbling("1m")).late_to("late")
    totals = by_minute.aggregate("totals", orders=sc.Count(), amount=sc.Sum("amount"))
    day = orders.key_by().window(sc.Tumbling("1d")).aggregate("day", orders=sc.Count())
    return sc.Topology(
        name,
        totals.select("shop", "window_start", "orders", "amount").sink("totals", key="shop"),
        day.select("window_start", "orders").sink("day"),
        orders.filter(pl.col("amount") > 90).sink("large"),
    )


def lines(rows: Sequence[dict[str, object]]) -> bytes:
    return b"".join(orjson.dumps(row) + b"\n" for row in rows)


def table(rows: Sequence[dict[str, object]]) -> pl.DataFrame:
    return pl.DataFrame(rows).with_columns(pl.col("at").str.to_datetime(time_unit="ms", time_zone="UTC"))


def expected(rows: Sequence[dict[str, object]]) -> dict[str, Counter[bytes]]:
    """Return the records of each lane, of one cut in process and the end of the stream."""
    result = sc.simulate(topology("expected", sc.Json()), {"orders": table(rows)})
    assert result["late"].is_empty()
    assert result["day"].height == 1
    return {lane: Counter(LaneRows(lane, (), result[lane]).values()) for lane in ("totals", "day", "large")}


def test_files_and_closed_ranges_give_the_output_of_the_same_rows_in_process(
    tmp_path: Path, kafka: KafkaSettings, spark_jars: Path, new_topic: NewTopic
) -> None:
    scripts: list[tuple[Script, Sequence[dict[str, object]]]] = []

    def add(
        stem: str,
        rows: Sequence[dict[str, object]],
        topic: str,
        files: FileInput | None,
        ending: str | None,
        *,
        live: bool = False,
        format: sc.Json | sc.Csv | None = None,
    ) -> Script:
        name = f"{topic.replace('.', '-').replace('_', '-')}-{stem}"[-40:].lstrip("-0123456789")
        app = topology(name, format or sc.Json()).app(
            topics={"orders": topic}, shards=2, limits=Limits(events_per_cut=CUT)
        )
        bound = replace(app, sources=(replace(app.sources[0], files=files, live=live or files is None),))
        spark = sc.SparkSettings(spark_jars, parallelism=2)
        script = Script(bound, kafka, tmp_path / stem, spark, (), ending=ending)
        scripts.append((script, rows))
        return script

    # Lines in three files, one of them in a subfolder; blank lines are no records, and other files do not count.
    folder = tmp_path / "input-lines"
    (folder / "b").mkdir(parents=True)
    (folder / "a.jsonl").write_bytes(lines(ROWS[:150]) + b"\n")
    (folder / "b" / "1.ndjson").write_bytes(lines(ROWS[150:151]))
    (folder / "c.json").write_bytes(b"\n" + lines(ROWS[151:]).rstrip(b"\n"))
    (folder / "_notes.txt").write_bytes(b"not a record\n")
    (folder / "readme.md").write_bytes(b"not a record\n")
    no_topic = new_topic("files")
    by_lines = add("lines", ROWS, f"{no_topic}-lines", FileInput(str(folder)), None)
    # Parquet, in files of several cuts.
    parquet = tmp_path / "input-parquet"
    parquet.mkdir()
    table(ROWS[:250]).write_parquet(parquet / "1.parquet", row_group_size=40)
    table(ROWS[250:]).with_columns(pl.col("at").dt.replace_time_zone(None)).write_parquet(parquet / "2.parquet")
    add("parquet", ROWS, f"{no_topic}-parquet", FileInput(str(parquet)), None)
    # CSV with a header, one file.
    csv = tmp_path / "orders.csv"
    csv.write_text("at,shop,amount\n" + "".join(f"{r['at']},{r['shop']},{r['amount']}\n" for r in ROWS))
    add("csv", ROWS, f"{no_topic}-csv", FileInput(str(csv), header=True), None, format=sc.Csv())
    # A closed range of a topic: later records are not read.
    closed = new_topic("closed")
    send_raw(kafka, closed, [(None, orjson.dumps(row)) for row in ROWS])
    add("closed", ROWS[:333], closed, None, "333")
    # History from files, then the topic, to what is there at the start.
    history = tmp_path / "history.jsonl"
    history.write_bytes(lines(ROWS[:200]))
    later = new_topic("later", 2)
    send_raw(kafka, later, [(None, orjson.dumps(row)) for row in ROWS[200:]])
    add("hybrid", ROWS, later, FileInput(str(history)), "latest", live=True)

    # A finished run has nothing to do when it is started again, also with a file more.
    before = tmp_path / "reports-before"

    def add_file() -> None:
        before.write_bytes(by_lines.reports.read_bytes())
        (folder / "d.jsonl").write_bytes(lines(ROWS[:1]))

    run(tmp_path, [*(script for script, _ in scripts), replace(by_lines, prepare=add_file)])
    assert by_lines.reports.read_bytes() == before.read_bytes()
    for script, rows in scripts:
        wanted = expected(rows)
        for lane, records in wanted.items():
            written = Counter(record.value or b"" for record in read_topic(kafka, script.app.lanes[lane]))
            assert written == records, (script.app.name, lane)
        for lane in ("late", "deadletters"):
            assert read_topic(kafka, script.app.lanes[lane]) == [], (script.app.name, lane)
        cuts = len(script.reports.read_bytes().splitlines())
        assert cuts > 4, "it ran in several cuts"
