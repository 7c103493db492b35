"""A process that dies at any step of the protocol, or a server that does, writes every row exactly once."""

from __future__ import annotations

import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from conftest import open_database
from streamcore.sinks.postgres.sink import PostgresSink, PostgresStep
from streamcore.sinks.sink import RetryPolicy, SinkHooks, WriteOutcome
from tests.harness.cut_ids import cut_id
from tests.harness.faults import killable, postgres_child
from tests.harness.faults.postgres_child import CREATE, CUTS, ROWS, SCHEMA, TABLES, ForgetfulSink, rows_of

if TYPE_CHECKING:
    from tests.sinks.postgres.conftest import NewSinkDatabase

    from conftest import NewPostgres
    from headgate.local.servers.postgres import EmbeddedPostgres
    from tests.harness.servers.postgres_table import SinkDatabase

pytestmark = pytest.mark.postgres
COLUMNS = {"log": SCHEMA, "latest": SCHEMA}
EVERYTHING = Counter((cut, n, f"{cut}:{n}") for cut in range(CUTS) for n in range(ROWS))
LATEST = [(CUTS - 1, n, f"{CUTS - 1}:{n}") for n in range(ROWS) if n != 7]
REJECTED = "[('latest', 7, '23514')]"

Run = Callable[..., int | None]


@pytest.fixture
def done(tmp_path: Path) -> Path:
    log = tmp_path / "done"
    log.touch()
    return log


@pytest.fixture
def run(sink_database: SinkDatabase, done: Path) -> Run:
    """Run the app to its end or its kill, and return its exit code."""
    sink_database.run(*CREATE)

    def run(step: str = "none", kind: type[PostgresSink] = PostgresSink) -> int | None:
        settings = sink_database.database.settings(TABLES, patience=RetryPolicy(30_000, 20, 200))
        return killable.run(postgres_child.main, settings, done, step, kind)

    return run


def count_appended(sink_database: SinkDatabase) -> Counter[tuple[int, int, str]]:
    return Counter(sink_database.rows("SELECT * FROM log"))


def check_written_once(sink_database: SinkDatabase) -> None:
    assert count_appended(sink_database) == EVERYTHING
    assert sink_database.rows("SELECT * FROM latest ORDER BY n") == LATEST


@pytest.mark.parametrize("step", list(PostgresStep))
def test_a_kill_at_any_step_neither_loses_nor_repeats_a_row(
    step: PostgresStep, run: Run, sink_database: SinkDatabase, done: Path
) -> None:
    assert run(step) == -signal.SIGKILL
    assert run() == 0
    check_written_once(sink_database)
    results = [line.split(maxsplit=2) for line in done.read_text().splitlines()]
    assert [result for _, result, _ in results] == [
        "skipped" if cut == 2 and step is PostgresStep.COMMITTED else "committed" for cut in range(CUTS)
    ]
    assert {rest for _, _, rest in results} == {f"{2 * ROWS - 1} {REJECTED}"}


def test_without_the_ledger_the_kill_after_the_commit_repeats_the_cut(run: Run, sink_database: SinkDatabase) -> None:
    assert run(PostgresStep.COMMITTED, ForgetfulSink) == -signal.SIGKILL
    assert run("none", ForgetfulSink) == 0
    twice = {row for row, count in count_appended(sink_database).items() if count > 1}
    assert twice == {(2, n, f"2:{n}") for n in range(ROWS)}


def write_all(sink_database: SinkDatabase, at_step: Callable[[int, str], None]) -> list[WriteOutcome]:
    """Write all cuts in this process; ``at_step`` receives the cut and the step."""
    cut = 0
    sink = sink_database.sink(TABLES, COLUMNS, hooks=SinkHooks(on_step=lambda step: at_step(cut, step)))
    results = []
    for cut in range(CUTS):
        results.append(sink.write(cut_id(cut), {"log": rows_of(cut), "latest": rows_of(cut)}).outcome)
    return results


@pytest.fixture
def own_server(new_postgres: NewPostgres) -> EmbeddedPostgres:
    server = new_postgres()
    server.start()
    return server


@pytest.fixture
def own_database(own_server: EmbeddedPostgres, new_sink_database: NewSinkDatabase) -> SinkDatabase:
    """Return a database on a server that the test may kill."""
    sink_database = new_sink_database(open_database(own_server))
    sink_database.run(*CREATE)
    return sink_database


@pytest.mark.parametrize("step", [PostgresStep.LOCKED, PostgresStep.APPLIED, PostgresStep.COMMITTED])
def test_a_server_killed_in_the_middle_of_a_cut_holds_every_row_once_after_its_restart(
    own_server: EmbeddedPostgres, own_database: SinkDatabase, step: PostgresStep
) -> None:
    kills: list[int] = []
    restart = threading.Timer(0.5, own_server.start)

    def at_step(cut: int, reached: str) -> None:
        if (cut, reached) == (2, step) and not kills:
            own_server.kill()
            kills.append(cut)
            restart.start()

    assert write_all(own_database, at_step) == [WriteOutcome.COMMITTED] * CUTS
    assert kills == [2]
    restart.join()
    check_written_once(own_database)


def test_the_sink_waits_for_a_server_that_is_down_for_five_seconds(
    own_server: EmbeddedPostgres, own_database: SinkDatabase
) -> None:
    checks: list[float] = []
    sink = own_database.sink(TABLES, COLUMNS, hooks=SinkHooks(still_owner=lambda: checks.append(time.monotonic())))
    own_server.stop()
    started = time.monotonic()
    restart = threading.Timer(5, own_server.start)
    restart.start()
    for cut in range(CUTS):
        assert sink.write(cut_id(cut), {"log": rows_of(cut), "latest": rows_of(cut)}).outcome is WriteOutcome.COMMITTED
    restart.join()
    assert time.monotonic() - started > 5
    assert len(checks) > 5
    check_written_once(own_database)
