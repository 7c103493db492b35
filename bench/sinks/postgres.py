"""Compares the PostgreSQL sink with a client without guarantees: one server, the same rows, alternating runs.

    POLARS_MAX_THREADS=1 python -m bench.sinks.postgres [--rows 200000] [--turns 5]

Rows have eight columns, among them text, decimal and timestamp. Cuts have 20,000 rows. Half of all rows replace a row
of an earlier cut. The bare client uses psycopg as most programs do: a temporary table, COPY and ``INSERT ... ON
CONFLICT``, in one transaction per cut, without a ledger and without a check of keys in a cut. It has three variants,
all of which start with data that is built before the measurement. ``text`` copies encoded text, the fastest way for any
client; ``rows`` passes Python rows to psycopg one by one; ``binary`` does so in COPY's binary format. After each run,
all rows of the table are compared with those of a dictionary.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
import pyarrow as pa

from bench.harness.cpu import load_average, process_cpu_s
from bench.harness.result import Result, show
from bench.harness.yardstick import fixed_work_ms
from headgate.console.messages import Print, to_stderr
from headgate.local import processes
from headgate.local.servers.base import Lifetime
from headgate.local.servers.postgres import EmbeddedPostgres, PostgresServerSettings
from streamcore.cuts.writer_id import WriterId
from streamcore.sinks.postgres.settings import PostgresSettings, TableName, TableSpec
from streamcore.sinks.postgres.sink import PostgresSink
from tests.harness.cut_ids import cut_id

CUT = 20_000
SCHEMA = pa.schema(
    [
        ("id", pa.large_string()),
        ("customer", pa.int64()),
        ("amount", pa.decimal128(12, 2)),
        ("status", pa.large_string()),
        ("country", pa.large_string()),
        ("quantity", pa.int64()),
        ("at", pa.timestamp("ms", "UTC")),
        ("note", pa.large_string()),
    ]
)
_COLUMNS = ", ".join(SCHEMA.names)
_CREATE = """CREATE TABLE {} (id text{}, customer bigint, amount numeric(12,2), status text, country text,
 quantity bigint, at timestamptz, note text)"""
_UPSERT = f"""INSERT INTO bare ({_COLUMNS}) SELECT {_COLUMNS} FROM stage ON CONFLICT (id) DO UPDATE SET
 {", ".join(f"{name} = EXCLUDED.{name}" for name in SCHEMA.names[1:])}"""
_EPOCH = datetime(2025, 10, 9, tzinfo=UTC)
Row = tuple[Any, ...]


def make_rows(cut: int, count: int) -> list[Row]:
    """Return the rows of a cut. Ids are unique in a cut; every second cut repeats the ids of the cut before it."""
    random = np.random.default_rng(cut)
    names = [f"order-{(cut // 2) * CUT + n:09d}" for n in range(count)]
    cents, customers = random.integers(0, 10**9, count).tolist(), random.integers(0, 10**6, count).tolist()
    return [
        (
            names[n],
            customers[n],
            Decimal(cents[n]).scaleb(-2),
            ("new", "paid", "sent")[cents[n] % 3],
            ("DE", "FR", "IT", None)[cents[n] % 4],
            cents[n] % 9,
            _EPOCH + timedelta(milliseconds=cents[n]),
            f'a note of some length, with "quotes" and commas, number {customers[n]}' if cents[n] % 5 else "",
        )
        for n in range(count)
    ]


@dataclass(frozen=True)
class Cuts:
    """The rows of all cuts, in the form that each side needs. ``final``: the expected rows of the table, by id."""

    rows: list[list[Row]]
    tables: list[pa.Table]
    copy_texts: list[bytes]
    final: list[Row]

    @classmethod
    def make(cls, total: int) -> Cuts:
        rows = [make_rows(cut, CUT) for cut in range(total // CUT)]
        final = {row[0]: row for cut in rows for row in cut}
        return cls(
            rows, list(map(_to_table, rows)), list(map(_to_copy_text, rows)), [final[key] for key in sorted(final)]
        )

    @property
    def count(self) -> int:
        return sum(map(len, self.rows))


def _to_table(rows: Sequence[Row]) -> pa.Table:
    columns = zip(*rows, strict=True)
    return pa.table([pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)], schema=SCHEMA)


def _to_copy_text(rows: Sequence[Row]) -> bytes:
    """Encode the rows in COPY's text format. No value needs an escape."""
    lines = ("\t".join("\\N" if value is None else str(value) for value in row) for row in rows)
    return "\n".join(lines).encode() + b"\n"


def _copy_rows(copy: psycopg.Copy, rows: Sequence[Row], text: bytes, kind: str) -> None:
    if kind == "text":
        copy.write(text)
        return
    if kind == "binary":
        copy.set_types(["text", "int8", "numeric", "text", "text", "int8", "timestamptz", "text"])
    for row in rows:
        copy.write_row(row)


@dataclass(frozen=True)
class Run:
    """The wall-clock seconds of a run, and the CPU-seconds of the client and of all processes of the server."""

    seconds: float
    client: float
    server: float
    yardstick_ms: float


Connect = Callable[[], "psycopg.Connection[Row]"]


def run_bare_client(connect: Connect, cuts: Cuts, kind: str) -> None:
    """Write the cuts with the bare client, which shares no code with the sink. ``kind``: text, rows or binary."""
    with connect() as connection:
        connection.execute("SET TIME ZONE 'UTC'")
        connection.execute(_CREATE.format("pg_temp.stage", "") + " ON COMMIT DELETE ROWS")
        connection.commit()
        how = "COPY stage FROM STDIN" + (" (FORMAT binary)" if kind == "binary" else "")
        for rows, text in zip(cuts.rows, cuts.copy_texts, strict=True):
            with connection.cursor() as cursor, cursor.copy(how) as copy:
                _copy_rows(copy, rows, text, kind)
            connection.execute(_UPSERT)
            connection.commit()


def measure(server: EmbeddedPostgres, connect: Connect, table: str, cuts: Cuts, run: Callable[[], None]) -> Run:
    """Create an empty table, measure a run that fills it, and compare its rows with the expected rows."""
    with connect() as connection:
        connection.execute(f"DROP TABLE IF EXISTS {table}")
        connection.execute("DROP TABLE IF EXISTS headgate_ledger")
        connection.execute(_CREATE.format(table, " PRIMARY KEY"))
        connection.commit()
        connection.autocommit = True
        connection.execute("CHECKPOINT")
    yardstick, before = fixed_work_ms(), _server_cpu(server)
    client, started = time.process_time(), time.perf_counter()
    run()
    seconds, client = time.perf_counter() - started, time.process_time() - client
    after = _server_cpu(server)
    _verify(connect, table, cuts)
    return Run(seconds, client, after - before, (yardstick + fixed_work_ms()) / 2)


def _server_cpu(server: EmbeddedPostgres) -> float:
    """Return the CPU-seconds of the server, with those of ended backends, which Linux adds to the first process."""
    running = server.running
    assert running is not None
    time.sleep(0.3)  # a closed connection's backend ends
    running_s = sum(process_cpu_s(pid) for pid in (running.pid, *processes.children(running.pid)))
    ticks = Path(f"/proc/{running.pid}/stat").read_text().rsplit(")", 1)[1].split()[13:15]
    return running_s + sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")


def _verify(connect: Connect, table: str, cuts: Cuts) -> None:
    with connect() as connection:
        connection.execute("SET TIME ZONE 'UTC'")
        found = connection.execute(f'SELECT {_COLUMNS} FROM {table} ORDER BY id COLLATE "C"').fetchall()
    if found != cuts.final:
        raise RuntimeError(f"{table}: {len(found)} rows, expected {len(cuts.final)}; the rows differ")


def postgres_sink(folder: Path, total: int, turns: int, print_message: Print) -> Result:
    """Measure all sides in turns. Return the medians, and the sink's share of each bare client's rows per second.

    ``folder``: for the server; ``total``: rows per run; ``turns``: runs per side.
    """
    settings = PostgresServerSettings(folder, lifetime=Lifetime.WITH_PARENT, extra=(("max_wal_size", "4GB"),))
    server, cuts = EmbeddedPostgres(settings, print_message=print_message), Cuts.make(total)
    server.start()

    def connect() -> psycopg.Connection[Row]:
        password = server.password_file.read_text(encoding="utf-8")
        return psycopg.connect(
            host=server.host, port=server.port, dbname=server.database, user=server.user, password=password
        )

    runs: dict[str, list[Run]] = {}
    try:
        for turn in range(turns):
            for kind, run in _sides(server, connect, cuts).items():
                table = "ours" if kind == "sink" else "bare"
                runs.setdefault(kind, []).append(measure(server, connect, table, cuts, run))
                print_message(f"bench: turn {turn}, {kind}: {runs[kind][-1].seconds:.2f} s")
    finally:
        server.kill()
        server.delete()
    return _result(runs, cuts)


def _sides(server: EmbeddedPostgres, connect: Connect, cuts: Cuts) -> dict[str, Callable[[], None]]:
    return {
        "bare-text": lambda: run_bare_client(connect, cuts, "text"),
        "sink": lambda: _run_sink(server, cuts),
        "bare-rows": lambda: run_bare_client(connect, cuts, "rows"),
        "bare-binary": lambda: run_bare_client(connect, cuts, "binary"),
    }


def _run_sink(server: EmbeddedPostgres, cuts: Cuts) -> None:
    settings = PostgresSettings(
        server.host,
        server.database,
        server.user,
        {"orders": TableSpec(TableName("public", "ours"), ("id",))},
        port=server.port,
        password_file=server.password_file,
    )
    sink = PostgresSink("bench", settings, {"orders": SCHEMA})
    sink.open(WriterId("bench", 1))
    for batch, table in enumerate(cuts.tables):
        sink.write(cut_id(batch), {"orders": table})
    sink.close()


def _result(runs: dict[str, list[Run]], cuts: Cuts) -> Result:
    result: Result = {"workload": "postgres-sink", "rows": cuts.count, "cut": CUT, "turns": len(runs["sink"])}
    for kind, found in runs.items():
        result[kind] = {
            "rows_per_second": round(cuts.count / statistics.median(r.seconds for r in found)),
            "client_cpu_seconds_per_million": round(statistics.median(r.client for r in found) * 1e6 / cuts.count, 2),
            "server_cpu_seconds_per_million": round(statistics.median(r.server for r in found) * 1e6 / cuts.count, 2),
            "yardstick_ms": round(statistics.median(r.yardstick_ms for r in found), 1),
        }
    result["share_of_rows_per_second"] = {
        kind: round(
            statistics.median(
                bare_run.seconds / sink_run.seconds for bare_run, sink_run in zip(bare_runs, runs["sink"], strict=True)
            ),
            2,
        )
        for kind, bare_runs in runs.items()
        if kind != "sink"
    }
    return result | {"load_average": load_average(), "checked": True}


def main() -> int:
    """Measure the PostgreSQL sink without Kafka and Spark, and print one JSON object."""
    parser = argparse.ArgumentParser(prog="bench.sinks.postgres")
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--turns", type=int, default=5)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        show(postgres_sink(Path(folder) / "server", arguments.rows, arguments.turns, to_stderr))
    return 0


if __name__ == "__main__":
    sys.exit(main())
