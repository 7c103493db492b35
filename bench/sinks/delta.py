"""Compares Headgate's Delta sink with Spark's, and with its Iceberg and Parquet sinks: ``python -m bench.sinks.delta``.

Each side writes a million rows in cuts of 50,000 to a table. Both read the same Parquet files, one per cut, and
put the cut's number into each commit (Spark: ``txnAppId`` and ``txnVersion``). Each side runs in a child process. There
are figures for all cuts with the start, and for the second half of the cuts, in which a JVM is warm. DuckDB compares
count and sums of the table's rows with those of the files.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import duckdb
import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from bench.harness.cpu import Cpu, SessionMeter, load_average
from bench.harness.result import Result, show
from bench.harness.yardstick import Yardstick
from headgate.local import jars, java
from tests.harness.cut_ids import cut_id
from tests.harness.oracles import iceberg_files
from tests.harness.oracles.parquet_notes import counted_files

if TYPE_CHECKING:
    from streamcore.sinks.sink import Sink

_SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("day", pa.large_string()),
        ("user", pa.large_string()),
        ("amount", pa.decimal128(12, 2)),
        ("at", pa.timestamp("ms", "UTC")),
        ("risk", pa.float64()),
        ("ok", pa.bool_()),
        ("quantity", pa.int64()),
    ]
)
_DAYS = 4
_START_MS = 1_700_000_000_000


def main() -> int:
    """Measure the sides, or write the rows as the child process of one side."""
    parser = argparse.ArgumentParser(prog="bench.sinks.delta", description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--per-cut", type=int, default=50_000)
    parser.add_argument("--partitioned", action="store_true", help="partition the table by a column with four values")
    parser.add_argument("--sides", nargs="*", choices=sorted(_SIDES), default=sorted(_SIDES))
    parser.add_argument("--child", nargs=4, metavar=("SIDE", "CUTS", "TABLE", "JARS"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        side, cuts, table, library = arguments.child
        _SIDES[side](
            sorted(Path(cuts).glob("*.parquet")), Path(table), Path(library), partitioned=arguments.partitioned
        )
        return 0
    with TemporaryDirectory(prefix="headgate-bench-") as folder:
        cuts = Path(folder, "cuts")
        _generate(cuts, arguments.rows, arguments.per_cut)
        for side in arguments.sides:
            show(_measure(side, cuts, Path(folder, side), arguments.rows, partitioned=arguments.partitioned))
    return 0


def _generate(cuts: Path, rows: int, per_cut: int) -> None:
    cuts.mkdir()
    random = np.random.default_rng(1)
    for number, start in enumerate(range(0, rows, per_cut)):
        count = min(per_cut, rows - start)
        ids = np.arange(start, start + count)
        columns = [
            pa.array(ids),
            pa.array(np.char.add("2024-01-0", (1 + ids % _DAYS).astype(str))),
            pa.array(np.char.add("user-", random.integers(0, 100_000, count).astype(str))),
            pa.array(random.integers(100, 10**8, count)).cast(pa.decimal128(19, 0)).cast(pa.decimal128(21, 2)),
            pa.array(_START_MS + ids * 7),
            pa.array(random.random(count)),
            pa.array(ids % 3 == 0),
            pa.array(random.integers(1, 20, count)),
        ]
        typed = [c.cast(field.type) for c, field in zip(columns, _SCHEMA, strict=True)]
        pq.write_table(pa.table(typed, schema=_SCHEMA), cuts / f"{number:05}.parquet")


def _measure(side: str, cuts: Path, table: Path, rows: int, *, partitioned: bool) -> Result:
    library = jars.ensure(jars.JarSet.DELTA, java.ensure()) if side == "spark" else Path()
    command = [sys.executable, "-m", "bench.sinks.delta", "--child", side, str(cuts), str(table), str(library)]
    command += ["--partitioned"] if partitioned else []
    samples: list[tuple[float, Cpu, int]] = []
    started = time.perf_counter()
    with (
        Yardstick() as yardstick,
        subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True) as child,
    ):
        assert child.stdout is not None
        meter = SessionMeter(child.pid)
        for line in child.stdout:
            samples.append((time.perf_counter(), meter.read(), orjson.loads(line)["rows"]))
    if child.returncode:
        raise RuntimeError(f"the child process of side {side} ended with {child.returncode}")
    half = len(samples) // 2
    (begin_s, begin, _), (end_s, end, _) = samples[half - 1], samples[-1]
    warm = sum(count for _, _, count in samples[half:])
    return {
        "workload": "delta-sink",
        "side": side,
        "partitioned": partitioned,
        "rows": rows,
        "cuts": len(samples),
        "rows_per_second_steady": round(warm / (end_s - begin_s)),
        "cpu_seconds_per_million_steady": round((end - begin).total * 1e6 / warm, 2),
        "seconds": round(end_s - started, 1),
        "cpu_seconds_per_million": round(end.total * 1e6 / rows, 2),
        "load_average": load_average(),
        **yardstick.figures(),
        **_check(cuts, _FILES.get(side, _delta_files)(table)),
    }


def _delta_files(table: Path) -> list[str]:
    adds = [orjson.loads(x) for f in (table / "_delta_log").glob("*.json") for x in f.read_bytes().splitlines()]
    removed = {a["remove"]["path"] for a in adds if "remove" in a}
    return [str(table / a["add"]["path"]) for a in adds if "add" in a and a["add"]["path"] not in removed]


def _iceberg_files(table: Path) -> list[str]:
    return [str(file) for file in iceberg_files.live_files(table, "bench.rows")]


def _check(cuts: Path, listed: list[str]) -> Result:
    """Raise ``RuntimeError`` unless the files of the table hold the rows of all cuts."""
    query = 'SELECT count(*), sum(id), sum(amount), sum(epoch_ms("at")), sum(quantity) FROM read_parquet(?)'
    with duckdb.connect() as connection:
        found = connection.execute(query, [listed]).fetchone()
        given = connection.execute(query, [[str(cut) for cut in cuts.glob("*.parquet")]]).fetchone()
    if found != given:
        raise RuntimeError(f"{len(listed)} files: count and sums are {found}, expected {given}")
    return {"checked": True, "files": len(listed)}


def _write_with_headgate(cuts: list[Path], table: Path, _: Path, *, partitioned: bool) -> None:
    from streamcore.sinks.delta.settings import DeltaSettings, DeltaTableSpec
    from streamcore.sinks.delta.sink import DeltaSink

    spec = DeltaTableSpec(str(table), ("day",) if partitioned else ())
    _write_cuts(DeltaSink(DeltaSettings({"rows": spec}), {"rows": _SCHEMA}), cuts)


def _write_parquet(cuts: list[Path], table: Path, _: Path, *, partitioned: bool) -> None:
    from streamcore.sinks.parquet.settings import ParquetFolderSpec, ParquetSettings
    from streamcore.sinks.parquet.sink import ParquetSink

    spec = ParquetFolderSpec(table, ("day",) if partitioned else ())
    _write_cuts(ParquetSink(ParquetSettings({"rows": spec}), {"rows": _SCHEMA}), cuts)


def _write_iceberg(cuts: list[Path], table: Path, _: Path, *, partitioned: bool) -> None:
    from streamcore.sinks.iceberg.settings import IcebergCatalog, IcebergSettings, IcebergTableSpec
    from streamcore.sinks.iceberg.sink import IcebergSink

    table.mkdir()
    catalog = IcebergCatalog(
        {"type": "sql", "uri": f"sqlite:///{table}/catalog.db", "warehouse": f"file://{table}/warehouse"}
    )
    spec = IcebergTableSpec("bench.rows", ("day",) if partitioned else ())
    _write_cuts(IcebergSink(IcebergSettings(catalog, {"rows": spec}), {"rows": _SCHEMA}), cuts)


def _write_cuts(sink: Sink, cuts: list[Path]) -> None:
    from streamcore.cuts.writer_id import WriterId

    sink.open(WriterId("bench", 1))
    for batch, cut in enumerate(cuts):
        rows = pq.read_table(cut, schema=_SCHEMA)
        sink.write(cut_id(batch), {"rows": rows})
        _report_rows(rows.num_rows)
    sink.close()


def _write_with_spark(cuts: list[Path], table: Path, library: Path, *, partitioned: bool) -> None:
    from streamcore.spark.session import SparkSettings, open_session

    delta = {
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.databricks.delta.snapshotPartitions": "2",  # the default of 50 tasks per snapshot is for clusters
    }
    both_compilers = ("-XX:TieredStopAtLevel=4",)
    spark = open_session("bench-delta", SparkSettings(jars=library, java_options=both_compilers, extra=delta))
    for batch, cut in enumerate(cuts):
        frame = spark.read.parquet(str(cut))
        writer = frame.write.format("delta").mode("append").option("txnAppId", "bench").option("txnVersion", batch)
        (writer.partitionBy("day") if partitioned else writer).save(str(table))
        _report_rows(pq.read_metadata(cut).num_rows)
    spark.stop()


def _report_rows(rows: int) -> None:
    sys.stdout.buffer.write(orjson.dumps({"rows": rows}) + b"\n")
    sys.stdout.buffer.flush()


_SIDES: dict[str, Callable[..., None]] = {
    "headgate": _write_with_headgate,
    "spark": _write_with_spark,
    "iceberg": _write_iceberg,
    "parquet": _write_parquet,
}
_FILES: dict[str, Callable[[Path], list[str]]] = {"iceberg": _iceberg_files, "parquet": counted_files}

if __name__ == "__main__":
    sys.exit(main())
