"""A stream with ``deduplicate`` in a topology: each step sees an event once, and in the order of its partition."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from typing import Any

import polars as pl
import pytest

import streamcore as sc
from streamcore.engine.deduplication.stage import add_deduplication
from streamcore.errors import ConfigError
from streamcore.schema import StreamSchema
from streamcore.topology.dead_letters import LateEventLetters
from streamcore.topology.simulation import Simulation, SimulationResult
from tests.harness.oracles.duplicates import EventsOnce

HORIZON_MS = 5_000
#: id, time, user, price, partition.
Row = tuple[int | None, int, str, int, int]
DISORDER_MS = 1_000


def stream(name: str, deduplicate: str | None) -> StreamSchema:
    return StreamSchema.parse(
        {
            "name": name,
            "event_time": "ts",
            "event_id": "id",
            "keys": [["user"]],
            "fields": {"id": "long", "ts": "timestamp not null", "user": "string", "price": "decimal(8,2)"},
        }
        | ({} if deduplicate is None else {"deduplicate": deduplicate})
    )


class Trail(sc.ProcessFunction):
    """Emits for each event of a user the ids of the last three: it depends on their order."""

    outputs = {"main": {"user": pl.String, "trail": pl.String}}
    last = sc.ValueState(str, default="")

    def process(self, event: Any, context: sc.ProcessContext) -> Iterable[object]:
        self.last = ",".join([*self.last.split(","), str(event.id)][-3:])
        yield {"user": context.key, "trail": self.last}


def shop(deduplicate: str | None, *, raw: bool = False) -> sc.Topology:
    """Two streams, of which one is deduplicated, with steps before the first key, after it and without one."""
    watermark = sc.bounded_out_of_orderness(DISORDER_MS)
    orders = sc.source(stream("orders", deduplicate), watermark, raw=raw)
    others = sc.source(stream("others", None), watermark, raw=raw)
    both = orders.filter(pl.col("price") > 0).union(others).map(double=pl.col("price") * 2)
    names = ("id", "user", "double")
    by_user = both.select(*names).key_by("user")
    sums = by_user.window(sc.Tumbling(2_000)).aggregate("sums", total=sc.Sum("double"), events=sc.Count())
    sinks = [both.select(*names).sink("all"), by_user.process(Trail(), name="trail").sink("trail"), sums.sink("sums")]
    return sc.Topology("shop", *sinks)


def event_rows(rows: Sequence[Row]) -> pl.DataFrame:
    names = ["id", "ts", "user", "price", "partition"]
    frame = pl.DataFrame(rows, schema=names, orient="row")
    return frame.with_columns(
        pl.col("id").cast(pl.Int64),
        pl.col("ts").cast(pl.Datetime("ms", "UTC")),
        pl.col("price").cast(pl.Decimal(8, 2)),
        pl.col("partition").cast(pl.Int32),
    )


def deliveries(seed: int) -> list[list[Row]]:
    """Return the events of several cuts, many of them repeated, some without an id, some too late."""
    chance, cuts = random.Random(seed), []
    sent: list[Row] = []
    for cut in range(12):
        rows: list[Row] = []
        for n in range(30):
            if sent and chance.random() < 0.3:
                number, ts, user, price, _ = chance.choice(sent)
                rows.append((number, ts, user, price + (chance.random() < 0.2), chance.randrange(2)))
            else:
                ts = cut * 1_000 + n * 30 - chance.randrange(DISORDER_MS)
                user = f"u{chance.randrange(6)}"
                row: Row = (None if chance.random() < 0.1 else cut * 30 + n, ts, user, chance.randrange(5), 0)
                rows.append(row)
                if row[0] is not None:
                    sent.append(row)
        cuts.append(sorted(rows, key=lambda row: row[-1]))
    return cuts


def run(topology: sc.Topology, cuts: Sequence[pl.DataFrame], shards: int, *, restart: bool = False) -> SimulationResult:
    simulation, result = Simulation(topology, shards=shards), SimulationResult()
    for number, rows in enumerate(cuts):
        if restart:
            before = simulation
            simulation = Simulation(topology, shards=shards, blobs=before.blobs)
            simulation.offsets, simulation.seen = before.offsets, before.seen
        other = event_rows([(n, number * 1_000, "u1", 7, 0) for n in range(3)])
        result.add(simulation.cut({"orders": rows, "others": other}))
    result.add(simulation.end())
    return result


def once(cuts: Sequence[Sequence[Row]]) -> tuple[list[pl.DataFrame], EventsOnce]:
    """Return the cuts without the events that are not used."""
    used, kept, watermark = EventsOnce(HORIZON_MS), [], -(2**62)
    latest: dict[int, int] = {}
    for number, cut in enumerate(cuts):
        rows = [row for row in cut if used.use({"price": row[3]}, row[0], row[1], watermark)]
        kept.append(event_rows(rows))
        for _, ts, _, _, partition in cut:
            latest[partition] = max(latest.get(partition, -(2**62)), ts)
        watermark = max(watermark, min([*latest.values(), number * 1_000]) - DISORDER_MS)
    return kept, used


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "shards"), [(1, 1), (2, 3)])
def test_each_step_sees_each_event_once_in_the_order_of_its_partition(seed: int, shards: int) -> None:
    cuts = deliveries(seed)
    kept, used = once(cuts)
    assert min(used.same, used.other, used.late) > 3
    found = run(shop("5s"), [event_rows(cut) for cut in cuts], shards)
    wanted = run(shop(None), kept, shards)
    for lane in ("all", "trail", "sums"):
        assert lines(found, lane) == lines(wanted, lane), lane
    assert not wanted.dead
    assert lines(wanted, "trail")
    assert len(found.dead) == used.late
    headers = dict(found.dead[0].headers)
    assert headers["reason_code"] == b"late"
    assert b"deduplicate of stream orders" in headers["reason"]
    assert found.counters["deduplication.orders.duplicates"] == used.same + used.other
    assert found.counters["deduplication.orders.other_content"] == used.other


@pytest.mark.slow
def test_without_the_line_the_copies_count() -> None:
    cuts = [event_rows(cut) for cut in deliveries(1)]
    assert len(lines(run(shop(None), cuts, 2), "all")) > len(lines(run(shop("5s"), cuts, 2), "all"))


@pytest.mark.slow
def test_a_restart_before_each_cut_changes_nothing() -> None:
    cuts = [event_rows(cut) for cut in deliveries(3)]
    one, other = (run(shop("5s"), cuts, 2, restart=restart) for restart in (False, True))
    for lane in ("all", "trail", "sums"):
        assert lines(one, lane) == lines(other, lane)


def test_the_dead_letter_of_a_late_event_has_its_record_and_position() -> None:
    simulation = Simulation(shop("5s", raw=True))
    simulation.cut({"orders": event_rows([(1, 60_000, "u1", 1, 0)]), "others": event_rows([(1, 60_000, "u1", 1, 0)])})
    old = event_rows([(2, 0, "u1", 1, 0)]).with_columns(pl.lit(b"key").alias("@key"), pl.lit(b"value").alias("@value"))
    (letter,) = simulation.cut({"orders": old}).dead
    assert (letter.key, letter.value) == (b"key", b"value")
    assert dict(letter.headers)["source_offset"] == b"1"


def test_an_app_without_such_a_stream_has_no_further_stage_and_no_other_value() -> None:
    plain, once_app = shop(None).app(), shop("5s").app()
    assert len(once_app.stages) == len(plain.stages) + 1
    assert add_deduplication(plain, LateEventLetters(plain.schemas, plain.topics)) is plain


def test_the_text_of_a_topology_shows_the_horizon() -> None:
    assert "deduplicated within 5 s" in shop("5s").text()
    assert "deduplicated" not in shop(None).text()


def test_times_cannot_be_assigned_to_events_of_such_a_stream() -> None:
    orders = sc.source(stream("orders", "5s"), sc.bounded_out_of_orderness(0))
    assigned = orders.assign_timestamps("ts", sc.bounded_out_of_orderness(0))
    with pytest.raises(ConfigError, match="stream orders: deduplicate: a step assigns times"):
        sc.Topology("shop", assigned.sink("out")).app()


def lines(result: SimulationResult, lane: str) -> list[str]:
    return sorted(result[lane].write_ndjson().splitlines())
