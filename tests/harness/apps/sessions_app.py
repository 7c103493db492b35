"""The sessions app in-process: settings for tests, events of the demo shop as rows, and runs cut by cut."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import polars as pl

from headgate.demo.shop.session_columns import shop_entries, shop_metrics
from headgate.demo.shop.settings import RecordFate, ShopSettings
from headgate.demo.shop.stream import records
from headgate_sessions.app import build_topology
from headgate_sessions.settings import SessionsSettings
from streamcore.topology.simulation import Simulation, SimulationResult
from streamcore.topology.topology import Topology

ROOT = Path(__file__).parents[3]
START_MS = 1_760_000_000_000
GAP_MS, CHECKOUT_GAP_MS = 20_000, 60_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def new_settings(stream: str = "shop", /, **changes: object) -> SessionsSettings:
    """Return settings for a stream of ``streams/``; gaps are short, because an hour of the shop has 100 seconds."""
    given: dict[str, object] = {
        "kafka": {"bootstrap": "localhost:1"},
        "checkpoint": "/nowhere",
        "jars": "/nowhere",
        "stream": {"schema_file": str(ROOT / "streams" / f"{stream}.yaml"), "topic": stream},
        "fields": {"user": "user_id", "event_id": "event_id"},
        "gap": {"gap_ms": GAP_MS, "expression": f"if(type = 'checkout', {CHECKOUT_GAP_MS}, {GAP_MS})"},
        **shop_entries(),
        "lateness_ms": 30_000,
        "early_ms": 0,
        "dashboard_metrics": None,
    }
    return SessionsSettings.model_validate(given | changes)


def table_settings() -> dict[str, object]:
    """Return settings of tables for all lanes; no test connects to this database."""
    tables = {
        "sessions_table": {"table": "sessions.session", "key": ["session_id"], "version": "revision"},
        "activity_table": {"table": "sessions.activity", "key": ["minute"], "version": "revision"},
        "revenue_table": {"table": "sessions.revenue", "key": ["minute", "currency"], "version": "revision"},
        "active_table": {"table": "sessions.active", "key": ["until"]},
        "top_table": {"table": "sessions.top", "key": ["until", "rank"]},
    }
    postgres = {"host": "localhost", "database": "shop", "user": "sessions", "tables": tables}
    return {"dashboard_metrics": {**shop_metrics()}, "postgres": postgres}


def retail_settings(**changes: object) -> SessionsSettings:
    """Return settings for invoice lines: no types, no ids, one currency."""
    given: dict[str, object] = {
        "fields": {"user": "customer_id"},
        "derive": {},
        "columns": {"pages": "count(distinct stock_code)", "revenue": "coalesce(sum(quantity * unit_price), 0)"},
        "funnel": [],
        "gap": {"gap_ms": 1_800_000},
        "max_out_of_orderness_ms": 7_200_000,
        "max_future_ms": 10**15,
    }
    return new_settings("retail", **(given | changes))


def shop_events(count: int, *, users: int = 300, seed: int = 5) -> pl.DataFrame:
    """Return the events of the generator in order of arrival: some out of order, repeated, or hours late."""
    shop = ShopSettings(seed, START_MS, block_ms=200_000, users=users)
    rows = [_row(record.value) for record in records(shop, 0, count) if record.fate is not RecordFate.DEAD]
    kinds = {"ts": pl.Datetime("ms", "UTC"), "quantity": pl.Int64(), "amount": pl.Decimal(12, 2)}
    names = ["event_id", "ts", "type", "user_id", "session_id", "product_id", "quantity", "amount", "currency"]
    names += ["card", "country", "ip", "status"]
    return pl.DataFrame(rows, schema={name: kinds.get(name, pl.String()) for name in names})


def _row(value: bytes | None) -> dict[str, object]:
    row: dict[str, object] = json.loads(value or b"", parse_float=Decimal)
    ms = row["ts"]
    assert isinstance(ms, int)
    return row | {"ts": _EPOCH + timedelta(milliseconds=ms)}


def split_rows(rows: pl.DataFrame, ends: Sequence[int]) -> Iterator[pl.DataFrame]:
    """Yield the rows, split after each of these numbers of rows."""
    first = 0
    for end in sorted({*(min(end, rows.height) for end in ends), rows.height}):
        yield rows[first:end]
        first = end


def run_cuts(
    settings: SessionsSettings,
    rows: pl.DataFrame,
    ends: Sequence[int],
    *,
    shards: int = 1,
    step_ms: int = 1_000,
    restart_after: int | None = None,
) -> SimulationResult:
    """Return the results of all cuts together."""
    whole = SimulationResult()
    for result in run_each_cut(settings, rows, ends, shards=shards, step_ms=step_ms, restart_after=restart_after):
        whole.add(result)
    return whole


def run_each_cut(
    settings: SessionsSettings,
    rows: pl.DataFrame,
    ends: Sequence[int],
    *,
    shards: int = 1,
    step_ms: int = 1_000,
    restart_after: int | None = None,
) -> Iterator[SimulationResult]:
    """Yield the result of each cut, with the clock ``step_ms`` further each time, and of the end of the stream.

    ``restart_after``: the cut after which a new process continues from the stored state.
    """
    topology = build_topology(settings)
    simulation, (source,) = Simulation(topology, shards=shards), topology.sources
    number = 0
    for number, part in enumerate(split_rows(rows, ends)):
        yield simulation.cut({source.name: part}, clock_ms=number * step_ms)
        if number == restart_after:
            simulation = _restart(build_topology(settings), simulation, shards)
    yield simulation.end(clock_ms=(number + 1) * step_ms)


def _restart(topology: Topology, before: Simulation, shards: int) -> Simulation:
    after = Simulation(topology, shards=shards, blobs=before.blobs)
    after.offsets, after.seen = before.offsets, before.seen
    return after


def late_events(result: SimulationResult, events: pl.DataFrame) -> pl.DataFrame:
    """Return the events whose records are in the late lane. The offset of an event is its number."""
    return events[[int(dict(record.headers)["source_offset"]) for record in result.late]]


def select_final(records: pl.DataFrame) -> pl.DataFrame:
    """Return the greatest revision of each session, without deleted ones, as the table holds them."""
    latest = records.sort("revision").group_by("session_id", maintain_order=True).last()
    return latest.filter(~pl.col("is_deleted"))
