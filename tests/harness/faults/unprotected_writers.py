"""Writers without their protection against repeated cuts, to show that tests of it can fail.

``python -m tests.harness.faults.unprotected_writers headgate_etl --settings F`` runs a service so.
"""

from __future__ import annotations

import os
import runpy
import sys
from collections.abc import Mapping
from typing import Any

from streamcore.cuts.cut_id import CutId
from streamcore.kafka.exactly_once import ExactlyOnceWriter
from streamcore.sinks.delta import sink as delta
from streamcore.sinks.iceberg import sink as iceberg
from streamcore.sinks.iceberg.table import OpenIcebergTable
from streamcore.sinks.parquet import sink as parquet
from streamcore.sinks.parquet.notes import FolderNote
from streamcore.sinks.postgres import sink as postgres
from streamcore.sinks.postgres.connection import Connection
from streamcore.sinks.postgres.ledger import PostgresLedger, PostgresLedgerEntry
from streamcore.sinks.webhook import sink as webhook
from streamcore.spark import runner


class ForgetfulPostgres(postgres.PostgresSink):
    """Never sees which cut was written last."""

    def lock_ledger(self, connection: Connection, ledger: PostgresLedger) -> PostgresLedgerEntry:
        return PostgresLedgerEntry(super().lock_ledger(connection, ledger).epoch, None)


class ForgetfulDelta(delta.DeltaSink):
    """Commits without cut and epoch."""

    def _marks(self, lane: str, cut: CutId) -> Mapping[str, int]:
        return {}


class ForgetfulIceberg(iceberg.IcebergSink):
    """Never sees which cut was written last."""

    def _read_ledger(self, table: OpenIcebergTable, lane: str) -> tuple[int | None, CutId | None]:
        return super()._read_ledger(table, lane)[0], None


class ForgetfulParquet(parquet.ParquetSink):
    """Never sees which cut was written last."""

    def _is_written(self, note: FolderNote, cut: CutId) -> bool:
        return False


class ForgetfulWebhook(webhook.WebhookSink):
    """Gives the requests of each process other ids."""

    def _message_id(self, *where: Any) -> str:
        return f"{super()._message_id(*where)}-{os.getpid()}"


class ForgetfulKafka(ExactlyOnceWriter):
    """Ignores every marker."""

    def _is_done(self, cut: CutId) -> bool:
        return False


def forget() -> None:
    """Replace the writers of services by these."""
    vars(postgres)["PostgresSink"] = ForgetfulPostgres
    vars(delta)["DeltaSink"] = ForgetfulDelta
    vars(iceberg)["IcebergSink"] = ForgetfulIceberg
    vars(parquet)["ParquetSink"] = ForgetfulParquet
    vars(webhook)["WebhookSink"] = ForgetfulWebhook
    vars(runner)["ExactlyOnceWriter"] = ForgetfulKafka


def main() -> None:
    """Run the service that the first argument names."""
    forget()
    service = sys.argv.pop(1)
    runpy.run_module(service, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
