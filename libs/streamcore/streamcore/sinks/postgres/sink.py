"""Writes each cut to PostgreSQL exactly once, even if the process is killed at any point.

One transaction holds every row of a cut and the ledger row that records it. The protocol:

0. ``open``: lock the ledger row of (app, sink). If a later epoch owns it, raise ``Fenced``. If an earlier one does,
   take it over and clear its last cut, because the batches of an epoch begin at 0.
1. Begin a transaction and lock the ledger row, so that one process at a time continues. If a later epoch owns it, raise
   ``Fenced``. If it holds this cut, the cut is written: return the recorded result and stop. If it holds a later one,
   or this number with another digest, raise ``Fenced``.
2. Copy the final rows of the cut (the last one of each key) into staging tables.
3. Move them to their tables, without the rows that the server rejects for their values (``apply_rows``).
4. Write batch number, digest and the rejected rows into the ledger row.
5. Commit.

The state that a crash just after each step leaves (``PostgresStep``; the tests crash there):

- ``FENCED`` (0): a ledger row of this epoch and no rows. The next process begins at step 0.
- ``LOCKED``, ``STAGED``, ``APPLIED``, ``RECORDED`` (1 to 4): an open transaction. The server rolls it back as soon as
  the operating system closes the socket, or else after ``Timeouts.silence_ms``. Until then the next process waits for
  the lock, within its ``RetryPolicy``.
- ``COMMITTED`` (5): the cut and its ledger row are committed, but the app has not recorded the cut as done. It writes
  the cut again, and step 1 returns the recorded result.

**Unknown outcome.** If the connection is lost during a commit, the commit may or may not have happened. The sink
connects again, and step 1 reads the true state. It does this after every failure that may pass (``errors``), within
``RetryPolicy``, and calls ``still_owner`` before each attempt.

**A server that lost commits.** If the ledger is below a batch that is known to be written, the server has lost commits
that it confirmed (a stale replica took over, or a backup was restored). The sink raises ``Permanent``, because the
cuts in between are lost.

**Readers** in other sessions see all of a cut or nothing of it, in any isolation level. ``synchronous_commit`` is on.
"""

from __future__ import annotations

import enum
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import TypeVar

import psycopg
import pyarrow as pa

from streamcore.cuts.cut_id import CutId
from streamcore.cuts.writer_id import WriterId
from streamcore.errors import ConfigError, Permanent, Retryable
from streamcore.sinks.postgres.apply_rows import RowApplier
from streamcore.sinks.postgres.catalog import check_database, check_table
from streamcore.sinks.postgres.connection import Connection, close_quietly, connect
from streamcore.sinks.postgres.errors import translate_error
from streamcore.sinks.postgres.lane_table import lane_tables
from streamcore.sinks.postgres.ledger import PostgresLedger, PostgresLedgerEntry
from streamcore.sinks.postgres.row_checks import CheckedRows
from streamcore.sinks.postgres.settings import PostgresSettings
from streamcore.sinks.postgres.staging import Staging
from streamcore.sinks.sink import Guarantee, SinkHooks, WriteOutcome, WriteResult, check_same_cut, sink_dependency

T = TypeVar("T")


class PostgresStep(enum.StrEnum):
    """The steps of the protocol, as reported to ``SinkHooks.on_step``."""

    FENCED = "fenced"
    LOCKED = "locked"
    STAGED = "staged"
    APPLIED = "applied"
    RECORDED = "recorded"
    COMMITTED = "committed"


class PostgresSink:
    """Writes some lanes to tables of one database. ``columns``: the schema of each lane's rows."""

    def __init__(
        self, name: str, settings: PostgresSettings, columns: Mapping[str, pa.Schema], hooks: SinkHooks | None = None
    ) -> None:
        self._name = name
        self._settings = settings
        self._tables = lane_tables(settings, columns)
        self._hooks = hooks or SinkHooks()
        self._server = sink_dependency(f"PostgreSQL {settings.host}:{settings.port}/{settings.database}")
        self._connection: Connection | None = None
        self._ledger: PostgresLedger | None = None
        self._staging: Mapping[str, Staging] = {}
        self._last: CutId | None = None

    @property
    def name(self) -> str:
        """The sink's name, unique in the app; part of the ledger's key."""
        return self._name

    @property
    def lanes(self) -> frozenset[str]:
        """The lanes that have a table."""
        return frozenset(self._tables)

    @property
    def guarantee(self) -> Guarantee:
        """Exactly once: one transaction writes the rows and the ledger."""
        return Guarantee.EXACTLY_ONCE

    def open(self, owner: WriterId) -> CutId | None:
        """Connect, check every table and fence earlier epochs. Return the last cut of this epoch, or None.

        Raises the errors of ``Sink.open``, and ``Retryable``.
        """
        self.close()
        self._ledger = PostgresLedger(self._settings.ledger, owner, self._name)
        entry = self._retry(self._open_ledger, "at start")
        self._last = entry.cut
        return entry.cut

    def write(self, cut: CutId, rows: Mapping[str, pa.Table]) -> WriteResult:
        """Run steps 1 to 5, and repeat them while the outcome is unknown.

        Raises the errors of ``Sink.write``, and ``Permanent`` if the server rejects more than ``max_rejected`` rows or
        has lost commits.
        """
        if self._ledger is None:
            raise ConfigError(f"postgres sink {self._name} is not open; call open() before write()")
        filled = {lane: rows[lane] for lane in self._tables if lane in rows and rows[lane].num_rows}
        if not filled:
            return WriteResult(WriteOutcome.EMPTY)
        attempt = _Attempt(cut, [CheckedRows(lane, self._tables[lane].spec, table) for lane, table in filled.items()])
        written = self._retry(lambda: self._write(attempt), str(cut))
        self._last = cut
        return written

    def close(self) -> None:
        """Close the connection, if any."""
        connection, self._connection = self._connection, None
        if connection is not None:
            close_quietly(connection)

    def _retry(self, action: Callable[[], T], action_name: str) -> T:
        """Run ``action`` until it succeeds, on a new connection after each ``Retryable``.

        Raises ``Retryable`` after ``recovery_ms``, counted from the first failure.
        """
        patience = self._settings.patience
        attempts, pause_ms, deadline = 1, patience.pause_ms, 0.0
        while True:
            try:
                return self._run_action(action, action_name)
            except Retryable as error:
                self.close()
                deadline = deadline or time.monotonic() + patience.recovery_ms / 1000
                if time.monotonic() + pause_ms / 1000 > deadline:
                    raise Retryable(f"{error}; {attempts} attempts within {patience.recovery_ms} ms") from error
            except BaseException:
                self.close()
                raise
            time.sleep(pause_ms / 1000)
            pause_ms = min(2 * pause_ms, patience.pause_max_ms)
            attempts += 1
            self._hooks.still_owner()

    def _run_action(self, action: Callable[[], T], action_name: str) -> T:
        """Run ``action``; turn psycopg's errors into errors of ``streamcore.errors``, and report outages."""
        with self._hooks.outages.attempt(self._server, action_name):
            try:
                return action()
            except psycopg.Error as error:
                # `from None`: the settings of a connection must not appear in a traceback.
                raise translate_error(error, f"{self._settings}, {action_name}") from None

    def _open_ledger(self) -> PostgresLedgerEntry:
        connection, ledger = self._ensure_connection(), self._own_ledger
        ledger.create(connection)
        # 0. Take over the ledger row; raises Fenced if a later epoch owns it.
        entry = ledger.fence(connection)
        connection.commit()
        self._hooks.on_step(PostgresStep.FENCED)
        return entry

    def _ensure_connection(self) -> Connection:
        """Return the open connection. If there is none, connect, check all tables and create the staging tables."""
        if self._connection is None:
            self._connection = connect(self._settings, f"headgate {self._own_ledger.owner.app} {self._name}")
            self._connection.on_response = partial(self._hooks.outages.answered, self._server)
            check_database(self._connection)
            columns = {lane: check_table(self._connection, table) for lane, table in self._tables.items()}
            self._staging = {
                lane: Staging.of(number, table, columns[lane])
                for number, (lane, table) in enumerate(self._tables.items())
            }
            for staging in self._staging.values():
                self._connection.execute(staging.create)
            self._connection.commit()
        return self._connection

    def _write(self, attempt: _Attempt) -> WriteResult:
        connection, ledger = self._ensure_connection(), self._own_ledger
        # 1. The row lock keeps every other process out until this transaction ends.
        entry = self.lock_ledger(connection, ledger)
        self._hooks.on_step(PostgresStep.LOCKED)
        if entry.cut is not None:
            check_same_cut(attempt.cut, entry.cut, f"postgres sink {self._name}")
        if entry.cut == attempt.cut:
            connection.rollback()
            return attempt.recorded_result(entry)
        connection.execute("SET CONSTRAINTS ALL IMMEDIATE")  # constraints fail at each statement, not at the commit
        applier = RowApplier(connection, self._staging, attempt.lanes, self._settings.max_rejected)
        # 2. The rows are in temporary tables of this session.
        staged = applier.stage()
        self._hooks.on_step(PostgresStep.STAGED)
        # 3. The rows are in the lanes' tables, visible to this transaction only.
        applied = applier.run(staged)
        self._hooks.on_step(PostgresStep.APPLIED)
        # 4. The ledger records the cut in the transaction that writes it.
        ledger.record_cut(connection, attempt.cut, applied.rows, applied.rejected)
        self._hooks.on_step(PostgresStep.RECORDED)
        # 5. Every session sees the rows.
        attempt.commit_sent = True
        connection.commit()
        self._hooks.on_step(PostgresStep.COMMITTED)
        return WriteResult(WriteOutcome.COMMITTED, applied.rows, applied.rejected)

    def lock_ledger(self, connection: Connection, ledger: PostgresLedger) -> PostgresLedgerEntry:
        """Lock the ledger row until the transaction ends, and return it (step 1).

        Raises ``Fenced`` if a later epoch owns it, and ``Permanent`` if the server has lost commits.
        """
        entry = ledger.lock_entry(connection)
        went_back = self._last is not None and (entry.cut is None or entry.cut.batch < self._last.batch)
        if entry.epoch < ledger.owner.epoch or went_back:
            raise Permanent(
                f"postgres ledger {self._settings.ledger}: it shows epoch {entry.epoch}, {entry.cut or 'no batch'}, "
                f"after epoch {ledger.owner.epoch}, {self._last or 'no batch'} was committed: the server lost commits "
                "it confirmed (an older replica took over, or a backup was restored); restore the app from a "
                "savepoint that is not later"
            )
        return entry

    @property
    def _own_ledger(self) -> PostgresLedger:
        assert self._ledger is not None
        return self._ledger


class _Attempt:
    """A cut that is being written. ``commit_sent``: the commit was sent to the server at least once."""

    def __init__(self, cut: CutId, lanes: list[CheckedRows]) -> None:
        self.cut = cut
        self.commit_sent = False
        self.lanes = lanes

    def recorded_result(self, entry: PostgresLedgerEntry) -> WriteResult:
        """Return the result of the cut, which the ledger shows as written."""
        outcome = WriteOutcome.COMMITTED if self.commit_sent else WriteOutcome.SKIPPED
        return WriteResult(outcome, entry.rows, entry.rejected)
