"""Writes each cut to PostgreSQL exactly once, whatever dies in between.

One transaction holds every row of a cut and the ledger row that records it. The protocol:

0. ``open``: lock the ledger row of (app, sink). A later epoch there fences us (``Fenced``); an earlier one is replaced
   by ours, and its batch forgotten, for batches of an epoch begin at 0 again.
1. Begin, and lock the ledger row: one process at a time goes on from here. A later epoch: ``Fenced``. A batch that is
   not below this one: it is written; give its answer and stop here.
2. Copy the rows that are to stand at the cut's end into staging tables.
3. Move them on to their tables, leaving out rows that the server refuses for their values (``applying``).
4. Write the batch and the refused rows into the ledger row.
5. Commit.

The state that a crash just after each step leaves (``Step``; the tests crash there):

- ``FENCED`` (0): a ledger row of our epoch and no rows. The next process does the same again.
- ``LOCKED``, ``STAGED``, ``APPLIED``, ``NOTED`` (1 to 4): an open transaction that the server rolls back when it sees
  that we are gone, which it does at once if our system closes the socket, and after ``Timeouts.silence_ms`` if it
  cannot. Until then the row's lock makes the next process wait, which it does within its patience.
- ``COMMITTED`` (5): the cut and its ledger row, while the app does not know yet. It brings the cut again, and step 1
  answers as step 3 did then.

**Unknown outcome.** When the connection goes, a commit may or may not have happened. Nothing is guessed: after a new
connection step 1 reads the true state. Any failure of which a later attempt may be free (``failures``) is treated so,
within ``RetryPolicy``, and ``still_owner`` is asked before each attempt.

**A server that went back.** A server that lost commits it had confirmed (a replica took over that was behind, a backup
was restored) shows a ledger below the batch that is known to be written: ``Permanent``, for the cuts between are gone.

**Readers** in other sessions see all of a cut or nothing of it, in any isolation level. ``synchronous_commit`` is on.
"""

from __future__ import annotations

import enum
import time
from collections.abc import Callable, Mapping
from typing import TypeVar

import psycopg
import pyarrow as pa

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
from streamcore.sinks.sink import Guarantee, SinkHooks, WriteOutcome, WriteResult
from streamcore.writer_id import WriterId

T = TypeVar("T")


class PostgresStep(enum.StrEnum):
    """The protocol's steps, as reported to ``SinkHooks.reached``."""

    FENCED = "fenced"
    LOCKED = "locked"
    STAGED = "staged"
    APPLIED = "applied"
    NOTED = "noted"
    COMMITTED = "committed"


class PostgresSink:
    """The tables of some lanes. ``columns``: the rows that each lane will hold."""

    def __init__(
        self, name: str, settings: PostgresSettings, columns: Mapping[str, pa.Schema], hooks: SinkHooks | None = None
    ) -> None:
        self._name = name
        self._settings = settings
        self._tables = lane_tables(settings, columns)
        self._hooks = hooks or SinkHooks()
        self._connection: Connection | None = None
        self._ledger: PostgresLedger | None = None
        self._staging: Mapping[str, Staging] = {}
        self._last: int | None = None

    @property
    def name(self) -> str:
        """Unique in the app; part of the ledger's key."""
        return self._name

    @property
    def lanes(self) -> frozenset[str]:
        """Those that have a table."""
        return frozenset(self._tables)

    @property
    def guarantee(self) -> Guarantee:
        """Always the same: the ledger is in the tables' own database."""
        return Guarantee.EXACTLY_ONCE

    def open(self, owner: WriterId) -> int | None:
        """Connect, check every table, and fence earlier epochs; the last batch. Also raises ``Retryable``."""
        self.close()
        self._ledger = PostgresLedger(self._settings.ledger, owner, self._name)
        entry = self._retry(self._open_ledger, "at start")
        self._last = entry.batch
        return entry.batch

    def write(self, batch: int, rows: Mapping[str, pa.Table]) -> WriteResult:
        """Run steps 1 to 5, and repeat them while the outcome is unknown. Also raise ``Permanent``: too many rows
        refused."""
        if self._ledger is None:
            raise ConfigError(f"postgres sink {self._name} is not open; call open() before write()")
        filled = {lane: rows[lane] for lane in self._tables if lane in rows and rows[lane].num_rows}
        if not filled:
            return WriteResult(WriteOutcome.EMPTY)
        attempt = _Attempt(batch, [CheckedRows(lane, self._tables[lane].spec, table) for lane, table in filled.items()])
        written = self._retry(lambda: self._write(attempt), f"batch {batch}")
        self._last = max(batch, self._last or batch)
        return written

    def close(self) -> None:
        """Close the connection, if any."""
        connection, self._connection = self._connection, None
        if connection is not None:
            close_quietly(connection)

    def _retry(self, action: Callable[[], T], what: str) -> T:
        """Run until it goes through, on a new connection after each ``Retryable``."""
        patience = self._settings.patience
        attempts, pause_ms, deadline = 1, patience.pause_ms, 0.0
        while True:
            try:
                return self._translating(action, what)
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

    def _translating(self, action: Callable[[], T], what: str) -> T:
        try:
            return action()
        except psycopg.Error as error:
            # Only the words of the error are kept: the settings of a connection stay out of every traceback.
            raise translate_error(error, f"{self._settings}, {what}") from None

    def _open_ledger(self) -> PostgresLedgerEntry:
        connection, ledger = self._ensure_connection(), self._own_ledger
        ledger.create(connection)
        # 0. Take the row, or learn that a later epoch has it.
        entry = ledger.fence(connection)
        connection.commit()
        self._hooks.on_step(PostgresStep.FENCED)
        return entry

    def _ensure_connection(self) -> Connection:
        """Return the connection there is, or a new one with its staging tables, all tables checked."""
        if self._connection is None:
            self._connection = connect(self._settings, f"headgate {self._own_ledger.owner.app} {self._name}")
            check_database(self._connection)
            found = {lane: check_table(self._connection, table) for lane, table in self._tables.items()}
            self._staging = {
                lane: Staging.of(number, table, found[lane])
                for number, (lane, table) in enumerate(self._tables.items())
            }
            for staging in self._staging.values():
                self._connection.execute(staging.create)
            self._connection.commit()
        return self._connection

    def _write(self, attempt: _Attempt) -> WriteResult:
        connection, ledger = self._ensure_connection(), self._own_ledger
        # 1. From here on, we are the only one.
        entry = self.locked_entry(connection, ledger)
        self._hooks.on_step(PostgresStep.LOCKED)
        if entry.batch is not None and attempt.batch <= entry.batch:
            connection.rollback()
            return attempt.answer(entry)
        connection.execute("SET CONSTRAINTS ALL IMMEDIATE")  # refusals are known row by row, not at the commit
        applying = RowApplier(connection, self._staging, attempt.cuts, self._settings.max_refused)
        # 2. On the server, out of everybody's sight.
        staged = applying.stage()
        self._hooks.on_step(PostgresStep.STAGED)
        # 3. In the tables, in our sight only.
        applied = applying.run(staged)
        self._hooks.on_step(PostgresStep.APPLIED)
        # 4. That the cut is written becomes true together with the cut.
        ledger.record_batch(connection, attempt.batch, applied.rows, applied.rejected)
        self._hooks.on_step(PostgresStep.NOTED)
        # 5. In everybody's sight.
        attempt.commit_asked = True
        connection.commit()
        self._hooks.on_step(PostgresStep.COMMITTED)
        return WriteResult(WriteOutcome.COMMITTED, applied.rows, applied.rejected)

    def locked_entry(self, connection: Connection, ledger: PostgresLedger) -> PostgresLedgerEntry:
        """Step 1's question. Its answer holds until the transaction ends."""
        entry = ledger.lock_entry(connection)
        went_back = self._last is not None and (entry.batch is None or entry.batch < self._last)
        if entry.epoch < ledger.owner.epoch or went_back:
            raise Permanent(
                f"postgres ledger {self._settings.ledger}: it says epoch {entry.epoch}, batch {entry.batch}, after "
                f"epoch {ledger.owner.epoch}, batch {self._last} was committed: the server lost what it had confirmed "
                "(an older replica took over, or a backup was restored); restore the app from a savepoint that is not "
                "later"
            )
        return entry

    @property
    def _own_ledger(self) -> PostgresLedger:
        assert self._ledger is not None
        return self._ledger


class _Attempt:
    """A cut that is being written. ``commit_asked``: the server was asked to commit it, with or without an answer."""

    def __init__(self, batch: int, cuts: list[CheckedRows]) -> None:
        self.batch = batch
        self.commit_asked = False
        self.cuts = cuts

    def answer(self, entry: PostgresLedgerEntry) -> WriteResult:
        """Return that of a cut that the ledger has."""
        result = WriteOutcome.COMMITTED if self.commit_asked else WriteOutcome.SKIPPED
        return WriteResult(result, entry.rows, entry.rejected) if entry.batch == self.batch else WriteResult(result)
