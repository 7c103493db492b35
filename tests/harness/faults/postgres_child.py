"""A small app that dies at a given step: ``test_crashes`` runs it as a process of its own.

It writes cuts ``0 .. CUTS-1`` of a few rows each to an append table and a keyed one, and keeps, like Spark, a log of
the cuts that it knows to be done, written *after* the commit. Started again, it goes on after the last cut in that log,
so a crash between the commit and the log replays a cut. One row of each cut is rejected by the keyed table.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pyarrow as pa

from streamcore.cuts.writer_id import WriterId
from streamcore.sinks.postgres.connection import Connection
from streamcore.sinks.postgres.ledger import PostgresLedger, PostgresLedgerEntry
from streamcore.sinks.postgres.settings import PostgresSettings, TableName, TableSpec
from streamcore.sinks.postgres.sink import PostgresSink, PostgresStep
from streamcore.sinks.sink import SinkHooks
from tests.harness.cut_ids import cut_id

CUTS = 4
ROWS = 50
SCHEMA = pa.schema([("cut", pa.int64()), ("n", pa.int64()), ("text", pa.large_string())])
TABLES = {
    "log": TableSpec(TableName("public", "log")),
    "latest": TableSpec(TableName("public", "latest"), ("n",)),
}
CREATE = (
    "CREATE TABLE log (cut bigint, n bigint, text text)",
    "CREATE TABLE latest (cut bigint, n bigint PRIMARY KEY CHECK (n <> 7), text text)",
)


class ForgetfulSink(PostgresSink):
    """The protection switched off: it never sees what the ledger says."""

    def lock_ledger(self, connection: Connection, ledger: PostgresLedger) -> PostgresLedgerEntry:
        return PostgresLedgerEntry(super().lock_ledger(connection, ledger).epoch, None)


def rows_of(cut: int) -> pa.Table:
    """Return the rows of a cut: a pure function of its number, as the protocol demands."""
    return pa.table(
        [
            pa.array([cut] * ROWS, pa.int64()),
            pa.array(range(ROWS), pa.int64()),
            pa.array([f"{cut}:{n}" for n in range(ROWS)], pa.large_string()),
        ],
        schema=SCHEMA,
    )


def main(settings: PostgresSettings, log: Path, step: str, kind: type[PostgresSink]) -> None:
    """Write the cuts that are not in ``log``, and die at ``step``."""
    done = log.read_text().splitlines()
    cut = int(done[-1].split()[0]) + 1 if done else 0

    def reached(at: str) -> None:
        if at == step and (cut == 2 or at == PostgresStep.FENCED):
            os.kill(os.getpid(), signal.SIGKILL)

    sink = kind("db", settings, {"log": SCHEMA, "latest": SCHEMA}, SinkHooks(on_step=reached))
    sink.open(WriterId("app", 1))
    while cut < CUTS:
        written = sink.write(cut_id(cut), {"log": rows_of(cut), "latest": rows_of(cut)})
        with log.open("a") as file:
            file.write(
                f"{cut} {written.outcome} {written.rows} {[(r.lane, r.row, r.code) for r in written.rejected]}\n"
            )
        cut += 1
    sink.close()
